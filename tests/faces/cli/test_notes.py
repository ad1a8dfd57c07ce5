"""The commands on notes and their tasks: as programs read them and as people see them."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from support.shell import Shell, finish, is_one_sentence, on_a_terminal, several_on_a_terminal, start

APP = ("--app", "shop")
ADA = (*APP, "--user", "ada")
OSLO = "My delivery address is Elm Street 4, Oslo."
ROME = "My delivery address is Canal Road 9, Rome."
NO_TASK = "1234567890123456"
NO_ADDRESS = "redis://127.0.0.1:1"
SETTINGS = {
    "SHAREDMEM_EMBEDDER": "hashing",
    "SHAREDMEM_SYNTHESIS_LINK_THRESHOLD": "0.3",
    "SHAREDMEM_SYNTHESIS_RECALL_THRESHOLD": "0",
    "SHAREDMEM_SYNTHESIS_SCORE_THRESHOLD": "0",
    # So that what these tests take out of Redis stays away.
    "SHAREDMEM_DURABLE_URL": "none",
}
WORKING = {"SHAREDMEM_SYNTHESIS_CONCURRENCY": "2"}


@pytest.fixture(scope="module", autouse=True)
def settings() -> Iterator[None]:
    """The embedder that is the same everywhere, and thresholds that suit it; for this process and its children."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SETTINGS.items():
            patch.setenv(name, value)
        yield


@pytest.fixture
def moved(shell: Shell) -> tuple[str, str]:
    """The ids of a note, and of the one that holds now in its place."""
    old = add(shell, OSLO)["memory_id"]
    newer = add(shell, ROME)
    return old, newer["successor_id"] or newer["memory_id"]


def talk(*texts: str) -> bytes:
    return json.dumps([{"role": "user", "content": text} for text in texts]).encode()


def add(shell: Shell, *texts: str) -> dict[str, Any]:
    """What became of a conversation that was told."""
    task = shell("notes", "add", *ADA, stdin=talk(*texts)).data
    assert task["status"] == "done", task
    result: dict[str, Any] = task["result"]
    return result


def found(shell: Shell, query: str, *words: str) -> list[tuple[str, bool]]:
    """The statuses of the notes that a query finds, best first, and whether they are flagged."""
    hits = shell("notes", "search", query, *APP, *words).data
    return [(hit["metadata"]["status"], hit["flagged"]) for hit in hits]


# -- what programs read -----------------------------------------------------------------------


def test_a_conversation_becomes_a_note_and_a_newer_one_takes_its_place(shell: Shell) -> None:
    first = add(shell, OSLO)
    second = add(shell, ROME)

    assert (first["status"], first["operations"]["CREATE"], first["degraded"]) == ("active", 1, [])
    assert second["operations"]["UPDATE"] + second["operations"]["DELETE"] == 1
    old = shell("notes", "get", first["memory_id"], *APP).data
    assert old["status"] in {"updated", "deleted"}
    assert old["next_id"] == (second["successor_id"] or second["memory_id"])
    assert [message["content"] for message in old["messages"]] == [OSLO]
    assert found(shell, "delivery address") == [("active", False)]
    everything = found(shell, "delivery address", "--recall", "all")
    assert (old["status"], True) in everything
    assert everything.count(("active", False)) == 1


def test_finding_is_narrowed(moved: tuple[str, str], shell: Shell) -> None:
    assert found(shell, "address", "--user", "ada", "--limit", "1") == [("active", False)]
    assert found(shell, "address", "--user", "bob") == []
    assert shell("notes", "search", "address", "--app", "other").data == []


