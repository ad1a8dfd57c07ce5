"""`sharedmem remember`, `recall`, `memories`, `thread`, `index`: as programs read them and as people see them."""

from __future__ import annotations

from typing import Any

import pytest
from support.shell import Shell, is_one_sentence, several_on_a_terminal

LEASE = "The lease of the office ends in May"
TEA = "Ada drinks tea with milk"
NO_ADDRESS = "redis://127.0.0.1:1"

pytestmark = pytest.mark.usefixtures("hashing_embedder")


def texts(found: dict[str, Any]) -> list[str]:
    return [hit["item"]["memory"] for hit in found["hits"]]


def shown(shell: Shell, *commands: tuple[str, ...]) -> str:
    """What people see of commands, one after the other."""
    place = ["--data-dir", str(shell.data_dir), "--namespace", shell.namespace]
    return several_on_a_terminal(*([*place, *words] for words in commands)).out


def test_what_is_remembered_is_recalled_best_first(shell: Shell) -> None:
    added = shell("remember", LEASE, "--category", "office", "--tag", "lease", "--importance", "high").data
    shell("remember", TEA)

    found = shell("recall", "when does the lease end?").data

    assert texts(found)[0] == LEASE
    item = found["hits"][0]["item"]
    assert (item["id"], item["category"], item["tags"], item["importance"]) == (
        added["id"],
        "office",
        ["lease"],
        "high",
    )
    assert found["mode"] == "hybrid"
    assert found["degraded"] is None
    assert found["hits"][0]["why"] is None


def test_a_fact_can_be_piped_in_and_is_known_the_second_time(shell: Shell) -> None:
    first = shell("remember", "-", stdin=LEASE.encode() + b"\n").data
    again = shell("remember", stdin=LEASE.encode()).data
    apart = shell("remember", LEASE, "--no-dedup").data

    assert again == first | {"merged": True, "similarity": 1.0, "version": again["version"]}
    assert apart["id"] != first["id"]


def test_an_id_of_ones_own_makes_remembering_repeatable(shell: Shell) -> None:
    once = shell("remember", LEASE, "--id", "lease").data
    twice = shell("remember", LEASE, "--id", "lease").data

    assert once["id"] == twice["id"] == "lease"
    assert shell("memories", "stats").data["count"] == 1
    assert is_one_sentence(shell("remember", "bananas are bent", "--id", "lease"), "lease")


def test_what_is_recalled_can_be_narrowed(shell: Shell) -> None:
    shell("remember", "tea is for ines", "--user", "ines", "--thread", "t1", "--type", "short-term", "--tag", "a")
    shell("remember", "tea is for otto", "--user", "otto", "--category", "drink", "--actor", "bob")

    def recalled(*filters: str) -> list[str]:
        return sorted(texts(shell("recall", "tea", *filters).data))

    ines, otto = ["tea is for ines"], ["tea is for otto"]
    assert recalled() == ines + otto
    assert recalled("--user", "ines") == ines
    assert recalled("--agent", "bob") == otto
    assert recalled("--thread", "t1") == ines
    assert recalled("--category", "drink") == otto
    assert recalled("--tag", "a") == ines
    assert recalled("--type", "short-term") == ines
    assert recalled("--since", "2001-01-01") == ines + otto
    assert recalled("--since", "2999-01-01") == []
    assert recalled("--limit", "1", "--mode", "keywords", "--user", "otto") == otto


def test_why_something_was_recalled_is_told_with_its_cost(shell: Shell) -> None:
    shell("remember", TEA, "--speaker", "Ada")

    found = shell("recall", "what does Ada drink?", "--explain").data

    signals = {signal["name"]: signal for signal in found["hits"][0]["why"]["signals"]}
    assert {"text", "vector", "author"} <= signals.keys()
    total = sum(signal["contribution"] for signal in signals.values())
    assert total == pytest.approx(found["hits"][0]["score"])
    assert found["cost"]["round_trips"] > 0


