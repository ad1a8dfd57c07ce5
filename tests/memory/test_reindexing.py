"""docs/operations.md: after a change of the embedder `index rebuild` gives memories new vectors and forgets nothing."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from fakeredis import FakeServer
from support import embedded_fixtures

from sharedmem import ConfigError, Hub, Settings, UnavailableError
from sharedmem.models import GraphKind
from sharedmem.providers.local_embedders import HashingEmbedder
from sharedmem.providers.protocol import Embeddings, Purpose
from sharedmem.testing import fake_hub

data_dir = embedded_fixtures.data_dir
FACTS = [f"boat {number} lies in harbour {number}" for number in range(70)]


class Renamed(HashingEmbedder):
    """Another embedder, whose vectors have other numbers and perhaps the same length; away at first, if so wished."""

    def __init__(self, dimension: int = 64, *, failures: int = 0) -> None:
        super().__init__(dimension)
        self.failures = failures
        self.asked: list[str] = []

    @property
    def name(self) -> str:
        """Not that of the other."""
        return f"renamed:{self.dimension}"

    async def embed(self, texts: Sequence[str], *, purpose: Purpose = "document") -> Embeddings:
        """Those of the other, turned round."""
        if self.failures:
            self.failures -= 1
            raise UnavailableError("the embedder", "it is away")
        self.asked += texts
        made = await super().embed(texts, purpose=purpose)
        return Embeddings(-made.vectors, made.tokens)


async def nearest(hub: Hub, namespace: str) -> str:
    """What is nearest to the seventh fact by meaning alone."""
    (hit,) = await hub.store(namespace).memory.search(FACTS[7], mode="semantic", limit=1)
    assert hit.rank_score > 0.99
    return hit.item.memory


@pytest.fixture
async def remembered(data_dir: Path) -> AsyncIterator[Settings]:
    """A server with two namespaces in the shared index, and one that has its own."""
    settings = Settings(data_dir=data_dir)
    async with Hub.open(settings=settings, embedder=HashingEmbedder()) as keeper:
        if not keeper.powers.search:
            pytest.skip("the server has no search module")
        for namespace in ("small", "other", "large"):
            await keeper.store(namespace).memory.add_many(FACTS, dedup=False)
            await nearest(keeper, namespace)
        await keeper.index.promote("large")
        yield settings


def opened(settings: Settings, embedder: HashingEmbedder) -> AbstractAsyncContextManager[Hub]:
    return Hub.open(settings=settings, embedder=embedder)


@pytest.mark.parametrize("dimension", [32, 64])
async def test_rebuilding_gives_every_memory_of_an_index_a_new_vector(remembered: Settings, dimension: int) -> None:
    async with opened(remembered, Renamed(dimension)) as hub:
        with pytest.raises(ConfigError, match="index rebuild"):
            await hub.store("small").memory.search(FACTS[7])
        assert [re.findall("`(.+?)`", problem) for problem in await hub.index.check("large")] == [
            ["sharedmem index rebuild -n large"],
            ["sharedmem index rebuild --shared"],
        ]
        told: list[tuple[int, int]] = []

        await hub.index.rebuild("small", progress=lambda done, total: told.append((done, total)))
        await hub.index.rebuild("large")

        for namespace in ("small", "other", "large"):
            assert await nearest(hub, namespace) == FACTS[7]
            assert await hub.index.check(namespace) == []
            assert (await hub.store(namespace).memory.stats()).count == len(FACTS)
        assert told[-1] == (len(FACTS), len(FACTS))


async def test_the_same_embedder_is_not_asked_again(remembered: Settings) -> None:
    embedder = Renamed()
    async with opened(remembered, embedder) as hub:
        await hub.index.rebuild("large")
        assert sorted(embedder.asked) == sorted(FACTS)

        await hub.index.rebuild("large")

        assert len(embedder.asked) == len(FACTS)


async def test_while_the_provider_is_away_words_find_and_the_same_call_goes_on(remembered: Settings) -> None:
    embedder = Renamed(32, failures=1)
    async with opened(remembered, embedder) as hub:
        with pytest.raises(UnavailableError):
            await hub.index.rebuild("large")
        (hit,) = await hub.store("large").memory.search("boat 7", mode="keywords", limit=1)
        assert hit.item.memory == FACTS[7]

        await hub.index.rebuild("large")

        assert await nearest(hub, "large") == FACTS[7]


async def test_without_a_search_module_it_is_the_same() -> None:
    server = FakeServer()
    async with fake_hub(server=server, embedder=HashingEmbedder()) as hub:
        await hub.store("small").memory.add_many(FACTS, dedup=False)

    async with fake_hub(server=server, embedder=Renamed(32)) as hub:
        await hub.index.rebuild("small")

        assert await nearest(hub, "small") == FACTS[7]


# -- graphs ---------------------------------------------------------------------------------------


async def told(hub: Hub, namespace: str, count: int = 12) -> None:
    """Tell a graph some things."""
    graph = hub.store(namespace).graph
    for number in range(count):
        await graph.add_episode(FACTS[number], group_id="a/b:1", id=f"e{number}", extract=False)
    await graph.add_relationship("Anna Berg", "lives_in", "Oslo", group_id="a/b:1")


async def found(hub: Hub, namespace: str) -> list[str]:
    """What is nearest by meaning alone, among episodes, facts and entities."""
    graph = hub.store(namespace).graph
    asked: tuple[tuple[str, GraphKind], ...] = (
        (FACTS[7], "episode"),
        ("Anna Berg lives in Oslo", "fact"),
        ("Anna Berg", "entity"),
    )
    hits = [await graph.vector_search(text, group_id="a/b:1", limit=1, kinds=(kind,)) for text, kind in asked]
    assert all(hit.score > 0.99 for (hit,) in hits)
    return [hit.item.id for (hit,) in hits]


@pytest.mark.parametrize("dimension", [32, 64])
async def test_rebuilding_gives_graphs_new_vectors(data_dir: Path, dimension: int) -> None:
    settings = Settings(data_dir=data_dir)
    async with opened(settings, HashingEmbedder()) as keeper:
        if not keeper.powers.search:
            pytest.skip("the server has no search module")
        await told(keeper, "small")
        before = await found(keeper, "small")

        async with opened(settings, Renamed(dimension)) as hub:
            with pytest.raises(ConfigError, match="rebuild --shared --family graph"):
                await hub.store("small").graph.retrieve("boat 7", group_id="a/b:1")
            await hub.index.rebuild(family="graph")

            assert await found(hub, "small") == before
            assert await hub.index.check("small") == []


async def test_what_was_told_while_the_provider_was_away_gets_its_vectors_by_rebuilding() -> None:
    embedder = Renamed(32, failures=10_000)
    async with fake_hub(embedder=embedder) as hub:
        await told(hub, "small")
        (hit,) = await hub.store("small").graph.text_search("boat 7", group_id="a/b:1", limit=1)
        assert hit.item.id == "e7"
        embedder.failures = 0

        await hub.index.rebuild("small", family="graph")

        assert (await found(hub, "small"))[0] == "e7"
