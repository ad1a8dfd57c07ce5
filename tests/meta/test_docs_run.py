"""The documentation runs: every Python block and every `$ sharedmem` line of README.md and docs/."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.doc_pages import Block, blocks, namespaces
from support.forked_processes import run_forked

from sharedmem.faces.cli import run as sharedmem

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
LONGEST_PAGE_S = 180
_READ_FIRST = 3
PASTING = "paste them in order into `python -m asyncio`"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROGRAMS = [block for page in PAGES if page.exists() for block in blocks(page) if block.is_program]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.fixture
def room() -> Iterator[Path]:
    """A folder whose path is short enough for the socket of an embedded server."""
    with tempfile.TemporaryDirectory(prefix="sm-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def run_page(page: Path, room: Path) -> subprocess.CompletedProcess[str]:
    return run_forked(
        *("-m", "support.doc_pages", str(page)),
        cwd=room,
        environment=clean_environment(room),
        timeout_s=LONGEST_PAGE_S,
    )


def clean_environment(room: Path) -> dict[str, str]:
    """The environment of a page: no settings but its data folder, and patience when the machine is busy."""
    kept = "SHAREDMEM_CONNECT_TIMEOUT_S"
    others = {key: value for key, value in os.environ.items() if key == kept or not key.startswith("SHAREDMEM_")}
    return others | {"PYTHONPATH": str(TESTS), "SHAREDMEM_DATA_DIR": str(room / "data")}


@pytest.mark.parametrize(
    "block",
    [block for block in PROGRAMS if block.left_out is not None],
    ids=lambda block: f"{name(block.page)}:{block.line}",
)
def test_a_block_that_does_not_run_says_why(block: Block) -> None:
    assert block.left_out, "write the reason behind no-run"
    pytest.skip(block.left_out)


# -- the pages together -----------------------------------------------------------------------------


def in_reading_order() -> list[Path]:
    """The pages that run: README.md, the pages that it links in its order, and the rest."""
    linked = [ROOT / found for found in re.findall(r"\]\((docs/[\w/-]+\.md)", (ROOT / "README.md").read_text("utf-8"))]
    programs = {block.page for block in PROGRAMS if block.left_out is None}
    return [page for page in dict.fromkeys([ROOT / "README.md", *linked, *sorted(programs)]) if page in programs]


@pytest.fixture(scope="module")
def one_server() -> Iterator[Path]:
    """A folder whose server stays up while all pages run on it."""
    with tempfile.TemporaryDirectory(prefix="sm-", ignore_cleanup_errors=True) as folder:
        assert sharedmem(["--data-dir", f"{folder}/data", "up"]) == 0
        yield Path(folder)
        assert sharedmem(["--data-dir", f"{folder}/data", "down"]) == 0


def runs() -> Iterator[Any]:
    """All pages once, and again; each run tries the second time on the pages that are read first."""
    for page in in_reading_order():
        yield pytest.param(page, "first", id=f"first-{name(page)}")
    for number, page in enumerate(in_reading_order()):
        marks = [pytest.mark.nightly] if number >= _READ_FIRST else []
        yield pytest.param(page, "second", id=f"second-{name(page)}", marks=marks)


# Behind what other pages have left, and the second time behind what it has left itself: so it runs alone, too.
@pytest.mark.parametrize(("page", "time"), list(runs()))
def test_a_page_runs_from_its_top_to_its_end_each_time(one_server: Path, page: Path, time: str) -> None:
    done = run_page(page, one_server)

    assert done.returncode == 0, f"{name(page)} does not run the {time} time:\n{done.stdout}{done.stderr}"


def test_no_two_pages_share_a_namespace() -> None:
    found: dict[str, str] = {}
    for page in PAGES:
        for namespace in namespaces(page):
            assert found.setdefault(namespace, name(page)) == name(page)


def pasted() -> Iterator[Any]:
    """The pages that say that their blocks can be pasted; each run tries the ones that are read first."""
    pages = [page for page in in_reading_order() if PASTING in re.sub(r"\s+", " ", page.read_text("utf-8"))]
    for number, page in enumerate(pages):
        yield pytest.param(page, id=name(page), marks=[pytest.mark.nightly] if number >= _READ_FIRST else [])


@pytest.mark.parametrize("page", list(pasted()))
def test_a_page_can_be_pasted_into_the_shell_of_asyncio(one_server: Path, page: Path) -> None:
    for namespace in namespaces(page):
        assert sharedmem(["--data-dir", f"{one_server}/data", "clear", "-n", namespace, "--yes"]) == 0
    programs = [block for block in blocks(page) if block.language == "python" and block.left_out is None]
    # As a person pastes: each block, and Enter once more.
    typed = "".join(f"{block.text}\n" for block in programs)

    done = subprocess.run(
        [sys.executable, "-m", "asyncio"],
        cwd=one_server,
        input=f"{typed}print('typed to the end')\n",
        env=clean_environment(one_server),
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_PAGE_S,
    )

    assert "Error" not in done.stderr
    assert "Traceback" not in done.stderr
    assert "typed to the end" in done.stdout


# -- the runner itself ----------------------------------------------------------------------------


def written(room: Path, text: str) -> Path:
    page = room / "page.md"
    page.write_text(text, encoding="utf-8")
    return page


def test_blocks_of_a_page_share_their_names_and_may_await(room: Path) -> None:
    page = written(
        room,
        "```python\nimport asyncio\nbox = []\n```\n\n"
        "- in a list:\n\n  ```python\n  await asyncio.sleep(0)\n  box.append(1)\n  ```\n\n"
        "```py\nthis is only shown\n```\n\n```python\nassert box == [1]\nprint('ran to the end')\n```\n",
    )

    done = run_page(page, room)

    assert (done.returncode, done.stdout) == (0, "ran to the end\n"), done.stderr


def test_a_failing_block_is_shown_with_the_line_of_its_page(room: Path) -> None:
    done = run_page(written(room, "# Title\n\n```python\nfine = 1\nraise ValueError('no')\n```\n"), room)

    assert done.returncode == 1
    assert 'page.md", line 5' in done.stderr


def test_a_failing_command_fails_the_page(room: Path) -> None:
    done = run_page(written(room, "```console\n$ sharedmem no-such-command\nsome output\n```\n"), room)

    assert done.returncode == 1
    assert "page.md:2: `sharedmem no-such-command` ended with" in done.stderr


def test_a_page_that_shows_another_output_fails(room: Path) -> None:
    page = "```python\nprint('one')\n```\n\n```text output\n{}\n```\n"

    assert run_page(written(room, page.format("one")), room).returncode == 0
    assert run_page(written(room, page.format("o...")), room).returncode == 0
    done = run_page(written(room, page.format("two")), room)
    assert done.returncode == 1
    assert "page.md:6: the page shows\ntwo\nbut it prints\none\n" in done.stderr


def test_the_namespaces_that_a_page_says_to_clear_are_found_in_its_text_alone(room: Path) -> None:
    page = written(room, "`sharedmem clear -n one --yes`\n```console\n$ sharedmem clear -n two --yes\n```\n")

    assert namespaces(page) == ["one"]


def test_only_commands_of_ours_are_run(room: Path) -> None:
    page = written(room, "```bash\n$ pip install something\n$ sharedmem get a \\\n    --json\nmake demo\n```\n")

    (block,) = blocks(page)

    assert block.commands == ["sharedmem get a \\\n    --json"]


def test_a_block_can_be_left_out_with_a_reason(room: Path) -> None:
    page = written(
        room, "```python no-run: needs a cluster\nraise SystemExit(3)\n```\n```bash no-run\n$ sharedmem up\n```\n"
    )

    assert [block.left_out for block in blocks(page)] == ["needs a cluster", ""]
    assert run_page(page, room).returncode == 0
