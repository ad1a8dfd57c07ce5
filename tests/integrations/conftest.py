"""Each adapter is tested on fakeredis and on a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from sharedmem import Hub, Settings, SharedMemoryStore
from sharedmem.clock import new_id
from sharedmem.testing import fake_hub


@pytest.fixture(params=["fakeredis", "server"])
async def store(request: pytest.FixtureRequest, settings: Settings) -> AsyncIterator[SharedMemoryStore]:
    """A store on either."""
    if request.param == "fakeredis":
        async with fake_hub(settings=settings) as hub:
            yield hub.store("team")
        return
    async with Hub.open(request.getfixturevalue("redis_url"), settings=settings) as hub:
        store = hub.store(f"test-{new_id(8)}")
        yield store
        await store.clear()
