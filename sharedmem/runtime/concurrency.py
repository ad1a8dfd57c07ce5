"""Concurrency in one event loop: background tasks, shared runs, pauses between attempts, and guards of objects.

Each failure of a background task is logged and counted, and closing the hub stops them all. Concurrent callers of the
same work share one run and its result. Work that must not be interrupted outlasts a cancellation. Pauses grow and are
random, so that callers do not retry together. A guarded object works only in the process and event loop that opened it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any, Generic, NoReturn, Protocol, SupportsIndex, TypeVar

from sharedmem.errors import NotPicklableError, SharedMemoryError, UsageError

FAILURE_COUNTER = "background_failures"
"""Counter of failed work, with the labels `work` (first word of its name) and `error` (class name)."""

T = TypeVar("T")
_logger = logging.getLogger("sharedmem.runtime.concurrency")


class FailureCounter(Protocol):
    """The counter of failures."""

    def increment(self, name: str, /, **labels: str) -> None:
        """Increment a counter."""


class BackgroundTask:
    """One task in the background; created by `Background.start`."""

    def __init__(self, name: str, task: asyncio.Task[object], *, patience_s: float) -> None:
        self.name = name
        self._task = task
        self._patience_s = patience_s
        self._stopping = False

    @property
    def done(self) -> bool:
        """Whether the task has ended in any way."""
        return self._task.done()

    @property
    def failure(self) -> BaseException | None:
        """The exception that ended the task; None while it runs and after a normal end."""
        if not self._task.done():
            return None
        if not self._task.cancelled():
            return self._task.exception()
        return None if self._stopping else asyncio.CancelledError("not by its owner")

    def when_done(self, callback: Callable[[], object]) -> None:
        """Call a function when the task has ended in any way, even before its first step."""
        self._task.add_done_callback(lambda _: callback())

    async def stop(self) -> None:
        """Cancel it and wait until it has cleaned up; do nothing if it has ended already.

        It does not raise the task's own failure, which was logged when it happened; a cancellation of the caller takes
        effect as usual. A task that ignores two cancellations, each for the patience of its owner, is logged and left
        running, so that the wait ends. A task may not stop itself: it would be cancelled here.
        """
        # A task that is done by now ended for another reason, even if its callback has not run yet.
        self._stopping = self._stopping or not self.done
        # Twice: code that is cancelled while its result arrives can lose the cancellation.
        for _ in range(2):
            self._task.cancel()
            # `wait` neither raises the outcome of the task nor swallows a cancellation of the caller.
            await asyncio.wait([self._task], timeout=self._patience_s)
            if self._task.done():
                return
        _logger.error("background work %r does not stop; it is left running", self.name)

    def __repr__(self) -> str:
        if not self.done:
            return f"<Work {self.name!r} {'stopping' if self._stopping else 'running'}>"
        return f"<Work {self.name!r} {f'failed: {self.failure!r}' if self.failure else 'done'}>"


class Background:
    """The tasks of one owner, such as a hub; closing it ends all of them.

    `patience_s`: seconds for the cleanup of a task after each of two cancellations. `cleanup_s`: seconds that `close`
    waits for all cleanups together, since their server may be unreachable.
    """

    def __init__(self, counters: FailureCounter, *, patience_s: float = 10.0, cleanup_s: float = 2.0) -> None:
        self._counters = counters
        self._patience_s = patience_s
        self._cleanup_s = cleanup_s
        self._running: dict[asyncio.Task[object], BackgroundTask] = {}
        self._cleanups: dict[asyncio.Task[object], BackgroundTask] = {}
        self._closed = False
        self._takes_cleanups = True

    def start(self, name: str, coroutine: Coroutine[Any, Any, object]) -> BackgroundTask:
        """Run the coroutine on the running event loop until it ends or is stopped.

        `name` is a verb and its object (`renew lock index`): the log shows all of it, counters have the first word as
        label. An exception is logged once, with its traceback, and counted under
        `FAILURE_COUNTER`. Raises `UsageError` after `close`.
        """
        return self._started(name, coroutine, self._running, refused=self._closed)

    def start_cleanup(self, name: str, coroutine: Coroutine[Any, Any, object]) -> BackgroundTask:
        """As `start`, for work that releases something at a server: `close` waits for it instead of stopping it.

        Tasks that `close` stops may start it, too. Raises `UsageError` after `close` has waited for cleanups.
        """
        return self._started(name, coroutine, self._cleanups, refused=not self._takes_cleanups)

    def start_last_call(self, name: str, call: Callable[[], Awaitable[object]]) -> None:
        """Make the last call for a caller that was cancelled, such as a release; if it is lost, a timeout does it.

        `close` waits for it as for a cleanup. A `SharedMemoryError` is dropped: no caller is left to handle it.

        Args:
            name: as `start`.
            call: coroutine function that makes the call.
        """

        async def called() -> None:
            with suppress(SharedMemoryError):
                await call()

        with suppress(UsageError):  # it is closed
            self.start_cleanup(name, called())

    async def result_or_undone(self, name: str, call: Awaitable[T], undo: Callable[[T], Awaitable[object]]) -> T:
        """Return the result of a call; if the caller is cancelled before, undo the call when its result arrives.

        Args:
            name: as `start`, for what is undone.
            call: what the call returns; it goes on when the caller is cancelled.
            undo: coroutine function of its result.

        Raises:
            Exception: what the call raises.
        """
        running = asyncio.ensure_future(call)
        # After a cancellation, no caller is left to receive a failure.
        running.add_done_callback(lambda done: None if done.cancelled() else done.exception())
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:

            async def undone() -> None:
                await undo(await running)

            self.start_last_call(name, undone)
            raise

    def _started(
        self,
        name: str,
        coroutine: Coroutine[Any, Any, object],
        running: dict[asyncio.Task[object], BackgroundTask],
        *,
        refused: bool,
    ) -> BackgroundTask:
        if refused:
            coroutine.close()
            raise UsageError("this hub", "it is closed; open another one")
        task: asyncio.Task[object] = asyncio.create_task(coroutine, name=f"sharedmem: {name}")
        work = running[task] = BackgroundTask(name, task, patience_s=self._patience_s)
        task.add_done_callback(self._ended)
        return work

    async def close(self) -> None:
        """Stop all tasks at once, wait for their cleanup, and reject new tasks; may be called again.

        Cleanups are stopped if they have not ended after a few seconds. Called from inside a task (a user's callback
        that closes the hub), it stops all other tasks and lets this one continue to its end.
        """
        self._closed = True
        own = asyncio.current_task()
        await asyncio.gather(*(work.stop() for task, work in self._running.items() if task is not own))
        with suppress(TimeoutError):
            async with asyncio.timeout(self._cleanup_s):
                # A cleanup may start another one.
                while others := self._cleanups.keys() - {own}:
                    await asyncio.wait(others)
        self._takes_cleanups = False
        await asyncio.gather(*(work.stop() for task, work in self._cleanups.items() if task is not own))

    def _ended(self, task: asyncio.Task[object]) -> None:
        work = (self._running if task in self._running else self._cleanups).pop(task)
        error = work.failure
        # Work that lost its cancellation and would have started more is no failure of it.
        if error is None or (self._closed and isinstance(error, UsageError)):
            return
        self._counters.increment(FAILURE_COUNTER, work=work.name.partition(" ")[0], error=type(error).__name__)
        _logger.error("background work %r failed", work.name, exc_info=error)

    def __repr__(self) -> str:
        return (
            f"<Background {'closed' if self._closed else 'open'}, {len(self._running) + len(self._cleanups)} running>"
        )


# -- the loop and process of an object -----------------------------------------------------------


class ProcessBound:
    """Base of objects with a connection; rejects `pickle` and `copy`, and so use as arguments of process pools."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise NotPicklableError(type(self).__name__)


