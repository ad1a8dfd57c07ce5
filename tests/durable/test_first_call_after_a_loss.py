"""The first call after Redis has lost everything answers as if nothing had happened, whichever call it is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest
from support import durable_hub_fixtures as fixtures
from support.durable_graphs import drain_and_flush

from sharedmem import Hub, SharedMemoryStore
from sharedmem.models import ContextSet

data_dir, settings, hub, store = fixtures.data_dir, fixtures.settings, fixtures.hub, fixtures.store

SESSION, GROUP, APP, USER = "desk", "team", "support", "ada"
TEXT = "The harbour master owns the tide table."
NOW = datetime(2100, 1, 1, tzinfo=UTC)


class Story(NamedTuple):
    """What was stored before the loss: ids."""

    memory: str
    turn: str
    plan: str
    episode: str
    note: str


@pytest.fixture
async def story(store: SharedMemoryStore) -> Story:
    """Some of everything that outlives Redis."""
    added = await store.memory.add(TEXT, category="port")
    await store.memory.update(added.id, tags=("tides",))
    turn = await store.memory.add("Tea is served at four.", thread_id="t1")
    plan = await store.decisions.save_plan(SESSION, "BTC", "BUY", 0.5, "the trend is strong")
    episode = await store.graph.add_episode("Ada works at Acme.", group_id=GROUP)
    await store.graph.add_entity("Acme Inc", group_id=GROUP)
    await store.graph.merge("Acme Inc", "Acme", group_id=GROUP)
    said = [{"role": "user", "content": "I moved to York in May."}]
    task = await store.synthesis.add_memory(app_id=APP, user_id=USER, messages=said)
    note = (await store.synthesis.wait(task.task_id)).result
    assert note is not None
    await store.write("key", {"a": 1}, kind="knowledge")
    await store.hset("hash", "field", 1, kind="knowledge")
    await store.sadd("set", "x", kind="knowledge")
    await store.append("list", 1, kind="knowledge")
    await store.incr("counter", kind="knowledge")
    return Story(added.id, turn.id, plan, episode.episode.id, note["memory_id"])


Call = Callable[[SharedMemoryStore, Story], Awaitable[object]]


async def ids(found: Awaitable[Any]) -> list[str]:
    return [one.id for one in await found]


async def item_ids(found: Awaitable[Any]) -> list[str]:
    return [hit.item.id for hit in await found]


async def note_ids(found: Awaitable[Any]) -> list[str]:
    return [hit.metadata.id for hit in await found]


async def plan_ids(found: Awaitable[Any]) -> list[str]:
    return [one.plan.plan_id for one in await found]


async def ids_of(items: AsyncIterator[Any]) -> list[str]:
    return sorted([item.id async for item in items])


async def all_keys(store: SharedMemoryStore) -> list[str]:
    return sorted([key async for key in store.keys()])  # noqa: SIM118  # not a mapping


async def count_memories(store: SharedMemoryStore, _: Story) -> int:
    return (await store.memory.stats()).count


async def facts_of(found: Awaitable[ContextSet]) -> list[str]:
    return [one.id for one in (await found).items]


async def drawn_facts(store: SharedMemoryStore, _: Story) -> object:
    drawing = await store.graph.drawing(group_id=GROUP)
    return drawing.entities, drawing.facts, drawing.episodes


async def is_duplicate(store: SharedMemoryStore, _: Story) -> bool:
    return (await store.decisions.check_duplicate(SESSION, "BTC", "BUY", "the trend is strong"))[0]


async def history_of_memory(store: SharedMemoryStore, story: Story) -> str:
    # Of past versions the tier keeps none.
    return (await store.memory.history(story.memory))[0].item.memory


READS: dict[str, Call] = {
    "memory.get": lambda store, story: store.memory.get(story.memory),
    "memory.list": lambda store, _: store.memory.list(),
    "memory.search": lambda store, _: item_ids(store.memory.search("tide table")),
    "memory.search_keywords": lambda store, _: item_ids(store.memory.search_keywords("tide")),
    "memory.search_semantic": lambda store, _: item_ids(store.memory.search_semantic(TEXT)),
    "memory.recent": lambda store, _: store.memory.recent("t1"),
    "memory.recent by turn": lambda store, _: store.memory.recent("t1", order_by="turn_index"),
    "memory.thread_stats": lambda store, _: store.memory.thread_stats("t1"),
    "memory.stats": count_memories,
    "memory.export": lambda store, _: ids_of(store.memory.export()),
    "memory.history": history_of_memory,
    "memory.uses": lambda store, story: ids(store.memory.uses([story.memory])),
    "memory.summarize_thread": lambda store, _: store.memory.summarize_thread("t1"),
    "memory.merge_duplicates": lambda store, _: store.memory.merge_duplicates(dry_run=True),
    "graph.get": lambda store, story: store.graph.get(story.episode, group_id=GROUP),
    "graph.entity": lambda store, _: store.graph.entity("Acme", group_id=GROUP),
    "graph.entities": lambda store, _: store.graph.entities(group_id=GROUP),
    "graph.facts": lambda store, _: store.graph.facts("Ada", group_id=GROUP),
    "graph.as_of": lambda store, _: store.graph.as_of(NOW, group_id=GROUP),
    "graph.episodes": lambda store, _: store.graph.episodes(group_id=GROUP),
    "graph.aliases": lambda store, _: store.graph.aliases("Acme", group_id=GROUP),
    "graph.history": lambda store, _: store.graph.history("Ada", group_id=GROUP),
    "graph.groups": lambda store, _: store.graph.groups(),
    "graph.stats": lambda store, _: store.graph.stats(group_id=GROUP),
    "graph.check": lambda store, _: store.graph.check(group_id=GROUP),
    "graph.path": lambda store, _: store.graph.path("Ada", "Acme", group_id=GROUP),
    "graph.traverse_from_entities": lambda store, _: store.graph.traverse_from_entities(["Ada"], group_id=GROUP),
    "graph.drawing": drawn_facts,
    "graph.text_search": lambda store, _: item_ids(store.graph.text_search("Acme", group_id=GROUP)),
    "graph.vector_search": lambda store, _: item_ids(store.graph.vector_search("Ada works at Acme.", group_id=GROUP)),
    "graph.retrieve": lambda store, _: facts_of(store.graph.retrieve("Where does Ada work?", group_id=GROUP)),
    "synthesis.get_memory": lambda store, story: store.synthesis.get_memory(story.note, app_id=APP),
    "synthesis.query_memory": lambda store, _: note_ids(store.synthesis.query_memory(app_id=APP, query="York")),
    "synthesis.apps": lambda store, _: store.synthesis.apps(),
    "synthesis.fsck": lambda store, _: store.synthesis.fsck(app_id=APP),
    "synthesis.traverse_memory_evolution_chain": lambda store, story: ids(
        store.synthesis.traverse_memory_evolution_chain(story.note, app_id=APP)
    ),
    "decisions.get_recent_plans": lambda store, _: store.decisions.get_recent_plans(SESSION),
    "decisions.check_duplicate": is_duplicate,
    "decisions.find_similar": lambda store, _: plan_ids(store.decisions.find_similar("the trend is strong")),
    "decisions.patterns": lambda store, _: store.decisions.patterns(),
    "decisions.history": lambda store, _: store.decisions.history(SESSION),
    "decisions.sessions": lambda store, _: store.decisions.sessions(),
    "decisions.check_executed": lambda store, story: store.decisions.check_executed(SESSION, story.plan),
    "decisions.get_execution_stats": lambda store, _: store.decisions.get_execution_stats(SESSION),
    "decisions.get_open_executions": lambda store, _: store.decisions.get_open_executions(SESSION),
    "read": lambda store, _: store.read("key"),
    "read_many": lambda store, _: store.read_many(["key"]),
    "entry": lambda store, _: store.entry("key"),
    "exists": lambda store, _: store.exists("key"),
    "ttl": lambda store, _: store.ttl("key"),
    "hget": lambda store, _: store.hget("hash", "field"),
    "hgetall": lambda store, _: store.hgetall("hash"),
    "smembers": lambda store, _: store.smembers("set"),
    "sismember": lambda store, _: store.sismember("set", "x"),
    "scard": lambda store, _: store.scard("set"),
    "read_list": lambda store, _: store.read_list("list"),
    "list_length": lambda store, _: store.list_length("list"),
    "keys": lambda store, _: all_keys(store),
}


@pytest.mark.parametrize("call", READS)
async def test_a_read(hub: Hub, store: SharedMemoryStore, story: Story, call: str) -> None:
    before = await READS[call](store, story)
    await drain_and_flush(hub)

    assert await READS[call](store, story) == before


async def update_memory(store: SharedMemoryStore, story: Story) -> object:
    return (await store.memory.update(story.memory, category="quay")).category


async def repeat_memory(store: SharedMemoryStore, story: Story) -> object:
    added = await store.memory.add(TEXT, category="port")
    return added.merged, added.id == story.memory


async def delete_all_twice(store: SharedMemoryStore, _: Story) -> object:
    return await store.memory.delete_all({}), await store.memory.delete_all({}), len(await store.memory.list())


async def invalidate_fact(store: SharedMemoryStore, _: Story) -> object:
    [fact] = await store.graph.facts("Ada", group_id=GROUP)
    ended = await store.graph.invalidate(fact.id, group_id=GROUP)
    return ended.target_name


async def unmerge(store: SharedMemoryStore, _: Story) -> object:
    await store.graph.unmerge("Acme Inc", group_id=GROUP)
    return sorted(one.name for one in await store.graph.entities(group_id=GROUP))


async def begin_and_finish(store: SharedMemoryStore, story: Story) -> object:
    claim = await store.decisions.begin_execution(SESSION, story.plan)
    return claim.started


async def change_values(store: SharedMemoryStore, _: Story) -> object:
    return (
        await store.incr("counter", kind="knowledge"),
        await store.append("list", 2, kind="knowledge"),
        await store.sadd("set", "x", kind="knowledge"),
        await store.hset("hash", "field", 2, kind="knowledge"),
    )


CHANGES: dict[str, tuple[Call, object]] = {
    "memory.add": (repeat_memory, (True, True)),
    "memory.update": (update_memory, "quay"),
    "memory.delete": (lambda store, story: store.memory.delete(story.memory), True),
    "memory.delete_all": (delete_all_twice, (2, 0, 0)),
    "graph.invalidate": (invalidate_fact, "Acme"),
    "graph.unmerge": (unmerge, ["Acme", "Acme Inc", "Ada"]),
    "synthesis.delete_memory": (lambda store, story: store.synthesis.delete_memory(story.note, app_id=APP), True),
    "decisions.begin_execution": (begin_and_finish, True),
    "decisions.erase": (lambda store, _: store.decisions.erase(SESSION), 1),
    "values": (change_values, (2, 2, 0, 0)),
    "delete": (lambda store, _: store.delete("key"), True),
}


@pytest.mark.parametrize("call", CHANGES)
async def test_a_change(hub: Hub, store: SharedMemoryStore, story: Story, call: str) -> None:
    change, expected = CHANGES[call]
    await drain_and_flush(hub)

    assert await change(store, story) == expected


async def test_what_was_deleted_stays_deleted(hub: Hub, store: SharedMemoryStore, story: Story) -> None:
    await drain_and_flush(hub)
    await store.memory.delete_all({"category": "port"})
    await store.graph.delete_by_group(GROUP)
    await store.synthesis.erase(app_id=APP)
    await drain_and_flush(hub)

    assert [item.id for item in await store.memory.list()] == [story.turn]
    assert await store.graph.groups() == []
    assert await store.synthesis.apps() == []
