"""Whoever waits when its hub is closed learns it at once, and does not wait for a server that it will never ask."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from support.waiting import wait_until

from sharedmem import Hub, Settings, SharedMemoryStore, UnavailableError


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
        wakeups = leaving.store(namespace)._ground.wakeups
        await wait_until(lambda: bool(wakeups._waiters), description="it stands in line")

    with pytest.raises(UnavailableError, match="this hub: it is closed; open another one"):
        await asyncio.wait_for(waiting, timeout=5)
    release.set()
    await done


async def test_a_call_after_the_end_fails_at_once(redis_url: str, settings: Settings) -> None:
    async with Hub.open(redis_url, settings=settings) as hub:
        store = hub.store("closed", actor="ada")

    with pytest.raises(UnavailableError, match="it is closed"):
        await asyncio.wait_for(store.read("key"), timeout=5)
