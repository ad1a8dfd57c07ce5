"""A hub may be closed at any moment: background work ends in silence, and nothing acknowledged is lost.

Each story is told once for each command that it sends, and the hub is closed while that command is under way: before
the server has it, or before its reply has come.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fakeredis import FakeServer
from support.example_budget import example_count
from support.held_commands import HeldCommand, connect_holding

from sharedmem import Hub, Settings, SharedMemoryStore, UnavailableError, UsageError
from sharedmem.providers.local_embedders import HashingEmbedder
from sharedmem.testing import connect_to_fake

Check = Callable[[SharedMemoryStore], Awaitable[bool]]
Story = Callable[[SharedMemoryStore, list[Check]], Awaitable[None]]
_EVERY = example_count(6, thorough=1)
_MOST_COMMANDS = 300


async def values(store: SharedMemoryStore, kept: list[Check]) -> None:
    for number in range(3):
        await store.write(f"k{number}", number, kind="knowledge")
        kept.append(partial(_holds, key=f"k{number}", value=number))
    await asyncio.gather(*(store.write(f"together{number}", number) for number in range(4)))
    kept.append(partial(_holds, key="together3", value=3))


async def memories(store: SharedMemoryStore, kept: list[Check]) -> None:
    added = await store.memory.add("The user drinks green tea")
    kept.append(lambda other: _has_memory(other, added.id))
    await asyncio.gather(*(store.memory.add(f"The user has {number} bicycles") for number in range(3)))
    await store.memory.search("tea")


async def cached_answers(store: SharedMemoryStore, kept: list[Check]) -> None:
    await store.cache.put("What is the capital of France?", "Paris")

    async def is_there(other: SharedMemoryStore) -> bool:
        return await other.cache.check("What is the capital of France?") is not None

    kept.append(is_there)
    await store.cache.check("What is the capital of France?")


async def notes(store: SharedMemoryStore, kept: list[Check]) -> None:
    task = await store.synthesis.add_agent_memory(app_id="app", user_id="ann", messages="Ann moved to Lisbon.")

    async def is_done(other: SharedMemoryStore) -> bool:
        return (await other.synthesis.wait(task.task_id)).status == "done"

    kept.append(is_done)
    await store.synthesis.wait(task.task_id)


async def episodes(store: SharedMemoryStore, kept: list[Check]) -> None:
    for number in range(2):
        told = f"Ann works at company {number}."
        await store.graph.add_episode(told, id=f"e{number}", group_id="g", session="talk", source="user")

        async def is_told(other: SharedMemoryStore, number: int = number) -> bool:
            return (await other.graph.get(f"e{number}", group_id="g")).id == f"e{number}"

        kept.append(is_told)


async def messages(store: SharedMemoryStore, kept: list[Check]) -> None:  # nothing of them is kept
    unsubscribe = await store.subscribe("news", lambda _: None)
    await store.publish("news", 1)
    async with store.subscription("news") as news:
        await store.publish("news", 2)
        await anext(news)
    await unsubscribe()


async def tasks(store: SharedMemoryStore, kept: list[Check]) -> None:
    queue = store.queue("work")
    done = asyncio.Event()
    for number in range(2):
        id_ = (await queue.put(number)).id

        async def is_there(other: SharedMemoryStore, id_: str = id_) -> bool:
            return (await other.queue("work").result(id_)).id == id_

        kept.append(is_there)

    async def work(task: object) -> None:  # any task
        done.set()

    working = asyncio.ensure_future(queue.work(work))
    try:
        await done.wait()
    finally:
        working.cancel()
        await asyncio.wait([working])


async def agreement(store: SharedMemoryStore, kept: list[Check]) -> None:  # leases end by themselves
    async with store.presence.here(role="writer", ttl=60), store.lock("index"), store.leader("chief"):
        await store.once("report", lambda: "done", ttl=60)
        waiting = asyncio.ensure_future(_locked(store))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])


async def _locked(store: SharedMemoryStore) -> None:
    async with store.lock("index"):
        raise AssertionError("it is held")


async def _holds(store: SharedMemoryStore, key: str, value: int) -> bool:
    return bool(await store.read(key) == value)


async def _has_memory(store: SharedMemoryStore, id_: str) -> bool:
    return await store.memory.get(id_) is not None


STORIES: list[Story] = [values, memories, cached_answers, notes, episodes, messages, tasks, agreement]


@pytest.mark.parametrize("answered", [False, True], ids=["before it is sent", "before its reply"])
@pytest.mark.parametrize("tier", ["none", "sqlite"])
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
async def test_a_hub_is_closed_while_any_command_is_under_way(
    story: Story, tier: str, answered: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    unheard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    for number in range(1, _MOST_COMMANDS, _EVERY):
        folder = tmp_path / str(number)
        folder.mkdir()
        caplog.clear()
        is_told = not await _closed_at(number, story, _settings(folder, tier), answered=answered)
        gc.collect()
        await asyncio.sleep(0)
        where = f"closed at command {number}"
        assert not unheard, f"{where}: {unheard}"
        told = [record for record in caplog.records if record.levelno >= logging.WARNING and not _is_fair(record)]
        assert not told, f"{where}: {[record.getMessage() for record in told]}"
        if is_told:
            break
    assert number > 1


def _is_fair(record: logging.LogRecord) -> bool:
    """Whether a worker that its user has not stopped cannot go on, or a busy tier gets changes from a later hub."""
    return record.name == "sharedmem.queues" or "changes wait in Redis for the durable tier" in record.getMessage()


def _settings(folder: Path, tier: str) -> Settings:
    url = "none" if tier == "none" else f"sqlite://{folder}/durable.db"
    return Settings(
        data_dir=folder, durable_url=url, embedder="hashing", graph_summary_every=2, retry_for_s=5, connect_timeout_s=60
    )


async def _closed_at(number: int, story: Story, settings: Settings, *, answered: bool) -> bool:
    """Tell the story and close the hub at that command; whether there was one."""
    server, held = FakeServer(), HeldCommand(number, answered=answered)
    kept: list[Check] = []
    before = asyncio.all_tasks()
    hub = Hub(settings=settings, connect=connect_holding(held, server))
    async with hub:
        held.armed = True
        telling = asyncio.ensure_future(story(hub.store("team", actor="ann"), kept))
        at = asyncio.ensure_future(held.reached.wait())
        await asyncio.wait([telling, at], return_when=asyncio.FIRST_COMPLETED)
        held.closing.set()
        await asyncio.wait_for(hub.close(), 60)
    if not telling.done():
        # A caller that waits for something that will not happen any more gives up.
        _, waits = await asyncio.wait([telling], timeout=1)
        assert not waits or story in {messages, tasks, notes}, f"{story.__name__} waits for ever"
        telling.cancel()
    at.cancel()
    (error, _) = await asyncio.gather(telling, at, return_exceptions=True)
    assert error is None or isinstance(error, UnavailableError | UsageError | asyncio.CancelledError), repr(error)
    left = asyncio.all_tasks() - before
    if left:
        # Siblings of the call that failed first end in the next turns of the loop.
        _, left = await asyncio.wait(left, timeout=1)
    assert not left, f"closed at command {number}: {left}"
    async with Hub(settings=settings, connect=connect_to_fake(server)) as other:
        for check in kept:
            assert await check(other.store("team", actor="ann")), f"closed at command {number}: {check} is lost"
    return held.has_come


async def test_tasks_that_were_on_their_way_to_a_cancelled_worker_are_given_back_by_a_hub_that_closes(
    tmp_path: Path,
) -> None:
    server = FakeServer()
    held = HeldCommand(1, answered=True)
    hub = Hub(settings=_settings(tmp_path, "none"), connect=connect_holding(held, server))
    async with Hub(settings=_settings(tmp_path, "none"), connect=connect_to_fake(server)) as other:
        await other.store("team").queue("work", visibility=3600).put("job")
        async with hub:
            held.armed = True
            worker = asyncio.ensure_future(hub.store("team").queue("work", visibility=3600).claim(wait=None))
            await held.reached.wait()
            worker.cancel()
            await asyncio.wait([worker])
            held.closing.set()

        assert (await other.store("team").queue("work").stats()).claimed == 0


async def test_callers_are_told_when_a_hub_closes_before_their_shared_call_has_begun(tmp_path: Path) -> None:
    hub = Hub(settings=_settings(tmp_path, "sqlite"), connect=connect_to_fake())
    async with hub:
        store = hub.store("team")
        writes = [asyncio.ensure_future(store.write(f"k{number}", number, kind="knowledge")) for number in range(5)]
        # Up to where they share a call that has not had its first turn.
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async with asyncio.timeout(60):
        outcomes = await asyncio.gather(*writes, return_exceptions=True)
    assert all(isinstance(outcome, int | UsageError) for outcome in outcomes), outcomes


async def test_a_step_of_closing_that_fails_keeps_no_other_step_from_being_taken(tmp_path: Path) -> None:
    class Broken(HashingEmbedder):
        async def close(self) -> None:
            raise ValueError("the provider is broken")

    before = asyncio.all_tasks()
    hub = Hub(settings=_settings(tmp_path, "sqlite"), connect=connect_to_fake(), embedder=Broken())
    await hub.__aenter__()
    await hub.store("team").memory.add("The user drinks tea")

    with pytest.raises(ValueError, match="the provider is broken"):
        await hub.close()

    assert asyncio.all_tasks() == before
