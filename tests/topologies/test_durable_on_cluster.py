"""What lasts on a cluster of three masters lasts as on one server: each namespace has its outbox on its own master."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from conformance.store import StoreSuite
from support.topologies import RedisCluster

from sharedmem import Hub, Settings
from sharedmem.clock import new_id

NAMESPACES = [f"lasting-{name}" for name in "abcdefgh"]


@pytest.fixture
def lasting(tmp_path: Path) -> Settings:
    """Everything of the suite and of these namespaces lasts, in a file."""
    rules = {"suite-*": "knowledge", "lasting-*": "session"}
    tier = f"sqlite://{tmp_path}/durable.sqlite3"
    return Settings(data_dir=tmp_path, durable_url=tier, kind_rules=rules, prefix=f"t{new_id(6)}")


@pytest.fixture
async def hub(cluster: RedisCluster, lasting: Settings) -> AsyncIterator[Hub]:
    async with Hub.open(cluster.url, settings=lasting) as hub:
        yield hub


@pytest.mark.nightly
class TestStoreWithATierOnCluster(StoreSuite):
    """Every promise of a store whose values last, on a cluster."""


async def test_what_was_drained_is_there_after_all_masters_lost_their_data(hub: Hub, cluster: RedisCluster) -> None:
    for namespace in NAMESPACES:
        await hub.store(namespace).write("k", namespace)
        await hub.store(namespace).append("log", namespace)
    await hub.durable.drain()

    cluster.tell_all("FLUSHALL")

    for namespace in NAMESPACES:
        store = hub.store(namespace)
        assert await store.read("k") == namespace
        assert await store.append("log", "more") == 2
    assert set(await hub.namespaces()) >= set(NAMESPACES)


async def test_another_hub_carries_what_one_left_on_any_master(cluster: RedisCluster, lasting: Settings) -> None:
    async with Hub.open(cluster.url, settings=lasting) as first:
        for namespace in NAMESPACES:
            await first.store(namespace).write("k", namespace)

    async with Hub.open(cluster.url, settings=lasting) as second:
        await second.durable.drain()

        assert [lag.waiting for lag in await second.durable.lags()] == [0] * len(NAMESPACES)
        for namespace in NAMESPACES:
            assert (await second.durable.verify(namespace)).differences == []
