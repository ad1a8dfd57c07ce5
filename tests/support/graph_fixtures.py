"""Graphs on each kind of server; a module takes these fixtures by giving them a name there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from sharedmem import Hub, Settings, SharedMemoryStore
from sharedmem.clock import new_id
from sharedmem.embedded.binaries import find_server
from sharedmem.graph.graph import Graph
from sharedmem.testing import fake_hub
from support.embedded_fixtures import need_module
from support.redis_process import RedisProcess


@pytest.fixture(scope="module")
def falkor_server() -> Iterator[RedisProcess]:
    """A server with the graph module."""
    need_module("graph")
    with RedisProcess(loadmodule=find_server().modules["graph"]) as server:
        yield server


@pytest.fixture
async def fake_graph() -> AsyncIterator[Graph]:
    """Graphs on fakeredis."""
    async with fake_hub() as hub:
        yield hub.store("graphs").graph


@pytest.fixture
def real_graph(store: SharedMemoryStore) -> Graph:
    """Graphs on the real server."""
    return store.graph


@pytest.fixture
async def falkor_graph(falkor_server: RedisProcess, tmp_path: Path) -> AsyncIterator[Graph]:
    """Graphs in the FalkorDB module."""
    settings = Settings(data_dir=tmp_path / "falkor", embedder="hashing", graph_backend="falkordb")
    async with Hub.open(falkor_server.url, settings=settings) as hub:
        yield hub.store(f"test-{new_id(8)}").graph


@pytest.fixture(params=["fake_graph", "real_graph", "falkor_graph"])
def graph(request: pytest.FixtureRequest) -> Graph:
    """Graphs on each of them in turn."""
    found: Graph = request.getfixturevalue(request.param)
    return found
