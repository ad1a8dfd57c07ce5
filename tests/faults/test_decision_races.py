"""Sixty-four agents over eight hubs want the same thing at the same moment, a hundred times: one gets it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest
from support.faulty_hubs import persistent_settings
from support.redis_process import RedisProcess

from sharedmem import ClaimLostError, Hub
from sharedmem.decisions.decisions import Decisions
from sharedmem.decisions.executions import TakeoverPolicy
from sharedmem.models import ExecutionClaim, SaveResult

HUBS, AGENTS, ROUNDS = 8, 64, 100
SESSION = "desk"


@pytest.fixture
async def logs(bare_server: RedisProcess) -> AsyncIterator[list[Decisions]]:
    """The decision log as eight processes would see it."""
    async with AsyncExitStack() as stack:
        hubs = [
            await stack.enter_async_context(Hub.open(settings=persistent_settings(bare_server.url)))
            for _ in range(HUBS)
        ]
        yield [hub.store("race", actor=f"agent-{number}").decisions for number, hub in enumerate(hubs)]


async def raced(logs: list[Decisions], act: Callable[[Decisions], Coroutine[Any, Any, Any]]) -> list[Any]:
    """What each agent was answered; they begin in another order each time, as tasks do."""
    return await asyncio.gather(*(act(logs[number % HUBS]) for number in range(AGENTS)))


async def saved(log: Decisions, *, why: str) -> SaveResult:
    return await log.save_if_new(SESSION, "BTC", "BUY", 0.5, why)


async def begun(log: Decisions, *, plan: str, policy: TakeoverPolicy = "never") -> ExecutionClaim:
    return await log.begin_execution(SESSION, plan, policy=policy)


async def test_of_64_planners_of_one_plan_exactly_one_saves(logs: list[Decisions]) -> None:
    for number in range(ROUNDS):
        results = await raced(logs, partial(saved, why=f"reason {number}"))

        assert sum(result.saved for result in results) == 1
        assert len({result.plan.plan_id for result in results}) == 1

    stats = await logs[0].get_execution_stats(SESSION)
    assert stats.duplicates_prevented == ROUNDS * (AGENTS - 1)
    assert len(await logs[0].get_recent_plans(SESSION, limit=1000)) == ROUNDS


async def test_of_64_executors_of_one_plan_exactly_one_starts(logs: list[Decisions]) -> None:
    fences = []
    for number in range(ROUNDS):
        short = await logs[0].save_plan(SESSION, "BTC", "BUY", 0.5, f"reason {number}")
        claims: list[ExecutionClaim] = await raced(logs, partial(begun, plan=short))

        (started,) = (claim for claim in claims if claim.started)
        fences.append(started.fence)
        await logs[1].finish(SESSION, short, started.fence, status="success")

    assert fences == sorted(set(fences))
    stats = await logs[0].get_execution_stats(SESSION)
    assert (stats.total_executions, stats.duplicates_prevented) == (ROUNDS, ROUNDS * (AGENTS - 1))


async def test_of_64_who_take_an_orphan_over_exactly_one_starts(logs: list[Decisions]) -> None:
    for number in range(ROUNDS // 10):
        short = await logs[0].save_plan(SESSION, "BTC", "BUY", 0.5, f"reason {number}")
        first = await logs[0].begin_execution(SESSION, short, lease=0.05)
        await asyncio.sleep(0.06)  # no event tells of a lease that is over
        claims: list[ExecutionClaim] = await raced(logs, partial(begun, plan=short, policy="takeover"))

        (started,) = (claim for claim in claims if claim.started)
        assert started.attempt == 2
        with pytest.raises(ClaimLostError):
            await logs[0].finish(SESSION, short, first.fence, status="success")


async def test_of_64_who_mark_a_plan_with_orders_of_their_own_exactly_one_is_believed(logs: list[Decisions]) -> None:
    for number in range(ROUNDS // 10):
        short = await logs[0].save_plan(SESSION, "BTC", "BUY", 0.5, f"reason {number}")
        orders = iter(range(AGENTS))
        answers = await asyncio.gather(
            *(
                logs[order % HUBS].mark_executed(SESSION, short, "BTC", "BUY", 0.5, "success", True, f"o-{order}")
                for order in orders
            ),
            return_exceptions=True,
        )

        (record,) = (answer for answer in answers if not isinstance(answer, BaseException))
        assert await logs[0].check_executed(SESSION, short) == (True, record)
