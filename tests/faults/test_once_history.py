"""Once under faults: what processes that are killed and paused saw, checked; servers that restart and forget."""

from __future__ import annotations

import asyncio
import random
import signal
from functools import partial
from typing import Any

import pytest
from redis import Redis
from support.faulty_hubs import persistent_settings
from support.once_processes import NAMESPACE, OnceAgent, OnceEvent, once_violations, running_once_agents
from support.redis_process import RedisProcess
from support.waiting import wait_until

from sharedmem import Hub, SharedMemoryStore

KEYS = 30


# -- the checker ------------------------------------------------------------------------------------


def test_the_checker_knows_a_good_history() -> None:
    good = [
        OnceEvent("began", "k", "a", 1),
        OnceEvent("began", "k", "b", 2),
        OnceEvent("lost", "k", "a"),
        OnceEvent("got", "k", "b"),
    ]

    assert once_violations([*good, OnceEvent("got", "k", "b")]) == []


@pytest.mark.parametrize(
    "bad",
    [
        [
            OnceEvent("began", "k", "a", 1),
            OnceEvent("began", "k", "b", 2),
            OnceEvent("got", "k", "a"),
            OnceEvent("got", "k", "b"),
        ],
        [OnceEvent("began", "k", "a", 1), OnceEvent("got", "k", "b")],
        [OnceEvent("began", "k", "a", 1), OnceEvent("got", "k", "a"), OnceEvent("lost", "k", "a")],
        [OnceEvent("began", "k", "a", 1), OnceEvent("began", "k", "b", 1), OnceEvent("got", "k", "b")],
        [OnceEvent("began", "k", "a", 1), OnceEvent("got", "k", "a"), OnceEvent("began", "k", "b", 2)],
    ],
    ids=["two results", "never made", "stored and lost", "token twice", "begun after it was done"],
)
def test_the_checker_finds_what_is_wrong(bad: list[OnceEvent]) -> None:
    assert once_violations(bad)


# -- histories --------------------------------------------------------------------------------------


async def history(server: RedisProcess, how: str, *, seed: int) -> tuple[list[OnceAgent], list[OnceEvent]]:
    """What eight agents saw; two of them are killed and the others paused for longer than their leases."""
    chance = random.Random(seed)
    async with running_once_agents(8, how, server.url, keys=KEYS, seed=seed) as running:
        listening = asyncio.gather(*(agent.listen() for agent in running))
        harm = asyncio.create_task(_harm(running, chance))
        await asyncio.wait_for(listening, 60)
        await harm
    return running, [event for agent in running for event in agent.events]


def _have_got_to(running: list[OnceAgent], events: int) -> bool:
    far = sum(len(agent.events) for agent in running) >= events
    return far and any(agent.is_working for agent in running)


async def _harm(running: list[OnceAgent], chance: random.Random) -> None:
    """As the work goes on, stop four agents in the middle of theirs for longer than a lease, and kill two."""
    for round_ in range(6):
        await wait_until(
            partial(_have_got_to, running, 20 * (round_ + 1)),
            description="the agents have got so far, and one is in the middle of its work",
            within_s=120,
        )
        victim = next(agent for agent in running if agent.is_working)
        if round_ in {2, 5}:
            victim.signal(signal.SIGKILL)
            continue
        victim.signal(signal.SIGSTOP)
        await asyncio.sleep(chance.uniform(0.3, 0.7))
        victim.signal(signal.SIGCONT)


async def test_eight_processes_that_are_killed_and_paused_store_one_result_a_key(bare_server: RedisProcess) -> None:
    running, events = await history(bare_server, "once", seed=random.randrange(1000))

    assert once_violations(events) == []
    survivors = [agent for agent in running if agent.ended]
    assert len(survivors) == 6
    results = {event.key: event.value for event in events if event.what == "got"}
    assert len(results) == KEYS
    for agent in survivors:
        assert {event.key for event in agent.events if event.what in {"got", "lost"}} == set(results)
    async with Hub.open(settings=persistent_settings(bare_server.url)) as hub:
        store = hub.store(NAMESPACE)
        assert {key: await store.once(key, lambda: "never", ttl=1) for key in results} == results


