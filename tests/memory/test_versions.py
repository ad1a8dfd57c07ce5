"""A memory has its past versions, and every change of it can be undone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest
from support.contexts import knowledge_of

from sharedmem import Hub, Settings
from sharedmem.errors import ConflictError, InvalidError, NotFoundError
from sharedmem.memory.memories import Memories
from sharedmem.models import MemoryItem
from sharedmem.providers.local_embedders import HashingEmbedder
from sharedmem.providers.protocol import Embeddings, Purpose
from sharedmem.redis.scripts.knowledge import COMMON_PARTS
from sharedmem.testing import ManualClock, fake_hub

HARBOUR = "The quiet old harbour of Bergen opens its gates early in the morning"


@pytest.fixture(params=["exact", "redisearch"])
async def hub(request: pytest.FixtureRequest, settings: Settings) -> AsyncIterator[Hub]:
    chosen = settings.replace(embedder="hashing", memory_history=10)
    if request.param == "exact":
        async with fake_hub(settings=chosen) as hub:
            yield hub
        return
    async with Hub.open(request.getfixturevalue("redis_url"), settings=chosen) as hub:
        yield hub


async def item_of(memory: Memories, id_: str, *, embedding: bool = False) -> MemoryItem:
    item = await memory.get(id_, embedding=embedding)
    assert item is not None
    return item


async def changes_of(memory: Memories, id_: str) -> list[str]:
    return [one.change for one in await memory.history(id_)]


async def test_history_tells_every_version_newest_first_and_who_made_it(
    hub: Hub, memory: Memories, namespace: str
) -> None:
    added = await memory.add(HARBOUR)
    await hub.store(namespace, actor="ben").memory.add(f"{HARBOUR} hours")
    await memory.update(added.id, memory="It is closed now")
    await memory.delete(added.id)

    told = await memory.history(added.id)

    assert [(one.change, one.actor) for one in told] == [
        ("deleted", "ann"),
        ("updated", "ann"),
        ("merged", "ben"),
        ("added", "ann"),
    ]
    assert told[2].merged_text == f"{HARBOUR} hours"
    assert told[2].similarity is not None
    assert [one.item.memory for one in told] == ["It is closed now", "It is closed now", HARBOUR, HARBOUR]
    assert [one.item.occurrences for one in told] == [2, 2, 2, 1]
    assert all(one.version == one.item.version for one in told)
    assert [one.at for one in told] == sorted((one.at for one in told), reverse=True)


async def test_a_memory_that_never_existed_has_no_history(memory: Memories) -> None:
    assert await memory.history("nothing") == []
    with pytest.raises(NotFoundError):
        await memory.undo("nothing")


async def test_history_keeps_as_many_versions_as_the_settings_say(memory: Memories) -> None:
    added = await memory.add("x")
    for n in range(15):
        await memory.update(added.id, tags=(f"t{n}",))

    told = await memory.history(added.id)

    assert len(told) == 11
    assert told[0].item.tags == ("t14",)
    with pytest.raises(InvalidError, match="no longer stored"):
        await memory.undo(added.id, told[-1].version)


async def test_an_update_is_taken_back(memory: Memories) -> None:
    added = await memory.add("Ada lives in Paris", tags=("a",), metadata={"n": 1})
    before = await item_of(memory, added.id, embedding=True)
    changed = await memory.update(added.id, memory="Ada lives in Rome", tags=("b",), metadata={"n": 2})

    undone = await memory.undo(added.id)

    after = await item_of(memory, added.id, embedding=True)
    assert undone == after.model_copy(update={"embedding": None})
    assert (undone.memory, undone.content, undone.tags, undone.metadata) == (
        *("Ada lives in Paris", "Ada lives in Paris"),
        *(("a",), {"n": 1}),
    )
    assert after.embedding == before.embedding
    newest = (await memory.history(added.id))[0]
    assert (newest.change, newest.undoes) == ("undone", changed.version)
    assert (await memory.add("Ada lives in Paris")).id == added.id


async def test_a_merge_that_is_taken_back_splits(memory: Memories) -> None:
    first = await memory.add(HARBOUR, tags=("a",), metadata={"n": 1})
    again = await memory.add(f"{HARBOUR} hours", tags=("b",), metadata={"m": 2})

    undone = await memory.undo(first.id)

    assert (undone.content, undone.tags, undone.metadata, undone.occurrences) == (HARBOUR, ("a",), {"n": 1}, 1)
    (split,) = await memory.list({"tags": "b"})
    assert (split.memory, split.tags, split.metadata, split.occurrences) == (f"{HARBOUR} hours", ("b",), {"m": 2}, 1)
    (born,) = await memory.history(split.id)
    assert (born.change, born.undoes) == ("restored", again.version)
    with pytest.raises(InvalidError, match="undone already"):
        await memory.undo(first.id, again.version)


async def test_a_merge_before_other_changes_is_taken_back_alone(memory: Memories) -> None:
    first = await memory.add(HARBOUR, metadata={"n": 1})
    second = await memory.add(f"{HARBOUR} hours", metadata={"n": 2})
    await memory.add(f"{HARBOUR} here", metadata={"k": 3})
    await memory.update(first.id, importance="high")

    undone = await memory.undo(first.id, second.version)

    assert undone.content == f"{HARBOUR}\n{HARBOUR} here"
    assert (undone.metadata, undone.importance, undone.occurrences) == ({"n": 1, "k": 3}, "high", 2)


async def test_what_was_changed_again_cannot_be_taken_back_out_of_order(memory: Memories) -> None:
    added = await memory.add("x")
    first = await memory.update(added.id, importance="high")
    await memory.update(added.id, importance="low")

    with pytest.raises(ConflictError, match="importance"):
        await memory.undo(added.id, first.version)

    await memory.undo(added.id)
    assert (await memory.undo(added.id, first.version)).importance == "medium"


async def test_undo_goes_back_change_by_change_to_the_beginning(memory: Memories) -> None:
    added = await memory.add("zero")
    for text in ("one", "two", "three"):
        await memory.update(added.id, memory=text)

    texts = [(await memory.undo(added.id)).memory for _ in range(3)]

    assert texts == ["two", "one", "zero"]
    with pytest.raises(InvalidError, match="no change"):
        await memory.undo(added.id)


async def test_a_deletion_is_taken_back(memory: Memories) -> None:
    added = await memory.add("Ada likes tea", thread_id="t", tags=("a",))
    await memory.add("something else", thread_id="t")
    before = await item_of(memory, added.id)
    await memory.delete(added.id)

    restored = await memory.undo(added.id)

    same = {"version"}
    assert restored.model_dump(exclude=same) == before.model_dump(exclude=same)
    assert await changes_of(memory, added.id) == ["restored", "deleted", "added"]
    assert (await memory.add("Ada likes tea")).id == added.id
    assert await memory.delete_all({"tags": "a"}) == 1


async def test_an_addition_cannot_be_taken_back_but_deleted(memory: Memories) -> None:
    added = await memory.add("x")

    with pytest.raises(InvalidError, match="delete"):
        await memory.undo(added.id)
    with pytest.raises(InvalidError, match="delete"):
        await memory.undo(added.id, added.version)
    with pytest.raises(NotFoundError):
        await memory.undo(added.id, 5)


async def test_the_history_of_a_deleted_memory_ends_some_day(settings: Settings) -> None:
    clock = ManualClock()
    async with fake_hub(settings=settings.replace(memory_history_s=3600), clock=clock) as hub:
        memory = hub.store("ns").memory
        added = await memory.add("x")
        await memory.delete(added.id)

        clock.advance(3000)
        assert await changes_of(memory, added.id) == ["deleted", "added"]
        clock.advance(1000)
        assert await memory.history(added.id) == []


async def test_what_expires_leaves_nothing_behind(settings: Settings) -> None:
    clock = ManualClock()
    async with fake_hub(settings=settings, clock=clock) as hub:
        memory = hub.store("ns").memory
        await memory.add_many([{"memory": f"fact {n}", "thread_id": "t", "ttl": 60} for n in range(40)], dedup=False)
        await memory.add_many([{"memory": f"stays {n}", "thread_id": "t"} for n in range(5)], dedup=False)

        clock.advance(100)
        await memory.add_many([f"new {n}" for n in range(40)], dedup=False)
        clock.advance(100_000)
        await memory.add_many([f"newer {n}" for n in range(40)], dedup=False)

        client, keyspace = knowledge_of(hub).client, knowledge_of(hub).keyspace
        parts = [keyspace.record_part("memory", "ns", part) for part in COMMON_PARTS]
        assert await client.call("ZCARD", parts[0]) == 85
        assert await client.call("HLEN", parts[1]) == 85
        assert await client.call("ZCARD", parts[2]) == 0
        assert await client.call("ZCARD", keyspace.record_item("memory", "ns", "turns", "t")) == 5


async def test_changes_are_announced_with_the_memory_s_name(hub: Hub, memory: Memories, namespace: str) -> None:
    added = await memory.add(HARBOUR)
    await memory.add(f"{HARBOUR}!")
    await memory.update(added.id, tags=("x",))
    await memory.delete(added.id)

    context = knowledge_of(hub)
    entries = await context.client.call("XRANGE", context.keyspace.space(namespace).changes, "-", "+")

    assert isinstance(entries, list)
    fields = [entry[1] for entry in entries if isinstance(entry, list)]
    told = [dict(zip(one[::2], one[1::2], strict=True)) for one in fields if isinstance(one, list)]
    assert [(one[b"op"], one[b"key"]) for one in told] == [
        (f"memory.{what}".encode(), f"{namespace}:$memory:{added.id}".encode())
        for what in ("added", "merged", "updated", "deleted")
    ]


async def test_a_merge_that_is_undone_while_the_memory_is_deleted_leaves_nothing(settings: Settings) -> None:
    class Interrupted(HashingEmbedder):
        """Runs something before it embeds for an undo."""

        before: Callable[[], Awaitable[object]] | None = None

        async def embed(self, texts: Sequence[str], *, purpose: Purpose = "document") -> Embeddings:
            before, self.before = self.before, None
            if before is not None:
                await before()
            return await super().embed(texts, purpose=purpose)

    embedder = Interrupted()
    async with fake_hub(settings=settings.replace(embedding_cache_items=0), embedder=embedder) as hub:
        memory = hub.store("team").memory
        added = await memory.add("the crane is broken")
        merged = await memory.add("The crane is broken!")
        embedder.before = lambda: memory.delete(added.id)

        with pytest.raises(InvalidError, match="undo the deletion first"):
            await memory.undo(added.id, merged.version)

        assert embedder.before is None
        assert await memory.list() == []