def test_a_file_of_messages_is_added_and_need_not_be_waited_for(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "talk.json"
    file.write_bytes(talk(OSLO))

    with shell.patch.context() as patch:
        patch.setenv("SHAREDMEM_SYNTHESIS_CONCURRENCY", "0")
        task = shell("notes", "add", str(file), *ADA, "--session", "s1", "--wait", "0").data
        waiting = shell("task", "list").data

    assert (task["status"], task["result"]) == ("accepted", None)
    assert [(one["task_id"], one["status"]) for one in waiting] == [(task["task_id"], "pending")]
    done = shell("task", "get", task["task_id"], "--wait", "30").data
    assert done["status"] == "done"
    assert shell("task", "list").data == []
    assert shell("notes", "get", done["result"]["memory_id"], *APP).data["session_id"] == "s1"


def test_an_earlier_version_is_restored_and_a_note_is_deleted(moved: tuple[str, str], shell: Shell) -> None:
    old, _ = moved

    now = shell("notes", "restore", old, *APP).data

    assert (now["status"], now["memory_note"]) == ("active", shell("notes", "get", old, *APP).data["memory_note"])
    assert [note["id"] for note in shell("evolution", old, *APP).data][-1] == now["id"]
    assert shell("notes", "delete", now["id"], *APP).data is True
    assert shell("notes", "get", now["id"], *APP).data["status"] == "deleted"
    assert shell("fsck", *APP).data["problems"] == []


def test_a_chain_is_drawn_in_three_ways(moved: tuple[str, str], shell: Shell, tmp_path: Path) -> None:
    old, new = moved
    page = tmp_path / "ada.html"

    chain = [note["id"] for note in shell("evolution", new, *APP).data]
    assert (chain[0], chain[-1]) == (old, new)
    assert shell("evolution", old, *APP, "--format", "mermaid").out.startswith("flowchart LR\n")
    assert " -> " in shell("evolution", old, *APP, "--format", "dot").out
    assert shell("evolution", old, *APP, "--out", str(page)).data == {"file": str(page), "format": "html"}
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_fsck_tells_by_its_exit_code_whether_anything_is_left(
    moved: tuple[str, str], shell: Shell, data_dir: Path
) -> None:
    _, new = moved
    clean = shell("fsck", *APP).data
    assert (clean["app_id"], clean["chains"], clean["problems"]) == ("shop", 1, [])
    with Redis(unix_socket_path=str(data_dir / "redis.sock")) as redis:
        redis.delete(f"sm:$note:{{{shell.namespace}}}:shop/{new}")

    broken = shell("fsck", *APP)
    mended = shell("fsck", *APP, "--repair")

    assert broken.code == 1
    assert "dangling_next" in {problem["kind"] for problem in json.loads(broken.out)["problems"]}
    assert mended.code == 0, mended.err
    assert all(problem["repaired"] for problem in mended.data["problems"])
    assert shell("fsck", *APP).data["problems"] == []
    assert found(shell, "delivery address", "--recall", "all") != []


def test_what_is_new_is_not_archived(moved: tuple[str, str], shell: Shell) -> None:
    report = shell("archive", *APP, "--dry-run").data

    assert (report["looked_at"] > 1, report["archived"], report["dry_run"]) == (True, [], True)
    assert shell("archive", *APP).data["archived"] == []


def test_forgetting_asks_and_erases_what_was_meant(moved: tuple[str, str], shell: Shell) -> None:
    refused = shell("notes", "erase", *ADA)
    assert (refused.code, is_one_sentence(refused, "say --yes, or look first with --dry-run")) == (2, True)
    seen = shell("notes", "erase", *ADA, "--dry-run").data
    assert (seen["messages"], seen["dry_run"]) == (2, True)
    assert shell("notes", "erase", *APP, "--user", "bob", "--yes").data["notes"] == 0
    assert len(found(shell, "address", "--recall", "all")) == seen["notes"]

    gone = shell("notes", "erase", *ADA, "--yes").data

    assert (gone["notes"], gone["messages"], gone["dry_run"]) == (seen["notes"], 2, False)
    assert found(shell, "address", "--recall", "all") == []


# -- mistakes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "stdin", "code", "told"),
    [
        (("notes", "add", "--user", "ada"), b"[]", 2, "missing option '--app'"),
        (("notes", "add", *APP), b"[]", 2, "missing option '--user'"),
        (("notes", "add", *ADA), b"[]", 2, "give a list with one message or more"),
        (("notes", "add", *ADA), b"hello", 2, "it is no JSON"),
        (("notes", "add", *ADA), b'{"role": "user"}', 2, "the whole: Input should be"),
        (("notes", "add", *ADA), b'[{"role": "robot", "content": "x"}]', 2, "0.role: Input should be 'user'"),
        (("notes", "add", *ADA), b'[{"role": "user", "content": " "}]', 2, "is refused"),
        (("notes", "add", *ADA), talk(*["x"] * 31), 2, "give 30 at most"),
        (("notes", "add", "--app", "a{b}", "--user", "ada"), talk("x"), 2, "leave out braces"),
        (("notes", "add", "nowhere.json", *ADA), b"", 2, "it cannot be read: No such file or directory"),
        (("notes", "add", *ADA, "--url", NO_ADDRESS), talk("x"), 7, NO_ADDRESS),
        (("notes", "search", "", *APP), b"", 2, "query '' is refused"),
        (("notes", "search", "x", *APP, "--limit", "0"), b"", 2, "0 is refused"),
        (("notes", "search", "x", *APP, "--recall", "some"), b"", 2, "'--recall'"),
        (("notes", "get", "note-0", *APP), b"", 3, "'note-0' does not exist"),
        (("notes", "restore", "note-0", *APP), b"", 3, "'note-0' does not exist"),
        (("evolution", "note-0", *APP), b"", 3, "'note-0' does not exist"),
        (("evolution", "note-0", *APP, "--format", "png"), b"", 2, "'--format'"),
        (("task", "get", "soon"), b"", 2, "task id 'soon' is refused"),
        (("task", "get", NO_TASK), b"", 3, f"'{NO_TASK}' does not exist"),
        (("task", "list", "--limit", "0"), b"", 2, "0 is refused"),
        (("notes", "erase", "--user", "ada"), b"", 2, "missing option '--app'"),
    ],
)
def test_a_mistake_is_told_in_a_sentence(
    shell: Shell, words: tuple[str, ...], stdin: bytes, code: int, told: str
) -> None:
    done = shell(*words, stdin=stdin)

    assert done.code == code, done.err
    assert is_one_sentence(done, told), done.err


