"""A caller that waits when its hub is closed gets an error at once; it does not wait for a server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NoReturn, cast

import pytest
from pydantic import BaseModel
from support.contexts import context_of
from support.waiting import wait_until

from sharedmem import Hub, Settings, SharedMemoryStore, UsageError
from sharedmem.providers.protocol import ChatMessage, LanguageModel


async def lock(store: SharedMemoryStore) -> None:
    async with store.lock("index"):
        raise AssertionError("another hub holds it")


async def claim(store: SharedMemoryStore) -> None:
    await store.queue("work").claim(wait=None)


async def once(store: SharedMemoryStore) -> None:
    await store.once("report", lambda: "another hub is at it", ttl=60)


@pytest.mark.parametrize("wait", [lock, claim, once], ids=["lock", "claim", "once"])
async def test_who_waits_is_told_that_its_hub_was_closed(
    wait: Callable[[SharedMemoryStore], Awaitable[None]],
    store: SharedMemoryStore,
    namespace: str,
    redis_url: str,
    settings: Settings,
) -> None:
    leaving = Hub.open(redis_url, settings=settings)
    release = asyncio.Event()
    done = asyncio.ensure_future(store.once("report", release.wait, ttl=60))
    async with store.lock("index"), leaving:
        waiting = asyncio.ensure_future(wait(leaving.store(namespace, actor="late")))
        wakeups = context_of(leaving.store(namespace)).wait_notifier
        await wait_until(lambda: bool(wakeups.waiting), description="it waits in line")

    with pytest.raises(UsageError, match="this hub: it is closed; open another one"):
        await asyncio.wait_for(waiting, 20)
    release.set()
    await done


class Slow:
    """A model that never answers, and remembers whether a caller still waited when it was closed."""

    name = "slow"

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.waiting = 0
        self.left_waiting: int | None = None

    async def complete(self, messages: Sequence[ChatMessage], schema: type[BaseModel]) -> NoReturn:  # noqa: ARG002  # a protocol
        await self.write(messages)

    async def write(self, messages: Sequence[ChatMessage], *, max_tokens: int = 500) -> NoReturn:  # noqa: ARG002  # likewise
        self.waiting += 1
        self.asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.waiting -= 1
        raise AssertionError

    async def close(self) -> None:
        self.left_waiting = self.waiting


async def test_a_task_that_is_worked_on_is_given_back_as_it_was(
    redis_url: str, settings: Settings, hub: Hub, namespace: str
) -> None:
    model = Slow()
    async with Hub.open(redis_url, settings=settings, model=cast("LanguageModel", model)) as leaving:
        task = await leaving.store(namespace).synthesis.add_agent_memory(app_id="a", user_id="u", messages="hello")
        await model.asked.wait()

    stays = hub.store(namespace).synthesis
    assert model.left_waiting == 0
    (left,) = await stays.tasks()
    assert (left.task_id, left.status, left.error) == (task.task_id, "pending", "CancelledError: ")
    assert (await stays.wait(task.task_id)).status == "done"


async def test_a_call_after_the_end_fails_at_once(redis_url: str, settings: Settings) -> None:
    async with Hub.open(redis_url, settings=settings) as hub:
        store = hub.store("closed", actor="ada")

    with pytest.raises(UsageError, match="it is closed"):
        await asyncio.wait_for(store.read("key"), 20)
