"""Processes that hold leases are killed and frozen: the history shows one holder at a time, and rising tokens."""

from __future__ import annotations

import asyncio
import os
import random
import time
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

import pytest
from conformance.coordination.leases import is_waiting
from redis import Redis
from support.agent_processes import NAMESPACE, AgentProcess, running_agents
from support.faulty_hubs import persistent_settings
from support.holder_history import HolderTurn, LeaseAttempt, check_attempts, check_turns
from support.lease_processes import JOURNAL, LEASE_S
from support.redis_process import RedisProcess

from sharedmem import Hub, SharedMemoryStore

PROCESSES = 8
CAREFUL, CARELESS = 0, 1
# Ten thousand have been; in company of other tests they would be late because of those.
CROWD = int(os.environ.get("SHAREDMEM_TEST_CROWD", "2000"))


def attempts_at(raw: Redis) -> list[LeaseAttempt]:
    journal: Any = raw.lrange(JOURNAL, 0, -1)
    return [LeaseAttempt(int(token), accepted == b"1") for token, accepted in map(bytes.split, journal)]


def holder_turns(child: int, lines: list[list[str]]) -> list[HolderTurn]:
    """What one process has seen: of each token the time until which it was held."""
    turns: dict[int, HolderTurn] = {}
    for line in lines:
        if line[0] == "held" and len(line) == 5:  # the last line of a killed process may be cut
            _, token, asked_at, got_at, seen_at = line
            turns[int(token)] = HolderTurn(
                f"process {child}", int(token), float(asked_at), float(got_at), float(seen_at)
            )
    return list(turns.values())


# -- the whole, with a control --------------------------------------------------------------------


async def test_of_eight_processes_that_are_killed_and_frozen_one_holds_the_lock_at_a_time(
    bare_server: RedisProcess, raw: Redis
) -> None:
    """docs/locks.md: what is promised, and what only the check of tokens can promise."""
    async with _contending(PROCESSES, bare_server) as crowd:
        first = [await _first_turn(child) for child in crowd]
        for victim in crowd[:2]:
            await _freeze(random.choice(crowd[2:]), 1.5 * LEASE_S)
            victim.kill()
        for _ in range(6):
            await _freeze(random.choice(crowd[2:]), random.uniform(0.1, 2) * LEASE_S)
        for child in crowd[2:]:
            child.kill()
        told = [holder_turns(number, [first[number], *await child.rest()]) for number, child in enumerate(crowd)]
    turns, attempts = [turn for turns in told for turn in turns], attempts_at(raw)

    assert check_turns(turns) == []
    assert check_attempts(attempts) == []
    assert all(told)
    # On an idle machine some hundred; a busy one gets through fewer.
    assert len({attempt.token for attempt in attempts}) > 10


def _contending(number: int, server: RedisProcess) -> AbstractAsyncContextManager[list[AgentProcess]]:
    return running_agents(number, "contend", server.url, CAREFUL, module="support.lease_processes")


async def _first_turn(child: AgentProcess) -> list[str]:
    while (line := await child.line())[0] != "held":
        pass
    return line


async def _freeze(child: AgentProcess, seconds: float) -> None:
    with child.frozen():
        # There is no event to wait for: the others go on, or wait for the lease of the frozen one to end.
        await asyncio.sleep(seconds)
    await asyncio.sleep(0.1)


@pytest.mark.parametrize(("manner", "accepted"), [(CAREFUL, False), (CARELESS, True)], ids=["careful", "careless"])
async def test_a_leader_that_was_frozen_is_refused_by_a_resource_that_checks_tokens_and_only_by_such(
    manner: int, accepted: bool, bare_server: RedisProcess, raw: Redis
) -> None:
    """docs/locks.md: two leaders after a pause."""
    async with running_agents(1, "lead", bare_server.url, manner, module="support.lease_processes") as [old]:
        _, first = await old.line()
        async with running_agents(1, "lead", bare_server.url, manner, module="support.lease_processes") as [new]:
            with old.frozen():
                _, second = await new.line()
                new.go()
                assert await new.line() == ["wrote", "1"]
            old.go()
            assert await old.line() == ["wrote", str(int(accepted))]

    assert int(second) > int(first)
    assert attempts_at(raw) == [LeaseAttempt(int(second), accepted=True), LeaseAttempt(int(first), accepted=accepted)]
    # The control: a resource that does not look at tokens lets the old leader spoil what the new one wrote.
    assert bool(check_attempts(attempts_at(raw))) is accepted


@pytest.mark.parametrize(
    ("turns", "complaint"),
    [
        ([HolderTurn("a", 1, 0, 1, 3), HolderTurn("b", 2, 0, 2, 4)], "b got it while a held it"),
        ([HolderTurn("a", 1, 0, 1, 2), HolderTurn("b", 1, 3, 4, 5)], "token 1 was given twice"),
        ([HolderTurn("a", 2, 0, 1, 2), HolderTurn("b", 1, 3, 4, 5)], "lower token"),
    ],
)
def test_the_checker_finds_what_should_not_have_happened(turns: list[HolderTurn], complaint: str) -> None:
    assert complaint in " ".join(check_turns(turns))


