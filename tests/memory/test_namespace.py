"""What is remembered in a namespace belongs to it: it is counted, cleared, and not taken for another's."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis
from support.contexts import context_of

from sharedmem import Hub
from sharedmem.redis.keys import RECORD_PARTS, KeySpace
from sharedmem.testing import fake_hub
from sharedmem.testing.clock import ManualClock

SPACE = KeySpace("sm", client="any")


@pytest.fixture
async def raw(hub: Hub) -> AsyncIterator[Redis]:
    client = Redis.from_url(hub.url)
    yield client
    await client.aclose()


async def remembered(raw: Redis, namespace: str) -> None:
    """What a namespace has that remembers one thing, and has one answer in its cache."""
    for family in ("memory", "cache"):
        await raw.hset(SPACE.record(family, namespace, "a1"), mapping={"body": "{}"})
        await raw.zadd(SPACE.record_log(family, namespace), {"a1": 1})
    await raw.zadd(SPACE.record_item("memory", namespace, "turns", "main"), {"a1 {}": 1})


async def test_memories_are_counted_with_the_other_keys(hub: Hub, raw: Redis, namespace: str) -> None:
    store = hub.store(namespace)
    await store.write("note", 1)
    before = await store.usage()

    await remembered(raw, namespace)

    after = await store.usage()
    assert after.keys == before.keys + 5
    assert (after.types["hash"].keys, after.types["zset"].keys) == (2, 3)
    assert after.bytes > before.bytes


async def test_clearing_takes_memories_and_all_that_lies_beside_them(hub: Hub, raw: Redis, namespace: str) -> None:
    store = hub.store(namespace)
    await store.write("note", 1)
    await remembered(raw, namespace)
    await remembered(raw, f"{namespace}2")

    assert await store.clear() == 6

    left = [key async for key in raw.scan_iter(match=f"*{namespace}}}*")]
    assert not [key for key in left if b"memory" in key or b"cache" in key]
    assert await raw.exists(SPACE.record("memory", f"{namespace}2", "a1")) == 1
    await hub.store(f"{namespace}2").clear()


async def test_the_keeper_of_an_index_is_notified_of_a_namespace_that_was_cleared(hub: Hub, namespace: str) -> None:
    told: list[str] = []

    async def forget(cleared: str) -> None:
        told.append(cleared)

    context_of(hub.store(namespace)).clear_hooks.append(forget)
    await hub.store(namespace).write("note", 1)

    await hub.store(namespace, actor="ada").clear()
    assert told == []
    await hub.store(namespace).clear()
    assert told == [namespace]


async def test_memories_are_neither_keys_nor_namespaces_of_users(hub: Hub, raw: Redis, namespace: str) -> None:
    store = hub.store(namespace)
    await store.write("note", 1)
    await remembered(raw, namespace)

    assert [key async for key in store.keys("*")] == [f"{namespace}:shared:note"]
    assert [name for name in await hub.namespaces() if namespace in name] == [namespace]


def test_all_that_lies_beside_records_goes_with_the_namespace() -> None:
    assert all(
        SPACE.is_part(SPACE.record_part(part.partition(".")[0], "ns", part.partition(".")[2])) for part in RECORD_PARTS
    )


async def test_what_expired_memories_leave_is_swept_away(namespace: str) -> None:
    clock = ManualClock()
    async with fake_hub(clock=clock) as hub:
        store = hub.store(namespace)
        await store.memory.add("back in a minute", ttl=60)
        await store.memory.add("here to stay")
        assert await store.sweep(remove=False) == 0
        clock.advance(61)

        assert await store.sweep(remove=False) == 1
        assert await store.sweep() == 1
        assert await store.sweep() == 0
        assert (await store.memory.stats()).count == 1


async def test_nothing_is_found_in_a_namespace_that_was_cleared(hub: Hub, namespace: str) -> None:
    store = hub.store(namespace)
    await store.memory.add("the harbour master owns the tide table")
    await hub.index.promote(namespace)

    await store.clear()

    assert await store.memory.search("tide table") == []
    await store.memory.add("the tide table is new")
    assert [hit.item.memory for hit in await store.memory.search("tide table")] == ["the tide table is new"]
