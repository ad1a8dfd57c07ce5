"""examples/customer_timeline: forty questions about a year are answered, each as far as it was known at its time."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from support.embedded_fixtures import need_module
from support.forked_processes import run_forked

from sharedmem import Hub, Settings

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "customer_timeline"


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (EXAMPLE / name).read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def episodes() -> list[dict[str, Any]]:
    return lines("episodes.jsonl")


@pytest.fixture(scope="module")
def questions() -> list[dict[str, Any]]:
    return lines("questions.jsonl")


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # A socket's path may not be long.
    return tmp_path_factory.mktemp("t")


def run(data_dir: Path, *words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """What the example prints, with a data folder of its own."""
    environment = os.environ | {"SHAREDMEM_DATA_DIR": str(data_dir)}
    environment |= {f"SHAREDMEM_{name.upper()}": value for name, value in settings.items()}
    return run_forked(str(EXAMPLE / "timeline.py"), *words, environment=environment)


def wrong(told: dict[str, Any]) -> list[dict[str, Any]]:
    return [answer for answer in told["answers"] if not answer["ok"]]


# -- the example runs -----------------------------------------------------------------------------


def test_every_question_is_answered_on_the_embedded_server_and_the_year_is_drawn(
    data_dir: Path, tmp_path: Path
) -> None:
    done = run(data_dir, "--json", "--graph", str(tmp_path / "year.html"))

    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert (told["score"], told["of"], wrong(told)) == (40, 40, [])
    assert told["episodes"] == 249
    page = (tmp_path / "year.html").read_text(encoding="utf-8")
    assert "Mara Lindqvist" in page


def test_every_question_is_answered_without_a_server(data_dir: Path) -> None:
    done = run(data_dir, "--fake")

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "40 of 40"


@pytest.mark.nightly
def test_the_answers_are_the_same_when_the_year_is_told_from_its_end(data_dir: Path) -> None:
    done = run(data_dir, "--fake", "--backwards", "--json")

    assert (done.returncode, wrong(json.loads(done.stdout))) == (0, []), done.stderr


@pytest.mark.nightly
def test_the_answers_are_the_same_on_the_falkordb_module(tmp_path_factory: pytest.TempPathFactory) -> None:
    need_module("graph")
    modules = {"graph_backend": "falkordb", "embedded_modules": "search,json,graph"}

    done = run(tmp_path_factory.mktemp("f"), "--json", **modules)

    assert done.returncode == 0, done.stdout + done.stderr
    assert wrong(json.loads(done.stdout)) == []


async def test_nothing_of_it_stays_on_the_server(data_dir: Path) -> None:
    done = await asyncio.to_thread(run, data_dir, "--json")

    assert done.returncode == 0, done.stdout + done.stderr
    async with Hub.open(settings=Settings(data_dir=data_dir)) as hub:
        assert await hub.store("customer-timeline").graph.groups() == []


# -- what is shipped ------------------------------------------------------------------------------


def test_the_year_is_a_year_of_messages_from_all_sides(episodes: list[dict[str, Any]]) -> None:
    moments = [datetime.fromisoformat(one["occurred_at"]) for one in episodes]

    assert len(episodes) >= 220
    assert len({one["id"] for one in episodes}) == len(episodes)
    assert {one["source"] for one in episodes} == {"user", "agent", "system", "crm"}
    assert {moment.month for moment in moments} == set(range(1, 13))
    assert all(moment.utcoffset() is not None for moment in moments)


def test_messages_come_in_as_they_were_recorded_and_never_before_they_were_sent(
    episodes: list[dict[str, Any]],
) -> None:
    recorded = [datetime.fromisoformat(one["recorded_at"]) for one in episodes]

    assert recorded == sorted(recorded)
    assert all(datetime.fromisoformat(one["occurred_at"]) < at for one, at in zip(episodes, recorded, strict=True))


def test_the_questions_ask_of_other_times_of_corrections_and_of_the_unknown(
    questions: list[dict[str, Any]],
) -> None:
    assert len(questions) == 40
    assert len({one["id"] for one in questions}) == 40
    assert sum("known_at" in one for one in questions) >= 12
    assert sum("correction" in one["about"] for one in questions) >= 8
    assert sum(not one["expect"] for one in questions) >= 4
    assert {one["ask"] for one in questions} == {"facts", "history", "walk", "path", "retrieve"}


def test_every_expected_answer_stands_in_a_message_that_was_known_at_that_time(
    episodes: list[dict[str, Any]], questions: list[dict[str, Any]]
) -> None:
    by_id = {one["id"]: one for one in episodes}
    for question in questions:
        because = [by_id[id_] for id_ in question["because"]]
        texts = " ".join(one["text"] for one in because).replace("Göteborg", "Gothenburg")
        names = [name.partition(" from ")[0] for name in question["expect"]]

        missing = [name for name in names if name not in texts and name != question.get("entity")]
        assert not missing, question
        if "known_at" in question:
            known = datetime.fromisoformat(question["known_at"])
            assert all(datetime.fromisoformat(one["recorded_at"]) <= known for one in because), question


def test_most_messages_are_about_nothing_that_is_asked(
    episodes: list[dict[str, Any]], questions: list[dict[str, Any]]
) -> None:
    needed = {id_ for one in questions for id_ in one["because"]}

    assert len(needed) < len(episodes) / 3
