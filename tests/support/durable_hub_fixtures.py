"""A hub on a server of its own with a durable tier in a file; a module names these fixtures to have them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sharedmem import Hub, Settings, SharedMemoryStore
from sharedmem.providers.local_embedders import HashingEmbedder
from support import embedded_fixtures

data_dir = embedded_fixtures.data_dir


@pytest.fixture
def settings(data_dir: Path) -> Settings:
    return Settings(data_dir=data_dir)


@pytest.fixture
async def hub(settings: Settings) -> AsyncIterator[Hub]:
    """A hub on a server of its own, with a durable tier."""
    async with Hub.open(settings=settings, embedder=HashingEmbedder()) as hub:
        yield hub


@pytest.fixture
def store(hub: Hub) -> SharedMemoryStore:
    return hub.store("research", actor="ada")
