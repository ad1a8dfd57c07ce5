"""Memory when something else fails: the provider, the index, or the server's room."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from redis import Redis
from support import memory_fixtures
from support.footprint import contents_of
from support.memory_fixtures import FACTS, ZEBRA, FaultyEmbedder, corrupt_record, finds_by_meaning, texts_by_meaning
from support.waiting import wait_until

from sharedmem import Hub
from sharedmem.errors import SharedMemoryError, UnavailableError
from sharedmem.memory import embedding_queue
from sharedmem.memory.memories import Memories
from sharedmem.providers import embedding
from sharedmem.providers.protocol import Embeddings

index_server = memory_fixtures.index_server
server = memory_fixtures.server
raw = memory_fixtures.raw
provider = memory_fixtures.provider
hub = memory_fixtures.hub
memory = memory_fixtures.memory


# -- the provider ----------------------------------------------------------------------------------------


async def test_while_the_provider_is_down_words_find_what_is_added_and_meaning_does_afterwards(
    memory: Memories, provider: FaultyEmbedder
) -> None:
    provider.fail(UnavailableError("test:provider", "it is down"))

    added = await memory.add(ZEBRA)
    many = await memory.add_many(FACTS[:2])

    assert not added.embedded
    assert not any(one.embedded for one in many)
    hits = await memory.search("zebra mascot")
    assert [hit.item.id for hit in hits] == [added.id]
    assert "down" in (hits.degraded or "")
    provider.fail(None)
    await wait_until(lambda: finds_by_meaning(memory), description="the memory is found by its meaning")
    assert (await memory.search("zebra mascot")).degraded is None
    assert (await memory.stats()).count == 3


async def test_a_provider_that_hangs_does_not_block_callers(
    monkeypatch: pytest.MonkeyPatch, memory: Memories, provider: FaultyEmbedder
) -> None:
    monkeypatch.setattr(embedding, "QUERY_TIMEOUT_S", 0.05)
    monkeypatch.setattr(embedding_queue, "EMBED_TIMEOUT_S", 0.05)
    provider.open.clear()

    added = await memory.add(ZEBRA)
    hits = await memory.search("zebra")

    assert not added.embedded
    assert [hit.item.id for hit in hits] == [added.id]
    assert "did not answer" in (hits.degraded or "")
    provider.open.set()
    await wait_until(lambda: finds_by_meaning(memory), description="the memory is found by its meaning")


async def test_with_a_provider_that_flaps_nothing_is_lost_doubled_or_left_without_meaning(
    memory: Memories, provider: FaultyEmbedder
) -> None:
    calls = iter(range(1_000_000))
    provider.error = lambda: UnavailableError("test:provider", "it flaps") if next(calls) % 3 else None
    texts = [f"{word} grows on hill number {n}" for n, word in enumerate(["vine", "oak", "moss", "fern", "rose"] * 4)]

    results = await asyncio.gather(*(memory.add(text) for text in texts))

    assert len({result.id for result in results}) == len(texts)

    async def all_have_one() -> bool:
        items = [await memory.get(result.id, embedding=True) for result in results]
        return all(item is not None and item.embedding for item in items)

    await wait_until(all_have_one, description="all memories have their embeddings")
    assert (await memory.stats()).count == len(texts)


async def test_an_update_while_the_provider_is_down_keeps_no_meaning_of_the_old_text(
    memory: Memories, provider: FaultyEmbedder
) -> None:
    added = await memory.add(FACTS[0])
    provider.fail(UnavailableError("test:provider", "it is down"))

    await memory.update(added.id, memory=ZEBRA)

    item = await memory.get(added.id, embedding=True)
    assert item is not None
    assert item.embedding is None
    assert [hit.item.id for hit in await memory.search("zebra")] == [added.id]
    provider.fail(None)
    await wait_until(lambda: finds_by_meaning(memory), description="the new text is embedded")
    assert await texts_by_meaning(memory, FACTS[0]) == []


@pytest.mark.parametrize(
    "spoil",
    [
        lambda made: made._replace(vectors=made.vectors[:-1]),
        lambda made: made._replace(vectors=made.vectors[:, :8]),
        lambda made: made._replace(vectors=made.vectors * np.float32("nan")),
    ],
    ids=["too few", "too short", "no numbers"],
)
async def test_vectors_that_are_none_are_told_and_spoil_nothing(
    memory: Memories, provider: FaultyEmbedder, raw: Redis, spoil: Callable[[Embeddings], Embeddings]
) -> None:
    await memory.add_many(FACTS[:2])
    before = contents_of(raw)
    provider.spoil = spoil

    with pytest.raises(SharedMemoryError, match="test:provider"):
        await memory.add(ZEBRA)

    assert contents_of(raw) == before
    hits = await memory.search("invoices")
    assert hits[0].item.memory == FACTS[1]
    assert hits.degraded
    provider.spoil = lambda made: made
    assert not (await memory.add(ZEBRA)).merged


async def test_an_embedder_with_a_bug_is_no_riddle(memory: Memories, provider: FaultyEmbedder, raw: Redis) -> None:
    await memory.add(FACTS[1])
    before = contents_of(raw)
    provider.fail(RuntimeError("index out of range"))

    with pytest.raises(Exception, match="index out of range"):
        await memory.add(ZEBRA)

    assert contents_of(raw) == before
    provider.fail(None)
    assert not (await memory.add(ZEBRA)).merged


# -- the index -------------------------------------------------------------------------------------------


def drop_indexes(raw: Redis) -> int:
    client: Any = raw  # redis-py does not type what modules add
    names = client.execute_command("FT._LIST")
    for name in names:
        client.execute_command("FT.DROPINDEX", name)
    return len(names)


async def test_a_dropped_index_is_made_anew_and_finds_all(memory: Memories, raw: Redis, hub: Hub) -> None:
    await memory.add_many(FACTS)
    await memory.search("zebra")
    if not any(module[b"name"] == b"search" for module in raw.module_list()):
        pytest.skip("this server has no indexes that could be dropped")

    for ask in (
        lambda: memory.search("zebra mascot"),
        lambda: memory.search_semantic(ZEBRA, threshold=0.9),
        memory.list,
        memory.stats,
        lambda: memory.add(ZEBRA),
    ):
        assert drop_indexes(raw)
        await ask()

    assert (await memory.search("zebra mascot"))[0].item.memory == ZEBRA
    assert (await memory.stats()).count == 3
    assert await hub.index.check("team") == []


async def test_after_a_flush_memory_begins_anew(memory: Memories, raw: Redis, hub: Hub) -> None:
    first = (await memory.add_many(FACTS))[2]
    await memory.search("zebra")

    raw.flushall()

    assert await memory.search("zebra") == []
    assert await memory.list() == []
    assert (await memory.stats()).count == 0
    again = await memory.add(ZEBRA)
    assert again.id != first.id
    assert not again.merged
    item = await memory.get(again.id)
    assert item is not None
    assert item.turn_index == 0
    assert [hit.item.id for hit in await memory.search("zebra mascot")] == [again.id]
    assert await texts_by_meaning(memory) == [ZEBRA]
    assert (await memory.add(ZEBRA)).merged
    assert await hub.index.check("team") == []


async def test_a_flush_right_before_an_add_does_no_harm(memory: Memories, raw: Redis) -> None:
    await memory.add_many(FACTS)
    raw.flushall()

    added = await memory.add(ZEBRA)

    assert [hit.item.id for hit in await memory.search("zebra mascot")] == [added.id]
    assert (await memory.stats()).count == 1


# -- the server ------------------------------------------------------------------------------------------


async def test_a_full_server_refuses_with_advice_and_keeps_nothing_of_it(memory: Memories, raw: Redis) -> None:
    first = await memory.add(FACTS[0])
    before = contents_of(raw)
    raw.config_set("maxmemory", 1)
    try:
        for refused in (
            memory.add(ZEBRA),
            memory.add_many(FACTS),
            memory.update(first.id, memory=ZEBRA),
            memory.add(FACTS[0]),
        ):
            with pytest.raises(UnavailableError, match="memory"):
                await refused
        assert contents_of(raw) == before
        assert [hit.item.id for hit in await memory.search("billing")] == [first.id]
    finally:
        raw.config_set("maxmemory", 0)

    results = await memory.add_many(FACTS)
    assert [result.merged for result in results] == [True, False, False]


async def test_a_replica_refuses_what_is_new_and_still_recalls(memory: Memories, raw: Redis) -> None:
    first = await memory.add(FACTS[0])
    before = contents_of(raw)
    raw.replicaof("127.0.0.1", "1")
    try:
        for refused in (memory.add(ZEBRA), memory.add_many(FACTS), memory.delete(first.id)):
            with pytest.raises(UnavailableError, match="replica"):
                await refused
        assert contents_of(raw) == before
        assert [hit.item.id for hit in await memory.search("billing")] == [first.id]
    finally:
        raw.replicaof("NO", "ONE")

    assert not (await memory.add(ZEBRA)).merged


async def test_a_changed_password_is_told_and_nothing_is_written(memory: Memories, raw: Redis) -> None:
    await memory.add(FACTS[0])
    before = contents_of(raw)
    raw.config_set("requirepass", "open sesame")
    raw.client_kill_filter(_type="normal", skipme=True)
    try:
        with pytest.raises(SharedMemoryError, match="password"):
            await memory.add(ZEBRA)
        assert contents_of(raw) == before
    finally:
        raw.config_set("requirepass", "")

    await memory.add(ZEBRA)
    assert (await memory.search("zebra"))[0].item.memory == ZEBRA


# -- the semantic cache ----------------------------------------------------------------------------------


async def test_the_cache_outlives_a_flush_a_dropped_index_and_an_absent_provider(
    hub: Hub, raw: Redis, provider: FaultyEmbedder
) -> None:
    cache = hub.store("team").cache
    await cache.put("When does the harbour open?", "At six")
    assert await cache.check("When does the harbour open?") is not None

    raw.flushall()
    assert await cache.check("When does the harbour open?") is None
    assert (await cache.stats()).entries == 0

    await cache.put("When does the harbour open?", "At six")
    if any(module[b"name"] == b"search" for module in raw.module_list()):
        drop_indexes(raw)
    near = await cache.check("when does the harbour open")
    assert near is not None
    assert near.response == "At six"
    provider.fail(UnavailableError("test:provider", "it is down"))
    same = await cache.check("When does the harbour open?")
    assert same is not None
    assert same.exact
    assert await cache.check("What is the weather like?") is None


@pytest.mark.parametrize(
    "how", ["a text", "no numbers", "short vector", "response={", "facts=[", "prompt=\xff", "at=x"]
)
async def test_a_spoilt_answer_is_told_in_a_sentence_and_hides_no_other(hub: Hub, raw: Redis, how: str) -> None:
    cache = hub.store("team").cache
    spoilt_id = await cache.put("When does the harbour open?", "At six")
    await cache.put("Who owns the billing service?", "Ann")
    corrupt_record(raw, f"sm:$cache:{{team}}:{spoilt_id}", how)

    with suppress(SharedMemoryError):
        await cache.check("When does the harbour open?")
    with suppress(SharedMemoryError):
        await cache.check("when does the harbour open now")

    other = await cache.check("who owns the billing service")
    assert other is not None
    assert other.response == "Ann"
    await cache.stats()
    await cache.clear()
    assert (await cache.stats()).entries == 0


async def test_a_full_server_is_told_by_the_cache_and_calls_are_answered_all_the_same(hub: Hub, raw: Redis) -> None:
    cache = hub.store("team").cache
    await cache.put("When does the harbour open?", "At six")

    @cache.cached()
    async def ask(prompt: str) -> str:
        return prompt.upper()

    raw.config_set("maxmemory", 1)
    try:
        with pytest.raises(UnavailableError, match="memory"):
            await cache.put("Who owns the billing service?", "Ann")
        assert await ask("what now") == "WHAT NOW"
        assert await cache.check("When does the harbour open?") is not None
    finally:
        raw.config_set("maxmemory", 0)
