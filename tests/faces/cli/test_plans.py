"""`sharedmem plans`: what agents decided, as programs read it and as people see it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from support.shell import Shell, on_a_terminal, several_on_a_terminal

from sharedmem import Hub, Settings
from sharedmem.decisions.decisions import Decisions

T = TypeVar("T")
WHY = "the trend is strong"


def meanwhile(shell: Shell, act: Callable[[Decisions], Awaitable[T]]) -> T:
    """What an agent does in the namespace of the shell."""

    async def in_a_hub() -> T:
        async with Hub.open(settings=Settings(data_dir=shell.data_dir)) as hub:
            return await act(hub.store(shell.namespace, actor="ada").decisions)

    return asyncio.run(in_a_hub())


async def plan_and_lose(log: Decisions) -> str:
    """Two plans; the execution of the second one has an unknown end."""
    await log.save_plan("desk", "ETH", "SELL", 0.5, "the news are bad", "rules")
    short = await log.save_plan("desk", "BTC", "BUY", 0.75, WHY, "llm")
    claim = await log.begin_execution("desk", short)
    await log.finish("desk", short, claim.fence, status="timeout", error="no answer")
    return short


def test_plans_are_listed_newest_first_and_by_symbol(shell: Shell) -> None:
    short = meanwhile(shell, plan_and_lose)

    assert [plan["symbol"] for plan in shell("plans", "desk").data] == ["BTC", "ETH"]
    (plan,) = shell("plans", "list", "desk", "--symbol", "BTC", "--limit", "5").data
    assert (plan["plan_hash"], plan["confidence"], plan["reasoning"]) == (short, 0.75, WHY)
    assert shell("plans", "sessions").data == ["desk"]
    assert shell("plans", "list", "nobody").data == []


def test_a_duplicate_is_told_with_the_plan_it_repeats(shell: Shell) -> None:
    short = meanwhile(shell, plan_and_lose)

    same = shell("plans", "check", "desk", "BTC", "BUY", WHY, "--window", "3600").data
    other = shell("plans", "check", "desk", "BTC", "SELL", WHY).data

    assert (same["is_duplicate"], same["plan"]["plan_hash"]) == (True, short)
    assert other == {"is_duplicate": False, "plan": None}


def test_past_plans_are_found_by_reasoning_by_time_and_by_what_followed(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHAREDMEM_EMBEDDER", "hashing")
    short = meanwhile(shell, plan_and_lose)

    (similar,) = shell("plans", "similar", "the trend is very strong", "--symbol", "BTC").data
    past = shell("plans", "history", "desk", "--since", "2026-01-01").data
    (pattern,) = shell("plans", "patterns", "desk", "--within", "60").data

    assert (similar["plan"]["plan_hash"], similar["execution"]["state"]) == (short, "unknown")
    assert [one["plan"]["symbol"] for one in past] == ["BTC", "ETH"]
    assert (pattern["first"]["symbol"], pattern["then"]["symbol"], pattern["times"]) == ("ETH", "BTC", 1)
    assert shell("plans", "history", "desk", "--until", "2026-01-01").data == []
    assert shell("plans", "similar", " ").code == 2


def test_an_unknown_outcome_is_found_and_resolved(shell: Shell) -> None:
    short = meanwhile(shell, plan_and_lose)
    (waiting,) = shell("plans", "open", "desk").data
    assert (waiting["plan_hash"], waiting["state"], waiting["actor"]) == (short, "unknown", "ada")

    record = shell("plans", "resolve", "desk", short, "success", "--order-id", "o-9", "--order-size", "12.5").data

    assert (record["state"], record["order_id"], record["order_size_usdt"]) == ("succeeded", "o-9", 12.5)
    assert shell("plans", "open", "desk").data == []
    stats = shell("plans", "stats", "desk", "--symbol", "BTC").data
    assert (stats["total_executions"], stats["win_rate"]) == (1, 1.0)


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("resolve", "desk", "deadbeef", "success"), 3, "deadbeef"),
        (("resolve", "desk", "deadbeef", "won"), 2, "status 'won' is refused"),
        (("list", "a:b"), 2, "session 'a:b' is refused"),
        (("check", "desk", "BTC", "BUY", WHY, "--window", "0"), 2, "time_window_sec"),
    ],
)
def test_a_mistake_is_told_in_a_sentence(shell: Shell, words: tuple[str, ...], code: int, told: str) -> None:
    done = shell("plans", *words)

    assert (done.code, done.out) == (code, "")
    assert done.err.startswith("sharedmem: ")
    assert told in done.err


def test_people_see_tables(shell: Shell) -> None:
    short = meanwhile(shell, plan_and_lose)
    place = ["--data-dir", str(shell.data_dir), "--namespace", shell.namespace, "plans"]

    screen = several_on_a_terminal(
        [*place, "desk"],
        [*place, "open", "desk"],
        [*place, "check", "desk", "BTC", "BUY", WHY],
        [*place, "check", "desk", "BTC", "BUY", "another reason"],
        [*place, "stats", "desk"],
        [*place, "open", "nobody"],
        [*place, "history", "desk"],
        [*place, "patterns"],
    ).out

    for word in (
        short,
        WHY,
        "unknown",
        "no answer",
        f"duplicate of {short}",
        "new: ",
        "win rate",
        "nothing there",
        "BTC BUY",
        "lift",
    ):
        assert word in screen
    done = on_a_terminal(*place, "resolve", "desk", short, "failed")
    assert f"{short} has failed" in done.out
