"""Search on a cluster: each namespace has its own index, on the server that has its records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from support import embedded_fixtures
from support.contexts import server_context
from support.topologies import RedisCluster, redis_cluster

from sharedmem import Settings
from sharedmem.clock import SystemClock, new_id
from sharedmem.embedded.binaries import find_server
from sharedmem.record_family import RecordFamily
from sharedmem.redis.address import parse_address
from sharedmem.redis.client import RedisClient
from sharedmem.redis.connect import open_client
from sharedmem.redis.keys import KeySpace
from sharedmem.search.redisearch import RediSearchIndex
from sharedmem.testing.index_suite import IndexSuite
from sharedmem.testing.index_suite.base import OpenIndexedNamespace, search_by_words


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    """One cluster for this module; its processes belong to no event loop."""
    embedded_fixtures.need_module("search")
    loop = asyncio.new_event_loop()
    context = redis_cluster(loadmodule=find_server().modules["search"])
    yield loop.run_until_complete(context.__aenter__())
    loop.run_until_complete(context.__aexit__(None, None, None))
    loop.close()


@pytest.fixture
async def line(cluster: RedisCluster, settings: Settings) -> AsyncIterator[RedisClient]:
    line = open_client(parse_address(cluster.url, settings), settings, SystemClock())
    await line.open()
    yield line
    await line.close()


@pytest.fixture
def keyspace() -> KeySpace:
    return KeySpace("sm", new_id(8))


@pytest.fixture
def index(line: RedisClient, keyspace: KeySpace, suite_family: RecordFamily, settings: Settings) -> RediSearchIndex:
    return RediSearchIndex(server_context(line, keyspace, settings), suite_family, on_cluster=True)


@pytest.mark.nightly
class TestRediSearchIndexOnCluster(IndexSuite):
    """The whole suite; forgetting its namespaces drops their indexes."""

    async def test_namespaces_of_all_servers_are_searched_and_told(
        self, index: RediSearchIndex, shelves: OpenIndexedNamespace
    ) -> None:
        names = [f"team-{number}" for number in range(12)]
        for name in names:
            await shelves(name).put("a", "apple")
            await index.ensure(name)

        assert [await search_by_words(index, shelves(name), "apple") for name in names] == [["a"]] * len(names)
        assert {status.namespaces for status in await index.status()} == {(name,) for name in names}
