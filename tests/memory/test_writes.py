"""Adding, changing and deleting memories: what is filled in, what is refused, and what happens without a provider."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from support.contexts import knowledge_of

from sharedmem import Hub, Settings
from sharedmem.clock import new_id
from sharedmem.errors import AccessDeniedError, InvalidError, NotFoundError, VersionConflictError
from sharedmem.memory.memories import Memories
from sharedmem.memory.validation import LONGEST_TEXT_BYTES
from sharedmem.models import MemoryFilter, MemoryItem, MemoryMessage
from sharedmem.testing import fake_hub


@pytest.fixture(params=["exact", "redisearch"])
async def hub(request: pytest.FixtureRequest, settings: Settings) -> AsyncIterator[Hub]:
    chosen = settings.replace(embedder="hashing")
    if request.param == "exact":
        async with fake_hub(settings=chosen) as hub:
            yield hub
        return
    async with Hub.open(request.getfixturevalue("redis_url"), settings=chosen) as hub:
        yield hub


async def item_of(memory: Memories, id_: str) -> MemoryItem:
    item = await memory.get(id_)
    assert item is not None
    return item


async def vector_of(memory: Memories, id_: str) -> tuple[float, ...]:
    item = await memory.get(id_, embedding=True)
    assert item is not None
    assert item.embedding is not None
    return item.embedding


# -- what is filled in ------------------------------------------------------------------------------------


async def test_a_text_becomes_a_memory_with_everything_filled_in(memory: Memories, namespace: str) -> None:
    before = datetime.now(UTC)

    added = await memory.add("Ada likes tea")

    item = await item_of(memory, added.id)
    assert (item.memory, item.content, item.tenant_id) == ("Ada likes tea", "Ada likes tea", namespace)
    assert (item.agent_id, item.thread_id, item.turn_index) == ("ann", "main", 0)
    assert (item.memory_type, item.importance, item.ttl, item.occurrences) == ("long-term", "medium", -1, 1)
    assert item.timestamp is not None
    assert item.created_at is not None
    assert before <= item.timestamp <= datetime.now(UTC)
    assert item.updated_at is None
    assert len(item.hash) == 64
    assert item.version == added.version > 0
    assert not added.merged
    assert added.embedded


async def test_every_field_comes_back_as_it_was_given(memory: Memories) -> None:
    given = MemoryItem(
        id="note-1",
        user_id="u",
        agent_id="x",
        thread_id="talk",
        run_id="r",
        turn_index=7,
        messages=(
            MemoryMessage(
                role="user",
                content="hi ☕",
                name="Ada",
                timestamp=datetime(2024, 5, 1, tzinfo=UTC),
                metadata={"a": [1]},
                embedding=(0.5, 0.25),
            ),
        ),
        memory="Ada says hi",
        content="Ada says hi ☕, and more",
        summary="greeting",
        timestamp=datetime(2099, 5, 1, 12, tzinfo=UTC),
        created_at=datetime(2024, 5, 2, tzinfo=UTC),
        category="smalltalk",
        importance="low",
        entity_id="ada",
        source_actor="watcher",
        related_memory_ids=("a", "b"),
        metrics={"latency_ms": 1.5},
        metadata={"n": 1, "deep": {"list": [1, None, "x"]}, "ok": True},
        tags=("t1", "t2"),
        collections=("c",),
        occurrences=3,
        turn_embedding=(0.5, 0.5),
    )

    added = await memory.add(given)

    found = await item_of(memory, "note-1")
    assert added.id == "note-1"
    assigned = {"tenant_id", "hash", "version", "ttl", "memory_type", "embedding", "created_by"}
    assert found.model_dump(exclude=assigned) == given.model_dump(exclude=assigned)
    assert MemoryItem.model_validate(found.model_dump()) == found


@pytest.mark.parametrize(
    ("fields", "kind", "ttl"),
    [
        ({}, "long-term", -1),
        ({"memory_type": "short-term"}, "short-term", 86_400),
        ({"memory_type": "short-term", "importance": "critical"}, "long-term", -1),
        ({"memory_type": "short-term", "ttl": 60}, "short-term", 60),
    ],
)
async def test_how_long_it_lives_goes_by_its_type(
    memory: Memories, hub: Hub, namespace: str, fields: dict[str, Any], kind: str, ttl: int
) -> None:
    added = await memory.add("something", **fields)

    item = await item_of(memory, added.id)
    context = knowledge_of(hub)
    left = await context.client.call("TTL", context.keyspace.record("memory", namespace, added.id))
    assert (item.memory_type, item.ttl) == (kind, ttl)
    assert left == -1 if ttl == -1 else ttl - 5 < left <= ttl  # type: ignore[operator]  # a number


async def test_turns_are_numbered_as_they_come_and_never_again(memory: Memories) -> None:
    ids = [(await memory.add(f"turn {n}", thread_id="t", dedup=False)).id for n in range(3)]
    await memory.delete(ids[2])
    fourth = await memory.add("turn after", thread_id="t", dedup=False)
    chosen = await memory.add("much later", thread_id="t", turn_index=40, dedup=False)
    last = await memory.add("after that", thread_id="t", dedup=False)

    places = [(await item_of(memory, one)).turn_index for one in [*ids[:2], fourth.id, chosen.id, last.id]]
    assert places == [0, 1, 3, 40, 41]


async def test_a_store_without_actor_leaves_the_agent_open(hub: Hub, namespace: str) -> None:
    memory = hub.store(namespace).memory

    added = await memory.add("said by nobody")

    assert (await item_of(memory, added.id)).agent_id is None


async def test_an_embedding_that_is_given_is_taken(memory: Memories) -> None:
    vector = [0.0] * 63 + [2.0]

    added = await memory.add("anything", embedding=vector)

    assert await vector_of(memory, added.id) == (*[0.0] * 63, 1.0)


async def test_a_thousand_items_are_added_in_their_order_with_progress(memory: Memories) -> None:
    told: list[tuple[int, int]] = []
    texts = [f"item {new_id()}" for _ in range(1000)]

    results = await memory.add_many(texts, dedup=False, on_progress=lambda done, of: told.append((done, of)))

    assert len({result.id for result in results}) == 1000
    assert told[-1] == (1000, 1000)
    assert told == sorted(told)
    found = {item.id: item async for item in memory.export()}
    assert [found[result.id].memory for result in results] == texts
    assert sorted(item.turn_index or 0 for item in found.values()) == list(range(1000))


async def test_nothing_is_added_without_items(memory: Memories) -> None:
    assert await memory.add_many([]) == []


@pytest.mark.parametrize(
    "text", ["the and of", "!?…", "😀🎉", "שלום עולם", "你好世界", "a" * 10_000, "@x:{y} | (z)=>[KNN]"]
)
async def test_odd_texts_are_remembered_as_they_are(memory: Memories, text: str) -> None:
    added = await memory.add(text)

    assert (await item_of(memory, added.id)).memory == text


async def test_a_text_of_a_mebibyte_is_remembered(memory: Memories) -> None:
    text = "word " * (LONGEST_TEXT_BYTES // 5)

    added = await memory.add(text)

    assert (await item_of(memory, added.id)).memory == text


# -- what is refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "fields", "says"),
    [
        ("", {}, "at least one word"),
        (" \n ", {}, "at least one word"),
        ("x" * (LONGEST_TEXT_BYTES + 1), {}, "1048576"),
        ("é" * (LONGEST_TEXT_BYTES // 2 + 1), {}, "1048576"),
        ("half \ud800", {}, "surrogate"),
        (42, {}, "MemoryItem"),
        ("x", {"no_such": 1}, "no such field"),
        ("x", {"useer_id": "ada"}, "did you mean 'user_id'?"),
        ("x", {"importance": "huge"}, "importance"),
        ("x", {"embedding": [1.0, 2.0]}, "64 numbers"),
        ("x", {"embedding": [float("nan")] * 64}, "finite"),
        ("x", {"embedding": [0.0] * 64}, "near to nothing"),
        ("x", {"metadata": {"x": float("nan")}}, "JSON"),
        ("x", {"metadata": {"x": {1, 2}}}, "JSON"),
        ("x", {"metadata": {"x": datetime(2024, 1, 1, tzinfo=UTC)}}, "JSON"),
        ("x", {"metadata": {"x": 2**70}}, "JSON"),
        ("x", {"metrics": {"x": float("inf")}}, "finite"),
        ("x", {"thread_id": "a{b}"}, "braces"),
        ("x", {"thread_id": "a\nb"}, "control"),
        ("x", {"thread_id": "t" * 300}, "256"),
        ("x", {"user_id": ""}, "without control"),
        ("x", {"user_id": " ada"}, "blanks"),
        ("x", {"tags": ("a\x1fb",)}, "control"),
        ("x", {"category": "c" * 300}, "256"),
        ("x", {"ttl": 0}, "ttl"),
        ("x", {"ttl": 10**12}, "ttl"),
        ("x", {"id": "a b"}, "id"),
        ("x", {"id": "a{b"}, "id"),
        ("x", {"turn_index": -1}, "turn_index"),
        ("x", {"timestamp": "soon"}, "timestamp"),
        ("x", {"dedup_keys": ("project",)}, "metadata"),
    ],
)
async def test_bad_input_is_refused_before_anything_is_written(
    memory: Memories, given: Any, fields: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidError, match=says):
        await memory.add(given, **fields)

    assert await memory.delete_all({}) == 0


async def test_one_bad_item_of_many_keeps_all_from_being_written(memory: Memories) -> None:
    with pytest.raises(InvalidError):
        await memory.add_many(["good", {"memory": "bad", "ttl": 0}])

    assert await memory.delete_all({}) == 0


async def test_another_tenants_memory_is_refused_with_what_to_do(memory: Memories) -> None:
    with pytest.raises(AccessDeniedError, match=r"hub\.store\('other'\)"):
        await memory.add("x", tenant_id="other")


async def test_an_id_that_has_another_text_is_a_conflict(memory: Memories) -> None:
    first = await memory.add("one text", id="chosen")

    again = await memory.add("one text", id="chosen")
    with pytest.raises(VersionConflictError):
        await memory.add("quite another thing", id="chosen")

    assert (again.id, again.version) == ("chosen", first.version)
    assert (await item_of(memory, "chosen")).occurrences == 1


# -- changing ---------------------------------------------------------------------------------------------


async def test_an_update_of_the_text_changes_embedding_and_hash(memory: Memories) -> None:
    added = await memory.add("Ada lives in Paris", metadata={"a": 1})
    before, former = await item_of(memory, added.id), await vector_of(memory, added.id)

    changed = await memory.update(added.id, memory="Ada lives in Rome", importance="high")

    assert changed == await item_of(memory, added.id)
    assert (changed.memory, changed.content, changed.importance) == ("Ada lives in Rome", "Ada lives in Rome", "high")
    assert changed.metadata == {"a": 1}
    assert changed.hash != before.hash
    assert await vector_of(memory, added.id) != former
    assert changed.version > added.version
    assert changed.updated_at is not None
    assert (await memory.add("Ada lives in Rome")).id == added.id
    assert (await memory.add("Ada lives in Paris", dedup=True)).id != added.id


async def test_an_update_of_other_fields_keeps_the_embedding(memory: Memories) -> None:
    added = await memory.add("Ada lives in Paris", user_id="u", category="c", tags=("a",))
    before = await vector_of(memory, added.id)

    await memory.update(added.id, category=None, user_id=None, tags=())

    after = await item_of(memory, added.id)
    assert (after.category, after.user_id, after.tags) == (None, None, ())
    assert await vector_of(memory, added.id) == before
    assert await memory.delete_all({"user_id": "u"}) == 0


async def test_an_update_may_insist_on_a_version(memory: Memories) -> None:
    added = await memory.add("x")
    changed = await memory.update(added.id, if_version=added.version, tags=("new",))

    with pytest.raises(VersionConflictError):
        await memory.update(added.id, if_version=added.version, tags=("newer",))

    assert (await item_of(memory, added.id)).version == changed.version


@pytest.mark.parametrize(
    "changes", [{}, {"thread_id": "x"}, {"version": 3}, {"memory": " "}, {"nonsense": 1}, {"ttl": 0}]
)
async def test_what_cannot_be_changed_is_refused(memory: Memories, changes: dict[str, Any]) -> None:
    added = await memory.add("x")

    with pytest.raises(InvalidError):
        await memory.update(added.id, **changes)

    assert (await item_of(memory, added.id)).version == added.version


async def test_what_is_not_there_cannot_be_changed(memory: Memories) -> None:
    with pytest.raises(NotFoundError):
        await memory.update("nothing", tags=("x",))
    assert not await memory.delete("nothing")


async def test_short_term_becomes_long_term_when_it_is_critical(hub: Hub, memory: Memories, namespace: str) -> None:
    added = await memory.add("x", memory_type="short-term")

    changed = await memory.update(added.id, importance="critical")

    context = knowledge_of(hub)
    assert (changed.memory_type, changed.ttl) == ("long-term", -1)
    assert await context.client.call("TTL", context.keyspace.record("memory", namespace, added.id)) == -1


# -- deleting ---------------------------------------------------------------------------------------------


async def test_what_is_deleted_is_gone_and_can_be_added_anew(memory: Memories) -> None:
    added = await memory.add("Ada likes tea")

    assert await memory.delete(added.id)
    assert not await memory.delete(added.id)
    again = await memory.add("Ada likes tea")

    assert not again.merged
    assert again.id != added.id


async def test_delete_all_deletes_what_the_filter_lets_through(memory: Memories) -> None:
    await memory.add_many([{"memory": f"fact {n}", "category": "ab"[n % 2]} for n in range(150)], dedup=False)

    assert await memory.delete_all(MemoryFilter(category="a")) == 75
    assert await memory.delete_all({"category": "a"}) == 0
    assert await memory.delete_all({}) == 75
    with pytest.raises(InvalidError):
        await memory.delete_all({"colour": "red"})


# -- narrowed ---------------------------------------------------------------------------------------------


async def test_a_narrowed_view_neither_sees_nor_changes_anything_else(memory: Memories) -> None:
    other = await memory.add("a secret of bob", user_id="bob")
    mine = memory.within(user_id="ann")

    added = await mine.add("a secret of ann")

    assert (await item_of(memory, added.id)).user_id == "ann"
    assert not await mine.delete(other.id)
    assert await mine.history(other.id) == []
    with pytest.raises(NotFoundError):
        await mine.update(other.id, tags=("x",))
    with pytest.raises(NotFoundError):
        await mine.undo(other.id)
    with pytest.raises(InvalidError):
        await mine.add("x", user_id="bob")
    with pytest.raises(InvalidError):
        await mine.update(added.id, user_id="bob")
    assert await mine.delete_all({}) == 1
    assert (await item_of(memory, other.id)).memory == "a secret of bob"
