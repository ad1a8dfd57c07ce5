"""How calls of models run: awaited by the caller, or in the thread of a `sharedmem.sync.Hub`."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, NamedTuple, Protocol

from sharedmem.om.blocking_query import BlockingQuery
from sharedmem.om.query import Query
from sharedmem.store import SharedMemoryStore, StoreParts, parts_of
from sharedmem.sync import SharedMemoryStore as BlockingStore
from sharedmem.sync.faces import portal_and_async
from sharedmem.sync.portal import Portal


class Caller(Protocol):
    """Runs the calls of models."""

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Return what the caller gets for a call: an awaitable, or its result."""

    def query(self, query: Query[Any]) -> Any:
        """Return a query whose calls run likewise."""


class AwaitingCaller:
    """The caller awaits each call."""

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Return the coroutine."""
        return work

    def query(self, query: Query[Any]) -> Query[Any]:
        """Return the query."""
        return query


class BlockingCaller:
    """Each call waits for its result.

    Args:
        portal: of the hub, whose thread runs the calls.
    """

    def __init__(self, portal: Portal) -> None:
        self._portal = portal

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Return the result."""
        return self._portal.run(work)

    def query(self, query: Query[Any]) -> BlockingQuery:
        """Return the query without `await`."""
        return BlockingQuery(self._portal, query)


class CalledStore(NamedTuple):
    """The parts of a store, and how calls on it run."""

    parts: StoreParts
    caller: Caller


def called_store(store: SharedMemoryStore | BlockingStore) -> CalledStore:
    """Return the parts of a store of either kind."""
    if isinstance(store, BlockingStore):
        portal, behind = portal_and_async(store)
        return CalledStore(parts_of(behind), BlockingCaller(portal))
    return CalledStore(parts_of(store), AwaitingCaller())