def test_memories_are_listed_newest_first_and_page_by_page(shell: Shell) -> None:
    for number in range(3):
        shell("remember", f"boat {number} lies in harbour {number}", "--no-dedup")

    first = shell("memories", "list", "--limit", "2").data
    rest = shell("memories", "list", "--limit", "2", "--cursor", first["cursor"]).data

    told = [item["memory"][:6] for item in first["items"] + rest["items"]]
    assert told == ["boat 2", "boat 1", "boat 0"]
    assert (first["total"], rest["cursor"]) == (3, None)


def test_what_was_forgotten_can_be_undone(shell: Shell) -> None:
    shell("remember", LEASE, "--id", "lease")

    assert shell("memories", "forget", "lease").data is True
    assert shell("memories", "forget", "lease").data is False
    gone = shell("memories", "show", "lease")
    assert (gone.code, is_one_sentence(gone, "sharedmem memories history lease")) == (3, True)
    assert [version["change"] for version in shell("memories", "history", "lease").data] == ["deleted", "added"]

    assert shell("memories", "undo", "lease").data["memory"] == LEASE
    assert shell("memories", "show", "lease").data["memory"] == LEASE


def test_a_merge_is_taken_back_by_its_version(shell: Shell) -> None:
    shell("remember", LEASE, "--id", "lease")
    merge = shell("remember", LEASE).data

    back = shell("memories", "undo", "lease", "--version", str(merge["version"])).data

    assert back["occurrences"] == 1


def test_a_thread_tells_who_takes_part_and_what_it_was_about(shell: Shell) -> None:
    for speaker, text in (("Ada", "The harbour closes at nine."), ("Bob", "Then we sail at eight.")):
        shell("remember", text, "--speaker", speaker, "--thread", "trip")

    stats = shell("thread", "stats", "trip").data
    summary = shell("thread", "summary", "trip", "--turns", "5").data

    assert stats["turn_count"] == 2
    assert {one["name"]: one["turns"] for one in stats["participants"]} == {"Ada": 1, "Bob": 1}
    assert "harbour" in summary
    assert shell("thread", "summary", "nobody").data == ""


def test_a_namespace_is_counted(shell: Shell) -> None:
    shell("remember", LEASE, "--category", "office", "--thread", "t")
    shell("remember", TEA, "--type", "short-term")

    stats = shell("memories", "stats").data

    assert stats["by_type"] == {"long-term": 1, "short-term": 1}
    assert stats["by_category"] == {"": 1, "office": 1}
    assert shell("memories", "stats", "--thread", "t").data["count"] == 1


def test_indexes_are_shown_promoted_rebuilt_and_checked(shell: Shell) -> None:
    shell("remember", LEASE)
    assert all(shell.namespace not in one["namespaces"] for one in shell("index", "list").data)

    promoted = shell("index", "promote").data
    rebuilt = shell("index", "rebuild").data

    for found in (promoted, rebuilt):
        (own,) = [one for one in found if shell.namespace in one["namespaces"]]
        assert (own["family"], own["documents"], own["failures"]) == ("memory", 1, 0)
    assert shell("index", "rebuild", "--shared", "--family", "cache").code == 0
    assert shell("index", "check").data == []
    assert texts(shell("recall", "lease").data) == [LEASE]


