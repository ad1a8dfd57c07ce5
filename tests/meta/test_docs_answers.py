"""What pages show without running it: their last lines find something, with the embedder that comes with `local`."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from support.shell import Shell

from sharedmem import Settings
from sharedmem.faces.cli import run
from sharedmem.sync import Hub
from sharedmem.synthesis.search import note_thresholds

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("d")


def test_the_tour_of_rest_ends_with_the_note_that_it_has_made(data_dir: Path) -> None:
    """docs/rest.md: A tour."""
    tour = (DOCS / "rest.md").read_text("utf-8")
    (said,) = re.findall(r'"role": "user", "content": "([^"]+)"\}\]\}\'\ncurl', tour)
    (asked,) = re.findall(r'curl +"\$B(/memories/query[^"]+)"', tour)
    query = {name: values[0] for name, values in parse_qs(urlsplit(asked).query).items()}

    with Hub.open(settings=Settings(data_dir=data_dir, embedder="wordllama")) as hub:
        notes = hub.store("desk", actor="ada").synthesis
        task = notes.add_memory(app_id="shop", user_id="ada", messages=[{"role": "user", "content": said}])
        notes.wait(task.task_id, timeout=60)
        found = notes.query_memory(**query)

    assert [hit.rank for hit in found] == [1]
    assert said in found[0].memory_note


def test_a_graph_that_is_asked_as_of_a_day_answers_what_held_then(
    data_dir: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/graph.md: On the command line."""
    shown = re.findall(r"^sharedmem (graph (?:add|search) .+)$", (DOCS / "graph.md").read_text("utf-8"), re.MULTILINE)
    assert run(["--data-dir", str(data_dir), "up"]) == 0
    shell = Shell(data_dir, "desk", capfdbinary, monkeypatch)

    *_, answer = [shell(*shlex.split(line)).data for line in shown]
    assert run(["--data-dir", str(data_dir), "down"]) == 0

    assert [item["text"] for item in answer["items"]] == ["Maria Lopez lives in Lisbon"]


def test_each_embedder_has_thresholds_and_a_setting_overrules_them() -> None:
    usual, small = note_thresholds(Settings(), "openai:any"), note_thresholds(Settings(), "wordllama:any")

    assert usual == (0.3, 0.4, 0.7)
    assert all(low < high for low, high in zip(small, usual, strict=True))
    chosen = Settings(synthesis_score_threshold=0.0, synthesis_link_threshold=0.5)
    assert note_thresholds(chosen, "wordllama:any") == (small.recall, 0.0, 0.5)