def test_the_checker_finds_nothing_in_a_good_history() -> None:
    assert (
        check_turns([HolderTurn("a", 1, 0, 1, 2), HolderTurn("b", 2, 1.5, 3, 4), HolderTurn("a", 3, 2.5, 5, 6)]) == []
    )
    assert (
        check_attempts([LeaseAttempt(1, True), LeaseAttempt(1, True), LeaseAttempt(3, True), LeaseAttempt(2, False)])
        == []
    )
    assert check_attempts([LeaseAttempt(3, True), LeaseAttempt(2, True)]) == ["accepted 2 after 3"]
    assert check_attempts([LeaseAttempt(3, True), LeaseAttempt(4, False)]) == ["refused 4 after 3"]


# -- dead holders and waiters ---------------------------------------------------------------------


async def take(store: SharedMemoryStore) -> int:
    async with store.lock("it") as lease:
        return lease.token


async def test_the_place_of_a_killed_holder_comes_free(bare_server: RedisProcess) -> None:
    """docs/locks.md: a crashed holder frees its place."""
    async with (
        Hub.open(settings=persistent_settings(bare_server.url)) as hub,
        running_agents(1, "hold", bare_server.url, module="support.lease_processes") as [holder],
    ):
        store = hub.store(NAMESPACE, actor="next")
        _, token = await holder.line()
        waiting = asyncio.create_task(take(store))
        await is_waiting(store, "it", 1)
        holder.kill()

        assert await waiting > int(token)


@pytest.mark.parametrize("fate", ["killed", "frozen"])
async def test_a_dead_waiter_does_not_block_the_others(fate: str, bare_server: RedisProcess) -> None:
    async with Hub.open(settings=persistent_settings(bare_server.url)) as hub, AsyncExitStack() as stack:
        store = hub.store(NAMESPACE, actor="next")
        async with store.lock("it"):
            gone = running_agents(1, "hold", bare_server.url, module="support.lease_processes")
            [waiter] = await stack.enter_async_context(gone)
            await is_waiting(store, "it", 1)
            if fate == "killed":
                waiter.kill()
            else:
                stack.enter_context(waiter.frozen())
            behind = asyncio.create_task(take(store))
            await is_waiting(store, "it", 2)

        assert await behind


async def test_holders_and_waiters_carry_on_after_a_restart_of_the_server() -> None:
    with RedisProcess(appendonly="yes", appendfsync="always") as server:
        async with Hub.open(settings=persistent_settings(server.url)) as hub:
            store = hub.store(NAMESPACE, actor="ada")
            async with store.lock("it") as lease:
                waiting = [asyncio.create_task(take(store)) for _ in range(3)]
                await is_waiting(store, "it", 3)
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
                (holder,) = (await store.lease_state("it")).holders
                assert holder.token == lease.token
            tokens = await asyncio.gather(*waiting)

    assert min(tokens) > lease.token
    assert len(set(tokens)) == 3


# -- a crowd --------------------------------------------------------------------------------------


def waiters_of(server: RedisProcess) -> list[int]:
    """The numbers of all waiters, from 0 in the order of their calls, as the queue of the server has them.

    A call whose first packet was late, on a busy machine, arrives behind later ones. Calls that had to wait until their
    hub hears of turns are numbered behind later ones.
    """
    with server.client() as client:
        [key] = client.scan_iter("*lock.waiters*")
        names = [int(name.partition(b"/")[2].rstrip(b"~")) for name in client.zrange(key, 0, -1)]
    rank = {name: number for number, name in enumerate(sorted(names))}
    return [rank[name] for name in names]


async def test_a_crowd_that_waits_comes_in_its_order_and_does_not_storm_the_server(
    bare_server: RedisProcess,
) -> None:
    crowd, came = CROWD, []
    async with Hub.open(bare_server.url) as hub:
        store = hub.store(NAMESPACE, actor="ada")

        async def come(number: int) -> None:
            async with store.lock("it"):
                came.append(number)

        started_at = time.monotonic()
        async with store.lock("it"):
            # Once one waits, the hub hears of turns.
            tasks = [asyncio.create_task(come(0))]
            await is_waiting(store, "it", 1)
            tasks += [asyncio.create_task(come(number)) for number in range(1, crowd)]
            await is_waiting(store, "it", crowd)
            arrived = waiters_of(bare_server)
        await asyncio.gather(*tasks)
        took = time.monotonic() - started_at

    assert came == arrived
    told = bare_server.info("commandstats").decode()
    calls = int(told.partition("cmdstat_evalsha:calls=")[2].partition(",")[0])
    # Each asks, waits in line, comes and leaves; beyond that some look again, once in ten seconds at most.
    assert calls <= crowd * (4 + took / 10) + 1000
