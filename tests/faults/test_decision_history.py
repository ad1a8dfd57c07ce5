"""Eight executors hang, are paused and are killed: what they did, put together, shows no order placed twice."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

import pytest
from support.agent_processes import AgentProcess
from support.executor_processes import (
    LEASE_S,
    NAMESPACE,
    ExecutorEvent,
    find_double_starts,
    find_order_violations,
    parse_events,
    start_executor,
)
from support.faulty_hubs import persistent_settings
from support.redis_process import RedisProcess
from support.waiting import wait_until

from sharedmem import Hub
from sharedmem.decisions.decisions import Decisions

EXECUTORS, PLANS, FAULTS = 8, 30, 4
SESSIONS = ("never", "takeover", "careless")


@contextmanager
def paused(child: AgentProcess) -> Iterator[None]:
    os.kill(child._process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(child._process.pid, signal.SIGCONT)


async def rage(children: list[AgentProcess], url: str, chance: random.Random) -> None:
    """Pause one and kill another, again and again; dead ones are replaced."""
    for number in range(FAULTS):
        sleeper, victim = chance.sample(children[-EXECUTORS:], 2)
        with paused(sleeper):
            await asyncio.sleep(LEASE_S * 1.5)  # its lease runs out meanwhile
        if number % 2:
            victim.kill()
            children.remove(victim)
            children.insert(0, victim)
            children.append(await start_executor(url, 100 + number))
            children[-1].go()


async def history_of(bare_server: RedisProcess, log: Decisions) -> list[ExecutorEvent]:
    """What eight executors did with the plans of all sessions, told by themselves."""
    for session in SESSIONS:
        for number in range(PLANS):
            await log.save_plan(session, "BTC", "BUY", 0.5, f"reason {number}")
    children = await asyncio.gather(*(start_executor(bare_server.url, seed) for seed in range(EXECUTORS)))
    told = [asyncio.create_task(child.rest()) for child in children]
    try:
        for child in children:
            child.go()
        await rage(children, bare_server.url, random.Random(7))

        async def all_taken_over() -> bool:
            return (await log.get_execution_stats("takeover")).total_executions == PLANS

        await wait_until(all_taken_over, description="every plan that may be taken over has ended", within_s=60)
    finally:
        for child in children:
            with suppress(ProcessLookupError):  # it was killed before
                child.kill()
    told += [asyncio.create_task(child.rest()) for child in children[EXECUTORS:]]
    history = [event for lines in await asyncio.gather(*told) for event in parse_events(lines)]
    for child in children:
        await child.end()
    return history


async def test_executors_that_hang_pause_and_die_place_no_order_twice(bare_server: RedisProcess) -> None:
    async with Hub.open(settings=persistent_settings(bare_server.url)) as hub:
        log = hub.store(NAMESPACE).decisions
        history = await history_of(bare_server, log)
        by_session = {name: [event for event in history if event.session == name] for name in SESSIONS}

        assert not find_double_starts(by_session["never"])
        assert not find_order_violations(by_session["never"] + by_session["takeover"])
        assert any(event.verb == "refused" for event in by_session["takeover"]), "no executor was too late: hang longer"
        assert max(event.attempt for event in by_session["takeover"]) > 1
        assert find_double_starts(by_session["careless"]), "the control has to fail: it executes without a claim"
        await settle(log)


async def settle(log: Decisions) -> None:
    """A person resolves the executions of dead executors, and then everything adds up."""
    for record in await log.get_open_executions("never"):
        await wait_until(partial(is_over, log, record.plan_id), description="the leases of the dead are over")
        if await is_orphaned(log, record.plan_id):
            await log.resolve("never", record.plan_id, status="failed", error="its executor died")
    stats = await log.get_execution_stats("never")
    checks = [
        await log.check_executed("never", plan.plan_id) for plan in await log.get_recent_plans("never", limit=100)
    ]
    begun = sum(is_executed for is_executed, _ in checks)
    assert stats.total_executions == begun == stats.successful_executions + stats.failed_executions


async def is_orphaned(log: Decisions, plan: str) -> bool:
    _, record = await log.check_executed("never", plan)
    return record is not None and record.state == "orphaned"


async def is_over(log: Decisions, plan: str) -> bool:
    _, record = await log.check_executed("never", plan)
    return record is None or record.state != "running"


@pytest.mark.parametrize(
    "history",
    [
        [ExecutorEvent("s", "p", "start", 2, 1), ExecutorEvent("s", "p", "start", 1, 2)],
        [ExecutorEvent("s", "p", "start", 1, 1), ExecutorEvent("s", "p", "start", 1, 2)],
        [
            ExecutorEvent("s", "p", "start", 1, 1),
            ExecutorEvent("s", "p", "start", 2, 2),
            ExecutorEvent("s", "p", "ended", 1, 1),
        ],
        [
            ExecutorEvent("s", "p", "start", 1, 1),
            ExecutorEvent("s", "p", "ended", 1, 1),
            ExecutorEvent("s", "p", "ended", 1, 1),
        ],
    ],
)
def test_the_checker_finds_what_must_not_be(history: list[ExecutorEvent]) -> None:
    assert find_order_violations(history)
    assert not find_order_violations(history[:1])
