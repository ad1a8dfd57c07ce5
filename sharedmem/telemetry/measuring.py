"""Measuring calls: how often, how long, and how often in vain."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Protocol, TypeVar, cast

from sharedmem.errors import SharedMemoryError
from sharedmem.telemetry.counters import Counters
from sharedmem.telemetry.spans import span

_Method = TypeVar("_Method", bound=Callable[..., Coroutine[Any, Any, Any]])


class Measured(Protocol):
    """Whose calls are measured."""

    @property
    def _counters(self) -> Counters: ...


def measured(operation: str) -> Callable[[_Method], _Method]:
    """Time each call of a method as `operation_seconds{operation=...}`, count its failures by code, make it a span.

    Args:
        operation: `memory.search`; the method belongs to something that is `Measured`.
    """

    def decorate(method: _Method) -> _Method:
        @wraps(method)
        async def call(self: Measured, *args: Any, **kwargs: Any) -> Any:
            counters = self._counters  # what is measured says where it counts
            started = time.perf_counter()
            with span(operation):
                try:
                    return await method(self, *args, **kwargs)
                except SharedMemoryError as error:
                    counters.increment("operation_failures", operation=operation, code=error.code)
                    raise
                finally:
                    counters.observe("operation_seconds", time.perf_counter() - started, operation=operation)

        return cast("_Method", call)

    return decorate
