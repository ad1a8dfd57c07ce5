"""Counters and timings, log lines, OpenTelemetry spans, and the decorator that measures a call."""

from __future__ import annotations

import json
import logging
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from functools import cache, wraps
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from sharedmem.errors import SharedMemoryError

_METRIC_PREFIX = "sharedmem_"

# In seconds: from a call on this machine to a provider that takes its time.
BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.5, 1.0, 2.5, 10.0)

Labels = tuple[tuple[str, str], ...]


class Count(NamedTuple):
    """One counter at the time of a snapshot."""

    name: str
    """Metric name, with the prefix `sharedmem_`."""
    labels: Labels
    """Pairs of label and value, sorted by label."""
    value: float


class Timing(NamedTuple):
    """How long one thing took, at the time of a snapshot."""

    name: str
    """Metric name, with the prefix `sharedmem_`, in seconds."""
    labels: Labels
    buckets: tuple[int, ...]
    """How many took at most each of `BUCKETS_S`, and how many longer: not summed up."""
    total_s: float

    @property
    def calls(self) -> int:
        """How often."""
        return sum(self.buckets)

    def quantile(self, share: float) -> float:
        """The time in seconds within which that share (0 to 1) of them ended, as exact as the buckets are."""
        wanted, seen = share * self.calls, 0
        for at, inside in enumerate(self.buckets):
            seen += inside
            if seen >= wanted and seen:
                return BUCKETS_S[at] if at < len(BUCKETS_S) else float("inf")
        return 0.0


class Counters:
    """Named counters that only go up, and timings; safe to use from several threads.

    Names come without the prefix (`increment("retries", call="write")`). Label values must come from a
    small fixed set, never from users' keys: every combination is kept for as long as the hub lives.
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[str, Labels], float] = {}
        self._timings: dict[tuple[str, Labels], tuple[list[int], list[float]]] = {}
        # The sync face and worker threads count too, and a dictionary's read and write are two steps.
        self._lock = threading.Lock()

    def increment(self, name: str, /, **labels: str) -> None:
        """Count one more."""
        self.add(name, 1, **labels)

    def add(self, name: str, amount: float, /, **labels: str) -> None:
        """Count an amount, such as tokens: 0 or more."""
        key = name, tuple(sorted(labels.items()))
        with self._lock:
            self._counts[key] = self._counts.get(key, 0) + amount

    def observe(self, name: str, seconds: float, /, **labels: str) -> None:
        """Note how long something took."""
        key = name, tuple(sorted(labels.items()))
        with self._lock:
            buckets, total = self._timings.setdefault(key, ([0] * (len(BUCKETS_S) + 1), [0.0]))
            buckets[bisect_left(BUCKETS_S, seconds)] += 1
            total[0] += seconds

    def read(self, name: str, /, **labels: str) -> float:
        """How often it was counted with exactly these labels; 0 when never."""
        return self._counts.get((name, tuple(sorted(labels.items()))), 0)

    def snapshot(self) -> list[Count]:
        """Every counter at one moment, sorted by name and labels, named as exporters show it."""
        with self._lock:
            counts = list(self._counts.items())
        return sorted(Count(_METRIC_PREFIX + name, labels, value) for (name, labels), value in counts)

    def timings(self) -> list[Timing]:
        """Every timing at one moment, sorted by name and labels."""
        with self._lock:
            found = [(key, tuple(buckets), total[0]) for key, (buckets, total) in self._timings.items()]
        return sorted(Timing(_METRIC_PREFIX + key[0], key[1], buckets, total) for key, buckets, total in found)

    def __repr__(self) -> str:
        return f"<Counters with {len(self._counts)} names and labels>"


logger = logging.getLogger("sharedmem")
logger.addHandler(logging.NullHandler())

_STANDARD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def get_logger(part: str) -> logging.Logger:
    """The logger `sharedmem.<part>`, a child of the one that applications configure."""
    return logger.getChild(part)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, whatever was given as `extra`, and the error if any."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        told = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        told |= {
            name: value for name, value in vars(record).items() if name not in _STANDARD_ATTRIBUTES and name not in told
        }
        if record.exc_info:
            told["error"] = self.formatException(record.exc_info)
        return json.dumps(told, default=str, ensure_ascii=False)


_TRACER_NAME = "sharedmem"


def span(name: str, **attributes: str | float | bool) -> AbstractContextManager[object]:
    """Make a piece of work a span.

    Costs next to nothing when OpenTelemetry is not installed; whether and where spans go is the application's choice.

    Args:
        name: of the work; the span is called `sharedmem.<name>`.
        attributes: what is told of it, never texts of users.
    """
    tracer = _tracer()
    if tracer is None:
        return nullcontext()
    named = {f"{_TRACER_NAME}.{key}": value for key, value in attributes.items()}
    entered: AbstractContextManager[object] = tracer.start_as_current_span(f"{_TRACER_NAME}.{name}", attributes=named)
    return entered


@cache
def _tracer() -> Any:
    try:
        from opentelemetry import trace  # noqa: PLC0415  # optional, and the application's to choose
    except ImportError:
        return None
    # A proxy until the application sets its provider, also later.
    return trace.get_tracer(_TRACER_NAME)


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
