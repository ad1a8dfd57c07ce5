"""Log lines, and the decorator that measures a call."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from functools import wraps
from typing import Any, Protocol, TypeVar, cast

import orjson

from sharedmem.errors import SharedMemoryError
from sharedmem.runtime.counters import Counters
from sharedmem.runtime.spans import MemoryOperation, span

logger = logging.getLogger("sharedmem")
logger.addHandler(logging.NullHandler())

_STANDARD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def get_logger(part: str) -> logging.Logger:
    """Return the logger `sharedmem.<part>`, a child of the one that applications configure."""
    return logger.getChild(part)


def extra_fields(record: logging.LogRecord) -> dict[str, object]:
    """Return the fields that a log record has from `extra`."""
    return {name: value for name, value in vars(record).items() if name not in _STANDARD_ATTRIBUTES}


def elapsed_ms(began: float) -> float:
    """Return the milliseconds since a value of `time.perf_counter`, as log lines show them."""
    return round((time.perf_counter() - began) * 1000, 3)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, the fields of `extra`, and the error if any."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a log record as one line."""
        fields: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields |= {name: value for name, value in extra_fields(record).items() if name not in fields}
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        try:
            return orjson.dumps(fields, default=str).decode()
        except TypeError:  # an integer beyond 64 bits, or half of a surrogate pair
            return json.dumps(fields, default=str)


_Method = TypeVar("_Method", bound=Callable[..., Coroutine[Any, Any, Any]])


class Measured(Protocol):
    """An object whose calls are measured."""

    @property
    def _counters(self) -> Counters: ...


def measured(operation: str, *, memory: MemoryOperation | None = None) -> Callable[[_Method], _Method]:
    """Time each call of a method as `operation_seconds{operation=...}`, count its failures by code, run it as a span.

    Args:
        operation: `memory.search`; the class of the method must be `Measured`.
        memory: the operation in the conventions of OpenTelemetry; the object must have a `StoreTrace` as `_trace`.
    """

    def decorate(method: _Method) -> _Method:
        @wraps(method)
        async def call(self: Measured, *args: Any, **kwargs: Any) -> Any:
            counters = self._counters  # the measured object has the counters
            counters.begin(operation)
            started = time.perf_counter()
            with span(operation) if memory is None else memory.start(operation, self, args) as active:
                try:
                    found = await method(self, *args, **kwargs)
                except SharedMemoryError as error:
                    counters.increment("operation_failures", operation=operation, code=error.code)
                    raise
                finally:
                    counters.end(operation, time.perf_counter() - started)
                if active is not None and memory is not None:
                    memory.describe(active, self, args, found)
                return found

        return cast("_Method", call)

    return decorate
