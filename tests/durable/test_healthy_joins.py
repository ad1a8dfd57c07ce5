"""A hub that joins a namespace where nothing was lost restores nothing, whatever the last change before it was."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from support import durable_hub_fixtures as fixtures

from sharedmem import Hub, Settings, SharedMemoryStore
from sharedmem.durable.loss_detection import REPAIRS
from sharedmem.providers.local_embedders import HashingEmbedder

data_dir, settings, hub = fixtures.data_dir, fixtures.settings, fixtures.hub

SESSION, GROUP = "desk", "team"


async def begin_execution(store: SharedMemoryStore) -> int:
    plan_id = await store.decisions.save_plan(SESSION, "BTC", "BUY", 0.5, "the trend is strong")
    return (await store.decisions.begin_execution(SESSION, plan_id)).fence


async def refuse_execution(store: SharedMemoryStore) -> None:
    await begin_execution(store)
    [plan] = await store.decisions.get_recent_plans(SESSION)
    assert not (await store.decisions.begin_execution(SESSION, plan.plan_id)).started


async def refuse_plan(store: SharedMemoryStore) -> None:
    for _ in range(2):
        await store.decisions.save_if_new(SESSION, "BTC", "BUY", 0.5, "the trend is strong")


async def finish_execution(store: SharedMemoryStore) -> None:
    fence = await begin_execution(store)
    [plan] = await store.decisions.get_recent_plans(SESSION)
    await store.decisions.finish(SESSION, plan.plan_id, fence, status="success")


async def erase_session(store: SharedMemoryStore) -> None:
    await begin_execution(store)
    await store.decisions.erase(SESSION)


async def change_memory(store: SharedMemoryStore) -> None:
    added = await store.memory.add("Tea is served at four.")
    await store.memory.update(added.id, content="Tea is served at five.")


async def delete_memory(store: SharedMemoryStore) -> None:
    added = await store.memory.add("Tea is served at four.")
    await store.memory.delete(added.id)


async def repeat_memory(store: SharedMemoryStore) -> None:
    for _ in range(2):
        await store.memory.add("Tea is served at four.")


async def repeat_relationship(store: SharedMemoryStore) -> None:
    for _ in range(2):
        await store.graph.add_relationship("Ada", "WORKS_AT", "Acme", group_id=GROUP)


async def merge_and_unmerge(store: SharedMemoryStore) -> None:
    await store.graph.add_entity("Ada", group_id=GROUP)
    await store.graph.add_entity("Ada Lovelace", group_id=GROUP)
    await store.graph.merge("Ada Lovelace", "Ada", group_id=GROUP)
    await store.graph.unmerge("Ada Lovelace", group_id=GROUP)


async def forget_group(store: SharedMemoryStore) -> None:
    await repeat_relationship(store)
    await store.graph.delete_by_group(GROUP)


async def undo_episode(store: SharedMemoryStore) -> None:
    added = await store.graph.add_episode("Ada works at Acme.", group_id=GROUP)
    await store.graph.undo(added.id, group_id=GROUP)


async def write_note(store: SharedMemoryStore) -> None:
    said = [{"role": "user", "content": "I moved to York in May."}]
    await store.synthesis.add_memory(app_id="app", user_id="ada", messages=said)
    await store.synthesis.drain()


async def change_kind(store: SharedMemoryStore) -> None:
    await store.write("key", 1, kind="knowledge")
    await store.write("key", 2, kind="ephemeral")


async def write_then_clear(store: SharedMemoryStore) -> None:
    await store.write("key", 1, kind="session")
    await store.clear()


CHANGES: dict[str, Callable[[SharedMemoryStore], Awaitable[object]]] = {
    "write": lambda store: store.write("key", 1, kind="session"),
    "append": lambda store: store.append("list", 1, kind="session"),
    "hset": lambda store: store.hset("hash", "field", 1, kind="knowledge"),
    "sadd": lambda store: store.sadd("set", 1, kind="session"),
    "incr": lambda store: store.incr("counter", kind="session"),
    "a durability that ends": change_kind,
    "a clear": write_then_clear,
    "an event": lambda store: store.episodes.append_event(SESSION, {"text": "hello"}),
    "an execution that began": begin_execution,
    "an execution that was refused": refuse_execution,
    "an execution that ended": finish_execution,
    "a plan that was refused": refuse_plan,
    "an erased session": erase_session,
    "a changed memory": change_memory,
    "a deleted memory": delete_memory,
    "a memory added twice": repeat_memory,
    "a fact told twice": repeat_relationship,
    "a merge that was undone": merge_and_unmerge,
    "a deleted group": forget_group,
    "an episode that was undone": undo_episode,
    "a note": write_note,
}


async def test_a_hub_that_joins_after_a_change_restores_nothing(hub: Hub, settings: Settings) -> None:
    found: dict[str, float] = {}
    for number, (change, make) in enumerate(CHANGES.items()):
        namespace = f"team-{number}"
        await make(hub.store(namespace))
        await hub.durable.drain(namespace)

        async with Hub.open(settings=settings, embedder=HashingEmbedder()) as other:
            await other.store(namespace).read("anything")
            await other.store(namespace).memory.list()
            found[change] = other.counters.read(REPAIRS)

    assert found == dict.fromkeys(CHANGES, 0)
