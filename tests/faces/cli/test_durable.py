"""`sharedmem durable ...` and `sharedmem restore`: what programs and people are told."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path

import pytest
from support.shell import Shell, several_on_a_terminal

from sharedmem import Hub, Settings


def remember(shell: Shell, **values: object) -> None:
    """What an agent does meanwhile."""

    async def in_a_hub() -> None:
        async with Hub.open(settings=Settings(data_dir=shell.data_dir)) as hub:
            store = hub.store(shell.namespace)
            for key, value in values.items():
                await store.write(key, value, kind="knowledge")

    asyncio.run(in_a_hub())


def leave_junk(shell: Shell) -> None:
    """What another client does to the outbox."""
    words = ("XADD", f"sm:{{{shell.namespace}}}:$outbox", "*", "junk", "?")
    assert shell("redis-cli", *words).code == 0


def dead(shell: Shell) -> list[dict[str, object]]:
    found: list[dict[str, object]] = shell("durable", "dead").data
    return found


def test_status_tells_where_the_tier_is_and_how_it_is(shell: Shell) -> None:
    remember(shell, note=1)

    status = shell("durable", "status").data

    assert status["reachable"]
    assert status["url"].startswith("sqlite:///")
    assert status["problems"] == []
    assert shell.namespace in [lag["namespace"] for lag in status["namespaces"]]


def test_lag_tells_what_waits_namespace_by_namespace(shell: Shell) -> None:
    remember(shell, note=1)

    lags = {lag["namespace"]: lag for lag in shell("durable", "lag").data}

    assert lags[shell.namespace] == {
        "namespace": shell.namespace,
        "waiting": 0,
        "oldest": 0.0,
        "delivered": 0,
        "dead": 0,
        "recovery": "complete",
    }


def test_drain_returns_when_nothing_waits(shell: Shell) -> None:
    leave_junk(shell)

    assert shell("durable", "drain", shell.namespace).data is True

    assert len(dead(shell)) == 1


def test_dead_letters_are_shown_replayed_and_given_up(shell: Shell) -> None:
    leave_junk(shell)
    shell("durable", "drain", shell.namespace)
    (letter,) = dead(shell)
    assert letter["name"] == "junk"
    assert "cannot be parsed" in str(letter["reason"])

    assert shell("durable", "replay").data == 1
    shell("durable", "drain", shell.namespace)
    (again,) = dead(shell)
    assert again["id"] != letter["id"]

    assert shell("durable", "dead", "--discard", str(letter["id"])).data == 0
    assert shell("durable", "dead", "--discard", str(again["id"])).data == 1
    assert dead(shell) == []


def test_what_is_no_dead_letter_cannot_be_given_up(shell: Shell) -> None:
    done = shell("durable", "dead", "--discard", "nonsense")

    assert done.code == 2
    assert "give the id of a dead letter" in done.err


def test_what_is_no_namespace_is_refused(shell: Shell) -> None:
    for words in (("durable", "drain", "a:b"), ("durable", "verify", "a b"), ("restore", "*")):
        done = shell(*words)

        assert done.code == 2
        assert done.err.startswith("sharedmem: namespace ")


def test_verify_leaves_with_one_when_something_differs(shell: Shell) -> None:
    remember(shell, note=1, other=2)
    (same,) = shell("durable", "verify", shell.namespace).data
    assert (same["keys"], same["differences"]) == (2, [])

    shell("redis-cli", "SET", f"sm:{{{shell.namespace}}}:shared:note", "spoilt")
    done = shell("durable", "verify", shell.namespace)

    assert done.code == 1
    assert '"what": "value", "redis": "spoilt"' in done.out


def test_restore_brings_back_what_redis_has_lost(shell: Shell) -> None:
    remember(shell, note=1, other=2)
    shell("redis-cli", "DEL", f"sm:{{{shell.namespace}}}:shared:note", f"sm:{{{shell.namespace}}}:shared:other")

    assert shell("restore", shell.namespace).data == {shell.namespace: 2}

    assert shell("redis-cli", "EXISTS", f"sm:{{{shell.namespace}}}:shared:note").out.strip() in {"1", "(integer) 1"}


def test_without_names_all_that_the_tier_has_is_meant(shell: Shell) -> None:
    remember(shell, note=1)

    assert shell.namespace in shell("restore").data
    # Other tests have spoilt their namespaces.
    assert shell.namespace in [one["namespace"] for one in json.loads(shell("durable", "verify").out)]


def test_without_a_tier_it_says_how_to_get_one(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHAREDMEM_DURABLE_URL", "none")
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="sm") as folder:
        done = Shell(Path(folder) / "d", "n", shell.capture, monkeypatch)("durable", "status")

    assert done.code == 8
    assert "set durable_url" in done.err


def test_people_get_tables(shell: Shell, data_dir: Path) -> None:
    remember(shell, note=1)
    leave_junk(shell)
    place = ("--data-dir", str(data_dir), "--namespace", shell.namespace)

    screen = several_on_a_terminal(
        (*place, "durable", "drain", shell.namespace),
        (*place, "durable", "status"),
        (*place, "durable", "lag"),
        (*place, "durable", "dead"),
        (*place, "durable", "dead", "--discard", "all"),
        (*place, "durable", "replay"),
        (*place, "durable", "dead"),
        (*place, "redis-cli", "SET", f"sm:{{{shell.namespace}}}:shared:note", "spoilt"),
        (*place, "durable", "verify", shell.namespace),
        (*place, "restore", shell.namespace),
        (*place, "durable", "--help"),
    ).out

    assert "all of it is in the durable tier" in screen
    assert "in reach" in screen
    assert "oldest" in screen
    assert "it cannot be parsed" in screen
    assert "1 dead letter given up" in screen
    assert "0 dead letters on the way again" in screen
    assert "nothing there" in screen
    assert "1 difference" in screen
    assert "restored" in screen
    assert "Try:  sharedmem durable status" in screen


# -- sample queries ---------------------------------------------------------------------------------


def memorize(shell: Shell) -> None:
    """Three memories of a thread, in the tier."""

    async def in_a_hub() -> None:
        async with Hub.open(settings=Settings(data_dir=shell.data_dir)) as hub:
            memory = hub.store(shell.namespace).memory
            for text in ("the tide table is wrong", "the harbour opens at six", "a ferry leaves [bold]late[/bold]"):
                await memory.add(text, thread_id="harbour")
            await hub.durable.drain(timeout=60)

    asyncio.run(in_a_hub())


def test_sample_queries_are_listed_and_run_by_name(shell: Shell) -> None:
    memorize(shell)

    names = [sample["name"] for sample in shell("durable", "samples").data]
    newest = shell("durable", "sample", "recent-turns", "--thread", "harbour", "-k", "2").data
    near = shell("durable", "sample", "nearest", "--text", "tide tables").data
    both = shell("durable", "sample", "hybrid", "--text", "harbour").data
    statistics = shell("durable", "sample", "thread-statistics", "--thread", "harbour").data

    assert {"recent-turns", "nearest", "hybrid", "phrase", "duplicates", "thread-statistics", "count"} <= set(names)
    assert [row["turn_index"] for row in newest["rows"]] == [2, 1]
    assert near["rows"][0]["memory"] == "the tide table is wrong"
    assert both["rows"][0]["memory"] == "the harbour opens at six"
    assert statistics["rows"][0]["turn_count"] == 3


def test_the_rows_of_a_sample_query_are_a_table_for_people(shell: Shell, data_dir: Path) -> None:
    memorize(shell)
    place = ("--data-dir", str(data_dir), "--namespace", shell.namespace)

    screen = several_on_a_terminal(
        (*place, "durable", "samples"),
        (*place, "durable", "sample", "phrase", "--text", "LATE"),
        (*place, "durable", "sample", "nearest", "--text", "LATE", "-k", "1"),
        (*place, "durable", "sample", "thread-statistics", "--thread", "harbour"),
        (*place, "durable", "sample", "phrase", "--text", "absent"),
    ).out

    assert "the memories nearest in meaning" in screen
    assert "[bold]late" in screen
    assert "similarity" in screen
    assert "turn count" in screen
    assert "nothing there" in screen


def test_a_sample_query_that_cannot_be_run_says_what_is_missing(shell: Shell) -> None:
    for words, told in (
        (("newest",), "give one of recent-turns"),
        (("recent-turns",), "requires it"),
        (("nearest",), "give --text"),
        (("count", "--text", "tide"), "does not take it"),
        (("recent", "-k", "0"), "ask for 1 to 1,000"),
    ):
        answer = shell("durable", "sample", *words)

        assert (answer.code, told in answer.err) == (2, True), answer
