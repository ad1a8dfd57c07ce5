"""A store behind sentinels goes on when its master dies: nothing that was caught up is lost, and listeners know."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.topologies import SentinelGroup, sentinel_group
from support.waiting import wait_until

from sharedmem import Change, Hub, Missed, Settings, SharedMemoryStore, UnavailableError

# redis-py may leave the socket of a connection open that a dying master has refused, which Python then warns of.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
_PATIENCE_S = 120
"""A sentinel that was not scheduled for two seconds does nothing for half a minute (its TILT mode)."""


@pytest.fixture
async def group() -> AsyncIterator[SentinelGroup]:
    async with sentinel_group() as group:
        yield group


@pytest.fixture
async def hub(group: SentinelGroup, tmp_path: Path) -> AsyncIterator[Hub]:
    async with Hub.open(group.url, settings=Settings(data_dir=tmp_path, retry_for_s=_PATIENCE_S)) as hub:
        yield hub


@pytest.fixture
def store(hub: Hub) -> SharedMemoryStore:
    return hub.store("team")


async def test_a_hub_finds_the_master_and_shows_how(group: SentinelGroup, hub: Hub) -> None:
    assert hub.url == f"{group.url}/0"
    assert hub.powers.mode == "sentinel"
    assert hub.powers.persistence == "everysec"
    assert (await hub.health()).ok


async def test_more_calls_than_connections_wait_in_line(group: SentinelGroup, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, max_connections=4)
    async with Hub.open(group.url, settings=settings) as hub:
        store = hub.store("crowd")

        versions = await asyncio.gather(*(store.append("list", at) for at in range(300)))

        assert sorted(versions) == list(range(1, 301))


async def test_a_master_that_dies_is_replaced_under_the_feet_of_its_callers(
    group: SentinelGroup, hub: Hub, store: SharedMemoryStore
) -> None:
    versions = [await store.write(f"before-{at}", at) for at in range(100)]
    assert group.catch_up() == 1

    group.master.kill()
    during = await asyncio.gather(*(store.write(f"during-{at}", at) for at in range(20)), store.incr("counter"))
    after = await store.write("after", 1)

    await wait_until(group.has_failed_over, description="the replica says so", within_s=_PATIENCE_S)
    assert [await store.read(f"before-{at}") for at in range(100)] == list(range(100))
    assert max(versions) < min(during[:-1])
    assert max(during) < after
    assert await store.read("counter") == 1


async def test_listeners_learn_of_a_failover(group: SentinelGroup, hub: Hub, store: SharedMemoryStore) -> None:
    heard: list[object] = []
    missed: list[Missed] = []
    seen: list[Change] = []
    await store.subscribe("news", heard.append, on_missed=missed.append)
    watching = asyncio.create_task(_collect(store, seen))
    await store.write("first", 1)
    assert group.catch_up() == 1

    group.master.kill()
    await store.write("second", 2)
    await wait_until(lambda: bool(missed), description="the subscriber is told", within_s=_PATIENCE_S)
    await store.publish("news", "we are back")

    await wait_until(lambda: heard == ["we are back"], description="the subscriber hears again", within_s=_PATIENCE_S)
    await wait_until(lambda: len(seen) == 2, description="the watcher came through", within_s=_PATIENCE_S)
    assert [change.key for change in seen] == ["team:shared:first", "team:shared:second"]
    watching.cancel()
    await asyncio.wait([watching])


async def test_a_master_that_no_sentinel_knows_is_told(group: SentinelGroup) -> None:
    with pytest.raises(UnavailableError, match="No master found for 'another'"):
        async with Hub.open(group.url.replace("mymaster", "another")):
            pass


async def test_no_sentinel_in_reach_is_told() -> None:
    with pytest.raises(UnavailableError, match=r"redis\+sentinel://127.0.0.1:1/mymaster"):
        async with Hub.open("redis+sentinel://127.0.0.1:1/mymaster"):
            pass


async def _collect(store: SharedMemoryStore, seen: list[Change]) -> None:
    async for change in store.watch(since=0):
        seen += [change]  # at once: a watch never ends
