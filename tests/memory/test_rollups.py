"""docs/memory.md: older turns and old memories become one memory that names its sources."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

import fakeredis
import pytest
from support.contexts import knowledge_of, scope_of
from support.waiting import wait_until

from sharedmem import ConfigError, Hub, InvalidError, Settings, UnavailableError
from sharedmem.coordination.names import NameAccess
from sharedmem.coordination.queues import Queues, TaskQueue
from sharedmem.memory.memories import Memories
from sharedmem.memory.rollups import QUEUE, RollupTerms, due_turns
from sharedmem.models import MemoryItem
from sharedmem.providers.protocol import ChatMessage
from sharedmem.testing import ManualClock, ScriptedModel, fake_hub

BY_TURNS = Settings(rollup_turns=4, rollup_keep=2)
DAY = 86_400


def counting(messages: Sequence[ChatMessage]) -> str:
    return f"They said {messages[-1].content.count(chr(10)) + 1} things"


def scribe() -> ScriptedModel:
    return ScriptedModel({"text": counting})


async def talk(memory: Memories, numbers: range, *, thread: str = "t", about: str = "", **fields: Any) -> list[str]:
    """Add turns one by one."""
    added = []
    for number in numbers:
        turn = {"role": "user", "name": "Ann", "content": f"thing number {number} {about}"}
        added.append((await memory.add("", messages=[turn], thread_id=thread, **fields)).id)
    return added


async def rollups(memory: Memories, **filters: Any) -> list[MemoryItem]:
    """The roll-ups, oldest first."""
    return sorted(
        await memory.list({"tags": "rollup", **filters}),
        key=lambda item: (item.turn_index or 0, item.timestamp),
    )


async def until_rolled_up(memory: Memories, count: int) -> list[MemoryItem]:
    async def are_there() -> bool:
        return len(await rollups(memory)) >= count

    await wait_until(are_there, description=f"{count} roll-ups")
    return await rollups(memory)


def queue_of(hub: Hub, namespace: str = "team") -> TaskQueue:
    return Queues(NameAccess(knowledge_of(hub), scope_of(hub.store(namespace)))).queue(QUEUE)


# -- what is due ----------------------------------------------------------------------------------


def turn(words: int) -> MemoryItem:
    return MemoryItem(memory=" ".join(["word"] * words))


@pytest.mark.parametrize(
    ("terms", "words", "due"),
    [
        ((3, 0, 0), [1] * 3, 3),
        ((3, 0, 1), [1] * 3, 0),
        ((3, 0, 1), [1] * 9, 3),
        ((0, 50, 0), [20] * 4, 3),
        ((0, 50, 2), [20] * 4, 0),
        ((2, 50, 0), [60, 1], 1),
        ((0, 0, 0), [100] * 9, 0),
    ],
)
def test_the_oldest_turns_are_due(terms: tuple[int, int, int], words: list[int], due: int) -> None:
    turns = [turn(count) for count in words]

    assert list(due_turns(turns, RollupTerms(*terms))) == turns[:due]


# -- turns ----------------------------------------------------------------------------------------


@pytest.fixture
async def hub() -> AsyncIterator[Hub]:
    async with fake_hub(settings=BY_TURNS, model=scribe()) as hub:
        yield hub


@pytest.fixture
def memory(hub: Hub) -> Memories:
    return hub.store("team", actor="ann").memory


async def test_older_turns_become_one_memory_that_names_them_by_itself(hub: Hub, memory: Memories) -> None:
    ids = await talk(memory, range(12), user_id="otto")

    made = await until_rolled_up(memory, 2)

    assert [item.memory for item in made] == ["They said 4 things"] * 2
    assert [item.related_memory_ids for item in made] == [tuple(ids[:4]), tuple(ids[4:8])]
    first = made[0]
    assert (first.category, first.tags, first.thread_id, first.user_id) == ("summary", ("rollup",), "t", "otto")
    assert (first.agent_id, first.created_by) == ("ann", "ann")
    assert (await memory.thread_stats("t")).turn_count == 12, "the turns stay"
    assert [item.id for item in await memory.recent("t", limit=3)] == ids[:-4:-1]
    assert hub.counters.read("memory_rollups") == 2


async def test_without_the_settings_nothing_is_rolled_up_and_no_work_begins() -> None:
    async with fake_hub(model=ScriptedModel({})) as hub:
        memory = hub.store("team").memory
        await talk(memory, range(30))

        with pytest.raises(InvalidError, match="rollup_turns"):
            await memory.rollups.roll_up_thread("t")
        with pytest.raises(InvalidError, match="older_than_days"):
            await memory.rollups.roll_up_old()


async def test_tokens_are_enough() -> None:
    async with fake_hub(settings=Settings(rollup_tokens=30, rollup_keep=2), model=scribe()) as hub:
        memory = hub.store("team").memory
        await talk(memory, range(10))

        made = await until_rolled_up(memory, 1)

    assert 2 <= len(made[0].related_memory_ids) <= 8


async def test_users_agents_and_runs_are_never_mixed(hub: Hub) -> None:
    ann, bob = (hub.store("team", actor=name).memory for name in ("ann", "bob"))
    await talk(ann, range(7), user_id="otto")
    await talk(ann, range(7), user_id="ines")
    await talk(bob, range(7), user_id="otto", about="bob")
    await talk(ann, range(7), user_id="otto", about="run", run_id="r")

    await ann.rollups.roll_up_thread("t")

    made = await rollups(ann)
    assert len(made) == 4
    for item in made:
        sources = [await ann.get(id_) for id_ in item.related_memory_ids]
        assert {(one.user_id, one.agent_id, one.run_id) for one in sources if one} == {
            (item.user_id, item.agent_id, item.run_id)
        }
    narrowed = ann.within(user_id="ines")
    assert len(await rollups(narrowed)) == 1
    assert await narrowed.rollups.roll_up_thread("t") == []


async def test_facts_of_a_thread_are_no_turns(memory: Memories) -> None:
    await memory.add_many([{"memory": f"fact {n}", "thread_id": "t"} for n in range(20)], dedup=False)

    assert await memory.rollups.roll_up_thread("t") == []


async def test_a_repeated_call_makes_nothing_twice() -> None:
    async with fake_hub(settings=BY_TURNS, model=scribe()) as hub:
        memory = hub.store("team").memory
        ids = await talk(memory, range(8), thread="u")
        made = await memory.rollups.roll_up_thread("u")
        again = await memory.rollups.roll_up_thread("u")
        await wait_until_idle(hub)

        assert len(await rollups(memory)) == 1
        assert (len(made) <= 1, again) == (True, [])
        assert (await rollups(memory))[0].related_memory_ids == tuple(ids[:4])


async def wait_until_idle(hub: Hub) -> None:
    async def is_idle() -> bool:
        stats = await queue_of(hub).stats()
        return not stats.ready + stats.claimed + stats.delayed

    await wait_until(is_idle, description="no more tasks")


async def test_a_rollup_that_was_edited_is_not_made_again() -> None:
    async with fake_hub(model=scribe()) as hub:
        memory = hub.store("team").memory
        await talk(memory, range(6))
        (made,) = await memory.rollups.roll_up_thread("t", turns=4, keep=2)
        await memory.update(made, memory="In our own words", tags=())

        assert await memory.rollups.roll_up_thread("t", turns=4, keep=2) == []
        item = await memory.get(made)

    assert item is not None
    assert item.memory == "In our own words"


async def test_two_hubs_roll_a_thread_up_once() -> None:
    server = fakeredis.FakeServer()
    models = scribe(), scribe()
    async with (
        fake_hub(settings=BY_TURNS, server=server, model=models[0]) as one,
        fake_hub(settings=BY_TURNS, server=server, model=models[1]) as other,
    ):
        memories = [hub.store("team").memory for hub in (one, other)]
        ids = await talk(memories[0], range(5))
        ids += await talk(memories[1], range(5, 10))
        await until_rolled_up(memories[0], 2)
        await asyncio.gather(*(memory.rollups.roll_up_thread("t") for memory in memories))
        await wait_until_idle(one)

        made = await rollups(memories[1])

    assert [item.related_memory_ids for item in made] == [tuple(ids[:4]), tuple(ids[4:8])]


async def test_a_task_of_a_process_that_died_is_done_by_another_hub() -> None:
    server = fakeredis.FakeServer()
    failing = ScriptedModel({"text": UnavailableError("the model", "it is away")})
    async with fake_hub(settings=BY_TURNS, server=server, model=failing) as hub:
        await talk(hub.store("team", actor="ann").memory, range(8))
        await wait_until(lambda: len(failing.requests) > 0, description="a try")
        assert not await rollups(hub.store("team").memory)

    async with fake_hub(settings=BY_TURNS, server=server, model=scribe()) as hub:
        memory = hub.store("team", actor="bob").memory
        await memory.add("anything")
        made = await until_rolled_up(memory, 1)

    assert made[0].created_by == "ann", "with the rights of the actor whose addition made it due"


async def test_a_task_that_is_none_is_refused(hub: Hub, memory: Memories) -> None:
    queue = queue_of(hub)
    for payload in ({"thread_id": 7}, {"thread_id": "{x}"}, "t", {}):
        await queue.put(payload, max_attempts=1)
    await memory.add("anything")

    async def are_dead() -> bool:
        return (await queue.stats()).dead == 4

    await wait_until(are_dead, description="dead letters")


async def test_where_asked_the_turns_expire_after_their_rollup(clock: ManualClock) -> None:
    settings = BY_TURNS.replace(rollup_expire_s=DAY)
    async with fake_hub(settings=settings, model=scribe(), clock=clock) as hub:
        memory = hub.store("team").memory
        short = await talk(memory, range(1), ttl=60)
        ids = short + await talk(memory, range(1, 8))
        await until_rolled_up(memory, 1)
        await wait_until_idle(hub)

        items = [await memory.get(id_) for id_ in ids]
        assert [item.ttl for item in items if item] == [60, DAY, DAY, DAY, -1, -1, -1, -1]

        clock.advance(DAY + 1)
        assert (await memory.thread_stats("t")).turn_count == 4
        assert len(await rollups(memory)) == 1


async def test_an_interrupted_expiry_is_completed_by_the_next_run() -> None:
    async with fake_hub(settings=BY_TURNS, model=scribe()) as hub:
        memory = hub.store("team").memory
        await talk(memory, range(8))
        await until_rolled_up(memory, 1)
        items = [item async for item in memory.export()]

    async with fake_hub(settings=BY_TURNS.replace(rollup_expire_s=DAY), model=scribe()) as hub:
        memory = hub.store("team").memory
        await memory.import_(items)
        assert await memory.rollups.roll_up_thread("t") == []

        expiring = [item for item in await memory.list({"thread_id": "t"}) if item.ttl == DAY]
        assert len(expiring) == 4


async def test_a_thread_is_rolled_up_on_demand_without_any_setting() -> None:
    async with fake_hub(model=scribe()) as hub:
        memory = hub.store("team").memory
        ids = await talk(memory, range(7))

        (made,) = await memory.rollups.roll_up_thread("t", turns=3, keep=2)

        item = await memory.get(made)
        assert item is not None
        assert item.related_memory_ids == tuple(ids[:3])
        wrong: list[dict[str, Any]] = [{"turns": 0}, {"turns": 1.5}, {"turns": 3, "keep": -1}, {"turns": True}]
        for given in wrong:
            with pytest.raises(InvalidError, match="whole number"):
                await memory.rollups.roll_up_thread("t", **given)


async def test_an_empty_summary_is_an_error_and_stores_nothing() -> None:
    async with fake_hub(settings=Settings(rollup_turns=4, rollup_keep=0), model=ScriptedModel({"text": " "})) as hub:
        memory = hub.store("team").memory
        await talk(memory, range(4))

        with pytest.raises(InvalidError, match="empty text"):
            await memory.rollups.roll_up_thread("t")
        assert not await rollups(memory)


async def test_offline_a_rollup_consists_of_what_was_said() -> None:
    async with fake_hub(settings=BY_TURNS) as hub:
        memory = hub.store("team").memory
        await talk(memory, range(8))
        (made,) = await until_rolled_up(memory, 1)

    assert "thing number" in made.memory


# -- old memories ---------------------------------------------------------------------------------


async def test_old_memories_of_a_kind_become_one(clock: ManualClock) -> None:
    async with fake_hub(settings=Settings(), model=scribe(), clock=clock) as hub:
        memory = hub.store("team").memory
        old = [f"repair {n}" for n in range(6)]
        ids = [
            one.id
            for one in await memory.add_many([{"memory": text, "category": "repairs"} for text in old], dedup=False)
        ]
        await memory.add_many([{"memory": f"bill {n}", "category": "bills"} for n in range(4)], dedup=False)
        await talk(memory, range(6))
        clock.advance(40 * DAY)
        await memory.add_many([{"memory": f"new repair {n}", "category": "repairs"} for n in range(6)], dedup=False)

        made = await memory.rollups.roll_up_old(30)
        again = await memory.rollups.roll_up_old(30)

        (rollup,) = await rollups(memory)
    assert (made, again) == ([rollup.id], [])
    assert set(rollup.related_memory_ids) == set(ids), "neither fewer than five, nor turns, nor new ones"


@pytest.mark.parametrize("days", [0, -1, 1.5, True, "old", 40_000])
async def test_an_age_that_is_none_is_refused(memory: Memories, days: Any) -> None:
    with pytest.raises(InvalidError, match="older_than_days"):
        await memory.rollups.roll_up_old(days)


async def test_old_memories_are_rolled_up_on_a_schedule_once_for_all_hubs(clock: ManualClock) -> None:
    settings = Settings(rollup_old_after_days=30, rollup_old_every_s=DAY)
    server = fakeredis.FakeServer()
    model = scribe()
    async with (
        fake_hub(settings=settings, server=server, model=model, clock=clock) as one,
        fake_hub(settings=settings, server=server, model=model, clock=clock) as other,
    ):
        memory = one.store("team").memory
        long_ago = clock.now() - timedelta(days=40)
        await memory.add_many([{"memory": f"note {n}", "timestamp": long_ago} for n in range(5)], dedup=False)
        await other.store("team").memory.add("anything")
        await until_rolled_up(memory, 1)
        await wait_until_idle(one)
        await memory.add_many([{"memory": f"later {n}", "timestamp": long_ago} for n in range(5)], dedup=False)
        assert len(await rollups(memory)) == 1

        clock.advance(DAY)
        await until_rolled_up(memory, 2)
        await wait_until_idle(one)

        assert len(await rollups(memory)) == 2
        assert len(model.requests) == 2


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rollup_turns", -1),
        ("rollup_turns", "many"),
        ("rollup_tokens", -1),
        ("rollup_keep", 1001),
        ("rollup_expire_s", -1),
        ("rollup_old_after_days", -1),
        ("rollup_old_every_s", 59),
    ],
)
def test_a_setting_that_cannot_be_is_refused(field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=field):
        Settings().replace(**{field: value})
    with pytest.raises(ConfigError, match="namespace_settings"):
        Settings(namespace_settings={"x": {field: value}})
