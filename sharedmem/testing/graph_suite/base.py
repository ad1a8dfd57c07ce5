"""Shared parts of the graph suite: graphs of a namespace, groups, and days."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime

import pytest

from sharedmem.graph.graph import Graph
from sharedmem.hub import Hub
from sharedmem.models import Fact
from sharedmem.store import SharedMemoryStore
from sharedmem.testing.store_fixtures import StoreFixtures

GROUP = "acme:talk"
OTHER = "acme:talk-2"


def day(year: int, month: int = 1, date: int = 1) -> datetime:
    """Return the beginning of a day."""
    return datetime(year, month, date, tzinfo=UTC)


class GraphFixtures(StoreFixtures):
    """The graphs of one namespace, and of another tenant; the fixture `hub` comes from the backend."""

    @pytest.fixture
    def graph(self, ada: SharedMemoryStore) -> Graph:
        """The graphs of ada's team."""
        return ada.graph

    @pytest.fixture
    def elsewhere(self, hub: Hub, namespace: str) -> Graph:
        """The graphs of another tenant, whose name has the same beginning."""
        return hub.store(f"{namespace}0", actor="ada").graph

    @pytest.fixture(autouse=True)
    async def _emptied(self, hub: Hub, namespace: str) -> AsyncIterator[None]:
        yield
        await hub.store(f"{namespace}0").clear()


def fact_texts(facts: Iterable[Fact]) -> list[str]:
    """Return facts as sentences, in alphabetical order."""
    return sorted(fact.fact for fact in facts)


def fact_targets(facts: Iterable[Fact]) -> list[str]:
    """Return the targets of facts, in alphabetical order."""
    return sorted(fact.target_name for fact in facts)
