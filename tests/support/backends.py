"""What suites run on besides the real server, which is the `hub` of every test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import pytest

from sharedmem import Hub, Settings
from sharedmem.sync import Hub as SyncHub
from support.sync_adapter import SyncAdapter


@pytest.fixture
def hub_on_fakeredis(fake: Hub) -> Hub:
    """The hub of modules whose tests need no real server: `hub = backends.hub_on_fakeredis`."""
    return fake


class OnFakeredis:
    """A suite on fakeredis."""

    @pytest.fixture
    def hub(self, fake: Hub) -> Hub:
        """The hub on fakeredis."""
        return fake


class ThroughTheSyncFace:
    """A suite on a real server, which is called through the sync face."""

    @pytest.fixture
    async def hub(self, redis_url: str, settings: Settings) -> AsyncIterator[Hub]:
        """A sync hub whose calls are awaited."""
        async with SyncAdapter(SyncHub.open(redis_url, settings=settings)) as hub:
            await read_often(hub)
            yield cast("Hub", hub)


async def read_often(hub: SyncAdapter) -> None:
    """Read so often that later reads have a connection beside that of the event loop."""
    for _ in range(20):
        assert await hub.store("warm").read("absent") is None
