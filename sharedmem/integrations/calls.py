"""How calls reach the hub of a store: from its own event loop, from another one, or from threads without one."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from sharedmem.errors import InvalidError, UsageError
from sharedmem.store import SharedMemoryStore, StoreParts, parts_of
from sharedmem.sync import SharedMemoryStore as BlockingStore
from sharedmem.sync.faces import portal_and_async
from sharedmem.sync.portal import Portal

_T = TypeVar("_T")


class Calls(Protocol):
    """Runs coroutines where the hub of a store lives."""

    async def awaited(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Return the result to a caller that awaits it."""

    def blocking(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Return the result to a caller that waits for it without an event loop.

        Raises:
            UsageError: the caller runs in the hub's own event loop, which would wait for itself.
        """


class LoopCalls:
    """Calls to a hub that was opened with `async with`.

    Args:
        loop: the event loop of the hub.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    async def awaited(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Await the work here, or in the loop of the hub."""
        if asyncio.get_running_loop() is self._loop:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def blocking(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run the work in the loop of the hub; the caller is another thread."""
        if _is_running_here(self._loop):
            work.close()
            raise UsageError("this call", "it would wait for its own event loop; use the method that begins with `a`")
        call: concurrent.futures.Future[_T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return call.result()


class PortalCalls:
    """Calls to a hub of `sharedmem.sync`.

    Args:
        portal: of the hub, whose thread runs the calls.
    """

    def __init__(self, portal: Portal) -> None:
        self._portal = portal

    async def awaited(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run the work in the hub's thread, while this event loop goes on."""
        if self._portal.is_here:
            return await work
        return await asyncio.to_thread(self._portal.run, work)

    def blocking(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run the work in the hub's thread."""
        return self._portal.run(work)


def reach(store: SharedMemoryStore | BlockingStore) -> tuple[StoreParts, SharedMemoryStore, Calls]:
    """Return the parts of a store of either kind, the async store, and how calls reach it.

    Raises:
        InvalidError: it is no store.
        UsageError: an async store is used outside of its event loop.
    """
    if isinstance(store, BlockingStore):
        portal, behind = portal_and_async(store)
        return parts_of(behind), behind, PortalCalls(portal)
    if not isinstance(store, SharedMemoryStore):
        raise InvalidError("store", store, "pass a store of an open hub: hub.store('team')")
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError as error:
        advice = "make it inside of `async with Hub.open()`, or pass a store of sharedmem.sync"
        raise UsageError("this adapter", advice) from error
    return parts_of(store), store, LoopCalls(loop)


def _is_running_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
