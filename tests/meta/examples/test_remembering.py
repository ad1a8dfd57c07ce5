"""The examples of semantic memory run offline, and print what memory changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.forked_processes import run_forked

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "remembering"


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # A socket's path may not be long.
    return tmp_path_factory.mktemp("r")


def run(name: str, data_dir: Path, *words: str) -> str:
    """What an example prints."""
    environment = os.environ | {"SHAREDMEM_DATA_DIR": str(data_dir)}
    done = run_forked(str(EXAMPLES / name), *words, environment=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_reviewers_ask_the_model_less_and_judge_the_same_with_memory(data_dir: Path) -> None:
    alone, together = run("reviewers.py", data_dir, "--without"), run("reviewers.py", data_dir)

    assert "model calls: 15, answers that a colleague had: 0" in alone
    assert "model calls: 9, answers that a colleague had: 6" in together
    verdicts = [line for line in alone.splitlines() if line.startswith("A")]
    assert verdicts == [line for line in together.splitlines() if line.startswith("A")]


def test_the_rulebook_answers_every_question_and_keeps_former_wordings(data_dir: Path) -> None:
    told = run("rulebook.py", data_dir)

    assert "loaded: 9 new, 0 known" in told
    assert "loaded: 0 new, 9 known" in told
    assert "5 of 5 questions found their rule" in told
    assert "R-403 put back: Reports are kept for seven years." in told


def test_a_client_is_known_and_no_other_file_is_opened(data_dir: Path) -> None:
    told = run("client_history.py", data_dir)

    assert "3,900 a month" in told
    assert "files of others that were opened: 0" in told
    assert "asked for Ines: None" in told


def test_the_supervisor_hears_of_risks_and_of_nothing_else(data_dir: Path) -> None:
    told = run("supervisor.py", data_dir)

    assert "4 of 4 parts inspected, none twice" in told
    assert "received at once: The roof leaks" in told
    assert "received at once: The wiring" in told


def test_what_is_the_same_is_paid_and_kept_once_and_what_differs_in_a_number_is_not(data_dir: Path) -> None:
    told = run("paid_once.py", data_dir)

    assert "32 questions, 3 calls of the model" in told
    assert "answers of their own: True" in told
    assert "32 findings remembered, 3 memories" in told


def test_a_chat_over_a_year_knows_what_its_newest_turns_do_not_hold(data_dir: Path) -> None:
    told = run("long_chat.py", data_dir)

    remembered, in_window = (int(line.split(": ")[1].split()[0]) for line in told.splitlines()[-2:])
    assert remembered >= 18
    assert in_window <= 8


def test_nodes_of_a_graph_share_what_they_find_out(data_dir: Path) -> None:
    told = run("graph_agents.py", data_dir)

    assert "ada knew 0 things: The ferry to Skarn sails at 7" in told
    assert "bob knew 1 things: The ferry to Skarn sails at 7" in told
