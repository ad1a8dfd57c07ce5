"""What the parts of the memory suite share: memories of a namespace, and words to fill them with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime, timedelta

import pytest

from sharedmem.clock import new_id
from sharedmem.hub import Hub
from sharedmem.memory.memories import Memories
from sharedmem.models import MemoryItem, MemoryMessage
from sharedmem.store import SharedMemoryStore
from sharedmem.testing.store_fixtures import StoreFixtures

NOON = datetime(2026, 3, 14, 12, tzinfo=UTC)
FACTS = (
    "The deploy of the billing service needs two approvals.",
    "Invoices are sent on the last Friday of each month.",
    "The staging database is copied every night at three.",
    "Our zebra mascot is called Marvin.",
    "Customers in Norway pay in kroner.",
)


class MemoryFixtures(StoreFixtures):
    """The memories of two agents of one namespace, and of a stranger in another one; `hub` comes from the backend."""

    @pytest.fixture
    def memory(self, ada: SharedMemoryStore) -> Memories:
        """What ada remembers, and her team."""
        return ada.memory

    @pytest.fixture
    async def elsewhere(self, hub: Hub, namespace: str) -> Memories:
        """The memories of another tenant, whose name begins like the first one's."""
        return hub.store(f"{namespace}0", actor="ada").memory

    @pytest.fixture(autouse=True)
    async def _emptied(self, hub: Hub, namespace: str) -> AsyncIterator[None]:
        yield
        await hub.store(f"{namespace}0").clear()


async def add_texts(memory: Memories, texts: Iterable[str] = FACTS) -> list[str]:
    """Add texts, a minute apart; their ids."""
    items = [MemoryItem(memory=text, timestamp=NOON + timedelta(minutes=at)) for at, text in enumerate(texts)]
    return [result.id for result in await memory.add_many(items, dedup=False)]


async def add_turns(
    memory: Memories, *turns: tuple[str, str], thread: str = "talk", ids: str | None = None
) -> list[str]:
    """Add turns of a conversation, pairs of who and what; their ids, which end at random or as wanted."""
    items = [
        MemoryItem(
            id=f"{thread}-{at}-{new_id(8) if ids is None else ids}",
            memory=text,
            thread_id=thread,
            timestamp=NOON + timedelta(minutes=at),
            messages=(MemoryMessage(role="user", name=name, content=text),),
        )
        for at, (name, text) in enumerate(turns)
    ]
    return [result.id for result in await memory.add_many(items, dedup=False)]
