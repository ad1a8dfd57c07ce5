"""A store on a cluster of three masters does what it does on one server, also while slots move and masters restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from conformance.store import StoreSuite
from support.redis_process import RedisProcess
from support.topologies import RedisCluster, catch_up, redis_cluster
from support.waiting import wait_until

from sharedmem import (
    Change,
    ConfigError,
    Gap,
    Hub,
    Message,
    Settings,
    SharedMemoryStore,
    UnavailableError,
    UnsupportedError,
)

_NAMESPACES = [f"cluster-{name}" for name in "abcdefgh"]


@pytest.fixture
async def hub(cluster: RedisCluster, tmp_path: Path) -> AsyncIterator[Hub]:
    async with Hub.open(cluster.url, settings=Settings(data_dir=tmp_path)) as hub:
        yield hub


@pytest.mark.nightly
class TestStoreOnCluster(StoreSuite):
    """Every promise of a store, on a cluster."""


async def test_namespaces_lie_on_all_masters_and_each_is_found(hub: Hub, cluster: RedisCluster) -> None:
    for namespace in _NAMESPACES:
        await hub.store(namespace).write("k", namespace)

    assert set(await hub.namespaces()) >= set(_NAMESPACES)
    assert {cluster.owner(f"{{{name}}}") for name in _NAMESPACES} == set(cluster.masters)


async def test_values_of_several_namespaces_are_read_together(hub: Hub) -> None:
    for namespace in _NAMESPACES:
        await hub.store(namespace).write("k", namespace)
    reader = hub.store(_NAMESPACES[0], subscribe=_NAMESPACES)
    keys = [f"{namespace}:shared:k" for namespace in _NAMESPACES]

    assert await reader.read_many(keys) == dict(zip(keys, _NAMESPACES, strict=True))


async def test_forgotten_scripts_are_loaded_again_on_every_master(hub: Hub, cluster: RedisCluster) -> None:
    cluster.tell_all("SCRIPT", "FLUSH")

    versions = [await hub.store(namespace).write("k", 1) for namespace in _NAMESPACES]

    assert len(set(versions)) == len(_NAMESPACES)


async def test_writes_of_one_moment_travel_to_their_masters(hub: Hub) -> None:
    stores = [hub.store(namespace) for namespace in _NAMESPACES]

    await asyncio.gather(*(store.write(f"k{at}", at) for at in range(40) for store in stores))

    for store in stores:
        assert await store.read_many([f"k{at}" for at in range(40)]) == {f"k{at}": at for at in range(40)}
        assert await store.clear() >= 40


async def test_changes_of_one_moment_travel_to_their_masters(hub: Hub) -> None:
    stores = [hub.store(namespace) for namespace in _NAMESPACES]

    await asyncio.gather(*(store.append("list", at) for at in range(40) for store in stores))

    for store in stores:
        assert sorted(await store.read_list("list")) == list(range(40))
        await store.clear()


async def test_a_message_reaches_subscribers_of_any_master(hub: Hub, cluster: RedisCluster) -> None:
    async with Hub.open(cluster.url) as another:
        for namespace in _NAMESPACES:
            async with another.store(namespace).subscription("news") as news:
                await hub.store(namespace).publish("news", namespace)

                assert await anext(news) == Message(channel=f"{namespace}:shared:news", value=namespace)


async def test_the_powers_are_those_of_a_cluster(hub: Hub) -> None:
    assert hub.powers.mode == "cluster"
    assert hub.powers.server == "redis"
    assert hub.powers.missing["search"].startswith("use Redis 8")
    assert (await hub.health()).ok


async def test_copies_of_values_need_a_single_server(hub: Hub) -> None:
    with pytest.raises(UnsupportedError, match=r"near_cache.*single server"):
        hub.store("team", near_cache=True)


async def test_a_server_that_is_no_cluster_is_told() -> None:
    with RedisProcess(tcp=True) as server, pytest.raises(ConfigError, match=r"is not a cluster.*redis://"):
        async with Hub.open(f"redis+cluster://127.0.0.1:{server.port}"):
            pass


async def test_a_cluster_node_that_was_meant_as_a_single_server_is_told(cluster: RedisCluster) -> None:
    stranger = next(master for master in cluster.masters if master is not cluster.owner("sm:$layout"))
    with pytest.raises(ConfigError, match=r"redis\+cluster://"):
        async with Hub.open(f"redis://127.0.0.1:{stranger.port}"):
            pass


async def test_no_server_of_a_cluster_in_reach_is_told() -> None:
    with pytest.raises(UnavailableError, match=r"redis\+cluster://127\.0\.0\.1:1"):
        async with Hub.open("redis+cluster://127.0.0.1:1"):
            pass


async def test_a_slot_may_move_while_a_store_is_used(hub: Hub, cluster: RedisCluster) -> None:
    store = hub.store("moving")
    values = {f"k{at}": at for at in range(50)}
    await store.write_many(values)
    seen: list[Change] = []
    watching = asyncio.create_task(_collect(store, seen))
    enough = asyncio.Event()
    counting = [asyncio.create_task(_count_up(store, enough)) for _ in range(5)]

    for _ in range(4):
        await asyncio.to_thread(cluster.move_slot, "{moving}")
    enough.set()
    counted = max(await asyncio.gather(*counting))
    await store.write("last", 1)

    assert await store.read("counter") == counted
    assert await store.read_many(values) == values
    await wait_until(lambda: seen[-1].key == "moving:shared:last", description="the watcher came through")
    assert [change.operation for change in seen].count("incr") == counted
    assert not any(isinstance(change, Gap) for change in seen)
    await _stop(watching)


async def test_a_master_may_restart_while_a_store_is_used(hub: Hub, cluster: RedisCluster) -> None:
    store = hub.store("restarting")
    owner = cluster.owner("{restarting}")
    enough = asyncio.Event()
    counting = asyncio.create_task(_count_up(store, enough))
    await wait_until(lambda: store.exists("counter"), description="it counts")

    owner.kill()
    await asyncio.to_thread(owner.start)
    await wait_until(cluster.is_well, description="the cluster is whole again", within_s=60)
    enough.set()
    counted = await counting

    # A kill of the process alone loses nothing that was acknowledged: the system has what was written.
    assert await store.read("counter") == counted


async def test_a_cluster_that_is_gone_is_told_by_every_way_to_reach_it(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, retry_for_s=0.2)
    async with redis_cluster() as cluster, Hub.open(cluster.url, settings=settings) as hub:
        store = hub.store("gone")
        await store.write("k", 1)
        for master in cluster.masters:
            master.kill()

        for call in (store.write("k", 2), store.read("k"), store.usage(), hub.namespaces(), hub.health()):
            with pytest.raises(UnavailableError):
                await call
        with pytest.raises(UnavailableError):
            await store.subscribe("news", print)


async def test_a_replica_takes_over_from_its_master(tmp_path: Path) -> None:
    async with (
        redis_cluster(replica=True) as cluster,
        Hub.open(cluster.url, settings=Settings(data_dir=tmp_path, retry_for_s=30)) as hub,
    ):
        mine = next(name for name in _NAMESPACES if cluster.owner(f"{{{name}}}") is cluster.masters[0])
        store = hub.store(mine)
        heard: list[object] = []
        await store.subscribe("news", heard.append)
        version = await store.write("k", 1)
        assert await asyncio.to_thread(catch_up, cluster.masters[0], f"{{{mine}}}") == 1

        cluster.masters[0].kill()

        assert await store.read("k") == 1
        assert await store.write("k", 2) > version
        await wait_until(lambda: _heard(store, heard), description="messages come through again")


async def _heard(store: SharedMemoryStore, heard: list[object]) -> bool:
    await store.publish("news", "after")
    return "after" in heard


async def _count_up(store: SharedMemoryStore, enough: asyncio.Event) -> int:
    counted = 0
    while not enough.is_set():
        counted = await store.incr("counter")
    return counted


async def _collect(store: SharedMemoryStore, seen: list[Change]) -> None:
    async for change in store.watch(since=0):
        seen += [change]  # at once: a watch never ends


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
