"""Threads of memory and memories on the move, on both indexes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from conformance.memory import MemoryThreadTests, MemoryTransferTests

from sharedmem import Hub, Settings
from sharedmem.testing import fake_hub


class TestThreadsOnFakeredis(MemoryThreadTests):
    @pytest.fixture
    async def hub(self) -> AsyncIterator[Hub]:
        async with fake_hub(settings=Settings(embedder="hashing")) as hub:
            yield hub


class TestThreadsOnARealServer(MemoryThreadTests):
    @pytest.fixture
    async def hub(self, redis_url: str, settings: Settings) -> AsyncIterator[Hub]:
        async with Hub.open(redis_url, settings=settings.replace(embedder="hashing")) as hub:
            yield hub


class TestMovingOnFakeredis(MemoryTransferTests):
    @pytest.fixture
    async def hub(self) -> AsyncIterator[Hub]:
        async with fake_hub(settings=Settings(embedder="hashing")) as hub:
            yield hub


class TestMovingOnARealServer(MemoryTransferTests):
    @pytest.fixture
    async def hub(self, redis_url: str, settings: Settings) -> AsyncIterator[Hub]:
        async with Hub.open(redis_url, settings=settings.replace(embedder="hashing")) as hub:
            yield hub
