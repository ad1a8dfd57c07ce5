"""Threads of memory: who said how much, and what it was about."""
# a test's name is its sentence

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from conformance.memory.base import NOON, MemoryFixtures, add_turns
from sharedmem.errors import InvalidError
from sharedmem.memory.memories import Memories
from sharedmem.models import Participant

TALK = (
    ("Ann", "The lift in house four is broken."),
    ("Ben", "I will call the mechanic today."),
    ("Ann", "Please ask for the price first, it was 900 euros last time."),
)


class MemoryThreadTests(MemoryFixtures):
    """`thread_stats` and `summarize_thread`."""

    async def test_a_thread_tells_who_said_how_much(self, memory: Memories) -> None:
        await add_turns(memory, *TALK)

        stats = await memory.thread_stats("talk")

        assert (stats.thread_id, stats.turn_count, stats.total_tokens) == ("talk", 3, 7 + 6 + 12)
        assert (stats.first_turn_at, stats.last_turn_at) == (NOON, NOON + timedelta(minutes=2))
        assert stats.participants == (Participant(name="Ann", turns=2), Participant(name="Ben", turns=1))

    async def test_a_thread_without_turns_is_empty(self, memory: Memories) -> None:
        stats = await memory.thread_stats("silence")

        assert (stats.turn_count, stats.first_turn_at, stats.participants) == (0, None, ())
        assert await memory.summarize_thread("silence") == ""

    async def test_deleted_turns_do_not_count(self, memory: Memories) -> None:
        ids = await add_turns(memory, *TALK)
        await memory.delete(ids[0])

        stats = await memory.thread_stats("talk")

        assert (stats.turn_count, stats.first_turn_at) == (2, NOON + timedelta(minutes=1))

    async def test_a_long_thread_is_counted_whole(self, memory: Memories) -> None:
        await add_turns(memory, *(("Ann", f"remark {n}") for n in range(1100)))

        assert (await memory.thread_stats("talk")).turn_count == 1100

    async def test_a_summary_tells_what_was_said(self, memory: Memories) -> None:
        await add_turns(memory, *TALK)

        summary = await memory.summarize_thread("talk")

        assert "mechanic" in summary or "lift" in summary or "900" in summary

    async def test_a_summary_is_remembered_beside_the_turns(self, memory: Memories) -> None:
        await add_turns(memory, *TALK)
        summary = await memory.summarize_thread("talk")

        (kept,) = await memory.list({"category": "summary"})

        assert (kept.memory, kept.thread_id, kept.metadata["upto"]) == (summary, "talk", 2)
        assert [item.category for item in await memory.recent("talk")] == [None] * 3
        assert [item.category for item in await memory.recent("talk", order_by="turn_index")] == [None] * 3
        assert (await memory.thread_stats("talk")).turn_count == 3

    async def test_the_same_turns_are_summed_up_once(self, memory: Memories) -> None:
        await add_turns(memory, *TALK)
        await memory.summarize_thread("talk")
        (first,) = await memory.list({"category": "summary"})

        await memory.summarize_thread("talk")
        (again,) = await memory.list({"category": "summary"})
        await add_turns(memory, ("Ben", "The mechanic comes tomorrow at nine."))
        summary = await memory.summarize_thread("talk")
        (anew,) = await memory.list({"category": "summary"})

        assert again.version == first.version
        assert (anew.id, anew.memory, anew.metadata["upto"]) == (first.id, summary, 3)
        assert anew.version > first.version

    async def test_a_turn_after_a_summary_has_the_next_place(self, memory: Memories) -> None:
        await add_turns(memory, *TALK)
        await memory.summarize_thread("talk")
        (id_,) = await add_turns(memory, ("Ben", "The mechanic comes tomorrow at nine."))

        item = await memory.get(id_)

        assert item is not None
        assert item.turn_index == 3

    @pytest.mark.parametrize("asked", [{"max_turns": 0}, {"max_turns": 1001}, {"thread_id": 7}, {"thread_id": "{a}"}])
    async def test_an_impossible_summary_is_refused(self, memory: Memories, asked: dict[str, Any]) -> None:
        with pytest.raises(InvalidError):
            await memory.summarize_thread(**asked)
