"""One suite of queues for every way to a store; and what only a clock that a test turns can show."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import pytest
from conformance.coordination.queues import QueueSuite
from support.sync_adapter import SyncAdapter

from sharedmem import Hub, Settings
from sharedmem.sync import Hub as SyncHub
from sharedmem.testing import fake_hub


class TestQueueOnFakeredis(QueueSuite):
    @pytest.fixture
    async def hub(self) -> AsyncIterator[Hub]:
        async with fake_hub() as hub:
            yield hub


class TestQueueOnARealServer(QueueSuite):
    @pytest.fixture
    async def hub(self, redis_url: str, settings: Settings) -> AsyncIterator[Hub]:
        async with Hub.open(redis_url, settings=settings) as hub:
            yield hub


@pytest.mark.nightly
class TestQueueThroughTheSyncFace(QueueSuite):
    @pytest.fixture
    async def hub(self, redis_url: str, settings: Settings) -> AsyncIterator[Hub]:
        async with SyncAdapter(SyncHub.open(redis_url, settings=settings)) as hub:
            yield cast("Hub", hub)
