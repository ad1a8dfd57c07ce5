"""Standing queries: who asked once is told."""
# a test's name is its sentence

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from conformance.memory.base import FACTS, MemoryFixtures, add_texts
from sharedmem.errors import InvalidError
from sharedmem.memory.memories import Memories
from sharedmem.models import MemoryEvent, MemoryItem
from sharedmem.testing.store_fixtures import eventually

_PATIENCE_S = 60.0
ZEBRA = FACTS[3]


async def next_memory_event(events: AsyncIterator[MemoryEvent]) -> tuple[str, str]:
    """The next event, as what happened and to which memory."""
    async with asyncio.timeout(_PATIENCE_S):
        event = await anext(events)
    return event.event, event.id


class MemorySubscriptionTests(MemoryFixtures):
    """`subscribe`."""

    async def test_a_matching_memory_is_told_and_no_other(self, memory: Memories) -> None:
        async with memory.subscribe(ZEBRA, threshold=0.9) as events:
            await add_texts(memory, FACTS[:3])
            added = await memory.add(ZEBRA)

            async with asyncio.timeout(_PATIENCE_S):
                event = await anext(events)

        assert (event.event, event.id) == ("written", added.id)
        assert event.item is not None
        assert event.item.memory == ZEBRA
        assert event.similarity == pytest.approx(1, abs=0.01)

    async def test_changes_and_withdrawals_are_told(self, memory: Memories) -> None:
        async with memory.subscribe(ZEBRA, threshold=0.8) as events:
            first = await memory.add(ZEBRA)
            assert await next_memory_event(events) == ("written", first.id)

            await memory.update(first.id, metadata={"seen": True})
            assert await next_memory_event(events) == ("changed", first.id)

            await memory.update(first.id, memory=FACTS[0], content=FACTS[0])
            assert await next_memory_event(events) == ("withdrawn", first.id)

            await memory.update(first.id, memory=ZEBRA, content=ZEBRA)
            assert await next_memory_event(events) == ("written", first.id)

            await memory.delete(first.id)
            assert await next_memory_event(events) == ("withdrawn", first.id)

    async def test_what_was_there_before_is_told_when_it_changes(self, memory: Memories) -> None:
        first, second = await add_texts(memory, [ZEBRA, ZEBRA + " He is old."])
        async with memory.subscribe(ZEBRA, threshold=0.6) as events:
            await memory.update(first, metadata={"seen": True})
            assert await next_memory_event(events) == ("changed", first)
            await memory.delete(second)
            assert await next_memory_event(events) == ("withdrawn", second)

    async def test_a_later_reader_goes_on_where_an_earlier_one_stopped(self, memory: Memories) -> None:
        async with memory.subscribe(ZEBRA, threshold=0.8) as events:
            first = await memory.add(ZEBRA)
            async with asyncio.timeout(_PATIENCE_S):
                event = await anext(events)
        await memory.delete(first.id)
        second = await memory.add(ZEBRA)

        async with memory.subscribe(ZEBRA, threshold=0.8, since=event.cursor) as events:
            assert await next_memory_event(events) == ("withdrawn", first.id)
            assert await next_memory_event(events) == ("written", second.id)

    async def test_a_long_history_is_told_page_by_page(self, memory: Memories) -> None:
        start = await memory.add("The first of many.")
        ids = await add_texts(memory, [f"{ZEBRA} Seen {n} times." for n in range(620)])

        async with memory.subscribe("zebra mascot", threshold=0.0, since=start.version) as events:
            heard = [await next_memory_event(events) for _ in ids]

        assert sorted(heard) == sorted(("written", id_) for id_ in ids)

    async def test_filters_and_scope_decide_too(self, memory: Memories) -> None:
        alice, bob = memory.within(user_id="alice"), memory.within(user_id="bob")
        async with alice.subscribe(ZEBRA, threshold=0.8, filters={"category": "pets"}) as events:
            await bob.add(ZEBRA, category="pets")
            await alice.add(ZEBRA, category="work")
            added = await alice.add(ZEBRA, category="pets")
            assert await next_memory_event(events) == ("written", added.id)

            await alice.update(added.id, category="work")
            async with asyncio.timeout(_PATIENCE_S):
                event = await anext(events)

        assert (event.event, event.id) == ("withdrawn", added.id)
        assert event.item is not None

    async def test_another_tenant_is_not_heard(self, memory: Memories, elsewhere: Memories) -> None:
        async with memory.subscribe(ZEBRA, threshold=0.8) as events:
            await elsewhere.add(ZEBRA)
            added = await memory.add(ZEBRA)

            assert await next_memory_event(events) == ("written", added.id)

    async def test_a_callback_is_called_and_may_fail(self, memory: Memories) -> None:
        heard: list[MemoryEvent] = []

        async def note(event: MemoryEvent) -> None:
            heard.append(event)
            if len(heard) == 1:
                raise ValueError("the first one is too much")

        async with memory.subscribe(ZEBRA, note, threshold=0.8):
            first = await memory.add(ZEBRA)
            await eventually(lambda: len(heard) == 1)
            await memory.delete(first.id)
            await eventually(lambda: len(heard) == 2)

        assert [event.event for event in heard] == ["written", "withdrawn"]

    async def test_several_queries_stand_side_by_side(self, memory: Memories) -> None:
        async with (
            memory.subscribe(ZEBRA, threshold=0.8) as zebras,
            memory.subscribe(FACTS[1], threshold=0.8) as invoices,
        ):
            about = [await memory.add(MemoryItem(memory=text)) for text in (FACTS[1], ZEBRA)]

            assert await next_memory_event(zebras) == ("written", about[1].id)
            assert await next_memory_event(invoices) == ("written", about[0].id)

    async def test_a_reader_that_was_away_for_days_is_told_of_the_gap(self, memory: Memories) -> None:
        added = await memory.add(ZEBRA)
        async with memory.subscribe(ZEBRA, threshold=0.8, since=added.version - 2 * 86_400_000_000) as events:
            assert await next_memory_event(events) == ("gap", "")
            assert await next_memory_event(events) == ("written", added.id)

    @pytest.mark.parametrize(
        "asked", [{"query": ""}, {"query": "x", "threshold": 2}, {"query": "x", "since": "now"}, {"query": None}]
    )
    async def test_an_impossible_subscription_is_refused(self, memory: Memories, asked: dict[str, Any]) -> None:
        with pytest.raises(InvalidError):
            async with memory.subscribe(**asked):
                pass