def test_what_is_not_there_is_no_failure(shell: Shell) -> None:
    assert shell("notes", "delete", "note-0", *APP).data is False
    assert shell("task", "retry", NO_TASK).data is False
    assert shell("fsck", *APP).data["notes"] == 0


def test_a_drawing_that_cannot_be_written_is_told(moved: tuple[str, str], shell: Shell) -> None:
    done = shell("evolution", moved[0], *APP, "--out", "/nowhere/at/all.mmd")

    assert done.code == 74
    assert is_one_sentence(done, "No such file or directory: /nowhere/at/all.mmd")


# -- what people see --------------------------------------------------------------------------


def test_people_see_tables(moved: tuple[str, str], shell: Shell, tmp_path: Path) -> None:
    old, new = moved
    file, page = tmp_path / "talk.json", tmp_path / "ada.html"
    file.write_bytes(talk("The \x1b[31m printer is a Brother L2400."))
    place = ["--data-dir", str(shell.data_dir), "--namespace", shell.namespace]
    commands = (
        ("notes", "add", str(file), *ADA),
        ("notes", "search", "address", *APP, "--recall", "all"),
        ("notes", "search", "address", "--app", "other"),
        ("notes", "search", "address", *APP, "--archived"),
        ("notes", "get", old, *APP),
        ("notes", "get", new, *APP),
        ("evolution", new, *APP),
        ("evolution", new, *APP, "--out", str(page)),
        ("fsck", *APP),
        ("archive", *APP, "--dry-run"),
        ("notes", "erase", *ADA, "--dry-run"),
        ("notes", "delete", new, *APP),
        ("notes", "delete", "note-0", *APP),
        ("task", "list"),
        ("task", "retry", NO_TASK),
    )

    screen = several_on_a_terminal(*([*place, *words] for words in commands)).out

    assert screen.count(" left 0\n") == len(commands), screen
    assert "\x1b[31m" not in screen
    for part in (
        "done",
        "relevance",
        "became",
        "resembles",
        "strength",
        f"into {page}",
        "notes in 2 chains",
        "would be archived: 0 notes",
        "would be erased of ada in shop",
        "nothing to delete",
        "no such failed task",
    ):
        assert part in screen, (part, screen)


def test_forgetting_at_a_terminal_waits_for_an_answer(moved: tuple[str, str], shell: Shell) -> None:
    words = ("--data-dir", str(shell.data_dir), "--namespace", shell.namespace, "forget", *ADA)

    refused = on_a_terminal(*words, typed="n\n")

    assert refused.code == 1
    assert "of ada in app shop for good? [y/N]" in refused.out
    assert shell("notes", "erase", *ADA, "--dry-run").data["messages"] == 2


def test_a_worker_does_what_waits_and_ends_when_told_to(shell: Shell) -> None:
    # This process leaves it to the other one.
    shell.patch.setenv("SHAREDMEM_SYNTHESIS_CONCURRENCY", "0")
    task = shell("notes", "add", *ADA, "--wait", "0", stdin=talk(OSLO)).data

    with start(
        "task", "work", "--data-dir", str(shell.data_dir), "--namespace", shell.namespace, environment=WORKING
    ) as worker:
        done = shell("task", "get", task["task_id"], "--wait", "30").data
        worker.send_signal(signal.SIGTERM)
        ended = finish(worker)

    assert done["status"] == "done"
    assert (ended.code, ended.out, ended.err) == (0, "", "")
