"""`sharedmem memories`, `thread`, `index`: as programs read them and as people see them."""

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
    added = shell("memories", "add", LEASE, "--category", "office", "--tag", "lease", "--importance", "high").data
    shell("memories", "add", TEA)

    found = shell("memories", "search", "when does the lease end?").data

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
    first = shell("memories", "add", "-", stdin=LEASE.encode() + b"\n").data
    again = shell("memories", "add", stdin=LEASE.encode()).data
    apart = shell("memories", "add", LEASE, "--no-dedup").data

    assert again == first | {"merged": True, "similarity": 1.0, "version": again["version"]}
    assert apart["id"] != first["id"]


def test_a_fact_without_an_importance_is_scored_where_the_setting_says_so(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHAREDMEM_IMPORTANCE_SCORING", "rules")
    shell("memories", "add", "thanks!", "--id", "scored")
    shell("memories", "add", "thanks a lot", "--id", "given", "--importance", "medium")

    found = {item["id"]: item["importance"] for item in shell("memories", "list").data["items"]}
    assert found == {"scored": "low", "given": "medium"}


def test_an_id_of_ones_own_makes_remembering_repeatable(shell: Shell) -> None:
    once = shell("memories", "add", LEASE, "--id", "lease").data
    twice = shell("memories", "add", LEASE, "--id", "lease").data

    assert once["id"] == twice["id"] == "lease"
    assert shell("memories", "stats").data["count"] == 1
    assert is_one_sentence(shell("memories", "add", "bananas are bent", "--id", "lease"), "lease")


def test_what_is_recalled_can_be_narrowed(shell: Shell) -> None:
    shell(
        "memories", "add", "tea is for ines", "--user", "ines", "--thread", "t1", "--type", "short-term", "--tag", "a"
    )
    shell("memories", "add", "tea is for otto", "--user", "otto", "--category", "drink", "--actor", "bob")

    def recalled(*filters: str) -> list[str]:
        return sorted(texts(shell("memories", "search", "tea", *filters).data))

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
    shell("memories", "add", TEA, "--speaker", "Ada")

    found = shell("memories", "search", "what does Ada drink?", "--explain").data

    signals = {signal["name"]: signal for signal in found["hits"][0]["why"]["signals"]}
    assert {"text", "vector", "author"} <= signals.keys()
    total = sum(signal["contribution"] for signal in signals.values())
    assert total == pytest.approx(found["hits"][0]["rank_score"])
    assert found["cost"]["round_trips"] > 0


def test_memories_are_listed_newest_first_and_page_by_page(shell: Shell) -> None:
    for number in range(3):
        shell("memories", "add", f"boat {number} lies in harbour {number}", "--no-dedup")

    first = shell("memories", "list", "--limit", "2").data
    rest = shell("memories", "list", "--limit", "2", "--cursor", first["cursor"]).data

    told = [item["memory"][:6] for item in first["items"] + rest["items"]]
    assert told == ["boat 2", "boat 1", "boat 0"]
    assert (first["total"], rest["cursor"]) == (3, None)


def test_what_was_forgotten_can_be_undone(shell: Shell) -> None:
    shell("memories", "add", LEASE, "--id", "lease")

    assert shell("memories", "delete", "lease").data is True
    assert shell("memories", "delete", "lease").data is False
    gone = shell("memories", "get", "lease")
    assert (gone.code, is_one_sentence(gone, "sharedmem memories history lease")) == (3, True)
    assert [version["change"] for version in shell("memories", "history", "lease").data] == ["deleted", "added"]

    assert shell("memories", "undo", "lease").data["memory"] == LEASE
    assert shell("memories", "get", "lease").data["memory"] == LEASE


def test_a_merge_is_taken_back_by_its_version(shell: Shell) -> None:
    shell("memories", "add", LEASE, "--id", "lease")
    merge = shell("memories", "add", LEASE).data

    back = shell("memories", "undo", "lease", "--version", str(merge["version"])).data

    assert back["occurrences"] == 1


def test_stored_duplicates_are_reported_and_merged(shell: Shell) -> None:
    for id_ in ("first", "second"):
        shell("memories", "add", LEASE, "--id", id_, "--no-dedup")

    dry = shell("memories", "merge-duplicates", "--dry-run").data
    done = shell("memories", "merge-duplicates", "--similarity", "0.9").data

    assert (dry["compared"], dry["found"], dry["merged"]) == (2, 1, 0)
    assert (done["merged"], done["duplicates"][0]["id"], done["duplicates"][0]["into"]) == (1, "second", "first")
    assert shell("memories", "get", "first").data["occurrences"] == 2
    assert shell("memories", "merge-duplicates", "--similarity", "2").code == 2


def test_a_thread_tells_who_takes_part_and_what_it_was_about(shell: Shell) -> None:
    for speaker, text in (("Ada", "The harbour closes at nine."), ("Bob", "Then we sail at eight.")):
        shell("memories", "add", text, "--speaker", speaker, "--thread", "trip")

    stats = shell("thread", "stats", "trip").data
    summary = shell("thread", "summary", "trip", "--turns", "5").data

    assert stats["turn_count"] == 2
    assert {one["name"]: one["turns"] for one in stats["participants"]} == {"Ada": 1, "Bob": 1}
    assert "harbour" in summary
    assert shell("thread", "summary", "nobody").data == ""


def test_a_namespace_is_counted(shell: Shell) -> None:
    shell("memories", "add", LEASE, "--category", "office", "--thread", "t")
    shell("memories", "add", TEA, "--type", "short-term")

    stats = shell("memories", "stats").data

    assert stats["by_type"] == {"long-term": 1, "short-term": 1}
    assert stats["by_category"] == {"": 1, "office": 1}
    assert shell("memories", "stats", "--thread", "t").data["count"] == 1


def test_indexes_are_shown_promoted_rebuilt_and_checked(shell: Shell) -> None:
    shell("memories", "add", LEASE)
    assert all(shell.namespace not in one["namespaces"] for one in shell("index", "list").data)

    promoted = shell("index", "promote").data
    rebuilt = shell("index", "rebuild").data

    for found in (promoted, rebuilt):
        (own,) = [one for one in found if shell.namespace in one["namespaces"]]
        assert (own["family"], own["documents"], own["failures"]) == ("memory", 1, 0)
    assert shell("index", "rebuild", "--shared", "--family", "cache").code == 0
    assert shell("index", "check").data == []
    assert texts(shell("memories", "search", "lease").data) == [LEASE]


def test_without_an_embedder_words_are_enough_and_it_is_told(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHAREDMEM_EMBEDDER", "none")
    shell("memories", "add", LEASE)

    found = shell("memories", "search", "lease").data

    assert (texts(found), found["mode"]) == ([LEASE], "keywords")
    assert found["degraded"]
    assert f"searched by words alone: {found['degraded']}" in shown(shell, ("memories", "search", "lease"))


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("memories", "add", ""), 2, "say what to remember, or pipe it in"),
        (("memories", "add"), 2, "say what to remember, or pipe it in"),
        (("memories", "add", "x", "--importance", "huge"), 2, "importance 'huge' is refused: it should be 'low'"),
        (("memories", "add", "x", "--ttl", "0"), 2, "ttl 0 is refused"),
        (("memories", "add", "x", "--ttl", "soon"), 2, "'--ttl'"),
        (("memories", "add", "x", "--thread", ""), 2, "thread_id '' is refused"),
        (("memories", "add", "x", "--url", NO_ADDRESS), 7, NO_ADDRESS),
        (("memories", "search"), 2, "missing argument 'query'; see sharedmem memories search --help"),
        (("memories", "search", ""), 2, "query '' is refused"),
        (("memories", "search", "x", "--limit", "101"), 2, "limit 101 is refused"),
        (("memories", "search", "x", "--mode", "fuzzy"), 2, "mode 'fuzzy' is refused: it should be 'hybrid'"),
        (("memories", "search", "x", "--type", "eternal"), 2, "memory_type 'eternal' is refused"),
        (("memories", "search", "x", "--threshold", "2"), 2, "threshold 2.0 is refused"),
        (("memories", "search", "x", "--diversity", "-1"), 2, "diversity -1.0 is refused"),
        (("memories", "search", "x", "--since", "yesterday"), 2, "'--since'"),
        (("memories", "search", "x", "--url", NO_ADDRESS), 7, NO_ADDRESS),
        (("memories", "list", "--limit", "0"), 2, "limit 0 is refused"),
        (("memories", "list", "--cursor", "nonsense"), 2, "cursor 'nonsense' is refused"),
        (("memories", "get", "a b"), 2, "id 'a b' is refused"),
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


def test_every_actor_of_the_namespace_recalls_and_no_actor_elsewhere(shell: Shell) -> None:
    shell("memories", "add", LEASE, "--id", "lease", "--actor", "ada")

    assert texts(shell("memories", "search", "lease", "--actor", "eve").data) == [LEASE]
    assert shell("memories", "get", "lease", "--actor", "eve").data["agent_id"] == "ada"
    assert shell("memories", "get", "lease", "--actor", "eve", "--namespace", "elsewhere").code == 3
    assert shell("memories", "search", "lease", "--namespace", "elsewhere").data["hits"] == []


def test_people_see_blocks_and_tables(shell: Shell) -> None:
    shell("memories", "add", LEASE, "--id", "lease", "--category", "office", "--tag", "rent")
    shell("memories", "add", TEA, "--speaker", "Ada", "--id", "tea")

    screen = shown(
        shell,
        ("memories", "add", LEASE, "--category", "office"),
        ("memories", "search", "what does Ada drink?", "--explain"),
        ("memories", "search", "tea", "--user", "nobody"),
        ("memories", "list", "--limit", "1"),
        ("memories", "get", "tea"),
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
    shell("memories", "add", "red \x1b[31m alert", "--speaker", "Mallory", "--id", "alarm")

    screen = shown(shell, ("memories", "search", "alert"), ("memories", "get", "alarm"), ("memories", "list"))

    assert screen.count("red \\x1b[31m alert") >= 3


def test_a_memory_is_summarised_when_it_is_added_and_on_demand(shell: Shell) -> None:
    text = "The lease ends in May. Ann signs it on Monday."
    shell("memories", "add", text, "--id", "lease", "--summarize")
    shell("memories", "add", text, "--id", "copy", "--no-dedup")

    assert "Ann signs it" in shell("memories", "get", "lease").data["summary"]
    assert shell("memories", "get", "copy").data["summary"] is None
    assert "Ann signs it" in shell("memories", "summarize", "copy").data["summary"]


def test_words_in_quotation_marks_are_searched_as_a_phrase(shell: Shell) -> None:
    shell("memories", "add", "The house stands on solid ground.")
    shell("memories", "add", "The foundation is solid granite; the ground is wet.")

    found = shell("memories", "search", '"solid ground"', "--mode", "keywords").data["hits"]

    assert [hit["item"]["memory"] for hit in found] == ["The house stands on solid ground."]
