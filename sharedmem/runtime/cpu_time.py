"""CPU time of one piece of work, in its own task and in the threads that it uses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import ContextVar
from functools import partial
from threading import Lock
from typing import Any, Generic, ParamSpec, TypeVar

_T = TypeVar("_T")
_P = ParamSpec("_P")


class CpuMeter:
    """Adds up CPU seconds; tasks and threads may share one."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._seconds = 0.0

    @property
    def seconds(self) -> float:
        """CPU seconds so far."""
        return self._seconds

    def add(self, seconds: float) -> None:
        """Add CPU seconds."""
        with self._lock:
            self._seconds += seconds

    def timed(self, function: Callable[[], _T]) -> _T:
        """Call a function and add the CPU time of this thread."""
        began = time.thread_time()
        try:
            return function()
        finally:
            self.add(time.thread_time() - began)


_METER: ContextVar[CpuMeter | None] = ContextVar("meter of the current work", default=None)


async def in_thread(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Call a function in a thread; its CPU time counts for the metered work that calls it."""
    meter = _METER.get()
    if meter is None:
        return await asyncio.to_thread(function, *args, **kwargs)
    return await asyncio.to_thread(meter.timed, partial(function, *args, **kwargs))


class Metered(Generic[_T]):
    """Work whose CPU time is measured and charged, and which stops on refusal: `await Metered(work, meter, pay)`.

    The steps of its own task and its calls of `in_thread` are measured; tasks that it starts are not.

    Args:
        work: the coroutine to run.
        meter: adds up its CPU seconds.
        pay: awaited after each step of the work; if it raises, the work is cancelled and the error is raised.
    """

    def __init__(self, work: Coroutine[Any, Any, _T], meter: CpuMeter, pay: Callable[[], Awaitable[None]]) -> None:
        self._work = work
        self._meter = meter
        self._pay = pay

    def __await__(self) -> Generator[Any, Any, _T]:
        token = _METER.set(self._meter)
        try:
            return (yield from self._steps())
        finally:
            _METER.reset(token)

    def _steps(self) -> Generator[Any, Any, _T]:
        work = self._work.__await__()
        thrown: BaseException | None = None
        refusal: Exception | None = None
        while True:
            step = partial(work.send, None) if thrown is None else partial(work.throw, thrown)
            try:
                waits_for = self._meter.timed(step)
            except StopIteration as done:
                value: _T = done.value
                return value
            except asyncio.CancelledError:
                if refusal is None:
                    raise
                raise refusal from None
            thrown = None
            try:
                yield waits_for
            except BaseException as error:  # noqa: BLE001  any exception is passed to the work
                thrown = error
                continue
            if refusal is None:
                try:
                    yield from self._pay().__await__()
                except Exception as error:  # noqa: BLE001  as above; it is raised once the work has ended
                    # Like a cancelled task: running code cleans up after itself.
                    refusal, thrown = error, asyncio.CancelledError()
                except BaseException as error:  # noqa: BLE001  the task itself was cancelled in between
                    thrown = error
