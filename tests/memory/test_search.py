"""Searching memories, on both indexes alike; without a provider, and with what has expired."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
from conformance.memory import MemorySearchTests
from conformance.memory.base import FACTS, add_texts, add_turns
from support import embedded_fixtures
from support.backends import OnFakeredis

from sharedmem import Hub, Settings
from sharedmem.errors import UnavailableError
from sharedmem.memory.memories import Memories
from sharedmem.models import MemoryItem
from sharedmem.providers import embedding
from sharedmem.providers.protocol import Embeddings, Purpose
from sharedmem.testing import ManualClock, fake_hub

data_dir = embedded_fixtures.data_dir
TALK = [
    (("Ann", "Ben", "Cleo")[n % 3], f"{FACTS[n % 5]} That was {n} weeks ago{'?' if n % 4 == 0 else '.'}")
    for n in range(60)
]


class TestSearchingOnFakeredis(OnFakeredis, MemorySearchTests):
    """Every promise, on fakeredis."""


class TestSearchingOnARealServer(MemorySearchTests):
    """Every promise, on a real server."""


# -- both indexes -----------------------------------------------------------------------------------


QUERIES = ("zebra mascot", "What did Ann say about invoices?", "database copied at night, Ben?", "kroner weeks ago")


async def test_both_indexes_give_the_same_scores(data_dir: Path) -> None:
    # A server of its own: in a shared index, the words of others count for how rare a word is.
    hashing = Settings(embedder="hashing", data_dir=data_dir)
    async with fake_hub(settings=hashing) as exact, Hub.open(settings=hashing) as server:
        for hub in (exact, server):
            memory = hub.store("team").memory
            items = [MemoryItem(id=f"m{n}", memory=f"{text} {n}") for n, text in enumerate(FACTS * 4)]
            await memory.add_many(items, dedup=False)
            await add_turns(memory, *TALK, ids="x")

        for query in QUERIES:
            one, other = [await hub.store("team").memory.search(query, limit=100) for hub in (exact, server)]
            # The server compares vectors in half precision.
            scores = {hit.item.id: pytest.approx(hit.rank_score, abs=0.002) for hit in other}
            assert {hit.item.id: hit.rank_score for hit in one} == scores
            assert len(one) == 80


# -- providers --------------------------------------------------------------------------------------


class Moody:
    """An embedder that can be told to fail, to be slow, or to find no meaning."""

    name = "test:moody"
    dimension = 8

    def __init__(self) -> None:
        self.mood = "well"
        self.asked: list[str] = []

    async def embed(self, texts: Sequence[str], *, purpose: Purpose = "document") -> Embeddings:
        if self.mood == "down":
            raise UnavailableError("test:moody", "it is down")
        if self.mood == "slow":
            await asyncio.Event().wait()
        if purpose == "query":
            self.asked += texts
        vectors = np.zeros((len(texts), self.dimension), np.float32)
        if self.mood != "blank":
            vectors[:, 0] = 1
        return Embeddings(vectors, tokens=len(texts))

    async def close(self) -> None:
        """There is nothing to give back."""


@asynccontextmanager
async def moody_hub(embedder: Moody) -> AsyncIterator[Hub]:
    from sharedmem.testing.fakes import connect_to_fake

    async with Hub(settings=Settings(), connect=connect_to_fake(), embedder=embedder) as hub:
        yield hub


@pytest.mark.parametrize(
    ("mood", "reason"), [("down", "it is down"), ("slow", "did not answer"), ("blank", "no meaning")]
)
async def test_recall_goes_on_by_words_and_says_so(monkeypatch: pytest.MonkeyPatch, mood: str, reason: str) -> None:
    embedder = Moody()
    async with moody_hub(embedder) as hub:
        memory = hub.store("team").memory
        await add_texts(memory)
        embedder.mood = mood
        # Only what never answers is given up so soon.
        monkeypatch.setattr(embedding, "QUERY_TIMEOUT_S", 0.05 if mood == "slow" else 60)

        for hits in (
            await memory.search("zebra"),
            await memory.search_semantic("zebra", threshold=0.9),
            await memory.search("zebra", mode="semantic"),
        ):
            assert [hit.item.memory for hit in hits] == [FACTS[3]]
            assert hits.mode == "keywords"
            assert reason in (hits.degraded or "")
        degraded = [count for count in hub.counters.snapshot() if count.name == "sharedmem_memory_degraded"]
        assert [count.value for count in degraded] == [3]

        embedder.mood = "well"
        monkeypatch.setattr(embedding, "QUERY_TIMEOUT_S", 60)
        assert (await memory.search("zebra mascot")).degraded is None


async def test_without_an_embedder_words_are_enough() -> None:
    async with fake_hub(settings=Settings(embedder="none")) as hub:
        memory = hub.store("team").memory
        await add_texts(memory)

        hits = await memory.search("zebra")

        assert hits[0].item.memory == FACTS[3]
        assert (hits.mode, "no embedder" in (hits.degraded or "")) == ("keywords", True)


async def test_words_asked_for_are_no_fallback() -> None:
    async with fake_hub(settings=Settings(embedder="none")) as hub:
        memory = hub.store("team").memory
        await add_texts(memory)

        assert (await memory.search_keywords("zebra")).degraded is None


async def test_names_of_speakers_are_not_embedded() -> None:
    embedder = Moody()
    async with moody_hub(embedder) as hub:
        memory = hub.store("team").memory
        await memory.search("What did Caroline say?")
        await add_turns(memory, ("Caroline", "I saw a heron."))
        embedder.asked.clear()

        await memory.search("What did Caroline say?")

        assert "Caroline" not in embedder.asked[-1]


async def test_tokens_that_a_search_took_are_told() -> None:
    async with moody_hub(Moody()) as hub:
        memory = hub.store("team").memory
        await add_texts(memory)

        assert (await memory.search("zebra")).cost.tokens == 1


# -- expiry -----------------------------------------------------------------------------------------


async def _expiring(memory: Memories) -> None:
    await memory.add_many([MemoryItem(memory=f"note {n}", ttl=60) for n in range(8)], dedup=False)
    await memory.add_many([MemoryItem(memory=f"note {n} stays") for n in range(8)], dedup=False)


async def test_what_has_expired_is_never_answered() -> None:
    clock = ManualClock()
    async with fake_hub(clock=clock, settings=Settings(embedder="hashing")) as hub:
        memory = hub.store("team").memory
        await _expiring(memory)
        assert len(await memory.search("note", limit=16)) == 16

        clock.advance(61)

        hits = await memory.search("note", limit=8)
        assert len(hits) == 8
        assert all("stays" in hit.item.memory for hit in hits)
        assert len(await memory.list()) == 8
        assert len(await memory.recent(limit=100)) == 8
        assert len(await memory.recent(limit=100, order_by="turn_index")) == 8
        assert len([item async for item in memory.export()]) == 8
        assert (await memory.thread_stats()).turn_count == 8


async def test_hits_show_the_first_of_them() -> None:
    texts = [f"The harbour of Skarn was flooded in {year}, {'so to say ' * 50}" for year in range(15)]

    async with fake_hub(settings=Settings(embedder="none")) as hub:
        memory = hub.store("ns").memory
        await memory.add_many(texts)
        shown = repr(await memory.search_keywords("harbour", limit=12))

    first, *others = shown.splitlines()
    assert first == "<12 hits, keywords"
    assert len(others) == 11
    assert "'The harbour of Skarn was flooded in " in others[0]
    assert others[-1] == "  and 2 more>"
    assert all(len(line) < 120 for line in others)
