"""A small graph that was told a few things, on each backend; a module names these fixtures to have them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator

import pytest

from sharedmem import Hub
from sharedmem.embedded.binaries import find_server
from sharedmem.graph.graph import Graph
from sharedmem.models import Episode, Fact
from sharedmem.testing import fake_hub
from support.faulty_hubs import impatient_settings
from support.graph_rows import GROUP, day
from support.memory_fixtures import FaultyEmbedder
from support.redis_process import RedisProcess


@pytest.fixture(scope="module", params=["fake", "redisearch", "falkordb"])
def server(request: pytest.FixtureRequest) -> Iterator[RedisProcess | None]:
    """A real server with a module that can search, or fakeredis."""
    if request.param == "fake":
        yield None
        return
    module = {"redisearch": "search", "falkordb": "graph"}[request.param]
    if module not in (modules := find_server().modules):
        pytest.skip(f"the {module} module is not installed on this platform")
    with RedisProcess(loadmodule=modules[module]) as server:
        yield server


@pytest.fixture
def provider() -> FaultyEmbedder:
    return FaultyEmbedder()


@pytest.fixture
async def hub(
    request: pytest.FixtureRequest, server: RedisProcess | None, provider: FaultyEmbedder
) -> AsyncIterator[Hub]:
    if server is None:
        async with fake_hub(embedder=provider) as hub:
            yield hub
        return
    server.tell("FLUSHALL")
    backend = "falkordb" if "falkordb" in request.node.name else "redis"
    settings = impatient_settings(server.url).replace(graph_backend=backend)
    async with Hub(settings=settings, embedder=provider) as hub:
        yield hub


@pytest.fixture
async def graph(hub: Hub) -> Graph:
    """Ada moved from Berlin to Paris on day 50, which was learned on day 60; Bo and she work for Acme, in Oslo."""
    graph = hub.store("team", actor="ann").graph
    episodes = [
        ("Ada", "lives_in", "Berlin", 0, 1),
        ("Ada", "lives_in", "Paris", 50, 60),
        ("Ada", "works_for", "Acme Ltd", 10, 11),
        ("Bo", "works_for", "Acme Ltd", 20, 21),
        ("Acme Ltd", "located_in", "Oslo", 0, 2),
    ]
    for source, type_, target, valid, recorded in episodes:
        await graph.add_relationship(
            source, type_, target, group_id=GROUP, valid_from=day(valid), recorded_at=day(recorded)
        )
    return graph


async def add_unrelated_episode(
    graph: Graph, id_: str, text: str = "The umbrella stand was wet.", at: float = 5
) -> None:
    """Keep an episode in which nothing is looked for."""
    episode = Episode(content=text, group_id=GROUP, id=id_, occurred_at=day(at), recorded_at=day(at), session="s1")
    await graph.add_episodes([episode], extract=False)


def sorted_fact_texts(facts: Iterable[Fact]) -> list[str]:
    return sorted(fact.fact for fact in facts)
