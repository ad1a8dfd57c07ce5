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

# In seconds: from a call on this machine to a slow provider.
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
    """Durations of one operation, at the time of a snapshot."""

    name: str
    """Metric name, with the prefix `sharedmem_`, in seconds."""
    labels: Labels
    buckets: tuple[int, ...]
    """Number of calls in each interval of `BUCKETS_S`, and of longer ones: not cumulative."""
    total_s: float

    @property
    def calls(self) -> int:
        """The number of calls."""
        return sum(self.buckets)

    def quantile(self, share: float) -> float:
        """Return the seconds within which a share (0 to 1) of the calls ended, as exact as the buckets are."""
        target, seen = share * self.calls, 0
        for at, inside in enumerate(self.buckets):
            seen += inside
            if seen >= target and seen:
                return BUCKETS_S[at] if at < len(BUCKETS_S) else float("inf")
        return 0.0


class Counters:
    """Named counters that only rise, and timings; safe to use from several threads.

    Names have no prefix here (`increment("retries", call="write")`). Label values must come from a small fixed set,
    never from users' keys: every combination is stored for as long as the hub is open.
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[str, Labels], float] = {}
        self._timings: dict[tuple[str, Labels], tuple[list[int], list[float]]] = {}
        # The sync API and worker threads count too, and a dictionary's read and write are two steps.
        self._lock = threading.Lock()

    def increment(self, name: str, /, **labels: str) -> None:
        """Increment a counter."""
        self.add(name, 1, **labels)

    def add(self, name: str, amount: float, /, **labels: str) -> None:
        """Add an amount to a counter, such as tokens: 0 or more."""
        key = name, tuple(sorted(labels.items()))
        with self._lock:
            self._counts[key] = self._counts.get(key, 0) + amount

    def observe(self, name: str, seconds: float, /, **labels: str) -> None:
        """Record a duration."""
        key = name, tuple(sorted(labels.items()))
        with self._lock:
            buckets, total = self._timings.setdefault(key, ([0] * (len(BUCKETS_S) + 1), [0.0]))
            buckets[bisect_left(BUCKETS_S, seconds)] += 1
            total[0] += seconds

    def read(self, name: str, /, **labels: str) -> float:
        """Return a counter with exactly these labels; 0 if it was never incremented."""
        return self._counts.get((name, tuple(sorted(labels.items()))), 0)

    def snapshot(self) -> list[Count]:
        """Return every counter at one moment, sorted by name and labels, under the names that exporters show."""
        with self._lock:
            counts = list(self._counts.items())
        return sorted(Count(_METRIC_PREFIX + name, labels, value) for (name, labels), value in counts)

    def timings(self) -> list[Timing]:
        """Return every timing at one moment, sorted by name and labels."""
        with self._lock:
            found = [(key, tuple(buckets), total[0]) for key, (buckets, total) in self._timings.items()]
        return sorted(Timing(_METRIC_PREFIX + key[0], key[1], buckets, total) for key, buckets, total in found)

    def __repr__(self) -> str:
        return f"<Counters with {len(self._counts)} names and labels>"


logger = logging.getLogger("sharedmem")
logger.addHandler(logging.NullHandler())

_STANDARD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def get_logger(part: str) -> logging.Logger:
    """Return the logger `sharedmem.<part>`, a child of the one that applications configure."""
    return logger.getChild(part)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, the fields of `extra`, and the error if any."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a log record as one line."""
        fields = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields |= {
            name: value
            for name, value in vars(record).items()
            if name not in _STANDARD_ATTRIBUTES and name not in fields
        }
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str, ensure_ascii=False)


_TRACER_NAME = "sharedmem"


def span(name: str, **attributes: str | float | bool) -> AbstractContextManager[object]:
    """Return a context manager that runs its block as a span.

    Costs almost nothing without OpenTelemetry; the application decides whether and where spans are exported.

    Args:
        name: name of the work; the span is called `sharedmem.<name>`.
        attributes: attributes of the span, never texts of users.
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
        from opentelemetry import trace  # noqa: PLC0415  # optional, the application decides
    except ImportError:
        return None
    # A proxy until the application sets its provider, even if that is later.
    return trace.get_tracer(_TRACER_NAME)


_Method = TypeVar("_Method", bound=Callable[..., Coroutine[Any, Any, Any]])


class Measured(Protocol):
    """An object whose calls are measured."""

    @property
    def _counters(self) -> Counters: ...


def measured(operation: str) -> Callable[[_Method], _Method]:
    """Time each call of a method as `operation_seconds{operation=...}`, count its failures by code, run it as a span.

    Args:
        operation: `memory.search`; the class of the method must be `Measured`.
    """

    def decorate(method: _Method) -> _Method:
        @wraps(method)
        async def call(self: Measured, *args: Any, **kwargs: Any) -> Any:
            counters = self._counters  # the measured object has the counters
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
