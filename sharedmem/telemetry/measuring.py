"""Measuring calls: how often, how long, and how often in vain."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from sharedmem.errors import SharedMemoryError
from sharedmem.telemetry.counters import Counters
from sharedmem.telemetry.spans import span

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Measured(Protocol):
    """Whose calls are measured."""

    @property
    def _counters(self) -> Counters: ...


_M = TypeVar("_M", bound=Measured)
_Method = Callable[Concatenate[_M, _P], Awaitable[_R]]


def measured(operation: str) -> Callable[[_Method[_M, _P, _R]], _Method[_M, _P, _R]]:
    """Time each call of a method as `operation_seconds{operation=...}`, count its failures by code, make it a span.

    Args:
        operation: `memory.search`.
    """

    def decorate(method: _Method[_M, _P, _R]) -> _Method[_M, _P, _R]:
        @wraps(method)
        async def call(self: _M, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
            started = time.perf_counter()
            with span(operation):
                try:
                    return await method(self, *args, **kwargs)
                except SharedMemoryError as error:
                    self._counters.increment("operation_failures", operation=operation, code=error.code)
                    raise
                finally:
                    self._counters.observe("operation_seconds", time.perf_counter() - started, operation=operation)

        return call

    return decorate
