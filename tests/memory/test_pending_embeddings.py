"""Memories while the embedding provider is away: written at once, found by their words, embedded later."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from support.waiting import wait_until

from sharedmem import Settings
from sharedmem.errors import ConfigError, InvalidError, UnavailableError, UsageError
from sharedmem.memory.memories import Memories
from sharedmem.models import MemoryItem
from sharedmem.providers.local_embedders import HashingEmbedder
from sharedmem.providers.protocol import Embeddings, Purpose
from sharedmem.testing import ManualClock, fake_hub


async def item_of(memory: Memories, id_: str) -> MemoryItem:
    item = await memory.get(id_, embedding=True)
    assert item is not None
    return item


class Faulty:
    """A hashing embedder that can be out of order."""

    name = "faulty"
    dimension = 64

    def __init__(self, error: Exception | None) -> None:
        self.error = error
        self.calls = 0
        self._inner = HashingEmbedder(64)

    async def embed(self, texts: Sequence[str], *, purpose: Purpose = "document") -> Embeddings:
        self.calls += 1
        if self.error is not None:
            raise self.error
        return await self._inner.embed(texts, purpose=purpose)

    async def close(self) -> None:
        """Nothing to close."""


async def test_without_its_provider_a_memory_is_written_at_once_and_embedded_later(settings: Settings) -> None:
    embedder, clock = Faulty(UnavailableError("provider", "down")), ManualClock()
    async with fake_hub(settings=settings, embedder=embedder, clock=clock) as hub:
        memory = hub.store("ns").memory

        added = await memory.add("the zebra sleeps")
        (many,) = await memory.add_many(["the lion hunts"])

        assert not added.embedded
        assert not many.embedded
        assert (await item_of(memory, added.id)).embedding is None
        embedder.error = None
        await _embedded(memory, clock, [added.id, many.id])
        assert (await memory.add("the zebra sleeps!")).id == added.id
        assert (await item_of(memory, added.id)).version > added.version


async def test_each_waiting_embedding_is_made_by_one_of_several_hubs(settings: Settings) -> None:
    import fakeredis

    server, clock = fakeredis.FakeServer(), ManualClock()
    down, up = Faulty(UnavailableError("provider", "down")), Faulty(None)
    async with (
        fake_hub(settings=settings, embedder=down, clock=clock, server=server) as one,
        fake_hub(settings=settings, embedder=up, clock=clock, server=server) as other,
    ):
        memory = one.store("ns").memory
        results = await memory.add_many([f"fact {n}" for n in range(10)], dedup=False)
        # The other hub learns of it when it writes.
        await other.store("ns").memory.add("a fact of another hub")

        await _embedded(memory, clock, [result.id for result in results])

        assert up.calls == 2


async def test_a_hub_that_only_searches_makes_the_embeddings_that_wait(settings: Settings) -> None:
    import fakeredis

    server, clock = fakeredis.FakeServer(), ManualClock()
    down, up = Faulty(UnavailableError("provider", "down")), Faulty(None)
    async with fake_hub(settings=settings, embedder=down, clock=clock, server=server) as one:
        ids = [(await one.store("ns").memory.add("the zebra sleeps")).id]
    async with fake_hub(settings=settings, embedder=up, clock=clock, server=server) as other:
        memory = other.store("ns").memory

        await memory.search("zebra")

        await _embedded(memory, clock, ids)


async def _embedded(memory: Memories, clock: ManualClock, ids: list[str]) -> None:
    """Let time pass until all of these have their vectors."""

    async def is_embedded() -> bool:
        clock.advance(30)
        return all([(await item_of(memory, id_)).embedding is not None for id_ in ids])

    await wait_until(is_embedded, description="embeddings made")


class Overtaken(HashingEmbedder):
    """Gives its second answer only when it was asked for the third."""

    def __init__(self) -> None:
        super().__init__()
        self._asked = 0
        self._third = asyncio.Event()

    async def embed(self, texts: Sequence[str], *, purpose: Purpose = "document") -> Embeddings:
        self._asked += 1
        if self._asked == 2:
            await self._third.wait()
        if self._asked == 3:
            self._third.set()
        return await super().embed(texts, purpose=purpose)


async def test_turns_keep_their_order_though_a_later_batch_has_its_vectors_first(settings: Settings) -> None:
    said = [MemoryItem(id=f"turn-{number:03}", memory=f"sentence {number}", thread_id="talk") for number in range(300)]
    async with fake_hub(settings=settings, embedder=Overtaken()) as hub:
        memory = hub.store("ns").memory

        await asyncio.gather(*[memory.add(item, dedup=False) for item in said])

        kept = [(await item_of(memory, item.id)).turn_index for item in said]
    assert kept == list(range(300))


async def test_a_refused_key_is_told_and_nothing_is_written(settings: Settings) -> None:
    embedder = Faulty(ConfigError("embedding_key", "environment", "refused"))
    async with fake_hub(settings=settings, embedder=embedder) as hub:
        memory = hub.store("ns").memory

        with pytest.raises(ConfigError):
            await memory.add("x")

        embedder.error = None
        assert await memory.delete_all({}) == 0


async def test_an_embedder_that_gives_other_vectors_than_it_says_is_refused(settings: Settings) -> None:
    embedder = Faulty(None)
    embedder.dimension = 32
    async with fake_hub(settings=settings, embedder=embedder) as hub:
        with pytest.raises(ConfigError, match="32"):
            await hub.store("ns").memory.add("x")


async def test_without_an_embedder_the_same_text_is_still_the_same(settings: Settings) -> None:
    async with fake_hub(settings=settings.replace(embedder="none")) as hub:
        memory = hub.store("ns").memory

        one, same, other = [await memory.add(text) for text in ("A fact.", "a  FACT.", "A fact!")]

        assert same.id == one.id
        assert other.id != one.id
        with pytest.raises(InvalidError, match="no embedder"):
            await memory.add("x", embedding=[1.0] * 64)


async def test_adds_that_are_under_way_when_the_hub_closes_do_not_hang(settings: Settings) -> None:
    async with fake_hub(settings=settings) as hub:
        adding = [asyncio.ensure_future(hub.store("ns").memory.add(f"fact {n}")) for n in range(200)]
        await asyncio.sleep(0)

    await asyncio.wait(adding, timeout=60)

    assert all(task.done() for task in adding)
    for task in adding:
        assert task.exception() is None or isinstance(task.exception(), UsageError)
