"""docs/memory.md: the messages, metrics and participants of memories are used, not only stored."""

from __future__ import annotations

from typing import Any

import pytest

from sharedmem import Hub, InvalidError
from sharedmem.memory.memories import Memories
from sharedmem.models import MemoryMessage
from sharedmem.testing import fake_hub


@pytest.fixture
async def hub() -> Any:
    async with fake_hub() as hub:
        yield hub


def said(text: str, **fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": text, **fields}


# -- messages -------------------------------------------------------------------------------------


async def test_messages_are_found_by_their_words_beside_the_memory(memory: Memories) -> None:
    turns = [said("a zebra crossing was painted"), said("by whom?", role="agent")]
    await memory.add("the street is safer now", messages=turns)
    await memory.add("the harbour is closed")

    for hits in (await memory.search_keywords("zebra crossing"), await memory.search("zebra crossing", mode="hybrid")):
        assert hits[0].item.memory == "the street is safer now"


async def test_changed_messages_are_found_by_their_new_words(memory: Memories) -> None:
    added = await memory.add("the street is safer now", messages=[said("a zebra crossing was painted")])

    await memory.update(added.id, messages=[said("a tunnel was dug")])

    assert [len(await memory.search_keywords(words)) for words in ("zebra", "tunnel")] == [0, 1]


async def test_imported_messages_are_found_by_their_words(memory: Memories, hub: Hub) -> None:
    await memory.add("the street is safer now", messages=[said("a zebra crossing was painted")])
    other = hub.store("elsewhere").memory

    await other.import_([item async for item in memory.export()])

    assert len(await other.search_keywords("zebra")) == 1


# -- numbers of a thread --------------------------------------------------------------------------


async def test_tokens_of_a_thread_are_those_of_its_metrics(memory: Memories) -> None:
    await memory.add("how many houses", thread_id="t", metrics={"input_tokens": 300, "output_tokens": 100})
    await memory.add("seventeen of them", thread_id="t", metrics={"input_tokens": 50, "latency_ms": 12.5})
    await memory.add("without any numbers", thread_id="t")

    stats = await memory.thread_stats("t")

    assert (stats.turn_count, stats.total_tokens, stats.tokens_from) == (3, 450, "metrics")


async def test_without_metrics_words_are_counted_and_it_says_so(memory: Memories) -> None:
    await memory.add("three words here", thread_id="t", metrics={"latency_ms": 12.5})

    stats = await memory.thread_stats("t")

    assert (stats.total_tokens, stats.tokens_from) == (3, "words")


async def test_participants_are_speakers_entities_and_actors(memory: Memories) -> None:
    ines = MemoryMessage(role="user", name="Ines", entity_id="user-7", content="is it open?")
    await memory.add("open?", thread_id="t", messages=[ines, said("yes", role="agent")], entity_id="user-7")
    await memory.add("she has paid", thread_id="t", entity_id="user-9", source_actor="clerk")
    await memory.add("she has left", thread_id="t", source_actor="clerk")

    stats = await memory.thread_stats("t")

    found = {one.name: one.turns for one in stats.participants}
    assert found == {"clerk": 2, "Ines": 1, "agent": 1, "user-9": 1}
    assert stats.participants[0].name == "clerk"


async def test_participants_of_another_scope_are_not_counted(memory: Memories) -> None:
    for user in ("ann", "bob"):
        await memory.within(user_id=user).add(f"{user} was here", thread_id="t", entity_id=user)

    stats = await memory.within(user_id="ann").thread_stats("t")

    assert [one.name for one in stats.participants] == ["ann"]


# -- the type of the cache ------------------------------------------------------------------------


async def test_a_memory_of_the_type_semantic_cache_is_refused_with_the_way_to_the_cache(memory: Memories) -> None:
    added = await memory.add("an answer")
    cached: dict[str, Any] = {"memory_type": "semantic-cache"}

    for refused in (
        memory.add("another answer", **cached),
        memory.add_many(["fine", {"memory": "another answer", **cached}]),
        memory.update(added.id, **cached),
    ):
        with pytest.raises(InvalidError, match=r"store\.cache\.put\(prompt, response\)"):
            await refused

    assert (await memory.stats()).by_type == {"long-term": 1}


async def test_what_earlier_versions_stored_as_cache_can_still_be_moved(memory: Memories) -> None:
    await memory.import_([{"id": "a", "memory": "an answer", "memory_type": "semantic-cache"}])

    item = await memory.get("a")

    assert item is not None
    assert (item.memory_type, item.ttl) == ("semantic-cache", 3600)
