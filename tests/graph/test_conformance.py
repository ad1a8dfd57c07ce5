"""The graph does on every backend what the suite says."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support import graph_fixtures
from support.backends import OnFakeredis
from support.redis_process import RedisProcess

from sharedmem import Episode, Hub, Settings
from sharedmem.graph.protocol import MemoryStore
from sharedmem.testing import fake_hub
from sharedmem.testing.graph_suite import GraphSuite

falkor_server = graph_fixtures.falkor_server


class TestGraphOnFakeredis(OnFakeredis, GraphSuite):
    """Every promise, on fakeredis."""


class TestGraphOnARealServer(GraphSuite):
    """Every promise, on a real server."""


@pytest.mark.nightly
class TestGraphInFalkorDB(GraphSuite):
    @pytest.fixture
    async def hub(self, falkor_server: RedisProcess, settings: Settings) -> AsyncIterator[Hub]:
        chosen = settings.replace(embedder="hashing", graph_backend="falkordb")
        async with Hub.open(falkor_server.url, settings=chosen) as hub:
            yield hub


async def test_the_graph_is_a_memory_store() -> None:
    async with fake_hub() as hub:
        graph: MemoryStore = hub.store("team").graph

        told = await graph.add_episode(Episode(content="Ann Lee lives in Oslo.", group_id="acme:talk"))

        assert [fact.target_name for fact in told.facts] == ["Oslo"]
        assert await graph.delete_by_group("acme:talk") > 0
