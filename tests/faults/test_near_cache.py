"""Copies of values in a process: never older than their bound, nor than what their hub has written or seen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
from support.chaos_proxy import ChaosProxy
from support.closed_iterators import closed_at_exit
from support.faulty_hubs import persistent_settings
from support.redis_process import RedisProcess
from support.waiting import wait_until

from sharedmem import Hub, Settings, SharedMemoryStore, UnsupportedError, VersionConflictError
from sharedmem.redis.near_cache import NearCache
from sharedmem.testing import fake_hub

TEAM, BOUND_S = "team", 0.25


@pytest.fixture
async def hub(bare_server: RedisProcess) -> AsyncIterator[Hub]:
    """One whose copies may be old, so that only what drops them can be the reason for what is read."""
    async with Hub.open(settings=persistent_settings(bare_server.url, near_cache_staleness_s=60)) as hub:
        yield hub


@pytest.fixture
async def near(hub: Hub) -> SharedMemoryStore:
    return hub.store(TEAM, near_cache=True)


@pytest.fixture
async def other(direct: Hub) -> SharedMemoryStore:
    """The same namespace as another process sees it."""
    return direct.store(TEAM)


def gauge(hub: Hub, name: str) -> float:
    return {one.name: one.value for one in hub.counters.gauges()}[f"sharedmem_near_cache_{name}"]


async def reads(store: SharedMemoryStore, key: str, value: object) -> bool:
    return bool(await store.read(key) == value)


# -- what copies are for --------------------------------------------------------------------------


async def test_a_hot_key_is_read_from_the_process(hub: Hub, near: SharedMemoryStore) -> None:
    await near.write("k", {"a": [1]})
    found = [await near.read("k") for _ in range(100)]

    assert found == [{"a": [1]}] * 100
    assert (gauge(hub, "misses"), gauge(hub, "hits")) == (1, 99)


async def test_a_caller_may_change_what_it_has_read(near: SharedMemoryStore) -> None:
    await near.write("k", {"a": [1]})
    for _ in range(2):
        (await near.read("k"))["a"].append(2)

    assert await near.read("k") == {"a": [1]}


async def test_a_change_by_another_process_is_seen(hub: Hub, near: SharedMemoryStore, other: SharedMemoryStore) -> None:
    for number in range(20):
        await other.write("k", number)
        await wait_until(partial(reads, near, "k", number), description="the change is seen")

    assert gauge(hub, "invalidations") > 0


async def test_what_is_not_json_or_not_there_is_read_from_the_server(hub: Hub, near: SharedMemoryStore) -> None:
    await near.write("bytes", b"raw")
    await near.incr("count", 7)

    for _ in range(2):
        assert await near.read("bytes") == b"raw"
        assert await near.read("count") == 7
        assert await near.read("missing", "nothing") == "nothing"
    assert (gauge(hub, "hits"), gauge(hub, "copies")) == (0, 0)


async def test_the_memory_of_copies_is_bounded(bare_server: RedisProcess) -> None:
    settings = persistent_settings(bare_server.url, near_cache_bytes=4_000, near_cache_staleness_s=60)
    async with Hub.open(settings=settings) as hub:
        store = hub.store(TEAM, near_cache=True)
        await store.write_many({f"k{number}": number for number in range(100)} | {"large": "x" * 5_000})
        for _ in range(2):
            assert [await store.read(f"k{number}") for number in range(100)] == list(range(100))
            assert await store.read("large") == "x" * 5_000

        assert 0 < gauge(hub, "copies") < 20
        assert 0 < gauge(hub, "bytes") <= 4_000


# -- own changes ----------------------------------------------------------------------------------

CHANGES: dict[str, tuple[Callable[[SharedMemoryStore], Awaitable[object]], object]] = {
    "write": (lambda store: store.write("k", 2), 2),
    "write_many": (lambda store: store.write_many({"k": 2, "l": 1}), 2),
    "update": (lambda store: store.update("k", lambda number: number + 1), 2),
    "delete": (lambda store: store.delete("k"), None),
    "clear": (lambda store: store.clear(), None),
    "write much": (lambda store: store.write("k", "x" * 100_000), "x" * 100_000),
    "writes of one moment": (lambda store: asyncio.gather(*(store.write(key, 2) for key in "klm")), 2),
}


@pytest.mark.parametrize(("change", "value"), CHANGES.values(), ids=CHANGES)
async def test_a_store_reads_its_own_changes(
    near: SharedMemoryStore, change: Callable[[SharedMemoryStore], Awaitable[object]], value: object
) -> None:
    for _ in range(10):
        await near.write("k", 1)
        assert await near.read("k") == 1

        await change(near)

        assert await near.read("k") == value


async def test_other_stores_of_the_hub_read_them_too(hub: Hub, near: SharedMemoryStore) -> None:
    for number in range(10):
        await hub.store(TEAM, actor="ada").write("team:shared:k", number)
        assert await near.read("k") == number


async def test_copies_do_not_mislead_conditional_writes(near: SharedMemoryStore, other: SharedMemoryStore) -> None:
    first = await near.write("k", 1)
    assert await near.read("k") == 1
    second = await other.write("k", 2)

    with pytest.raises(VersionConflictError):
        await near.write("k", 3, if_version=first)

    assert await near.write("k", 3, if_version=second) > second
    assert await near.read("k") == 3


async def test_racing_updates_all_count(near: SharedMemoryStore, other: SharedMemoryStore) -> None:
    async def count(store: SharedMemoryStore) -> None:
        for _ in range(25):
            await store.update("n", lambda number: number + 1, default=0)
            await store.read("n")

    await asyncio.gather(count(near), count(other), count(near))

    assert await near.read("n") == 75


# -- what was seen in another way -----------------------------------------------------------------


async def test_a_read_after_a_change_of_the_feed_is_not_older(
    near: SharedMemoryStore, other: SharedMemoryStore
) -> None:
    start = await near.write("k", -1)
    async with closed_at_exit(near.watch("k", since=start)) as changes:
        for number in range(50):
            await near.read("k")
            await other.write("k", number)
            await anext(changes)
            assert await near.read("k") == number


async def test_a_read_after_an_entry_is_not_older(near: SharedMemoryStore, other: SharedMemoryStore) -> None:
    for number in range(50):
        await near.read("k")
        await other.write("k", number)
        if number % 2:
            assert (await near.read_many(["k"]))["k"] == number
        else:
            entry = await near.entry("k")
            assert entry is not None
            assert entry.value == number
        assert await near.read("k") == number


async def test_a_value_is_not_read_after_its_expiry(near: SharedMemoryStore) -> None:
    await near.write("k", 1, ttl=0.2)
    await near.read("k")

    async def is_gone() -> bool:
        return not await near.exists("k")

    await wait_until(is_gone, description="the key has expired")
    assert await near.read("k") is None


@pytest.mark.parametrize("is_changed", [True, False], ids=["changed meanwhile", "control: unchanged"])
async def test_a_read_under_way_makes_no_copy_of_what_was_changed_meanwhile(
    hub: Hub, near: SharedMemoryStore, other: SharedMemoryStore, is_changed: bool
) -> None:
    await other.write("k", 1)
    await near.read("other key of this scope")
    cache = near._near
    assert isinstance(cache, NearCache)
    physical = b"sm:{team}:shared:k"

    token = await cache.begin(physical)
    if is_changed:
        before = cache.invalidations
        await other.write("k", 2)
        await wait_until(lambda: cache.invalidations > before, description="the server has said so")
    cache.fill(physical, token, 5, b"head\n1", -1)

    assert cache.get(physical) == (None if is_changed else b"1")


# -- faults ---------------------------------------------------------------------------------------


class Timed(NamedTuple):
    """A value that was written or read, and when."""

    begun: float
    ended: float
    value: int


def too_old(reads: list[Timed], writes: list[Timed], bound_s: float) -> list[Timed]:
    """The reads of a value that had been replaced more than a bound before they began; values only rise."""
    return [
        read
        for read in reads
        if any(write.value > read.value and write.ended < read.begun - bound_s for write in writes)
    ]


async def history(near: SharedMemoryStore, other: SharedMemoryStore, seconds: float) -> tuple[list[Timed], list[Timed]]:
    """(reads, writes) of one key while another process writes rising numbers."""
    reads: list[Timed] = []
    writes: list[Timed] = []
    until = time.monotonic() + seconds

    async def write() -> None:
        while time.monotonic() < until:
            begun = time.monotonic()
            await other.write("hot", len(writes) + 1)
            writes.append(Timed(begun, time.monotonic(), len(writes) + 1))
            await asyncio.sleep(0.01)

    async def read() -> None:
        while time.monotonic() < until:
            begun = time.monotonic()
            value = await near.read("hot", 0)
            reads.append(Timed(begun, time.monotonic(), value))
            await asyncio.sleep(0.001)

    await asyncio.gather(write(), read(), read())
    return reads, writes


async def test_with_resets_copies_are_not_older_than_their_bound_and_own_writes_are_read(
    bare_server: RedisProcess, other: SharedMemoryStore
) -> None:
    async with ChaosProxy(bare_server.url, understands=False) as proxy:
        settings = persistent_settings(proxy.url, near_cache_staleness_s=BOUND_S)
        async with Hub.open(settings=settings) as hub:
            near = hub.store(TEAM, near_cache=True)
            over = asyncio.Event()

            async def rage() -> None:
                while not over.is_set():
                    proxy.reset_all()
                    with suppress(TimeoutError):
                        await asyncio.wait_for(over.wait(), 0.05)

            async def write_and_read(key: str) -> int:
                number = 0
                while not over.is_set():
                    number += 1
                    await near.write(key, number)
                    assert await near.read(key) == number
                return number

            raging = asyncio.create_task(rage())
            own = [asyncio.create_task(write_and_read(f"own-{number}")) for number in range(3)]
            reads, writes = await history(near, other, seconds=1.5)
            over.set()
            counts = await asyncio.gather(*own)
            await raging

    assert min(counts) > 1
    assert too_old(reads, writes, BOUND_S) == []


async def open_upstream(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return await asyncio.open_unix_connection(parts.path)
    return await asyncio.open_connection(parts.hostname, parts.port)


@asynccontextmanager
async def breaking_the_next(upstream: str) -> AsyncIterator[tuple[str, asyncio.Event]]:
    """A proxy that closes the next connection after its first reply, once the event is set; yields its URL."""
    armed, links = asyncio.Event(), asyncio.TaskGroup()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, breaks: bool) -> None:
        with suppress(ConnectionError):
            while chunk := await reader.read(65_536):
                writer.write(chunk)
                await writer.drain()
                if breaks:
                    break
        writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        links.create_task(link(reader, writer))

    async def link(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        breaks = armed.is_set()
        armed.clear()
        there, back = await open_upstream(upstream)
        await asyncio.gather(carry(reader, back, breaks=False), carry(there, writer, breaks=breaks))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with links, server:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0", armed


async def test_a_connection_that_breaks_before_it_tracks_keys_is_opened_again(bare_server: RedisProcess) -> None:
    async with (
        breaking_the_next(bare_server.url) as (url, armed),
        Hub.open(settings=persistent_settings(url, near_cache_staleness_s=60)) as hub,
    ):
        near = hub.store(TEAM, near_cache=True)
        await near.write("k", 1)
        armed.set()  # the next connection is that of the near cache

        async def is_copied() -> bool:
            assert await near.read("k") == 1
            return gauge(hub, "copies") == 1

        await wait_until(is_copied, description="keys are tracked")


@asynccontextmanager
async def without_pushes(upstream: str) -> AsyncIterator[str]:
    """A proxy that swallows what the server says of changed keys, and passes everything else; yields its URL."""

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, swallows: bool) -> None:
        with suppress(ConnectionError):
            while chunk := await reader.read(65_536):
                if not (swallows and chunk.startswith(b">2\r\n$10\r\ninvalidate")):
                    writer.write(chunk)
                    await writer.drain()
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await open_upstream(upstream)
        await asyncio.gather(carry(reader, back, swallows=False), carry(there, writer, swallows=True))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with server:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"


@pytest.mark.parametrize("staleness_s", [BOUND_S, 60], ids=["bounded", "control: hardly bounded"])
async def test_if_invalidations_are_swallowed_copies_are_not_older_than_their_bound(
    bare_server: RedisProcess, other: SharedMemoryStore, staleness_s: float
) -> None:
    async with without_pushes(bare_server.url) as url:
        settings = persistent_settings(url, near_cache_staleness_s=staleness_s)
        async with Hub.open(settings=settings) as hub:
            near = hub.store(TEAM, near_cache=True)
            await near.write("hot", 0)
            reads, writes = await history(near, other, seconds=1.5)

    assert bool(too_old(reads, writes, BOUND_S)) == (staleness_s > BOUND_S)
    assert too_old(reads, writes, 0), "the proxy has swallowed something"


async def test_a_restarted_server_invalidates_all_copies(
    hub: Hub, near: SharedMemoryStore, other: SharedMemoryStore, bare_server: RedisProcess
) -> None:
    await near.write("k", 1)
    await near.read("k")

    bare_server.kill()
    bare_server.start()
    await wait_until(lambda: gauge(hub, "copies") == 0, description="the loss of the connection is noticed")

    await other.write("k", 2)
    assert await near.read("k") == 2
    await other.write("k", 3)
    await wait_until(lambda: reads(near, "k", 3), description="keys are tracked again")


# -- what cannot be -------------------------------------------------------------------------------


async def test_a_fake_has_no_copies(tmp_path: Path) -> None:
    async with fake_hub(settings=Settings(data_dir=tmp_path)) as hub:
        with pytest.raises(UnsupportedError, match=r"near_cache.*single server"):
            hub.store(TEAM, near_cache=True)
