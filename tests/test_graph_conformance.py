"""The graph does on every backend what the suite says."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from sharedmem import Hub, Settings
from sharedmem.testing import fake_hub
from sharedmem.testing.graph_suite import GraphSuite


class TestGraphOnFakeredis(GraphSuite):
    @pytest.fixture
    async def hub(self) -> AsyncIterator[Hub]:
        async with fake_hub(settings=Settings(embedder="hashing")) as hub:
            yield hub


class TestGraphOnARealServer(GraphSuite):
    @pytest.fixture
    async def hub(self, redis_url: str, settings: Settings) -> AsyncIterator[Hub]:
        async with Hub.open(redis_url, settings=settings.replace(embedder="hashing")) as hub:
            yield hub
