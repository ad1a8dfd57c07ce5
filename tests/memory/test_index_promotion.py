"""A namespace that grows gets the index that its size calls for, while it is used."""

from __future__ import annotations

import asyncio
from pathlib import Path

from support import embedded_fixtures
from support.waiting import wait_until

from sharedmem import Episode, Hub, IndexStatus, Settings

data_dir = embedded_fixtures.data_dir


async def own(hub: Hub, family: str) -> IndexStatus | None:
    """The index of the namespace `growing`, if it has one of its own."""
    return next((one for one in await hub.index.all() if one.family == family and "growing" in one.namespaces), None)


async def test_a_namespace_that_has_grown_moves_into_an_index_of_its_own_and_nothing_is_lost(data_dir: Path) -> None:
    settings = Settings(data_dir=data_dir, durable_url="none", embedder="hashing", promote_above=60)
    async with Hub.open(settings=settings) as hub:
        memory = hub.store("growing").memory
        await hub.store("small").memory.add("a small namespace stays where it is")

        for first in range(0, 120, 20):
            await memory.add_many([f"fact number {first + number}" for number in range(20)], dedup=False)
            found = await memory.search(f"fact number {first}", limit=3)
            assert f"fact number {first}" in [hit.item.memory for hit in found]

        async def has_moved() -> bool:
            status = await own(hub, "memory")
            return status is not None and status.documents == 120

        await wait_until(has_moved, description="the namespace has an index of its own")
        found = await memory.search("fact number 77", limit=1)
        assert found[0].item.memory == "fact number 77"
        assert (await memory.stats()).count == 120
        assert all("small" not in one.namespaces for one in await hub.index.all())


async def test_a_namespace_that_was_cleared_moves_again_when_it_has_grown_again(data_dir: Path) -> None:
    settings = Settings(data_dir=data_dir, durable_url="none", embedder="hashing", promote_above=20, hnsw_above=20)
    async with Hub.open(settings=settings) as hub:
        store = hub.store("growing")
        facts = [f"fact number {number}" for number in range(40)]

        async def has_moved() -> bool:
            await store.memory.add("one more", dedup=False)
            status = await own(hub, "memory")
            return status is not None and status.algorithm == "HNSW"

        await store.memory.add_many(facts, dedup=False)
        await wait_until(has_moved, description="the namespace has an approximate index of its own")
        await store.clear()
        assert await own(hub, "memory") is None

        await store.memory.add_many(facts, dedup=False)
        await wait_until(has_moved, description="the namespace has such an index again")


async def test_the_answers_of_the_cache_move_too(data_dir: Path) -> None:
    settings = Settings(data_dir=data_dir, durable_url="none", embedder="hashing", promote_above=30)
    async with Hub.open(settings=settings) as hub:
        cache = hub.store("growing").cache
        await asyncio.gather(*(cache.put(f"question {number}", number) for number in range(50)))

        async def has_moved() -> bool:
            return await own(hub, "cache") is not None

        await wait_until(has_moved, description="the cache has an index of its own")
        found = await cache.check("question 7")
        assert found is not None
        assert found.response == 7


async def test_an_approximate_index_comes_with_size(data_dir: Path) -> None:
    settings = Settings(data_dir=data_dir, durable_url="none", embedder="hashing", promote_above=20, hnsw_above=60)
    async with Hub.open(settings=settings) as hub:
        memory = hub.store("growing").memory
        for first in range(0, 100, 10):
            await memory.add_many([f"fact number {first + number}" for number in range(10)], dedup=False)

        async def is_approximate() -> bool:
            await memory.add("one more", dedup=False)
            status = await own(hub, "memory")
            return status is not None and status.algorithm == "HNSW"

        await wait_until(is_approximate, description="the index is approximate")
        found = await memory.search("fact number 42", limit=1)
        assert found[0].item.memory == "fact number 42"


async def test_a_graph_that_grows_is_found_in_an_approximate_index(data_dir: Path) -> None:
    settings = Settings(data_dir=data_dir, durable_url="none", embedder="hashing", promote_above=20, hnsw_above=40)
    async with Hub.open(settings=settings) as hub:
        graph = hub.store("growing").graph
        told = [Episode(content=f"fact number {number}", group_id="g", id=f"e{number}") for number in range(64)]
        await graph.add_episodes(told, extract=False)

        async def is_approximate() -> bool:
            await graph.add_episode("one more", group_id="g", extract=False)
            status = await own(hub, "graph")
            return status is not None and status.algorithm == "HNSW"

        await wait_until(is_approximate, description="the index is approximate")
        (found,) = await graph.vector_search("fact number 42", group_id="g", limit=1)
        assert found.item.id == "e42"
