"""Standing queries on both servers, across processes and lost connections."""

from __future__ import annotations

from conformance.memory import MemorySubscriptionTests
from conformance.memory.base import FACTS
from conformance.memory.subscriptions import ZEBRA, next_memory_event
from redis import Redis
from support.backends import OnFakeredis

from sharedmem import Hub, Settings
from sharedmem.testing import fake_hub


class TestStandingOnFakeredis(OnFakeredis, MemorySubscriptionTests):
    """Every promise, on fakeredis."""


class TestStandingOnARealServer(MemorySubscriptionTests):
    """Every promise, on a real server."""


async def test_what_another_hub_writes_is_told(redis_url: str, settings: Settings, namespace: str) -> None:
    hashing = settings.replace(embedder="hashing")
    async with (
        Hub.open(redis_url, settings=hashing) as one,
        Hub.open(redis_url, settings=hashing) as other,
        one.store(namespace).memory.subscribe(ZEBRA, threshold=0.9) as events,
    ):
        added = await other.store(namespace).memory.add(ZEBRA)

        assert await next_memory_event(events) == ("written", added.id)


async def test_words_decide_where_there_is_no_embedder() -> None:
    async with fake_hub(settings=Settings(embedder="none")) as hub:
        memory = hub.store("team").memory
        async with memory.subscribe("our zebra mascot", threshold=0.6) as events:
            await memory.add("A zebra crossing was painted.")
            await memory.add(FACTS[0])
            added = await memory.add(ZEBRA)

            assert await next_memory_event(events) == ("written", added.id)


async def test_a_cleared_namespace_is_told_as_a_gap() -> None:
    async with fake_hub(settings=Settings(embedder="hashing")) as hub:
        store = hub.store("team")
        async with store.memory.subscribe(ZEBRA, threshold=0.9) as events:
            added = await store.memory.add(ZEBRA)
            assert await next_memory_event(events) == ("written", added.id)

            await store.clear()

            assert await next_memory_event(events) == ("gap", "")


async def test_a_lost_connection_misses_nothing(redis_url: str, settings: Settings, namespace: str) -> None:
    async with (
        Hub.open(redis_url, settings=settings.replace(embedder="hashing")) as hub,
        hub.store(namespace).memory.subscribe(ZEBRA, threshold=0.9) as events,
    ):
        memory = hub.store(namespace).memory
        first = await memory.add(ZEBRA)
        assert await next_memory_event(events) == ("written", first.id)

        with Redis.from_url(redis_url) as admin:
            admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        await memory.delete(first.id)

        assert await next_memory_event(events) == ("withdrawn", first.id)
