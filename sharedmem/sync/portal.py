"""The way into an event loop that runs in a thread of its own: calls go in, outcomes come back."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from contextvars import copy_context
from typing import Any, Generic, Literal, ParamSpec, TypeVar, overload

from sharedmem.errors import UsageError
from sharedmem.redis.blocking_reads import BlockingConnections
from sharedmem.runtime.concurrency import ProcessBound

_HUB = "this hub"
_END: Any = object()
# How long a call that was interrupted (Ctrl-C) may take to clean up.
_PATIENCE_S = 5.0

T = TypeVar("T")
_R = TypeVar("_R")
_P = ParamSpec("_P")


class Portal(ProcessBound):
    """One event loop in a background thread, for any number of calling threads."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process = 0
        self._calls: set[_PortalCall[Any]] = set()
        self.connections: BlockingConnections | None = None
        """Connections on which the calling threads read by themselves; None if all calls need the loop."""

    def open(self) -> None:
        """Start the thread."""
        loop = asyncio.new_event_loop()
        # A daemon: a hub that was not closed does not keep the interpreter from ending.
        thread = threading.Thread(target=_serve, args=(loop, self._calls), name="sharedmem hub", daemon=True)
        _serving.add(loop)
        thread.start()
        self._loop, self._thread, self._process = loop, thread, os.getpid()

    @property
    def is_open(self) -> bool:
        """Whether calls can be made from this process."""
        return self._loop in _serving and self._process == os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether the caller runs in the loop's own thread."""
        return self._thread is threading.current_thread()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop's thread and return its result, or raise what it raises.

        When the waiting thread is interrupted (Ctrl-C), the coroutine is cancelled.

        Raises:
            UsageError: the hub is not open, was closed meanwhile, or was opened before a fork; or this is the loop's
                own thread, which would wait for itself.
        """
        loop = self._checked(coroutine)
        call = _PortalCall(loop, coroutine)
        # Known before it is scheduled, so that a loop that ends in this moment leaves no caller waiting.
        self._calls.add(call)
        try:
            if loop not in _serving:
                raise RuntimeError  # noqa: TRY301  # as the loop says it
            loop.call_soon_threadsafe(call.start, context=copy_context())
        except RuntimeError as error:
            coroutine.close()
            raise UsageError(_HUB, "it was closed just now") from error
        else:
            return call.outcome()
        finally:
            self._calls.discard(call)

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """The items of an async iterator, each fetched when it is asked for."""
        try:
            while (item := self.run(_next(items))) is not _END:
                yield item
        finally:
            close: Callable[[], Coroutine[Any, Any, None]] | None = getattr(items, "aclose", None)
            # An iterator that is only found by the garbage collector may outlive its hub.
            if close is not None and self.is_open and threading.current_thread() is not self._thread:
                self.run(close())

    @contextmanager
    def entered(self, manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """An async context manager as a plain one; it is entered and left in one and the same task."""
        stay = _EnteredContext(manager)
        value = self.run(stay.enter())
        try:
            yield value
        except BaseException as error:
            if not self.run(stay.leave(error)):
                raise
        else:
            self.run(stay.leave(None))

    def close(self) -> None:
        """End every task, and the thread; may be called again, and in a forked process does nothing."""
        if self._loop is None or self._thread is None or not self.is_open:
            return
        try:
            self.run(_shut_down_loop())
        finally:
            loop, self._loop = self._loop, None
            with suppress(RuntimeError):  # it has ended by itself
                loop.call_soon_threadsafe(loop.stop)
            self._thread.join()

    def _checked(self, coroutine: Coroutine[Any, Any, object]) -> asyncio.AbstractEventLoop:
        loop = self._loop
        # While the interpreter ends, the loop's thread is frozen: it would never reply.
        if loop is not None and self.is_open and not self.is_here and not sys.is_finalizing():
            return loop
        coroutine.close()
        if loop is None or sys.is_finalizing():
            raise UsageError(_HUB, "it is not open; use it inside of: with Hub.open() as hub")
        if self._process != os.getpid():
            raise UsageError(_HUB, "it was opened before this process was forked; open another one here")
        if not self.is_here:
            raise UsageError(_HUB, "its event loop has ended; open another one")
        raise UsageError("a call inside of a call", "the hub's thread cannot wait for itself; use another thread")


class _PortalCall(Generic[T]):
    """One coroutine on its way through the loop."""

    __slots__ = ("_coroutine", "_ended", "_loop", "_task")

    def __init__(self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> None:
        self._loop = loop
        self._coroutine = coroutine
        # A bare lock wakes its waiter faster than an event or a future would.
        self._ended = threading.Lock()
        self._ended.acquire()
        self._task: asyncio.Task[T] | None = None

    def start(self) -> None:
        if self._loop not in _serving:
            self.abandon()
            return
        self._task = self._loop.create_task(self._coroutine)
        self._task.add_done_callback(self._end)

    def _end(self, _: asyncio.Task[T]) -> None:
        self._ended.release()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def abandon(self) -> None:
        """Notify the waiting thread that the loop has closed; only once it has."""
        if self._task is None:
            self._coroutine.close()
        if self._ended.locked():
            self._ended.release()

    def outcome(self) -> T:
        try:
            self._ended.acquire()
        except BaseException:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._cancel)
                self._ended.acquire(timeout=_PATIENCE_S)
            raise
        if self._task is None or not self._task.done() or self._task.cancelled():
            raise UsageError(_HUB, "it was closed while the call was under way; it may or may not have happened")
        return self._task.result()


class _EnteredContext(Generic[T]):
    """The time between entering an async context manager and leaving it."""

    def __init__(self, manager: AbstractAsyncContextManager[T]) -> None:
        self._manager = manager

    async def enter(self) -> T:
        loop = asyncio.get_running_loop()
        self._inside: asyncio.Future[T] = loop.create_future()
        self._leaving: asyncio.Future[BaseException | None] = loop.create_future()
        self._task = asyncio.create_task(self._hold())
        try:
            both: list[asyncio.Future[Any]] = [self._inside, self._task]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            self._task.cancel()
            raise
        if self._task.done():
            await self._task  # it could not be entered
        return self._inside.result()

    async def leave(self, error: BaseException | None) -> bool:
        """Whether the manager has dealt with the error."""
        if not self._leaving.done():
            self._leaving.set_result(error)
        elif error is not None:
            # The manager has ended the block by itself, which its thread was told in its own time.
            await asyncio.wait([self._task])
            if not self._task.cancelled():
                self._task.exception()  # its thread's own error comes first, so this one is dropped, and not logged
            return False
        return await self._task

    async def _hold(self) -> bool:
        self._inside.set_result(await self._manager.__aenter__())
        try:
            error = await self._leaving
        except asyncio.CancelledError as cancelled:
            if asyncio.get_running_loop() not in _closing:
                # So a manager ends its block (a lease was lost): its reason comes out of `__aexit__`.
                await self._exit(cancelled)
            raise
        return await self._exit(error)

    async def _exit(self, error: BaseException | None) -> bool:
        trace = None if error is None else error.__traceback__
        return bool(await self._manager.__aexit__(None if error is None else type(error), error, trace))


@overload
def threaded(function: Callable[_P, _R]) -> Callable[_P, Awaitable[_R]]: ...
@overload
def threaded(function: None) -> None: ...
@overload
def threaded(function: Literal[False]) -> Literal[False]: ...
def threaded(function: Callable[_P, _R] | Literal[False] | None) -> Callable[_P, Awaitable[_R]] | Literal[False] | None:
    """A user's function as a coroutine function that runs it in a thread, so that it may block and use the hub."""
    if function is None or function is False:
        return function

    async def call(*args: _P.args, **named: _P.kwargs) -> _R:
        return await asyncio.to_thread(function, *args, **named)

    return call


# The loops whose threads are to go on.
_serving: set[asyncio.AbstractEventLoop] = set()
# Those whose tasks are being ended.
_closing: set[asyncio.AbstractEventLoop] = set()


def _serve(loop: asyncio.AbstractEventLoop, calls: set[_PortalCall[Any]]) -> None:
    asyncio.set_event_loop(loop)
    try:
        while loop in _serving:
            # A SystemExit in a task belongs to its caller, who gets it as the outcome, not to this thread.
            with suppress(SystemExit, KeyboardInterrupt):
                loop.run_forever()
    finally:
        # However it ends: from here on no call comes in, and no caller waits for one that did.
        _serving.discard(loop)
        for call in list(calls):
            call.abandon()
        loop.close()


async def _shut_down_loop() -> None:
    """Cancel what still runs, and let it clean up; calls that come later find the loop closed."""
    loop = asyncio.get_running_loop()
    _closing.add(loop)
    await _end_tasks()
    await loop.shutdown_asyncgens()
    await loop.shutdown_default_executor()
    # Another thread may have sent a call in meanwhile. Between the last look and the closing nothing can run.
    await _end_tasks()
    _serving.discard(loop)
    _closing.discard(loop)


async def _end_tasks() -> None:
    while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items, _END)
