"""How often memories are answered, and when last."""
# a test's name is its sentence

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from conformance.memory.base import MemoryFixtures, add_texts
from sharedmem.errors import InvalidError
from sharedmem.memory.memories import Memories


class MemoryUsageTests(MemoryFixtures):
    """`use`."""

    async def test_what_searches_and_get_answer_is_counted(self, memory: Memories) -> None:
        zebra, lion = await add_texts(memory, ["the zebra sleeps", "a lion hunts at night"])

        await memory.search("zebra", limit=1)
        await memory.search_keywords("zebra")
        await memory.get(lion)
        used = await memory.uses()

        assert [(one.id, one.times) for one in used] == [(zebra, 2), (lion, 1)]
        for one in used:
            assert one.last is not None
            assert abs(datetime.now(UTC) - one.last) < timedelta(minutes=5)

    async def test_given_memories_are_returned_in_their_order_also_when_they_were_never_used(
        self, memory: Memories
    ) -> None:
        zebra, lion = await add_texts(memory, ["the zebra sleeps", "a lion hunts at night"])
        await memory.get(lion)

        used = await memory.uses([zebra, "nobody", lion, zebra])

        assert [(one.id, one.times, one.last is None) for one in used] == [(zebra, 0, True), (lion, 1, False)]

    async def test_the_most_used_come_first_and_no_more_than_asked_for(self, memory: Memories) -> None:
        ids = await add_texts(memory, [f"fact number {n}" for n in range(4)])
        for times, id_ in enumerate(ids, 1):
            for _ in range(times):
                await memory.get(id_)

        assert [one.id for one in await memory.uses(limit=2)] == [ids[3], ids[2]]

    async def test_a_scope_tells_only_of_its_own(self, memory: Memories) -> None:
        alice, bob = memory.within(user_id="alice"), memory.within(user_id="bob")
        mine, other = [(await one.add("the lift is broken", dedup=False)).id for one in (alice, bob)]
        for one in (alice, bob):
            await one.search("lift")

        assert [one.id for one in await alice.uses()] == [mine]
        assert await alice.uses([other]) == []

    async def test_a_memory_that_is_gone_is_used_no_more(self, memory: Memories) -> None:
        (gone,) = await add_texts(memory, ["the zebra sleeps"])
        await memory.get(gone)
        assert len(await memory.uses()) == 1

        await memory.delete(gone)

        assert await memory.uses() == []

    async def test_to_ask_how_it_was_used_takes_a_sound_limit_and_sound_ids(self, memory: Memories) -> None:
        with pytest.raises(InvalidError, match="limit"):
            await memory.uses(limit=0)
        with pytest.raises(InvalidError, match="id"):
            await memory.uses([""])
