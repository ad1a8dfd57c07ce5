"""Fixtures that the suites share: a namespace for each test, and stores in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import cast

from sharedmem.clock import new_id
from sharedmem.hub import Hub
from sharedmem.store import SharedMemoryStore
from sharedmem.testing.pytest_required import pytest

_PATIENCE_S = 60.0
_PAUSE_S = 0.005


class StoreFixtures:
    """Two agents and their namespace; the fixture `hub` comes from the backend."""

    @pytest.fixture
    async def namespace(self, hub: Hub) -> AsyncIterator[str]:
        """A namespace of this test alone, which is emptied after it."""
        name = f"suite-{new_id(8)}"
        yield name
        await hub.store(name).clear()

    @pytest.fixture
    def team(self, hub: Hub, namespace: str) -> SharedMemoryStore:
        """The store of the namespace's own actor."""
        return hub.store(namespace)

    @pytest.fixture
    def ada(self, hub: Hub, namespace: str) -> SharedMemoryStore:
        """The store of one agent."""
        return hub.store(namespace, actor="ada")

    @pytest.fixture
    def bob(self, hub: Hub, namespace: str) -> SharedMemoryStore:
        """The store of another agent."""
        return hub.store(namespace, actor="bob")


async def eventually(holds: Callable[[], object]) -> None:
    """Return as soon as a function, or what it returns when awaited, is true."""
    async with asyncio.timeout(_PATIENCE_S):
        while True:
            answer = holds()
            if await cast("Awaitable[object]", answer) if isinstance(answer, Awaitable) else answer:
                return
            await asyncio.sleep(_PAUSE_S)


async def has_expired(store: SharedMemoryStore, key: str) -> bool:
    """Return whether a key has expired."""
    return not await store.exists(key)
