"""Reading memories: by id, the newest, page by page, and counted."""
# a test's name is its sentence

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from conformance.memory.base import FACTS, NOON, MemoryFixtures, add_texts, add_turns
from sharedmem.errors import InvalidError
from sharedmem.memory.memories import Memories
from sharedmem.models import MemoryItem, MemoryMessage


class MemoryReadTests(MemoryFixtures):
    """`get`, `recent`, `list` and `stats`."""

    async def test_a_memory_comes_back_as_it_was_added(self, memory: Memories, namespace: str) -> None:
        item = MemoryItem(
            memory="Grüße 🦓 an alle",
            content="Grüße 🦓 an alle, sagte sie.",
            summary="a greeting",
            thread_id="t1",
            user_id="u1",
            run_id="r1",
            turn_index=7,
            messages=(MemoryMessage(role="user", name="Ada", content="Grüße", timestamp=NOON, metadata={"a": [1]}),),
            timestamp=NOON,
            category="small talk",
            importance="high",
            entity_id="e1",
            source_actor="s1",
            related_memory_ids=("x", "y"),
            metrics={"latency_ms": 1.5},
            metadata={"deep": {"list": [1, None, "ü"]}, "n": 2**53},
            tags=("a,b", "c|d"),
            collections=("one",),
        )
        result = await memory.add(item)

        read = await memory.get(result.id)

        assert read is not None
        same = {"memory", "content", "summary", "thread_id", "user_id", "run_id", "turn_index", "messages", "timestamp"}
        same |= {"category", "importance", "entity_id", "source_actor", "related_memory_ids", "metrics", "metadata"}
        assert read.model_dump(include=same) == item.model_dump(include=same)
        assert (set(read.tags), read.collections) == ({"a,b", "c|d"}, ("one",))
        assert (read.id, read.tenant_id, read.agent_id) == (result.id, namespace, "ada")
        assert (read.embedding, read.version, read.occurrences) == (None, result.version, 1)
        assert MemoryItem.model_validate(read.model_dump()) == read

    async def test_an_embedding_comes_to_those_who_ask_for_it(self, memory: Memories) -> None:
        (id_,) = await add_texts(memory, FACTS[:1])

        read = await memory.get(id_, embedding=True)

        assert read is not None
        assert read.embedding is not None
        assert sum(number * number for number in read.embedding) == pytest.approx(1, abs=0.01)

    async def test_what_is_not_there_is_none(self, memory: Memories) -> None:
        (id_,) = await add_texts(memory, FACTS[:1])
        await memory.delete(id_)

        assert await memory.get(id_) is None
        assert await memory.get("never-was") is None

    @pytest.mark.parametrize("id_", ["", None, 7, "x" * 600, "a b", "{a}"])
    async def test_an_impossible_id_is_refused(self, memory: Memories, id_: Any) -> None:
        with pytest.raises(InvalidError, match="id"):
            await memory.get(id_)

    async def test_the_newest_of_a_thread_come_first(self, memory: Memories) -> None:
        ids = await add_turns(memory, *((f"p{n % 2}", f"remark number {n}") for n in range(15)))
        await add_turns(memory, ("x", "elsewhere"), thread="other")

        by_time = await memory.recent("talk", limit=3)
        by_turn = await memory.recent("talk", limit=100, order_by="turn_index")

        assert [item.id for item in by_time] == ids[:-4:-1]
        assert [item.id for item in by_turn] == ids[::-1]
        assert await memory.recent("nobody spoke here") == []

    async def test_turn_order_is_not_time_order(self, memory: Memories) -> None:
        for turn, minutes in ((0, 5), (1, 1), (2, 3)):
            at = NOON + timedelta(minutes=minutes)
            await memory.add(MemoryItem(memory=f"remark {turn}", turn_index=turn, timestamp=at), dedup=False)

        assert [item.turn_index for item in await memory.recent(order_by="turn_index")] == [2, 1, 0]
        assert [item.turn_index for item in await memory.recent()] == [0, 2, 1]

    async def test_pages_show_each_memory_once(self, memory: Memories) -> None:
        ids = await add_texts(memory, [f"note number {n}" for n in range(23)])
        # Many at the same moment, across the ends of pages.
        same = [MemoryItem(memory=f"twin {n}", timestamp=NOON) for n in range(9)]
        ids += [result.id for result in await memory.add_many(same, dedup=False)]

        seen: list[str] = []
        cursor = None
        while True:
            page = await memory.list(limit=5, cursor=cursor)
            seen += [item.id for item in page]
            assert page.total == 32 - (len(seen) - len(page))
            if (cursor := page.cursor) is None:
                break

        assert sorted(seen) == sorted(ids)
        assert len(seen) == 32

    async def test_a_listing_is_the_newest_first_and_filtered(self, memory: Memories) -> None:
        ids = await add_texts(memory)
        await memory.add(MemoryItem(memory="something else", category="odd"), dedup=False)

        listed = await memory.list({"since": NOON, "until": NOON + timedelta(minutes=3)})

        assert [item.id for item in listed] == ids[3::-1]
        assert [item.category for item in await memory.list({"category": "odd"})] == ["odd"]
        assert await memory.list({"category": "none"}) == []

    @pytest.mark.parametrize("asked", [{"limit": 0}, {"limit": 1001}, {"limit": True}, {"cursor": "x"}, {"cursor": 3}])
    async def test_an_impossible_listing_is_refused(self, memory: Memories, asked: dict[str, Any]) -> None:
        with pytest.raises(InvalidError):
            await memory.list(**asked)

    @pytest.mark.parametrize("filters", [{"colour": "red"}, {"importance": "huge"}, {"since": "yesterday"}, 7])
    async def test_an_unknown_filter_is_refused(self, memory: Memories, filters: Any) -> None:
        for refused in (memory.list(filters), memory.search("x", filters=filters), memory.stats(filters)):
            with pytest.raises(InvalidError, match="filter"):
                await refused

    async def test_memories_are_counted_by_what_they_are(self, memory: Memories, namespace: str) -> None:
        await add_texts(memory)
        await memory.add("A passing thought.", memory_type="short-term", category="idle")
        for _ in range(3):
            await memory.add("A thought that comes again.", category="idle")

        stats = await memory.stats()

        assert stats.count == 7
        assert stats.by_type == {"long-term": 6, "short-term": 1}
        assert stats.by_category == {"": 5, "idle": 2}
        assert stats.by_tenant == {namespace: 7}
        assert stats.duplicates_merged == 2
        assert stats.bytes > sum(map(len, FACTS))
        idle = await memory.stats({"category": "idle"})
        assert (idle.count, idle.duplicates_merged) == (2, 2)

    async def test_nothing_is_counted_as_nothing(self, memory: Memories) -> None:
        stats = await memory.stats()

        assert (stats.count, stats.bytes, stats.by_type, stats.by_tenant) == (0, 0, {}, {})
