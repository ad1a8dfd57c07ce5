"""Memories as earlier builds stored them are read, searched, changed and deleted as those of this one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from support.contexts import knowledge_of

from sharedmem import Hub, Settings
from sharedmem.memory.memories import Memories
from sharedmem.models import MemoryMessage
from sharedmem.testing import fake_hub

HARBOUR = "The quiet old harbour of Bergen opens its gates early in the morning"


@pytest.fixture(params=["exact", "redisearch"])
async def hub(request: pytest.FixtureRequest, settings: Settings) -> AsyncIterator[Hub]:
    chosen = settings.replace(embedder="hashing")
    if request.param == "exact":
        async with fake_hub(settings=chosen) as hub:
            yield hub
        return
    async with Hub.open(request.getfixturevalue("redis_url"), settings=chosen) as hub:
        yield hub


async def age(hub: Hub, namespace: str, id_: str) -> dict[str, Any]:
    """Store a memory as earlier builds did: its hash and both times in its body, its facts among the turns."""
    context = knowledge_of(hub)
    record = context.keyspace.record("memory", namespace, id_)
    body, facts, turn = (await context.client.read_each([("HMGET", record, "body", "facts", "turn")]))[0]  # type: ignore[misc]
    item = await hub.store(namespace, actor="ann").memory.get(id_)
    assert item is not None
    held: dict[str, Any] = orjson.loads(body)  # type: ignore[arg-type]
    held |= {"hash": item.hash, "created_at": str(item.created_at)}
    turns = context.keyspace.record_item("memory", namespace, "turns", item.thread_id)
    await context.client.call("HSET", record, "body", orjson.dumps(held))
    await context.client.call("DEL", turns)
    await context.client.call("ZADD", turns, turn, id_.encode() + b" " + facts)  # type: ignore[operator, arg-type]
    return held


async def members_of(hub: Hub, namespace: str, thread: str) -> list[bytes]:
    context = knowledge_of(hub)
    reply = await context.client.call(
        "ZRANGE", context.keyspace.record_item("memory", namespace, "turns", thread), 0, -1
    )
    assert isinstance(reply, list)
    return [one for one in reply if isinstance(one, bytes)]


async def test_an_earlier_memory_is_read_and_found_as_before(hub: Hub, memory: Memories, namespace: str) -> None:
    added = await memory.add(HARBOUR, thread_id="t")
    before = await memory.get(added.id)

    await age(hub, namespace, added.id)

    assert await memory.get(added.id) == before
    assert [hit.item for hit in await memory.search("harbour of Bergen")] == [before]
    assert (await memory.thread_stats("t")).turn_count == 1


async def test_an_earlier_memory_is_one_turn_after_an_update_and_none_after_its_deletion(
    hub: Hub, memory: Memories, namespace: str
) -> None:
    added = await memory.add(HARBOUR, thread_id="t")
    await age(hub, namespace, added.id)

    changed = await memory.update(added.id, tags=("port",))
    members = await members_of(hub, namespace, "t")
    await memory.delete(added.id)

    assert changed.tags == ("port",)
    assert members == [f"{added.id} null".encode()]
    assert await members_of(hub, namespace, "t") == [b"- null"]


async def test_the_same_text_is_merged_into_an_earlier_memory(hub: Hub, memory: Memories, namespace: str) -> None:
    added = await memory.add(HARBOUR)
    held = await age(hub, namespace, added.id)

    again = await memory.add(HARBOUR.upper())

    merged = await memory.get(added.id)
    assert (again.id, again.merged) == (added.id, True)
    assert merged is not None
    assert (merged.hash, merged.occurrences) == (held["hash"], 2)


async def test_a_memory_keeps_what_its_record_leaves_out(hub: Hub, memory: Memories, namespace: str) -> None:
    added = await memory.add(HARBOUR)
    context = knowledge_of(hub)
    body = await context.client.call("HGET", context.keyspace.record("memory", namespace, added.id), "body")

    item = await memory.get(added.id)

    assert isinstance(body, bytes)
    assert orjson.loads(body).keys().isdisjoint({"hash", "created_at", "content"})
    assert item is not None
    assert len(item.hash) == 64
    assert item.created_at == item.timestamp
    assert item.content == HARBOUR


async def test_turns_with_an_author_keep_their_facts_in_their_thread(
    hub: Hub, memory: Memories, namespace: str
) -> None:
    said = MemoryMessage(role="user", name="Ada", content="The gates open at six.")
    turn = await memory.add({"messages": [said], "thread_id": "t"})
    note = await memory.add(HARBOUR, thread_id="t")

    members = await members_of(hub, namespace, "t")

    assert [member.partition(b" ")[0].decode() for member in members] == [turn.id, note.id]
    assert b'"Ada"' in members[0]
    assert members[1].endswith(b" null")
