"""Single flight: concurrent callers of the same work share one run and its result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from sharedmem.errors import SharedMemoryError, UsageError
from sharedmem.runtime.background import Background

T = TypeVar("T")


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
