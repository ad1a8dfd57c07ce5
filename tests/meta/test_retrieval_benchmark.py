"""The measurement of recall does what docs/retrieval.md says of it, on a few made-up conversations."""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = "before\n<!-- retrieval: begin -->\nold\n<!-- retrieval: end -->\nafter\n"
TURNS = [
    ("Ada", "I adopted a puppy named Rex last week!"),
    ("Bo", "Lovely. What does Rex eat?"),
    ("Ada", "Carrots, believe it or not."),
    ("Bo", "My sailing course in Lisbon begins on Monday."),
    ("Ada", "Do you own a boat?"),
    ("Bo", "Not yet, I rent one from my uncle."),
]
QUESTIONS = [
    ("q0", "single-hop", "Which animal did Ada adopt?", ["d/1:0"]),
    ("q1", "single-hop", "Where is Bo's sailing course?", ["d/1:3"]),
    ("q2", "multi-hop", "What does Rex eat?", ["d/1:1", "d/1:2"]),
    ("q3", "adversarial", "Which cat did Bo adopt?", ["d/1:0"]),
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    write_lines(
        folder / "locomo" / "items.jsonl.gz",
        (
            {"id": f"d/1:{place}", "group": "d", "session": "d/1", "speaker": speaker, "text": text}
            | {"timestamp": "2023-05-07T12:00:00+00:00"}
            for place, (speaker, text) in enumerate(TURNS)
        ),
    )
    write_lines(
        folder / "locomo" / "queries.jsonl.gz",
        (
            {"id": id_, "group": "d", "category": category, "text": text, "relevant": relevant}
            for id_, category, text, relevant in QUESTIONS
        ),
    )
    pairs = [
        {"a": "How do I learn chess?", "b": "How do I learn chess??", "same": 1},
        {"a": "How do I cook 2 eggs?", "b": "How do I cook 3 eggs?", "same": 0},
    ]
    write_lines(folder / "pairs" / "questions.jsonl.gz", pairs)
    return folder


def write_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


async def measure(*arguments: str | Path) -> tuple[int, str, str]:
    """(exit code, what it printed, what it complained about)."""
    program = ROOT / "benchmarks" / "retrieval.py"
    process = await asyncio.create_subprocess_exec(
        sys.executable, program, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def test_it_measures_every_index_every_signal_and_the_cache(data: Path, tmp_path: Path) -> None:
    """docs/retrieval.md: Run it."""
    page = tmp_path / "page.md"
    page.write_text(PAGE)

    code, shown, complaints = await measure("--data", data, "--json", tmp_path / "out.json", "--page", page)

    assert code == 0, complaints
    told = json.loads((tmp_path / "out.json").read_text())
    whole = {row["index"]: row["quality"] for row in told["rows"] if row["part"] == "whole"}
    assert set(whole) == {"redisearch", "redisearch, shared", "exact"}
    assert all(quality["questions"] == 3 and quality["recall"]["10"] == 1.0 for quality in whole.values())
    assert {row["name"] for row in told["rows"] if row["part"] == "category"} == {
        *("single-hop", "multi-hop", "adversarial")
    }
    assert {row["part"] for row in told["rows"]} == {"whole", "category", "steps", "without"}
    lowest = told["pairs"][-1]
    assert (lowest["same"], lowest["different"], lowest["guarded"]) == (1.0, 1.0, [1.0, 0.0])
    assert [goal["verdict"] for goal in told["goals"]] == ["met"] * 3 + ["not measured", "met"] + ["not measured"] * 10
    assert {(row["index"], row["questions"]) for row in told["budgets"]} == {(index, 3) for index in whole}
    assert all(row["evidence"] == 1.0 and 0 < row["tokens"] <= 1500 for row in told["budgets"])
    assert "locomo: the recipe, by index" in shown
    assert "### locomo: evidence that `recall` brings within 1,500 tokens" in page.read_text()
    assert page.read_text().startswith("before\n<!-- retrieval: begin -->\n\n| goal | found | |\n")
    assert page.read_text().endswith("\n<!-- retrieval: end -->\nafter\n")


async def test_a_folder_without_data_is_told(tmp_path: Path) -> None:
    code, _, complaints = await measure("--data", tmp_path)

    assert code == 2
    assert "nothing to measure" in complaints
