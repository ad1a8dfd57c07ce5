"""examples/support_memory: conversations told over HTTP become notes in which every fact is found, and none is lost."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.forked_processes import run_forked

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "support_memory"


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (EXAMPLE / name).read_text(encoding="utf-8").splitlines()]


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """What the example prints, without settings of the machine."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SHAREDMEM_")}
    return run_forked(str(EXAMPLE / "support.py"), *words, cwd=folder, environment=environment)


# -- the example runs -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("s")


@pytest.fixture(scope="module")
def done(folder: Path) -> dict[str, Any]:
    ran = run(folder, "--few", "--json", "--graph", "drawn.html")
    assert ran.returncode == 0, ran.stdout[-2_000:] + ran.stderr[-2_000:]
    told: dict[str, Any] = json.loads(ran.stdout)
    return told


def test_every_fact_is_found_when_it_holds_and_known_at_the_end(done: dict[str, Any]) -> None:
    count = len(done["answers"])

    assert count > 20
    assert [answer for answer in done["answers"] if not (answer["found"] and answer["kept"])] == []
    assert (done["conversations"], done["found"], done["kept"]) == (15, count, count)


def test_changed_facts_and_repeated_trouble_are_brought_together(done: dict[str, Any]) -> None:
    after = {merger["after"] for merger in done["mergers"]}

    assert {"mara-3", "mara-4", "jonas-4", "lucia-4"} <= after
    assert done["active"] < done["conversations"]


def test_the_drawing_is_a_page(done: dict[str, Any], folder: Path) -> None:
    assert done["graph"] == "drawn.html"
    assert "Kungsgatan 8" in (folder / "drawn.html").read_text(encoding="utf-8")


def test_a_service_that_does_not_answer_is_told_in_a_sentence(folder: Path) -> None:
    ran = run(folder, "--url", "ftp://nowhere")

    assert ran.returncode == 1
    assert ran.stderr.startswith("the desk is closed: base_url 'ftp://nowhere' is refused")


# -- what was written by hand -----------------------------------------------------------------------------


def test_there_are_sixty_conversations_of_twelve_customers_in_three_languages() -> None:
    told = lines("conversations.jsonl")

    assert len({one["id"] for one in told}) == len(told) == 60
    assert set(Counter(one["customer"] for one in told).values()) == {5}
    assert len({one["customer"] for one in told}) == 12
    assert {one["language"] for one in told} == {"en", "de", "es"}
    assert all(6 <= len(one["messages"]) <= 14 for one in told)
    assert all(one["messages"][0]["role"] == "user" for one in told)


def test_each_customer_comes_with_the_years_order() -> None:
    told = lines("conversations.jsonl")
    by_customer = {one["customer"]: [each for each in told if each["customer"] == one["customer"]] for one in told}

    for conversations in by_customer.values():
        assert [one["round"] for one in conversations] == [1, 2, 3, 4, 5]
        assert [one["at"] for one in conversations] == sorted(one["at"] for one in conversations)


def test_what_is_expected_was_said_in_the_conversation_before() -> None:
    said = {
        (one["customer"], one["round"]): "\n".join(message["content"] for message in one["messages"])
        for one in lines("conversations.jsonl")
    }
    unsaid = [
        (question["id"], part)
        for question in lines("expected.jsonl")
        for answer in question["answers"]
        for part in answer["expect"]
        if part not in said[question["customer"], answer["after"]]
    ]

    assert unsaid == []
