"""examples/newsroom: what is planted is found, and no document is lost or done twice."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from itertools import combinations
from pathlib import Path

import pytest
from support.forked_processes import run_forked

from sharedmem import Hub, Settings

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "newsroom"))

import desk
import grading
import reading
import roles

NEWSROOM = Path(__file__).parents[3] / "examples" / "newsroom"
FALSE_ALARMS_ALLOWED = 2


def read(name: str, *sentences: str) -> reading.Reading:
    """A document of these sentences, under a title."""
    padding = (
        "The harbour was quiet that morning and nobody on the quay had anything to say about the weather or the tide."
    )
    body = " ".join([padding, "Old men sat on the wall, looked at the boats and waited.", *sentences])
    return reading.read_document(name, f"# Title\n\n{body}\n")


@pytest.fixture(scope="module")
def readings() -> list[reading.Reading]:
    """All documents of the example, read."""
    paths = sorted((NEWSROOM / "documents").iterdir())
    return [reading.read_document(path.stem, path.read_text(encoding="utf-8")) for path in paths]


def test_the_documents_are_many_and_of_real_length(readings: list[reading.Reading]) -> None:
    assert len(readings) >= 24
    assert all(500 <= document.words <= 1_100 for document in readings)


def test_no_document_repeats_a_paragraph_of_another_unless_it_is_a_planted_reprint() -> None:
    planted = set(grading.planted_in(NEWSROOM / "planted.json").duplicates)
    paragraphs = {
        path.stem: {part for part in path.read_text(encoding="utf-8").split("\n\n") if len(part.split()) > 12}
        for path in (NEWSROOM / "documents").iterdir()
    }

    repeated = {pair for pair in combinations(sorted(paragraphs), 2) if paragraphs[pair[0]] & paragraphs[pair[1]]}

    assert repeated <= planted


def test_everything_planted_is_found_with_few_false_alarms(readings: list[reading.Reading]) -> None:
    contradictions = reading.contradictions_among(finding for document in readings for finding in document.findings)
    duplicates = [(pair.first, pair.second) for pair in reading.duplicates_among(readings)]

    grade = grading.grade(
        grading.planted_in(NEWSROOM / "planted.json"), map(reading.fact_of, contradictions), duplicates
    )

    assert grade.missed == ()
    assert grade.contradictions >= 5
    assert grade.duplicates >= 3
    assert len(grade.false_alarms) <= FALSE_ALARMS_ALLOWED


def test_a_grade_tells_what_was_missed_and_what_was_a_false_alarm() -> None:
    planted = grading.planted_in(NEWSROOM / "planted.json")

    grade = grading.grade(planted, [], [("01-a", "02-b")])

    assert grade.contradictions == grade.duplicates == 0
    assert len(grade.missed) == len(planted.contradictions) + len(planted.duplicates)
    assert grade.false_alarms == ("('01-a', '02-b')",)
    assert grade.precision == 0


def test_a_finding_says_where_it_stands_and_what_it_measures(readings: list[reading.Reading]) -> None:
    path = NEWSROOM / "documents" / "18-accident-inquiry-barge.md"
    document = next(document for document in readings if document.document == path.stem)

    finding = next(finding for finding in document.findings if finding.written == "11")

    assert path.read_text(encoding="utf-8")[finding.position :].startswith("11 days")
    assert (finding.value, finding.unit) == ("11", "day")
    assert finding.sentence == "In consequence the collision delayed the repair work by 11 days."


@pytest.mark.parametrize(
    ("written", "number"),
    [
        ("1,234", 1234),
        ("21.3 million", 21_300_000),
        ("forty-one", 41),
        ("two hundred", 200),
        ("thirteen thousand", 13_000),
        ("seven", 7),
        ("forty-winks", None),
    ],
)
def test_numbers_are_read_in_digits_and_in_words(written: str, number: float | None) -> None:
    assert reading.number_of(written) == number


@pytest.mark.parametrize(
    ("sentence", "unit", "value"),
    [
        ("The divers came on 3 May 2022 to the quay.", "date", "2022-05-03"),
        ("The master closed the bridge at 3:15 am by himself.", "time", "03:15"),
        ("The motion was carried by 14 votes to 5.", "votes", "14:5"),
        ("The whole work cost 2.5 million crowns.", "crown", "2500000"),
        ("The men drove sixty-four steel piles.", "pile", "64"),
    ],
)
def test_values_are_normalised(sentence: str, unit: str, value: str) -> None:
    findings = read("a", sentence).findings

    assert (unit, value) in [(finding.unit, finding.value) for finding in findings]


def contradictions_of(first: str, second: str) -> list[reading.Contradiction]:
    return reading.contradictions_among([*read("a", first).findings, *read("b", second).findings])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("The storm sank 14 boats in the outer basin.", "In the outer basin 41 boats were sunk by the storm."),
        ("The new hall was opened on 3 May 2022.", "They opened the new hall on 5 May 2022."),
        ("The motion to sell the hall fell by 9 votes to 8.", "A motion to sell the hall fell by 10 votes to 7."),
    ],
)
def test_two_values_for_one_fact_contradict_each_other(first: str, second: str) -> None:
    assert len(contradictions_of(first, second)) == 1


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("The storm sank 14 boats in the basin.", "The storm sank 14 boats in the basin."),
        ("About 9,000 people came to the old fair.", "Exactly 9,420 people came to the old fair."),
        ("The ferry carried 843,217 passengers that year.", "The ferry carried 843,000 passengers that year."),
        ("The steel ring at pier 4 needed 64 piles.", "The steel ring at pier 5 needed 70 piles."),
        ("The fair in Upper Lenn drew 900 people.", "The fair in Northshore drew 300 people."),
        ("The storm sank 14 boats in the basin.", "The mayor bought 3 boats for the school."),
    ],
    ids=["same value", "roughly", "rounded", "another pier", "another place", "another matter"],
)
def test_what_agrees_or_speaks_of_something_else_is_no_contradiction(first: str, second: str) -> None:
    assert contradictions_of(first, second) == []


def test_a_document_does_not_contradict_itself() -> None:
    document = read("a", "The first boat sank 3 crates there.", "The first boat sank 5 crates there.")

    assert reading.contradictions_among(document.findings) == []


def test_an_empty_document_is_read_as_having_nothing() -> None:
    document = reading.read_document("empty", "")

    assert (document.words, document.findings, document.title) == (0, (), "empty")


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Hub]:
    """A hub on an embedded server of its own."""
    async with Hub.open(settings=Settings(data_dir=tmp_path / "data")) as opened:
        yield opened


async def test_a_researcher_whose_lease_ran_out_does_not_count_beside_the_one_who_took_over(hub: Hub) -> None:
    name = "18-accident-inquiry-barge"
    editor = hub.store(desk.NAMESPACE)

    def researcher(actor: str, think_s: float) -> roles.Researcher:
        store = hub.store(desk.NAMESPACE, actor=actor, grants=(desk.CLAIMS,))
        task = desk.Task(
            folder=str(NEWSROOM / "documents"),
            documents={name: f"{name}.md"},
            report="",
            think_s=think_s,
            lease_s=30,
        )
        return roles.Researcher(store, actor, task)

    slow = asyncio.create_task(researcher("slow", 2.0).work())
    await desk.written_at(editor, desk.claim_key(name))

    await editor.delete(desk.claim_key(name))  # as if its lease had run out
    await researcher("quick", 0.01).work()
    await slow

    claim = (await desk.claims_of(editor, [name]))[name]
    assert claim is not None
    assert (claim.by, claim.state) == ("quick", "done")
    assert await editor.hgetall(desk.COMPLETIONS) == {name: 1}
    assert await editor.smembers(desk.DONE) == {name}


def run_demo(data_dir: Path, elsewhere: Path) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SHAREDMEM_")}
    return run_forked(
        *(str(NEWSROOM / "demo.py"), "--think-s", "0.1", "--lease-s", "1"),
        cwd=elsewhere,
        environment=environment | {"SHAREDMEM_DATA_DIR": str(data_dir)},
    )


def test_the_demo_works_twice_in_a_row_from_any_directory_and_loses_nothing(tmp_path: Path) -> None:
    planted = json.loads((NEWSROOM / "planted.json").read_text(encoding="utf-8"))
    facts, pairs = len(planted["contradictions"]), len(planted["duplicates"])

    for _ in range(2):
        ended = run_demo(tmp_path / "data", tmp_path)

        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert "Documents: 30 of 30 done, 0 lost, 0 done twice." in ended.stdout
        assert re.search(
            r"\*\*\* researcher-2 \(pid \d+\) was killed with SIGKILL in the middle of \S+ \*\*\*", ended.stdout
        )
        assert "the lease of researcher-2 ran out" in ended.stdout
        assert f"Contradictions: found {facts} of {facts} planted." in ended.stdout
        assert f"Near duplicates: found {pairs} of {pairs} planted." in ended.stdout

    report = (tmp_path / "data" / "newsroom-report.md").read_text(encoding="utf-8")
    assert report.count("\n## Review\n") == 1
    assert f"### {facts} contradictions" in report


def test_the_demo_says_what_is_wrong_when_there_is_no_server(tmp_path: Path) -> None:
    ended = run_forked(
        str(NEWSROOM / "demo.py"),
        environment={
            **os.environ,
            "SHAREDMEM_REDIS_URL": f"unix://{tmp_path}/nobody.sock",
            "SHAREDMEM_DATA_DIR": str(tmp_path),
            "SHAREDMEM_RETRY_FOR_S": "0",
        },
    )

    assert ended.returncode == 1
    assert ended.stderr.startswith("the demo failed: ")
    assert "Traceback" not in ended.stderr
