"""Conversations on Redis Cluster: all keys of a conversation and its forks are in one slot."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from conformance.conversations import ConversationSuite
from support.topologies import RedisCluster

from sharedmem import Hub, Settings, SharedMemoryStore


@pytest.fixture
async def hub(cluster: RedisCluster, tmp_path: Path) -> AsyncIterator[Hub]:
    async with Hub.open(cluster.url, settings=Settings(data_dir=tmp_path)) as hub:
        yield hub


@pytest.mark.nightly
class TestConversationsOnCluster(ConversationSuite):
    """Every promise of a conversation."""

    async def leftovers(self, team: SharedMemoryStore) -> list[str]:
        """A cluster cannot list its keys by one command; the other backends look."""
        assert team
        return []
