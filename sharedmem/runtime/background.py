"""Background tasks of a hub: each failure is logged and counted, and closing the hub stops them all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Protocol

from sharedmem.errors import UsageError

FAILURE_COUNTER = "background_failures"
"""Counter of failed work, with the labels `work` (first word of its name) and `error` (class name)."""

_logger = logging.getLogger("sharedmem.runtime.background")


class FailureCounter(Protocol):
    """Where failures are counted."""

    def increment(self, name: str, /, **labels: str) -> None:
        """Count one more."""


class BackgroundTask:
    """One task in the background; made by `Background.start`."""

    def __init__(self, name: str, task: asyncio.Task[object], *, patience_s: float) -> None:
        self.name = name
        self._task = task
        self._patience_s = patience_s
        self._stopping = False

    @property
    def done(self) -> bool:
        """Whether it has ended, in whatever way."""
        return self._task.done()

    @property
    def failure(self) -> BaseException | None:
        """What ended it against its owner's will; None while it runs and after a good end."""
        if not self._task.done():
            return None
        if not self._task.cancelled():
            return self._task.exception()
        return None if self._stopping else asyncio.CancelledError("not by its owner")

    def when_done(self, callback: Callable[[], object]) -> None:
        """Call this when it has ended in whatever way, also before its first step."""
        self._task.add_done_callback(lambda _: callback())

    async def stop(self) -> None:
        """Cancel it and wait until it has cleaned up; does nothing when it has ended already.

        Raises nothing of the work's own, whose failure was logged when it happened; a cancellation of the
        caller goes on as usual. Work that ignores two cancellations, each for as long as the patience of
        its owner, is logged and left alone, so that the wait ends. Work may not stop itself: it would be
        cancelled here.
        """
        # Work that is done by now ended for another reason, even if that has not been told yet.
        self._stopping = self._stopping or not self.done
        # Twice: code that is cancelled in the moment of its result can lose the cancellation.
        for _ in range(2):
            self._task.cancel()
            # `wait` neither raises the outcome of the task nor swallows a cancellation of the caller.
            await asyncio.wait([self._task], timeout=self._patience_s)
            if self._task.done():
                return
        _logger.error("background work %r does not stop; it is left alone", self.name)

    def __repr__(self) -> str:
        if not self.done:
            return f"<Work {self.name!r} {'stopping' if self._stopping else 'running'}>"
        return f"<Work {self.name!r} {f'failed: {self.failure!r}' if self.failure else 'done'}>"


class Background:
    """The tasks of one owner, such as a hub; closing it ends them all.

    `patience_s`: seconds that work gets to clean up after each of two cancellations. `cleanup_s`: seconds that `close`
    waits for all cleanups together, since their server may be away.
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

        `name` is a verb and what it works on (`renew lock index`): the log shows all of it, counters are
        labelled with the first word. An exception is logged once, with its traceback, and counted under
        `FAILURE_COUNTER`. Raises `UsageError` after `close`.
        """
        return self._started(name, coroutine, self._running, refused=self._closed)

    def start_cleanup(self, name: str, coroutine: Coroutine[Any, Any, object]) -> BackgroundTask:
        """As `start`, for what gives something back at a server: `close` lets it end instead of stopping it.

        Work that `close` stops may start it, too. Raises `UsageError` when `close` has waited for cleanups.
        """
        return self._started(name, coroutine, self._cleanups, refused=not self._takes_cleanups)

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
            raise UsageError(f"background work {name!r}", "its hub is closed; open another one")
        task: asyncio.Task[object] = asyncio.create_task(coroutine, name=f"sharedmem: {name}")
        work = running[task] = BackgroundTask(name, task, patience_s=self._patience_s)
        task.add_done_callback(self._ended)
        return work

    async def close(self) -> None:
        """Stop all work at once, wait until it has cleaned up, and refuse new work; may be called again.

        Cleanups are stopped when they have not ended after a few seconds. Called from inside of work (a user's
        callback that closes the hub), it stops all the other work and lets this one go on to its end.
        """
        self._closed = True
        own = asyncio.current_task()
        await asyncio.gather(*(work.stop() for task, work in self._running.items() if task is not own))
        with suppress(TimeoutError):
            async with asyncio.timeout(self._cleanup_s):
                # One may start another.
                while others := self._cleanups.keys() - {own}:
                    await asyncio.wait(others)
        self._takes_cleanups = False
        await asyncio.gather(*(work.stop() for task, work in self._cleanups.items() if task is not own))

    def _ended(self, task: asyncio.Task[object]) -> None:
        work = (self._running if task in self._running else self._cleanups).pop(task)
        error = work.failure
        if error is None:
            return
        self._counters.increment(FAILURE_COUNTER, work=work.name.partition(" ")[0], error=type(error).__name__)
        _logger.error("background work %r failed", work.name, exc_info=error)

    def __repr__(self) -> str:
        return (
            f"<Background {'closed' if self._closed else 'open'}, {len(self._running) + len(self._cleanups)} running>"
        )
