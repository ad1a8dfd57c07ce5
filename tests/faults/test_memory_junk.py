"""Memory beside another client that writes junk: what cannot be read is told, and hides nothing else."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from redis import Redis
from support import memory_fixtures
from support.faulty_hubs import impatient_settings
from support.memory_fixtures import FACTS, ZEBRA, FaultyEmbedder, corrupt_record, counter_value, finds_by_meaning
from support.redis_process import RedisProcess
from support.waiting import wait_until

from sharedmem import Hub
from sharedmem.errors import SharedMemoryError, UnavailableError
from sharedmem.memory.memories import Memories
from sharedmem.models import MemoryItem, MemoryMessage
from sharedmem.providers.local_embedders import HashingEmbedder

index_server = memory_fixtures.index_server
server = memory_fixtures.server
raw = memory_fixtures.raw
provider = memory_fixtures.provider
hub = memory_fixtures.hub
memory = memory_fixtures.memory


# -- junk of other clients -------------------------------------------------------------------------------


UNREADABLE = (
    "a text",
    "a list",
    "no fields",
    "body={broken",
    "body=[]",
    "body=7",
    'body={"timestamp": "soon", "memory": "x"}',
    'body={"messages": 5, "memory": "x"}',
    "version=new",
    "turn=first",
)
WITHOUT_FACTS = ("facts=none", "facts=[")
WITHOUT_MEANING = ("short vector", "no numbers")


@pytest.mark.parametrize("how", UNREADABLE + WITHOUT_FACTS + WITHOUT_MEANING)
async def test_one_spoilt_record_hides_no_other(memory: Memories, raw: Redis, hub: Hub, how: str) -> None:
    ids = [result.id for result in await memory.add_many([*FACTS, "A zebra is no horse"])]
    await memory.search("zebra")
    corrupt_record(raw, f"sm:$memory:{{team}}:{ids[3]}", how)

    vector = (await HashingEmbedder(64).embed([ZEBRA])).vectors[0].tolist()
    for hits in (
        await memory.search("zebra mascot"),
        await memory.search("zebra mascot", diversity=0.5),
        await memory.search_keywords("mascot"),
        await memory.search_semantic(ZEBRA),
        await memory.find_similar(vector),
    ):
        assert hits[0].item.memory == ZEBRA
    others = set(FACTS)
    assert others <= {item.memory for item in await memory.list()}
    assert others <= {item.memory for item in await memory.recent()}
    assert others <= {item.memory for item in await memory.recent(order_by="turn_index")}
    assert others <= {item.memory async for item in memory.export()}
    assert (await memory.stats()).count >= 3
    assert (await memory.add(ZEBRA)).id == ids[2]
    assert not (await memory.add("Zebras sleep while they stand")).merged


@pytest.mark.parametrize("how", UNREADABLE)
async def test_a_spoilt_record_is_told_by_its_id(memory: Memories, raw: Redis, hub: Hub, how: str) -> None:
    (added,) = await memory.add_many([ZEBRA])
    corrupt_record(raw, f"sm:$memory:{{team}}:{added.id}", how)

    assert await memory.get(added.id) is None
    assert await memory.history(added.id) == []
    assert counter_value(hub, "memory_unreadable") == 2
    assert any(added.id in problem for problem in await hub.index.check("team"))


async def test_a_spoilt_vector_is_told_by_the_check(
    memory: Memories, raw: Redis, server: RedisProcess, provider: FaultyEmbedder
) -> None:
    (added,) = await memory.add_many([ZEBRA])
    await memory.search("zebra")
    corrupt_record(raw, f"sm:$memory:{{team}}:{added.id}", "short vector")
    # Who has seen it before it was spoilt has it still.
    async with Hub(settings=impatient_settings(server.url), embedder=provider) as other:
        await other.store("team").memory.search("zebra")

        problems = await other.index.check("team")

        assert any("record" in problem for problem in problems)
    item = await memory.get(added.id, embedding=True)
    assert item is not None
    assert item.embedding is None


@pytest.mark.parametrize("how", ["a text", "body={broken"])
async def test_a_spoilt_record_stops_neither_a_deletion_nor_an_embedding_nor_a_story(
    memory: Memories, raw: Redis, hub: Hub, provider: FaultyEmbedder, how: str
) -> None:
    ids = [result.id for result in await memory.add_many(FACTS[:2])]
    provider.fail(UnavailableError("test:provider", "it is down"))
    waiting = [(await memory.add(text)).id for text in (ZEBRA, "A horse eats hay")]
    corrupt_record(raw, f"sm:$memory:{{team}}:{ids[0]}", how)
    corrupt_record(raw, f"sm:$memory:{{team}}:{waiting[1]}", how)

    async with memory.subscribe("anything about a zebra", threshold=0.0) as standing:
        provider.fail(None)
        await wait_until(lambda: finds_by_meaning(memory), description="the zebra is embedded")
        added = await memory.add("The zebra has a friend")
        async with asyncio.timeout(60):
            async for event in standing:
                if event.id == added.id:
                    break

    assert not await memory.delete(ids[0])
    assert await memory.delete_all({}) == 3
    assert await memory.list() == []


@pytest.mark.parametrize("part", ["log", "digests", "endings", "authors", "pending", "stats", "turns:main"])
async def test_a_spoilt_part_of_the_bookkeeping_is_told_in_a_sentence(memory: Memories, raw: Redis, part: str) -> None:
    said = MemoryItem(memory="Which zebra?", messages=(MemoryMessage(role="user", name="Ada", content="Which zebra?"),))
    ids = [result.id for result in await memory.add_many([*FACTS, said])]
    (key,) = raw.keys(f"*{{team}}:$memory.{part}*") or [f"sm:{{team}}:$memory.{part}".encode()]
    raw.set(key, "junk")

    for ask in (
        lambda: memory.add("Marvin eats hay"),
        lambda: memory.update(ids[0], tags=("x",)),
        lambda: memory.delete(ids[1]),
        lambda: memory.search("zebra"),
        memory.list,
        memory.stats,
        lambda: memory.recent(order_by="turn_index"),
        memory.thread_stats,
        lambda: memory.history(ids[0]),
        lambda: memory.undo(ids[0]),
    ):
        with suppress(SharedMemoryError):
            await ask()

    raw.delete(key)
    assert not (await memory.add("Marvin eats hay at noon", dedup=False)).merged