def test_without_an_embedder_words_are_enough_and_it_is_told(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHAREDMEM_EMBEDDER", "none")
    shell("remember", LEASE)

    found = shell("recall", "lease").data

    assert (texts(found), found["mode"]) == ([LEASE], "keywords")
    assert found["degraded"]
    assert f"searched by words alone: {found['degraded']}" in shown(shell, ("recall", "lease"))


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("remember", ""), 2, "say what to remember, or pipe it in"),
        (("remember",), 2, "say what to remember, or pipe it in"),
        (("remember", "x", "--importance", "huge"), 2, "importance 'huge' is refused: it should be 'low'"),
        (("remember", "x", "--ttl", "0"), 2, "ttl 0 is refused"),
        (("remember", "x", "--ttl", "soon"), 2, "'--ttl'"),
        (("remember", "x", "--thread", ""), 2, "thread_id '' is refused"),
        (("remember", "x", "--url", NO_ADDRESS), 7, NO_ADDRESS),
        (("recall",), 2, "missing argument 'query'; see sharedmem recall --help"),
        (("recall", ""), 2, "query '' is refused"),
        (("recall", "x", "--limit", "101"), 2, "limit 101 is refused"),
        (("recall", "x", "--mode", "fuzzy"), 2, "mode 'fuzzy' is refused: it should be 'hybrid'"),
        (("recall", "x", "--type", "eternal"), 2, "memory_type 'eternal' is refused"),
        (("recall", "x", "--threshold", "2"), 2, "threshold 2.0 is refused"),
        (("recall", "x", "--diversity", "-1"), 2, "diversity -1.0 is refused"),
        (("recall", "x", "--since", "yesterday"), 2, "'--since'"),
        (("recall", "x", "--url", NO_ADDRESS), 7, NO_ADDRESS),
        (("memories", "list", "--limit", "0"), 2, "limit 0 is refused"),
        (("memories", "list", "--cursor", "nonsense"), 2, "cursor 'nonsense' is refused"),
        (("memories", "show", "a b"), 2, "id 'a b' is refused"),
        (("memories", "undo", "nope"), 3, "memory 'nope' does not exist"),
        (("memories", "undo"), 2, "missing argument 'ID'; see sharedmem memories undo --help"),
        (("thread", "summary", "t", "--turns", "0"), 2, "'--turns'"),
        (("index", "promote", "--family", "dreams"), 2, "family 'dreams' is refused: give one of memory, cache"),
        (("index", "list", "--url", NO_ADDRESS), 7, NO_ADDRESS),
        (("metrics", "--port", "65536"), 2, "'--port'"),
    ],
)
def test_a_mistake_is_told_in_a_sentence(shell: Shell, words: tuple[str, ...], code: int, told: str) -> None:
    done = shell(*words)

    assert done.code == code, done.err
    assert is_one_sentence(done, told), done.err


@pytest.mark.parametrize("group", ["memories", "thread", "index", "cache"])
def test_the_help_of_a_group_tells_what_it_can_do(shell: Shell, group: str) -> None:
    done = shell(group, "--help")

    assert (done.code, done.err) == (0, "")
    assert f"Usage: sharedmem {group}" in done.out
    assert "Try:  sharedmem" in done.out


def test_every_actor_of_the_namespace_recalls_and_nobody_elsewhere(shell: Shell) -> None:
    shell("remember", LEASE, "--id", "lease", "--actor", "ada")

    assert texts(shell("recall", "lease", "--actor", "eve").data) == [LEASE]
    assert shell("memories", "show", "lease", "--actor", "eve").data["agent_id"] == "ada"
    assert shell("memories", "show", "lease", "--actor", "eve", "--namespace", "elsewhere").code == 3
    assert shell("recall", "lease", "--namespace", "elsewhere").data["hits"] == []


def test_people_see_blocks_and_tables(shell: Shell) -> None:
    shell("remember", LEASE, "--id", "lease", "--category", "office", "--tag", "rent")
    shell("remember", TEA, "--speaker", "Ada", "--id", "tea")

    screen = shown(
        shell,
        ("remember", LEASE, "--category", "office"),
        ("recall", "what does Ada drink?", "--explain"),
        ("recall", "tea", "--user", "nobody"),
        ("memories", "list", "--limit", "1"),
        ("memories", "show", "tea"),
        ("memories", "history", "lease"),
        ("memories", "stats"),
        ("thread", "stats", "main"),
        ("index", "promote"),
        ("index", "check"),
    )

    for told in (
        "known: merged into lease, similarity 1.00",
        "Ada: Ada drinks tea with milk",
        "place 1, weight",
        "times 2",
        "━━━",
        "cost: ",
        "nothing there",
        "1 of 2 memories; the next: --cursor ",
        "messages",
        f"+ {LEASE}",
        "1 duplicate",
        "turns",
        "hashing",
        "well",
    ):
        assert told in screen, told
    assert screen.count(" left 0\n") == 10


def test_a_memory_cannot_command_the_terminal(shell: Shell) -> None:
    shell("remember", "red \x1b[31m alert", "--speaker", "Mallory", "--id", "alarm")

    screen = shown(shell, ("recall", "alert"), ("memories", "show", "alarm"), ("memories", "list"))

    assert screen.count("red \\x1b[31m alert") >= 3
