"""The index of the names in use: complete after whatever happens to the data, small, and in the way of nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fakeredis import FakeServer
from fakeredis.aioredis import FakeRedis
from redis.asyncio import Redis
from support import embedded_fixtures
from support.waiting import wait_until

from sharedmem import CorruptionError, Hub, Settings, SharedMemoryStore
from sharedmem.providers.local_embedders import HashingEmbedder
from sharedmem.testing import ManualClock, fake_hub

data_dir = embedded_fixtures.data_dir
NAMESPACE = "team"
INDEX = f"sm:{{{NAMESPACE}}}:$names"
ONCE_USED = 400


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


@pytest.fixture
async def hub(clock: ManualClock, server: FakeServer) -> AsyncIterator[Hub]:
    async with fake_hub(clock=clock, server=server) as hub:
        yield hub


@pytest.fixture
def ada(hub: Hub) -> SharedMemoryStore:
    return hub.store(NAMESPACE, actor="ada")


@pytest.fixture
async def raw(server: FakeServer) -> AsyncIterator[FakeRedis]:
    """A plain client of the same server."""
    async with FakeRedis(server=server, decode_responses=True) as client:
        yield client


async def use_all_kinds(store: SharedMemoryStore) -> None:
    await store.lease_acquire("index", lease=60)
    await store.lease_acquire("index", kind="leader", lease=60)
    await store.lease_acquire("index", kind="rwlock", lease=60)
    await store.lease_acquire("index", kind="semaphore", limit=2, lease=60)
    await store.rate_limit("calls", limit=10, per=60).take()
    await store.rate_limit("tokens", limit=10, per=60, algorithm="token_bucket").take()
    await store.queue("jobs").put({"page": 1})
    await store.queue("mail").put({"page": 1}, id="one", unique_for=60)
    await store.queue("stopped").pause()


async def listed(store: SharedMemoryStore) -> list[str]:
    """All names as `<kind> <name>`."""
    names = [f"{one.kind} {one.name}" for one in (await store.coordination_names()).entries]
    return names + [f"queue {name}" for name in await store.queues()]


ALL_KINDS = [
    *("leader index", "limit calls", "limit tokens", "lock index", "rwlock index", "semaphore index"),
    *("queue jobs", "queue mail", "queue stopped"),
]


async def test_data_of_earlier_versions_is_looked_through_once(
    ada: SharedMemoryStore, hub: Hub, raw: FakeRedis
) -> None:
    await use_all_kinds(ada)
    await raw.delete(INDEX)

    assert await listed(hub.store(NAMESPACE, actor="bob")) == ALL_KINDS

    await raw.delete(f"sm:{{{NAMESPACE}}}:$lock:shared:index")
    await raw.zadd(f"sm:{{{NAMESPACE}}}:$lock:shared:behind-our-back", {"1 eve 1 eve/1": 2e15})
    assert await listed(ada) == [name for name in ALL_KINDS if name != "lock index"]


async def test_a_new_namespace_is_never_looked_through(ada: SharedMemoryStore, raw: FakeRedis) -> None:
    await ada.write("plan", 1)
    await raw.zadd(f"sm:{{{NAMESPACE}}}:$lock:shared:behind-our-back", {"1 eve 1 eve/1": 2e15})

    assert await listed(ada) == []


async def test_a_new_namespace_with_a_durable_tier_is_never_looked_through_either(data_dir: Path) -> None:
    async with (
        Hub.open(settings=Settings(data_dir=data_dir, embedded_modules=()), embedder=HashingEmbedder()) as hub,
        Redis.from_url(str(hub.url)) as raw,
    ):
        await hub.store(NAMESPACE, actor="ada").write("plan", 1, kind="knowledge")
        await raw.zadd(f"sm:{{{NAMESPACE}}}:$lock:shared:behind-our-back", {"1 eve 1 eve/1": 2e15})

        assert await listed(hub.store(NAMESPACE, actor="ada")) == []
        await raw.delete(f"sm:{{{NAMESPACE}}}:$lock:shared:behind-our-back")


async def test_what_its_holders_left_behind_is_not_listed_and_leaves_the_index(
    ada: SharedMemoryStore, raw: FakeRedis, clock: ManualClock
) -> None:
    await use_all_kinds(ada)
    clock.advance(8 * 86_400)

    assert await listed(ada) == ["queue jobs", "queue mail", "queue stopped"]
    assert await raw.zrange(INDEX, 0, -1) == [
        *("$complete", "queue:shared:jobs", "queue:shared:mail", "queue:shared:stopped")
    ]


async def test_what_is_used_again_is_listed_again(ada: SharedMemoryStore, clock: ManualClock) -> None:
    await ada.lease_acquire("index", lease=60)
    await ada.rate_limit("tokens", limit=10, per=60, algorithm="token_bucket").take()
    clock.advance(100)
    assert await listed(ada) == []

    await ada.lease_acquire("index", lease=60)
    await ada.rate_limit("tokens", limit=10, per=60, algorithm="token_bucket").take()
    assert await listed(ada) == ["limit tokens", "lock index"]


async def test_a_queue_that_is_done_leaves_the_index_with_its_counters(
    ada: SharedMemoryStore, clock: ManualClock
) -> None:
    queue = ada.queue("jobs")
    await queue.put(1)
    task = await queue.claim()
    assert task is not None
    await queue.ack(task)
    assert await ada.queues() == ["jobs"]
    clock.advance(8 * 86_400)
    assert await ada.queues() == []

    await queue.put(1)
    assert await ada.queues() == ["jobs"]


async def test_names_that_are_used_once_do_not_collect(ada: SharedMemoryStore, raw: FakeRedis) -> None:
    await ada.lease_acquire("held", lease=60)
    for number in range(ONCE_USED):
        async with ada.lock(f"order-{number}"):
            pass

    assert await raw.zcard(INDEX) < ONCE_USED / 2
    assert await listed(ada) == ["lock held"]


async def test_after_a_flush_and_after_a_clearing_names_are_those_of_what_follows(
    ada: SharedMemoryStore, hub: Hub, raw: FakeRedis
) -> None:
    await use_all_kinds(ada)
    await raw.flushall()
    await ada.lease_acquire("after", lease=60)
    assert await listed(ada) == ["lock after"]

    await hub.store(NAMESPACE).clear()
    assert await listed(ada) == []
    await ada.queue("jobs").put(1)
    assert await listed(ada) == ["queue jobs"]


async def test_pages_go_on_after_the_name_before_even_if_that_is_gone(
    ada: SharedMemoryStore, clock: ManualClock
) -> None:
    for name, lease in (("a", 60), ("b", 1), ("c", 60)):
        await ada.lease_acquire(name, lease=lease)
    page = await ada.coordination_names(limit=2)
    clock.advance(10)

    following = await ada.coordination_names(limit=2, cursor=page.cursor)

    assert ([one.name for one in page.entries], [one.name for one in following.entries]) == (["a", "b"], ["c"])
    assert following.cursor is None


async def test_another_namespace_has_other_names(ada: SharedMemoryStore, hub: Hub) -> None:
    await use_all_kinds(ada)
    other = hub.store("elsewhere", actor="eve")
    await other.lease_acquire("own", lease=60)

    assert await listed(other) == ["lock own"]


async def test_a_damaged_index_stops_no_work_and_is_named_when_it_is_listed(
    ada: SharedMemoryStore, raw: FakeRedis
) -> None:
    await raw.set(INDEX, "of another client")
    await use_all_kinds(ada)
    with pytest.raises(CorruptionError, match=r"\$names.*delete it"):
        await listed(ada)
    assert [key for key in await ada.damaged_keys() if key.endswith("$names")]

    await raw.delete(INDEX)
    assert await listed(ada) == ALL_KINDS


async def test_a_barrier_is_listed_until_it_opens(ada: SharedMemoryStore, hub: Hub) -> None:
    gate = ada.barrier("gate", 2)
    waiting = asyncio.create_task(hub.store(NAMESPACE, actor="bob").barrier("gate", 2).wait())

    async def is_waited_at() -> bool:
        return await gate.waiting() == 1

    await wait_until(is_waited_at, description="bob waits")
    assert await listed(ada) == ["barrier gate"]

    await gate.wait()
    await waiting
    assert await listed(ada) == []
