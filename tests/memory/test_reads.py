"""Reading memories, on both indexes; what expires."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from conformance.memory import MemoryReadTests

from sharedmem import Hub, Settings
from sharedmem.testing import fake_hub


class TestReadingOnFakeredis(MemoryReadTests):
    @pytest.fixture
    async def hub(self) -> AsyncIterator[Hub]:
        async with fake_hub(settings=Settings(embedder="hashing")) as hub:
            yield hub


class TestReadingOnARealServer(MemoryReadTests):
    @pytest.fixture
    async def hub(self, redis_url: str, settings: Settings) -> AsyncIterator[Hub]:
        async with Hub.open(redis_url, settings=settings.replace(embedder="hashing")) as hub:
            yield hub
