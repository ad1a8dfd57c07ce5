"""Uses of memories, on both indexes; docs/memory.md: they are counted in the background, and forgotten with theirs."""

from __future__ import annotations

import fakeredis
from conformance.memory import MemoryUsageTests
from support.backends import OnFakeredis
from support.contexts import knowledge_of
from support.waiting import wait_until

from sharedmem import Hub, Settings
from sharedmem.memory.reader import FLUSH_AFTER_S
from sharedmem.testing import ManualClock, fake_hub


class TestUsingOnFakeredis(OnFakeredis, MemoryUsageTests):
    """Every promise, on fakeredis."""


class TestUsingOnARealServer(MemoryUsageTests):
    """Every promise, on a real server."""


async def counted(hub: Hub, namespace: str = "ns") -> list[bytes]:
    """Ids of which counts are kept at the server."""
    context = knowledge_of(hub)
    ids = await context.client.call("ZRANGE", context.keyspace.record_part("memory", namespace, "used"), 0, -1)
    return [id_ for id_ in ids if isinstance(id_, bytes)] if isinstance(ids, list) else []


async def test_a_use_is_counted_in_the_background_and_no_caller_waits_for_it(settings: Settings) -> None:
    clock = ManualClock()
    async with fake_hub(settings=settings, clock=clock) as hub:
        memory = hub.store("ns").memory
        id_ = (await memory.add("the zebra sleeps")).id
        await memory.get(id_)
        assert await counted(hub) == []

        async def is_counted() -> bool:
            clock.advance(FLUSH_AFTER_S)
            return await counted(hub) == [id_.encode()]

        await wait_until(is_counted, description="the use counted")


async def test_a_hub_that_closes_loses_no_use(settings: Settings) -> None:
    server = fakeredis.FakeServer()
    async with fake_hub(settings=settings, server=server) as hub:
        memory = hub.store("ns").memory
        id_ = (await memory.add("the zebra sleeps")).id
        for _ in range(3):
            await memory.get(id_)

    async with fake_hub(settings=settings, server=server) as hub:
        assert [one.times for one in await hub.store("ns").memory.uses()] == [3]


async def test_counts_of_memories_that_are_gone_are_cleared_away_by_and_by(settings: Settings) -> None:
    async with fake_hub(settings=settings) as hub:
        memory = hub.store("ns").memory
        ids = [one.id for one in await memory.add_many([f"fact {n}" for n in range(40)], dedup=False)]
        for id_ in ids:
            await memory.get(id_)
        await memory.uses()
        stays = ids[::4]
        for id_ in set(ids) - set(stays):
            await memory.delete(id_)

        async def are_cleared() -> bool:
            await memory.get(stays[0])
            await memory.uses()
            return {id_.decode() for id_ in await counted(hub)} == set(stays)

        await wait_until(are_cleared, description="the counts of the others are gone")


async def test_uses_of_a_namespace_that_is_cleared_do_not_come_back(settings: Settings) -> None:
    async with fake_hub(settings=settings) as hub:
        store = hub.store("ns")
        await store.memory.get((await store.memory.add("the zebra sleeps")).id)

        await store.clear()

        assert await store.memory.uses() == []
        assert await counted(hub, store.namespace) == []
