"""One suite for every way to a store: on fakeredis, by the fast lane, by redis-py, and through the sync face."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from conformance.store import StoreSuite
from support.backends import OnFakeredis, ThroughTheSyncFace
from support.transports import connect_pooled

from sharedmem import Hub, Settings
from sharedmem.clock import new_id
from sharedmem.testing import fake_hub


class TestStoreOnFakeredis(OnFakeredis, StoreSuite):
    """Every promise, on fakeredis."""


class TestStoreByTheFastLane(StoreSuite):
    """Every promise, on a real server."""


@pytest.mark.nightly
class TestStoreByRedisPy(StoreSuite):
    @pytest.fixture
    async def hub(self, redis_url: str, settings: Settings) -> AsyncIterator[Hub]:
        async with Hub(redis_url, settings=settings, connect=connect_pooled) as hub:
            yield hub


@pytest.mark.nightly
class TestStoreThroughTheSyncFace(ThroughTheSyncFace, StoreSuite):
    """Every promise, through the sync face."""


def with_tier(folder: Path) -> Settings:
    """Everything that is said to last goes to a file as well."""
    return Settings(data_dir=folder, durable_url=f"sqlite://{folder}/durable.sqlite3", prefix=f"t{new_id(6)}")


@pytest.mark.nightly
class TestStoreWithATierOnFakeredis(StoreSuite):
    @pytest.fixture
    async def hub(self, tmp_path: Path) -> AsyncIterator[Hub]:
        async with fake_hub(settings=with_tier(tmp_path)) as hub:
            yield hub


class TestStoreWithATierByTheFastLane(StoreSuite):
    @pytest.fixture
    async def hub(self, redis_url: str, tmp_path: Path) -> AsyncIterator[Hub]:
        async with Hub.open(redis_url, settings=with_tier(tmp_path)) as hub:
            yield hub


@pytest.mark.nightly
class TestStoreThatIsWaitedForByTheTier(StoreSuite):
    @pytest.fixture
    async def hub(self, redis_url: str, tmp_path: Path) -> AsyncIterator[Hub]:
        waiting = {"session_durability": "through", "knowledge_durability": "through"}
        rules = {"suite-*": "knowledge"}
        settings = with_tier(tmp_path).replace(kind_rules=rules, **waiting)
        async with Hub.open(redis_url, settings=settings) as hub:
            yield hub