class EventLoopBinding:
    """The event loop and the process in which an object was opened: the current ones.

    Args:
        what: name of the object, for errors.
        blocking: module of the blocking interface that several threads can share, for errors.
    """

    def __init__(self, what: str, *, blocking: str = "sharedmem.sync") -> None:
        self._what = what
        self._blocking = blocking
        self._loop = asyncio.get_running_loop()
        self._process = os.getpid()

    @property
    def is_another_process(self) -> bool:
        """Whether this process was forked after the object was opened."""
        return os.getpid() != self._process

    def check(self) -> None:
        """Raise in another event loop or a forked process.

        Raises:
            UsageError: the object was opened elsewhere.
        """
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:  # a child that was forked from a coroutine has no loop
            here = None
        if here is not self._loop:
            raise UsageError(self._what, self._problem())

    def _problem(self) -> str:
        if self.is_another_process:
            return "it was opened before this process was forked; open another one here"
        if self._loop.is_closed():
            return "the event loop that it was opened in is closed; open another one in the loop that uses it"
        advice = f"open one in each loop, or use {self._blocking} from several threads"
        return f"it was opened in another event loop; {advice}"


# -- shared runs ---------------------------------------------------------------------------------


class SingleFlight(Generic[T]):
    """Running work of this process, by name.

    Each flight is a task of its own: a cancelled caller does not end it for the others.

    Args:
        verb: verb for the work, for errors and the log.
        background: runs the flights, logs defects, and ends them when the hub closes. None for work that a hub needs
            until its last call: its owner ends it with `stop`.
    """

    def __init__(self, verb: str, background: Background | None) -> None:
        self._verb = verb
        self._background = background
        self._under_way: dict[str, asyncio.Future[T]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def share(self, name: str, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the outcome of the flight with a name; start it unless it is running.

        Args:
            name: name of the work.
            make: creates the coroutine of the work.

        Raises:
            Exception: the exception of `make`.
            UsageError: its hub was closed while it ran.
        """
        return await asyncio.shield(self.launch(name, make))

    def launch(self, name: str, make: Callable[[], Coroutine[Any, Any, T]]) -> asyncio.Future[T]:
        """Return the flight with a name, for callers that need not wait for it; arguments as `share`."""
        flight = self._under_way.get(name)
        if flight is None:
            flight = asyncio.get_running_loop().create_future()
            self._start(name, flight, self._fly(name, flight, make))
            self._under_way[name] = flight
        return flight

    async def stop(self) -> None:
        """Stop the flights that have no `Background`; their callers get a `UsageError`."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _start(self, name: str, flight: asyncio.Future[T], work: Coroutine[Any, Any, None]) -> None:
        if self._background is not None:
            self._background.start(f"{self._verb} {name}", work).when_done(lambda: self._land(name, flight))
            return
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: self._land(name, flight))

    async def _fly(self, name: str, flight: asyncio.Future[T], make: Callable[[], Coroutine[Any, Any, T]]) -> None:
        try:
            flight.set_result(await make())
        except Exception as error:
            flight.set_exception(error)
            if self._background is not None and not isinstance(error, SharedMemoryError):
                raise  # a defect: the background logs it
        finally:
            del self._under_way[name]

    def _land(self, name: str, flight: asyncio.Future[T]) -> None:
        """Fail the callers of a flight that was stopped, perhaps before its first step."""
        if not flight.done():
            flight.set_exception(UsageError("this hub", f"it was closed before it could {self._verb} {name}"))
        if self._under_way.get(name) is flight:
            del self._under_way[name]
        # All callers may be cancelled; retrieve the exception so that the event loop does not log it.
        flight.exception()


# -- pauses between attempts ---------------------------------------------------------------------


_MOST_DOUBLINGS = 60


async def settled(work: Awaitable[T]) -> T:
    """Await work until it has ended, also if the caller is cancelled meanwhile; the cancellation is raised then."""
    task = asyncio.ensure_future(work)
    cancellation: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancellation = cancellation or error
    if cancellation is None:
        return task.result()
    if not task.cancelled():
        task.exception()  # otherwise asyncio reports that nobody has seen it
    raise cancellation


def backoff(first_s: float, longest_s: float, *, least: float = 0.0) -> Iterator[float]:
    """Yield pauses in seconds, without end: each is random, and its upper bound doubles.

    Args:
        first_s: upper bound of the first pause.
        longest_s: upper bound of any pause.
        least: lower bound of a pause as a share of its upper bound; 0 is full jitter.
    """
    for attempt in range(_MOST_DOUBLINGS):
        yield backoff_pause(attempt, first_s, longest_s, least=least)
    while True:
        yield backoff_pause(_MOST_DOUBLINGS, first_s, longest_s, least=least)


def backoff_pause(attempt: int, first_s: float, longest_s: float, *, least: float = 0.0) -> float:
    """Return the pause in seconds after an attempt, counted from 0; arguments as `backoff`."""
    upper = min(longest_s, first_s * 2.0 ** min(attempt, _MOST_DOUBLINGS))
    return random.uniform(least * upper, upper)  # noqa: S311  # spreads retries; no secret depends on it
