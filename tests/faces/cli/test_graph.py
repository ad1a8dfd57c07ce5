"""`sharedmem graph`: as programs read it and as people see it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from support.shell import Shell, is_one_sentence, several_on_a_terminal

GROUP = ("--group", "acme:ada")
NO_ADDRESS = "redis://127.0.0.1:1"

pytestmark = pytest.mark.usefixtures("hashing_embedder")


@pytest.fixture
def told(shell: Shell) -> Shell:
    """Ada lives in Oslo, and then in Rome."""
    shell("graph", "add", "Ada lives in Oslo.", *GROUP, "--at", "2020-01-01", "--id", "first", "--session", "s1")
    shell("graph", "add", "Ada lives in Rome.", *GROUP, "--at", "2022-05-01T00:00+00:00", "--id", "second")
    return shell


def graph(shell: Shell, *words: str) -> Any:
    return shell("graph", *words, *GROUP).data


def places(facts: list[dict[str, Any]]) -> list[tuple[str, str | None]]:
    """Where Ada lives, and until when."""
    lives = [fact for fact in facts if fact["type"] == "lives_in"]
    found = [(fact["target_name"], fact["valid_to"] and fact["valid_to"][:10]) for fact in lives]
    return sorted(found, key=str)


def shown(shell: Shell, *commands: tuple[str, ...]) -> str:
    """What people see of commands, one after the other."""
    place = ["--data-dir", str(shell.data_dir), "--namespace", shell.namespace]
    return several_on_a_terminal(*([*place, "graph", *words] for words in commands)).out


def test_what_is_added_becomes_facts_and_closes_others(shell: Shell) -> None:
    first = graph(shell, "add", "Ada lives in Oslo.", "--at", "2020-01-01", "--id", "first", "--user", "ada")
    second = shell("graph", "add", "-", *GROUP, "--at", "2022-05-01", stdin=b"Ada lives in Rome.\n").data

    assert places(first["facts"]) == [("Oslo", None)]
    assert (first["id"], first["episode"]["occurred_at"][:19]) == ("first", "2020-01-01T00:00:00")
    assert (first["episode"]["user"], first["episode"]["source"]) == ("ada", "message")
    assert places(second["facts"]) == [("Rome", None)]
    assert places(second["closed"]) == [("Oslo", "2022-05-01")]


def test_an_id_makes_adding_repeatable(told: Shell) -> None:
    again = graph(told, "add", "Ada lives in Oslo.", "--at", "2020-01-01", "--id", "first", "--session", "s1")

    assert again["repeated"] is True
    assert graph(told, "stats")["episodes"] == 2


def test_a_past_state_can_be_asked_for(told: Shell) -> None:
    now = graph(told, "entity", "ada")
    then = graph(told, "entity", "Ada", "--as-of", "2021-01-01")

    assert now["entity"]["name"] == "Ada"
    assert places(now["facts"]) == [("Rome", None)]
    assert places(then["facts"]) == [("Oslo", "2022-05-01")]
    assert places(graph(told, "as-of", "2020-06-01")["items"]) == [("Oslo", "2022-05-01")]
    assert places(graph(told, "as-of", "2023-06-01")["items"]) == [("Rome", None)]
    assert graph(told, "as-of", "2020-06-01", "--known-at", "2020-06-01")["items"] == []


def test_history_tells_what_was_known_when(told: Shell) -> None:
    history = graph(told, "history", "Ada")

    assert places(history) == [("Oslo", "2022-05-01"), ("Oslo", None), ("Rome", None)]
    assert sum(fact["superseded_at"] is not None for fact in history) == 1


def test_a_question_is_answered_with_its_sources(told: Shell) -> None:
    found = graph(told, "search", "where does Ada live?", "--explain")
    texts = [item["text"] for item in found["items"]]

    assert any("Rome" in text for text in texts)
    assert any("second" in item["episode_ids"] for item in found["items"])
    assert any(item["signals"] for item in found["items"])
    then = graph(told, "search", "where does Ada live?", "--as-of", "2021-01-01")
    assert any("Oslo" in item["text"] for item in then["items"] if item["kind"] == "fact")
    prompt = told("graph", "search", "where does Ada live?", "--prompt", "--max-tokens", "200", *GROUP)
    assert prompt.out.startswith("What is known:\n- ")
    assert "Rome" in prompt.out
    assert len(graph(told, "search", "where does Ada live?", "--limit", "1")["items"]) == 1


def test_a_way_between_entities_is_shown(told: Shell) -> None:
    graph(told, "add", "Ben lives in Rome.", "--at", "2021-01-01")

    way = graph(told, "path", "Ada", "Ben")

    assert [(step["fact"]["source_name"], step["forward"]) for step in way] == [("Ada", True), ("Ben", False)]
    assert graph(told, "path", "Ada", "Ben", "--as-of", "2021-06-01") == []


def test_an_episode_is_undone(told: Shell) -> None:
    graph(told, "undo", "second")

    assert places(graph(told, "entity", "Ada")["facts"]) == [("Oslo", None)]
    assert graph(told, "undo", "second")["repeated"] is True


def test_entities_are_merged_and_taken_apart(told: Shell) -> None:
    graph(told, "add", "Lovelace works for Acme.", "--at", "2021-01-01")

    merge = graph(told, "merge", "Lovelace", "Ada", "--reason", "one person")
    assert merge["reason"] == "one person"
    assert graph(told, "entity", "Lovelace")["entity"]["name"] == "Ada"

    assert graph(told, "unmerge", "Lovelace")["undone_at"] is not None
    assert graph(told, "entity", "Lovelace")["entity"]["name"] == "Lovelace"


def test_episodes_and_groups_are_listed(told: Shell) -> None:
    told("graph", "add", "Rain fell.", "--group", "other:one")

    first = graph(told, "episodes", "--limit", "1")
    rest = graph(told, "episodes", "--after", first["cursor"])

    assert [one["id"] for one in first["items"] + rest["items"]] == ["first", "second"]
    assert [one["id"] for one in graph(told, "episodes", "--session", "s1")["items"]] == ["first"]
    assert told("graph", "groups").data == ["acme:ada", "other:one"]


def test_a_graph_is_deleted_only_when_that_is_meant(told: Shell) -> None:
    refused = told("graph", "delete", *GROUP)
    assert (refused.code, is_one_sentence(refused, "it cannot be confirmed without a terminal; say --yes")) == (2, True)
    assert graph(told, "stats")["episodes"] == 2

    assert graph(told, "delete", "--yes") > 0
    assert graph(told, "stats")["episodes"] == 0
    assert told("graph", "groups").data == []


def test_a_file_of_episodes_is_added_and_known_the_second_time(shell: Shell, tmp_path: Path) -> None:
    lines = [
        {"id": "one", "content": "Ada lives in Oslo.", "occurred_at": "2020-01-01"},
        {"id": "two", "content": "Ada lives in Rome.", "occurred_at": "2022-05-01T00:00:00+02:00", "source": "crm"},
        {"id": "three", "content": {"order": 7}},
    ]
    file = tmp_path / "told.jsonl"
    file.write_text("\n\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")

    done = graph(shell, "add", "--file", str(file))
    again = graph(shell, "add", "--file", str(file))

    assert (done["episodes"], done["repeated"], done["facts"], done["failed"]) == (3, 0, 2, 0)
    assert (again["episodes"], again["repeated"]) == (3, 3)
    assert places(graph(shell, "entity", "Ada")["facts"]) == [("Rome", None)]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("nonsense", "line 2 'nonsense' is refused: give a JSON object"),
        ("[1]", "line 2 '[1]' is refused: give a JSON object"),
        ('{"id": "x"}', "line 2: content"),
        ('{"content": "x", "group_id": "other:one"}', "line 2 'other:one' is refused: it is of another group"),
        ('{"content": "x", "occurred_at": "soon"}', "line 2: occurred_at 'soon' is refused: give a date"),
        ('{"content": "x", "mood": 1}', "line 2: mood"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_added(shell: Shell, tmp_path: Path, line: str, told: str) -> None:
    file = tmp_path / "told.jsonl"
    file.write_text(f'{{"content": "fine"}}\n{line}\n', encoding="utf-8")

    done = shell("graph", "add", *GROUP, "--file", str(file))

    assert (done.code, is_one_sentence(done, told)) == (2, True), done.err
    assert shell("graph", "groups").data == []


def test_a_graph_is_drawn_in_three_ways(told: Shell, tmp_path: Path) -> None:
    mermaid = told("graph", "draw", *GROUP)
    assert mermaid.out.startswith("flowchart LR\n")
    assert '"lives in since 2022-05-01"' in mermaid.out
    assert told("graph", "draw", *GROUP, "--format", "dot", "--as-of", "2021-01-01").out.count(" -> ") == 1

    page = tmp_path / "ada.html"
    done = graph(told, "draw", "--format", "html", "--out", str(page))
    assert (done["file"], done["facts"], done["truncated"]) == (str(page), 2, False)
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")

    drawing = graph(told, "draw", "--entity", "Rome", "--depth", "1", "--json")
    assert {entity["name"] for entity in drawing["entities"]} == {"Ada", "Rome"}


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("add", "x"), 2, "missing option '--group'"),
        (("add", "x", "--group", ""), 2, "group_id '' is refused"),
        (("add", "x", "--group", "a{b}"), 2, "leave out braces and control characters"),
        (("add", *GROUP), 2, "say what happened, or pipe it in"),
        (("add", "x", *GROUP, "--at", "soon"), 2, "at 'soon' is refused: give a date such as 2024-03-01"),
        (("add", "x", *GROUP, "--file", "y.jsonl"), 2, "give a text or --file, not both"),
        (("add", *GROUP, "--file", "nowhere.jsonl"), 3, "file 'nowhere.jsonl' does not exist"),
        (("add", "x", *GROUP, "--url", NO_ADDRESS), 7, NO_ADDRESS),
        (("search", "x"), 2, "missing option '--group'"),
        (("search", "", *GROUP), 2, "query '' is refused"),
        (("search", "x", *GROUP, "--limit", "0"), 2, "0 is refused"),
        (("search", "x", *GROUP, "--max-tokens", "0"), 2, "'--max-tokens'"),
        (("search", "x", *GROUP, "--known-at", "1/2/3"), 2, "known-at '1/2/3' is refused"),
        (("entity", "Nobody", *GROUP), 3, "entity 'Nobody' does not exist"),
        (("entity", "\udcff", *GROUP), 2, "it holds half a character"),
        (("merge", "Ada", "\udcff", *GROUP), 2, "it holds half a character"),
        (("undo", "\udcff", *GROUP), 2, "it holds half a character"),
        (("history", "Nobody", *GROUP), 3, "entity 'Nobody' does not exist"),
        (("path", "Nobody", "None", *GROUP), 3, "entity 'Nobody' does not exist"),
        (("as-of", "whenever", *GROUP), 2, "when 'whenever' is refused"),
        (("undo", "nothing", *GROUP), 3, "episode 'nothing' does not exist"),
        (("merge", "Nobody", "None", *GROUP), 3, "'Nobody' does not exist"),
        (("unmerge", "Nobody", *GROUP), 3, "'Nobody' does not exist"),
        (("draw", *GROUP, "--format", "png"), 2, "format 'png' is refused: give one of mermaid, dot, html"),
        (("draw", *GROUP, "--format", "html", "--as-of", "2020-01-01"), 2, "a page shows all times"),
        (("draw", *GROUP, "--entity", "Nobody"), 3, "entity 'Nobody' does not exist"),
        (("draw", *GROUP, "--limit", "0"), 2, "limit 0 is refused"),
        (("draw", *GROUP, "--out", "/nowhere/at/all.mmd"), 74, "No such file or directory"),
        (("groups", "--url", NO_ADDRESS), 7, NO_ADDRESS),
    ],
)
def test_a_mistake_is_told_in_a_sentence(shell: Shell, words: tuple[str, ...], code: int, told: str) -> None:
    done = shell("graph", *words)

    assert done.code == code, done.err
    assert is_one_sentence(done, told), done.err


def test_the_help_of_the_group_tells_what_it_can_do(shell: Shell) -> None:
    done = shell("graph", "--help")

    assert (done.code, done.err) == (0, "")
    assert "Usage: sharedmem graph" in done.out
    assert "Try:  sharedmem graph" in done.out


def test_people_see_tables(told: Shell, tmp_path: Path) -> None:
    file = tmp_path / "more.jsonl"
    file.write_text('{"id": "m1", "content": "Ben lives in Rome."}\n', encoding="utf-8")

    screen = shown(
        told,
        ("add", "Cleo lives in Paris.", *GROUP, "--id", "third"),
        ("add", "Cleo lives in Paris.", *GROUP, "--id", "third"),
        ("add", *GROUP, "--file", str(file)),
        ("search", "where does Ada live?", *GROUP, "--explain"),
        ("search", "where does Ada live?", *GROUP, "--prompt"),
        ("entity", "Ada", *GROUP),
        ("history", "Ada", *GROUP),
        ("path", "Ada", "Ben", *GROUP),
        ("as-of", "2021-01-01", *GROUP),
        ("stats", *GROUP),
        ("episodes", *GROUP, "--limit", "1"),
        ("groups",),
        ("draw", *GROUP),
        ("merge", "Cleo", "Ben", *GROUP),
        ("unmerge", "Cleo", *GROUP),
        ("undo", "third", *GROUP),
        ("delete", *GROUP, "--yes"),
    )

    assert screen.count(" left 0\n") == 17, screen
    for part in (
        "added: third",
        "known: third was there already",
        "1 episode added",
        "round trips",
        "What is known",
        "2022-05-01",
        "known from",
        "──▶ Rome",
        "past facts",
        "there are more: --after ",
        "acme:ada",
        "flowchart LR",
        "merged: ",
        "apart again: ",
        "undone: third",
        "records deleted",
    ):
        assert part in screen, part


def test_a_page_is_not_thrown_at_a_terminal(told: Shell) -> None:
    screen = shown(told, ("draw", *GROUP, "--format", "html"))

    assert "say --out FILE.html, then open it" in screen
    assert "<script" not in screen


def test_a_name_cannot_command_the_terminal(shell: Shell) -> None:
    graph(shell, "add", "red \x1b[31m alert", "--id", "alarm")

    screen = shown(shell, ("episodes", *GROUP), ("search", "alert", *GROUP))

    assert screen.count("red \\x1b[31m alert") >= 2


def test_a_check_reports_and_repairs_and_its_exit_code_is_whether_anything_is_left(told: Shell, data_dir: Path) -> None:
    """docs/graph.md: `graph check` finds what does not follow from the episodes; `fsck` checks the whole namespace."""
    assert told("graph", "check", *GROUP).data["problems"] == []
    with Redis(unix_socket_path=str(data_dir / "redis.sock")) as redis:
        (edges,) = redis.scan_iter(f"*{told.namespace}}}*edges*")
        redis.delete(edges)

    found = told("graph", "check", *GROUP)
    everywhere = told("fsck")
    mended = told("graph", "check", "--repair", *GROUP)

    assert (found.code, everywhere.code, mended.code) == (1, 1, 0)
    assert {problem["kind"] for problem in json.loads(found.out)["problems"]} == {"missing_entry"}
    assert all(problem["repaired"] for problem in mended.data["problems"])
    assert told("fsck").data["graphs"][0]["problems"] == []
    assert places(graph(told, "entity", "Ada")["facts"]) == [("Rome", None)]
