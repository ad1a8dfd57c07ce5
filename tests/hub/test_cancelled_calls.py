"""A cancelled call is cancelled, by whatever way it goes: redis-py would swallow some cancellations."""

from __future__ import annotations

import asyncio

import pytest
from support.transports import connect_pooled

from sharedmem import Hub, Settings
from sharedmem.hub import Connect
from sharedmem.testing import connect_to_fake

MOMENTS = 50


@pytest.mark.parametrize("way", ["fakeredis", "redis-py", "fast lane"])
async def test_a_call_that_is_cancelled_at_any_moment_does_not_go_on(
    way: str, redis_url: str, settings: Settings
) -> None:
    ways: dict[str, Connect | None] = {
        "fakeredis": connect_to_fake(),
        "redis-py": connect_pooled,
        "fast lane": None,
    }
    async with Hub(redis_url, settings=settings, connect=ways[way]) as hub:
        store = hub.store("cancelled", actor="ada")

        async def read_and_go_on() -> None:
            await store.read("k")
            await asyncio.Event().wait()

        for moment in range(MOMENTS):
            task = asyncio.create_task(read_and_go_on())
            for _ in range(moment):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task], timeout=20)
            assert task.cancelled()
