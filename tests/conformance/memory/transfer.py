"""Memories on the move: out of one namespace, and into another as they were."""
# a test's name is its sentence

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from conformance.memory.base import FACTS, NOON, MemoryFixtures, add_texts, add_turns
from sharedmem.errors import InvalidError
from sharedmem.memory.memories import Memories
from sharedmem.models import MemoryItem

_MOVED = {"tenant_id", "version"}


class MemoryTransferTests(MemoryFixtures):
    """`export` and `import_`."""

    async def test_what_is_exported_is_everything(self, memory: Memories) -> None:
        ids = await add_texts(memory, [f"note number {n}" for n in range(620)])
        await memory.delete(ids.pop(300))

        assert sorted([item.id async for item in memory.export()]) == sorted(ids)

    async def test_an_export_is_filtered(self, memory: Memories) -> None:
        await add_texts(memory)
        added = await memory.add("an odd one", category="odd", metadata={"n": 1})

        assert [item.id async for item in memory.export({"category": "odd"})] == [added.id]
        assert [item.id async for item in memory.export({"metadata": {"n": 2}})] == []

    async def test_an_export_goes_on_where_it_was_interrupted(self, memory: Memories) -> None:
        ids = await add_texts(memory)
        first = [item async for item in memory.export()][:2]

        rest = [item.id async for item in memory.export(since=first[-1].version)]

        assert [item.id for item in first] + rest == ids

    @pytest.mark.parametrize("since", [-1, True, "1"])
    async def test_an_export_from_nowhere_is_refused(self, memory: Memories, since: int) -> None:
        with pytest.raises(InvalidError, match="since"):
            await anext(memory.export(since=since))

    async def test_memories_arrive_as_they_were(self, memory: Memories, elsewhere: Memories) -> None:
        await add_turns(memory, ("Ann", "Which animal is on our flag?"), ("Ben", "An old grey heron."))
        await add_texts(memory)
        await memory.update((await memory.recent())[0].id, metadata={"n": 1})

        moved = await elsewhere.import_(memory.export())

        assert moved == 7
        out = {item.id: item.model_dump(exclude=_MOVED) async for item in memory.export()}
        arrived = {item.id: item.model_dump(exclude=_MOVED) async for item in elsewhere.export()}
        assert arrived == out
        assert (await elsewhere.search("zebra"))[0].item.memory == FACTS[3]
        assert (await elsewhere.search_semantic(FACTS[3], threshold=0.99))[0].item.memory == FACTS[3]
        assert (await elsewhere.thread_stats("talk")).participants == (await memory.thread_stats("talk")).participants

    async def test_an_import_may_be_repeated(self, memory: Memories, elsewhere: Memories) -> None:
        await add_texts(memory, [f"note number {n}" for n in range(150)])
        items = [item async for item in memory.export(embedding=True)]
        told: list[int] = []

        assert await elsewhere.import_(items[:70]) == 70
        assert await elsewhere.import_(items, on_progress=lambda done, _: told.append(done)) == 80
        assert await elsewhere.import_(items) == 0

        assert (await elsewhere.stats()).count == 150
        assert told == sorted(told)
        assert told[-1] == 150

    async def test_older_never_replaces_newer(self, memory: Memories, elsewhere: Memories) -> None:
        (id_,) = await add_texts(memory, FACTS[:1])
        old = [item async for item in memory.export()]
        await memory.update(id_, memory="It needs three approvals now.", content="It needs three approvals now.")
        new = [item async for item in memory.export()]

        await elsewhere.import_(old)
        assert await elsewhere.import_(new) == 1
        assert await elsewhere.import_(old) == 0
        assert await elsewhere.import_([*new, *old]) == 0

        kept = await elsewhere.get(id_)
        assert kept is not None
        assert kept.memory == "It needs three approvals now."
        assert [version.item.memory for version in await elsewhere.history(id_)][-1] == FACTS[0]

    async def test_what_has_expired_on_the_way_stays_out(self, memory: Memories) -> None:
        long_ago = NOON - timedelta(days=700)
        item = MemoryItem(id="old", memory="milk", ttl=60, timestamp=long_ago, created_at=long_ago)

        assert await memory.import_([item]) == 0
        assert await memory.get("old") is None

    async def test_what_is_no_memory_is_refused(self, memory: Memories) -> None:
        wrongs: tuple[Any, ...] = ([{"memory": ""}], [{"colour": "red"}], ["text"], [{"memory": "x"}])
        for wrong in wrongs:
            with pytest.raises(InvalidError):
                await memory.import_(wrong)

        assert (await memory.stats()).count == 0
