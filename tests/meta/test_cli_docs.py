"""docs/cli.md: it is what the commands say today, and every line to paste works."""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sharedmem.faces.cli import run

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import generate_cli_docs  # noqa: E402  the tools are no package

# What needs something first, takes long, or never ends: each has tests of its own.
WAITS = {"subscribe", "watch", "demo", "serve", "task work", "console"}
# Their lines name files and servers; tests of their commands and docs/archives.md run them.
WITH_FILES = {
    *("export", "exports", "import", "copy", "backfill"),
    *("calibrate", "cache calibrate", "memories calibrate", "notes add"),
}
# Their lines name a task, plan, token or note that another run has answered; the tests of their commands run them.
ABOUT_EARLIER = {
    *("plans resolve", "queue ack", "queue retry", "queue fail", "queue result", "token revoke"),
    *("evolution", "notes get", "notes restore", "notes unarchive", "notes delete", "task get", "task retry"),
}
BEFORE = {
    "cache check": "cache put 'what is the capital of France?' Paris",
    "conversation fork": "conversation delete ticket-7-retry",
    "conversation": "conversation append ticket-7 hello",
    "get": "set plan 1",
    "graph entity": "graph add 'Ada lives in Oslo.' --group acme:ada --at 2024-03-01",
    "graph merge": "graph add 'Lovelace works for Acme.' --group acme:ada",
    "graph undo": "graph add 'Ada works for Acme.' --group acme:ada --id first-call",
    "hash get": "hash set agent:planner role lead",
    "members pop": "members add topics tides",
}


@pytest.fixture(scope="module")
def data_dir() -> Iterator[Path]:
    base = Path(tempfile.mkdtemp(dir="/tmp", prefix="sm"))
    yield base / "d"
    shutil.rmtree(base)


def test_the_page_is_fresh() -> None:
    assert (ROOT / "docs" / "cli.md").read_text(encoding="utf-8") == generate_cli_docs.render(), "run make generate"


def test_every_line_to_paste_works(data_dir: Path, capfd: pytest.CaptureFixture[str]) -> None:
    examples = [shlex.split(line) for line in generate_cli_docs.examples()]
    place = ["--data-dir", str(data_dir)]
    assert run([*place, "up"]) == 0
    tried = 0
    try:
        for program, *words in examples:
            assert program == "sharedmem"
            if {words[0], " ".join(words[:2])} & (WAITS | WITH_FILES | ABOUT_EARLIER | {"down"}):
                continue
            before = BEFORE.get(" ".join(words[:2]), BEFORE.get(words[0]))
            assert before is None or run([*place, *shlex.split(before)]) == 0
            assert run([*place, *words]) == 0, (words, capfd.readouterr().err)
            tried += 1
    finally:
        assert run([*place, "down"]) == 0
    assert tried > 20
