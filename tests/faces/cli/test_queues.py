"""The commands on task queues against a real server: what they answer to programs and to people."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.shell import Shell, several_on_a_terminal

_STRANGE = "1234567890123456"


def test_a_task_goes_from_put_to_claim_to_ack(shell: Shell) -> None:
    put = shell("queue", "put", "jobs", '{"n": [1, 2]}', "--priority", "-3").data
    task = shell("queue", "claim", "jobs", "--visibility", "60").data

    assert shell("queue", "ack", "jobs", task["id"], str(task["token"]), "--result", '{"rows": 3}').data is True

    assert put == {"id": task["id"], "is_new": True}
    assert (task["payload"], task["priority"], task["attempt"], task["error"]) == ({"n": [1, 2]}, -3, 1, None)
    assert "deadline" not in task
    assert shell("queue", "result", "jobs", task["id"]).data == {
        "id": task["id"],
        "state": "done",
        "value": {"rows": 3},
        "error": None,
    }
    late = shell("queue", "ack", "jobs", task["id"], str(task["token"]))
    assert (late.code, late.out) == (4, "")
    assert "is no longer yours" in late.err


def test_a_task_can_be_claimed_and_done_at_once(shell: Shell) -> None:
    shell("queue", "put", "jobs", "hello")

    assert shell("queue", "claim", "jobs", "--ack").data["payload"] == "hello"

    assert shell("queue", "stats", "jobs").data["counters"]["done"] == 1
    none = shell("queue", "claim", "jobs", "--wait", "0.05")
    assert none.code == 3
    assert "a ready task of queue 'jobs' does not exist; put one, or wait for one with --wait" in none.err


def test_an_id_puts_a_task_once(shell: Shell) -> None:
    first, second = (shell("queue", "put", "jobs", "x", "--id", "order 17", "--delay", "60").data for _ in "ab")

    assert (first["is_new"], second) == (True, {"id": first["id"], "is_new": False})
    assert [task["id"] for task in shell("queue", "peek", "jobs", "--state", "delayed").data] == [first["id"]]


def test_failures_are_retried_or_buried_and_tried_again(shell: Shell) -> None:
    shell("queue", "put", "jobs", "x")
    task = shell("queue", "claim", "jobs").data
    receipt = (task["id"], str(task["token"]))
    assert shell("queue", "retry", "jobs", *receipt, "--error", "no paper", "--delay", "0").data is True
    task = shell("queue", "claim", "jobs").data
    assert (task["attempt"], task["error"]) == (2, "no paper")

    assert shell("queue", "fail", "jobs", task["id"], str(task["token"]), "--error", "burnt").data is True

    (letter,) = shell("queue", "dead", "jobs").data
    assert (letter["id"], letter["error"], letter["state"]) == (task["id"], "burnt", "dead")
    assert shell("queue", "dead", "jobs", "--redrive", task["id"]).data == 1
    assert shell("queue", "dead", "jobs", "--redrive", task["id"]).code == 3
    task = shell("queue", "claim", "jobs").data
    shell("queue", "fail", "jobs", task["id"], str(task["token"]))
    assert shell("queue", "dead", "jobs", "--redrive-all").data == 1
    assert shell("queue", "dead", "jobs", "--redrive-all").data == 0
    assert shell("queue", "dead", "jobs", "--delete", task["id"]).data == 1
    assert shell("queue", "stats", "jobs").data["counters"]["discarded"] == 1


def test_a_queue_is_paused_and_goes_on(shell: Shell) -> None:
    shell("queue", "put", "jobs", "x")

    assert [shell("queue", "pause", "jobs").data for _ in "ab"] == [True, False]
    assert shell("queue", "claim", "jobs").code == 3
    assert [shell("queue", "resume", "jobs").data for _ in "ab"] == [True, False]

    assert shell("queue", "claim", "jobs").data["payload"] == "x"


def test_the_name_alone_shows_what_is_in_a_queue(shell: Shell) -> None:
    shell("queue", "put", "jobs", "x")

    stats = shell("queue", "jobs").data

    assert (stats["name"], stats["ready"], stats["paused"]) == ("jobs", 1, False)
    assert stats == shell("queue", "stats", "jobs").data | {"oldest_age": stats["oldest_age"]}


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("put", "", "x"), 2, "non-empty"),
        (("put", "jobs", "x", "--delay", "-1"), 2, "delay -1.0 is refused"),
        (("put", "jobs", "x", "--priority", "9999999999"), 2, "priority"),
        (("claim", "jobs", "--wait", "nan"), 2, "wait"),
        (("ack", "jobs", "7", "7"), 2, "task id '7' is refused"),
        (("ack", "jobs", _STRANGE, "7"), 4, "no longer yours"),
        (("result", "jobs", _STRANGE), 3, "never put into this queue"),
        (("peek", "jobs", "--state", "done"), 2, "state"),
        (("dead", "jobs", "--redrive", _STRANGE), 3, "does not exist"),
    ],
)
def test_mistakes_are_told_in_a_sentence(shell: Shell, words: tuple[str, ...], code: int, told: str) -> None:
    done = shell("queue", *words)

    assert (done.code, done.out) == (code, "")
    assert told in done.err
    assert done.err.count("\n") == 1


def test_people_get_pictures(data_dir: Path) -> None:
    place = ("--data-dir", str(data_dir), "--namespace", "people")
    words = [
        ("queue", "put", "jobs", '{"read": "tides.md"}', "--id", "t"),
        ("queue", "put", "jobs", "x", "--id", "t"),
        ("queue", "peek", "jobs"),
        ("queue", "claim", "jobs"),
        ("queue", "dead", "jobs"),
        ("queue", "pause", "jobs"),
        ("queue", "jobs"),
    ]

    screen = several_on_a_terminal(*((*place, *line) for line in words)).out

    assert screen.count("left 0") == len(words)
    for part in ("is put", "was there already", "0 of 5", "by shared", "sharedmem queue ack jobs", "nothing there"):
        assert part in screen
    assert "jobs is paused" in screen
    assert "1 put, 0 done, 0 retried" in screen
