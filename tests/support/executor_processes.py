"""Executors as processes of their own, which hang, are paused and die; what each did it prints, a line at a time.

`python -m support.executor_processes <url> <seed>` executes the plans of three sessions until it is killed: `never` and
`takeover` by claims under these policies, `careless` without any.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import Iterable
from typing import NamedTuple, get_args

from sharedmem import AlreadyExecutedError, ClaimLostError, Hub
from sharedmem.decisions.decisions import Decisions
from sharedmem.decisions.executions import TakeoverPolicy
from support.agent_processes import AgentProcess
from support.faulty_hubs import persistent_settings

NAMESPACE = "executors"
LEASE_S = 0.2
HANGS = 0.15


class ExecutorEvent(NamedTuple):
    """What an executor did: `start`, `ended`, or `refused` when its end came too late."""

    session: str
    plan: str
    verb: str
    fence: int
    attempt: int


# -- the executor ---------------------------------------------------------------------------------


async def execute_plans(log: Decisions, plans: list[tuple[str, str]], chance: random.Random) -> None:
    """Execute what is there to execute, again and again, in an order of its own."""
    while True:
        chance.shuffle(plans)
        for session, plan in plans:
            await (
                execute_without_claim(log, plan)
                if session == "careless"
                else execute_with_claim(log, session, plan, chance)
            )
        await asyncio.sleep(LEASE_S / 4)


async def execute_with_claim(log: Decisions, session: str, plan: str, chance: random.Random) -> None:
    """Claim, execute, and say how it went; now and then take longer than the claim lasts."""
    (policy,) = (policy for policy in get_args(TakeoverPolicy) if policy == session)
    claim = await log.begin_execution(session, plan, lease=LEASE_S, policy=policy)
    if not claim.started:
        return
    _print_event(ExecutorEvent(session, plan, "start", claim.fence, claim.attempt))
    await asyncio.sleep(LEASE_S * 2 if chance.random() < HANGS else chance.random() * LEASE_S / 10)
    try:
        await log.finish(session, plan, claim.fence, status="success", order_id=str(claim.fence))
    except (ClaimLostError, AlreadyExecutedError):
        _print_event(ExecutorEvent(session, plan, "refused", claim.fence, claim.attempt))
    else:
        _print_event(ExecutorEvent(session, plan, "ended", claim.fence, claim.attempt))


async def execute_without_claim(log: Decisions, plan: str) -> None:
    """Check, execute, mark: the way that two can go at once."""
    is_executed, _ = await log.check_executed("careless", plan)
    if is_executed:
        return
    _print_event(ExecutorEvent("careless", plan, "start", os.getpid(), 1))
    await asyncio.sleep(LEASE_S / 4)
    try:
        await log.mark_executed("careless", plan, "BTC", "BUY", 0.5, "success", True, str(os.getpid()))
    except AlreadyExecutedError:
        _print_event(ExecutorEvent("careless", plan, "refused", os.getpid(), 1))


def _print_event(event: ExecutorEvent) -> None:
    sys.stdout.write(f"{' '.join(map(str, event))}\n")
    sys.stdout.flush()


async def _main(url: str, seed: str) -> None:
    async with Hub.open(settings=persistent_settings(url)) as hub:
        log = hub.store(NAMESPACE, actor=f"executor-{seed}").decisions
        sessions = await log.sessions()
        plans = [(name, plan.plan_id) for name in sessions for plan in await log.get_recent_plans(name, limit=1000)]
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.readline)
        await execute_plans(log, plans, random.Random(seed))


# -- the parent's side ----------------------------------------------------------------------------


async def start_executor(url: str, seed: int) -> AgentProcess:
    """One that is ready, and waits for the word to begin."""
    child = await AgentProcess.start("support.executor_processes", url, seed)
    assert await child.line() == ["ready"]
    return child


def parse_events(lines: Iterable[list[str]]) -> list[ExecutorEvent]:
    """The events of printed lines; the last one of an executor that was killed may be cut off."""
    return [
        ExecutorEvent(session, plan, verb, int(fence), int(attempt))
        for session, plan, verb, fence, attempt in (line for line in lines if len(line) == len(ExecutorEvent._fields))
    ]


def find_double_starts(history: list[ExecutorEvent]) -> list[str]:
    """Where a plan was started more than once."""
    starts = [event.plan for event in history if event.verb == "start"]
    return [
        f"plan {plan} was started {starts.count(plan)} times" for plan in sorted(set(starts)) if starts.count(plan) > 1
    ]


def find_order_violations(history: list[ExecutorEvent]) -> list[str]:
    """Where attempts and fences do not rise together, or another than the newest claim has ended a plan."""
    found = []
    for plan in sorted({event.plan for event in history}):
        mine = sorted((event for event in history if event.plan == plan), key=lambda event: event.fence)
        starts = [event for event in mine if event.verb == "start"]
        if [start.attempt for start in starts] != sorted({start.attempt for start in starts}):
            found.append(f"attempts at plan {plan} do not rise with their fences: {starts}")
        if len({start.fence for start in starts}) < len(starts):
            found.append(f"plan {plan} has handed out a fence twice: {starts}")
        ends = [event for event in mine if event.verb == "ended"]
        if len(ends) > 1 or any(end.fence < starts[-1].fence for end in ends):
            found.append(f"plan {plan} was ended by an old claim, or twice: {mine}")
    return found


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