async def test_control_without_once_the_checker_finds_violations(bare_server: RedisProcess) -> None:
    _, events = await history(bare_server, "hope", seed=1)

    assert once_violations(events)


# -- one fault at a time ----------------------------------------------------------------------------


class Gate:
    """Work that ends when it is told to."""

    def __init__(self) -> None:
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()

    async def __call__(self) -> str:
        self.begun.set()
        await self.may_end.wait()
        return "done"


async def stand_in_line(raw: Redis, number: int) -> None:
    def do() -> bool:
        return raw.zcard(f"sm:{{{NAMESPACE}}}:$once.waiters:shared:report") == number

    await wait_until(do, description=f"{number} wait in line", within_s=60)


async def test_the_work_of_a_killed_process_is_taken_over_by_who_waits(bare_server: RedisProcess) -> None:
    async with (
        running_once_agents(1, "once", bare_server.url, keys=1, seed=1) as [agent],
        Hub.open(settings=persistent_settings(bare_server.url)) as hub,
    ):
        store = hub.store(NAMESPACE)
        await agent.is_at_work()
        waiting = asyncio.create_task(store.once("k0", lambda: "mine", ttl=600))
        agent.signal(signal.SIGKILL)

        assert await waiting == "mine"
        assert (await store.once_state("k0")).attempt == 2


async def test_a_server_that_restarts_while_the_work_goes_on_keeps_it() -> None:
    with RedisProcess(appendonly="yes", appendfsync="always") as server:
        async with Hub.open(settings=persistent_settings(server.url)) as hub:
            store, gate = hub.store(NAMESPACE), Gate()
            running = asyncio.create_task(store.once("report", gate, ttl=600))
            await gate.begun.wait()
            with server.client() as raw:
                waiting = asyncio.create_task(store.once("report", gate, ttl=600))
                await stand_in_line(raw, 1)

            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            gate.may_end.set()

            assert [await running, await waiting] == ["done", "done"]
            assert (await store.once_state("report")).attempt == 1


async def test_a_server_that_has_forgotten_the_scripts_gets_them_again(bare_server: RedisProcess, raw: Redis) -> None:
    async with Hub.open(settings=persistent_settings(bare_server.url)) as hub:
        store, gate = hub.store(NAMESPACE), Gate()
        running = asyncio.create_task(store.once("report", gate, ttl=600))
        await gate.begun.wait()
        waiting = asyncio.create_task(store.once("report", gate, ttl=600))
        await stand_in_line(raw, 1)
        raw.script_flush()
        gate.may_end.set()

        assert [await running, await waiting] == ["done", "done"]
        for algorithm in ("sliding_window", "token_bucket"):
            raw.script_flush()
            assert await store.rate_limit(algorithm, limit=1, per=1, algorithm=algorithm).take()
        raw.script_flush()
        async with hub.store(NAMESPACE, actor="ada").presence.here():
            raw.script_flush()
            assert len(await store.presence.list()) == 1
        raw.script_flush()
        assert (await store.barrier("start", 1).wait()).position == 0


async def test_a_thousand_followers_cost_three_calls_each(bare_server: RedisProcess, raw: Redis) -> None:
    """docs/agreement.md: three round trips for each waiter."""
    async with (
        Hub.open(settings=persistent_settings(bare_server.url)) as one,
        Hub.open(settings=persistent_settings(bare_server.url)) as other,
    ):
        gate = Gate()
        running = asyncio.create_task(one.store(NAMESPACE).once("report", gate, ttl=600))
        await gate.begun.wait()
        before = calls(raw)
        stores: list[SharedMemoryStore] = [one.store(NAMESPACE), other.store(NAMESPACE)]
        waiting = [asyncio.create_task(stores[i % 2].once("report", gate, ttl=600)) for i in range(1000)]
        await stand_in_line(raw, 1000)
        gate.may_end.set()

        assert await asyncio.gather(running, *waiting) == ["done"] * 1001
        assert calls(raw) - before <= 3 * 1000 + 10


def calls(raw: Redis) -> int:
    """How many scripts the server has run."""
    statistics: Any = raw.info("commandstats")
    return int(statistics["cmdstat_evalsha"]["calls"])
