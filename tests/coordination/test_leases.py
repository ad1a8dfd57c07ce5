"""One suite for leases everywhere, and what only the async face and a turned clock can show."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import pytest
from conformance.coordination.leases import LeaseSuite
from support.sync_adapter import SyncAdapter

from sharedmem import Hub, Settings
from sharedmem.sync import Hub as SyncHub
from sharedmem.testing import fake_hub


class TestLeasesOnFakeredis(LeaseSuite):
    @pytest.fixture
    async def hub(self) -> AsyncIterator[Hub]:
        async with fake_hub() as hub:
            yield hub


class TestLeasesOnRedis(LeaseSuite):
    @pytest.fixture
    async def hub(self, redis_url: str, settings: Settings) -> AsyncIterator[Hub]:
        async with Hub.open(redis_url, settings=settings) as hub:
            yield hub


@pytest.mark.nightly
class TestLeasesThroughTheSyncFace(LeaseSuite):
    @pytest.fixture
    async def hub(self, redis_url: str, settings: Settings) -> AsyncIterator[Hub]:
        async with SyncAdapter(SyncHub.open(redis_url, settings=settings)) as hub:
            yield cast("Hub", hub)
