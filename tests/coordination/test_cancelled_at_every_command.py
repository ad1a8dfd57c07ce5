"""Who is cancelled while any of its commands is under way keeps nothing that others wait for.

Each story runs once for each command that it sends, and its task is cancelled while that command is under way:
before the server has it, or before its reply has come. Leases are far longer than the patience of who comes next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from fakeredis import FakeServer
from support.held_commands import HeldCommand, connect_holding

from sharedmem import Hub, Settings, SharedMemoryStore
from sharedmem.testing import connect_to_fake
from sharedmem.testing.store_fixtures import eventually

Story = Callable[[SharedMemoryStore], Awaitable[None]]
_LEASE_S = 3600
_PATIENCE_S = 30
_MOST_COMMANDS = 40


async def lock(store: SharedMemoryStore) -> None:
    async with store.lock("index", lease=_LEASE_S, wait=_LEASE_S):
        pass


async def semaphore(store: SharedMemoryStore) -> None:
    async with store.semaphore("index", 1, lease=_LEASE_S, wait=_LEASE_S):
        pass


async def writing(store: SharedMemoryStore) -> None:
    async with store.rwlock("index").writing(lease=_LEASE_S, wait=_LEASE_S):
        pass


async def once(store: SharedMemoryStore) -> None:
    assert await store.once("report", lambda: "done", ttl=_LEASE_S, lease=_LEASE_S, wait=_LEASE_S) == "done"


async def cached(store: SharedMemoryStore) -> None:
    @store.cache.cached(lease=_LEASE_S, wait=_LEASE_S)
    async def answer(question: str) -> str:
        return "Paris"

    assert await answer("What is the capital of France?") == "Paris"


async def task(store: SharedMemoryStore) -> None:
    queue = store.queue("work", visibility=_LEASE_S)
    if not (stats := await queue.stats()).ready + stats.claimed:
        await queue.put("job")
    async with queue.claimed(wait=_LEASE_S) as claimed:
        assert claimed is not None


async def executing(store: SharedMemoryStore) -> None:
    """An execution is never left open: who comes next finds its outcome."""
    log = store.decisions
    saved = await log.save_if_new("desk", "BTC", "BUY", 0.9, "20-day high", "rules")
    async with log.executing("desk", saved.plan.plan_id, lease=_LEASE_S) as execution:
        if execution.started:
            await execution.finish(status="success", order_id="17")

    async def none_is_open() -> bool:
        return not await log.get_open_executions("desk")

    await eventually(none_is_open)


STORIES: list[Story] = [lock, semaphore, writing, once, cached, task, executing]


@pytest.mark.parametrize("answered", [False, True], ids=["before it is sent", "before its reply"])
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
async def test_the_next_one_need_not_wait_for_a_lease_to_end(story: Story, answered: bool, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, durable_url="none", embedder="hashing")
    for number in range(1, _MOST_COMMANDS):
        server, held = FakeServer(), HeldCommand(number, answered=answered)
        async with (
            Hub(settings=settings, connect=connect_to_fake(server)) as other,
            Hub(settings=settings, connect=connect_holding(held, server)) as hub,
        ):
            await _cancel_at(held, story(hub.store("team", actor="ann")))
            try:
                await asyncio.wait_for(story(other.store("team", actor="bob")), _PATIENCE_S)
            except TimeoutError:
                pytest.fail(f"cancelled at command {number}: the next one waited for a lease")
        if not held.has_come:
            return
    pytest.fail("the story has no end")


async def _cancel_at(held: HeldCommand, telling: Awaitable[None]) -> None:
    """Cancel a story at that command, if it has so many."""
    held.armed = True
    task = asyncio.ensure_future(telling)
    at = asyncio.ensure_future(held.reached.wait())
    await asyncio.wait([task, at], return_when=asyncio.FIRST_COMPLETED)
    held.armed = False
    task.cancel()
    at.cancel()
    held.closing.set()
    with suppress(asyncio.CancelledError):
        await task
