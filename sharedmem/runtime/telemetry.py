"""Telemetry of a hub: counters, gauges and histograms, spans of OpenTelemetry, and request units that a call causes.

A decorator times, counts and traces a call; trace contexts are those of W3C. No span is created until the application
sets a tracer provider; the provider decides where spans go.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from contextvars import ContextVar, Token
from functools import cache, wraps
from types import TracebackType
from typing import Any, Literal, NamedTuple, Protocol, Self, TypeVar, cast

from sharedmem.errors import SharedMemoryError

_METRIC_PREFIX = "sharedmem_"

# In seconds: from a call on this machine to a slow provider.
BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.5, 1.0, 2.5, 10.0)
_SIZE_BUCKETS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000)
"""Items in one batch."""
_OPERATION_SECONDS = "operation_seconds"
_TWO = 2
_MOST_RECORDED = 128

Labels = tuple[tuple[str, str], ...]
MetricKey = tuple[str, Labels]
"""A name without prefix, and its labels: as `metric_key` returns them."""
_Observations = tuple[list[int], list[float]]
"""The number of observations in each interval, and their sum."""
_Record = tuple[Callable[..., None], Any, Any]
"""A method that adds up, and its arguments."""


def metric_key(name: str, /, **labels: str) -> MetricKey:
    """Return the key of a metric with these labels, for `add_to` and `observe_at`: work that each call would repeat."""
    return name, _labels_of(labels)


def _labels_of(labels: dict[str, str]) -> Labels:
    return tuple(labels.items()) if len(labels) < _TWO else tuple(sorted(labels.items()))


class Count(NamedTuple):
    """One counter at the time of a snapshot."""

    name: str
    """Metric name, with the prefix `sharedmem_`."""
    labels: Labels
    """Pairs of label and value, sorted by label."""
    value: float


class Gauge(NamedTuple):
    """A value that rises and falls, at the time of a snapshot."""

    name: str
    """Metric name, with the prefix `sharedmem_`."""
    labels: Labels
    value: float


class Histogram(NamedTuple):
    """Durations or sizes of one kind, at the time of a snapshot."""

    name: str
    """Metric name, with the prefix `sharedmem_`."""
    labels: Labels
    bounds: tuple[float, ...]
    """Upper bounds of the intervals; the last interval has none."""
    buckets: tuple[int, ...]
    """Number of observations in each interval: not cumulative."""
    total: float
    """The sum of all observations."""


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
    """Named counters that only rise, gauges, timings and sizes; safe to use from several threads.

    Names have no prefix here (`increment("retries", call="write")`). Label values must come from a small fixed set,
    never from users' keys: every combination is stored for as long as the hub is open.
    """

    def __init__(self) -> None:
        # What was counted since the last look. A call only appends to it, which any thread may do at any time: that
        # touches little memory. To add it up takes longer, and less for many records at once.
        self._recorded: deque[_Record] = deque()
        self._counts: dict[MetricKey, float] = {}
        self._timings: dict[MetricKey, _Observations] = {}
        self._sizes: dict[MetricKey, _Observations] = {}
        self._under_way: dict[str, int] = {}
        self._gauges: dict[MetricKey, Callable[[], float]] = {}
        self._lock = threading.Lock()

    def increment(self, name: str, /, **labels: str) -> None:
        """Increment a counter."""
        self.add_to((name, _labels_of(labels)), 1)

    def add(self, name: str, amount: float, /, **labels: str) -> None:
        """Add an amount to a counter, such as tokens: 0 or more."""
        self.add_to((name, _labels_of(labels)), amount)

    def add_to(self, key: MetricKey, amount: float) -> None:
        """Add an amount to the counter of a key: 0 or more."""
        self._record(Counters._add, key, amount)

    def observe(self, name: str, seconds: float, /, **labels: str) -> None:
        """Record a duration."""
        self.observe_at((name, _labels_of(labels)), seconds)

    def observe_at(self, key: MetricKey, seconds: float) -> None:
        """Record a duration under a key."""
        self._record(Counters._observe, key, seconds)

    def observe_batch(self, operation: str, size: int, outcomes: Iterable[tuple[MetricKey, int]] = ()) -> None:
        """Record a batch: `batch_operations` counts it, `batch_size` is the histogram of the sizes.

        Args:
            operation: what is done to the items of a batch, such as `memory.add`.
            size: number of items.
            outcomes: further counters, and how many items to add to each; a counter with 0 items stays as it is.
        """
        self._record(Counters._observe_batch, operation, (size, outcomes))

    def begin(self, operation: str) -> float:
        """Count a call of an operation as under way, and return when it began, for `end`."""
        self._recorded.append((Counters._begin, operation, None))
        return time.perf_counter()

    def end(self, operation: str, began: float) -> None:
        """Record the duration of a call that `begin` has counted."""
        self._record(Counters._end, operation, time.perf_counter() - began)

    def register_gauge(self, name: str, read: Callable[[], float], /, **labels: str) -> None:
        """Show a value in metrics; it is read at each snapshot, perhaps from another thread.

        Args:
            name: name without prefix.
            read: returns the value at once.
            labels: labels of the gauge.
        """
        self._gauges[name, _labels_of(labels)] = read

    def read(self, name: str, /, **labels: str) -> float:
        """Return a counter with exactly these labels; 0 if it was never incremented."""
        self._add_up()
        return self._counts.get((name, _labels_of(labels)), 0)

    def snapshot(self) -> list[Count]:
        """Return every counter at one moment, sorted by name and labels, under the names that exporters show."""
        self._add_up()
        with self._lock:
            counts = list(self._counts.items())
        return sorted(Count(_METRIC_PREFIX + name, labels, value) for (name, labels), value in counts)

    def timings(self) -> list[Timing]:
        """Return every timing at one moment, sorted by name and labels."""
        self._add_up()
        with self._lock:
            found = [(key, tuple(buckets), total[0]) for key, (buckets, total) in self._timings.items()]
        return sorted(Timing(_METRIC_PREFIX + key[0], key[1], buckets, total) for key, buckets, total in found)

    def histograms(self) -> list[Histogram]:
        """Return the timings, then the sizes of batches, at one moment; each sorted by name and labels."""
        timed = [Histogram(one.name, one.labels, BUCKETS_S, one.buckets, one.total_s) for one in self.timings()]
        with self._lock:
            found = [(key, tuple(buckets), total[0]) for key, (buckets, total) in self._sizes.items()]
        sizes = [
            Histogram(_METRIC_PREFIX + key[0], key[1], _SIZE_BUCKETS, counts, total) for key, counts, total in found
        ]
        return [*timed, *sorted(sizes)]

    def gauges(self) -> list[Gauge]:
        """Return every gauge, sorted by name and labels: those registered, and the calls under way by operation."""
        self._add_up()
        with self._lock:
            running = list(self._under_way.items())
        under_way = [
            Gauge(f"{_METRIC_PREFIX}operations_under_way", (("operation", operation),), count)
            for operation, count in running
        ]
        found: list[Gauge] = []
        for (name, labels), read in list(self._gauges.items()):
            # A collection may change while this thread counts it: the next snapshot has the value again.
            with suppress(RuntimeError):
                found.append(Gauge(_METRIC_PREFIX + name, labels, read()))
        return sorted([*under_way, *found])

    def __repr__(self) -> str:
        self._add_up()
        return f"<Counters with {len(self._counts)} names and labels>"

    def _record(self, apply: Callable[..., None], key: object, value: object) -> None:
        recorded = self._recorded
        recorded.append((apply, key, value))
        if len(recorded) >= _MOST_RECORDED:
            self._add_up()

    def _add_up(self) -> None:
        recorded = self._recorded
        # Only the holder of the lock takes a record out, so there are at least as many as counted here.
        with self._lock:
            for _ in range(len(recorded)):
                apply, key, value = recorded.popleft()
                apply(self, key, value)

    def _add(self, key: MetricKey, amount: float) -> None:
        self._counts[key] = self._counts.get(key, 0) + amount

    def _observe(self, key: MetricKey, seconds: float) -> None:
        _observe_in(self._timings, key, BUCKETS_S, seconds)

    def _observe_batch(self, operation: str, batch: tuple[int, Iterable[tuple[MetricKey, int]]]) -> None:
        size, outcomes = batch
        self._add(("batch_operations", (("operation", operation),)), 1)
        _observe_in(self._sizes, ("batch_size", (("operation", operation),)), _SIZE_BUCKETS, size)
        for key, items in outcomes:
            if items:
                self._add(key, items)

    def _begin(self, operation: str, _: None) -> None:
        self._under_way[operation] = self._under_way.get(operation, 0) + 1

    def _end(self, operation: str, seconds: float) -> None:
        self._under_way[operation] -= 1
        self._observe((_OPERATION_SECONDS, (("operation", operation),)), seconds)


def _observe_in(
    held: dict[MetricKey, _Observations], key: MetricKey, bounds: tuple[float, ...], observed: float
) -> None:
    found = held.get(key)
    if found is None:
        found = held[key] = [0] * (len(bounds) + 1), [0.0]
    found[0][bisect_left(bounds, observed)] += 1
    found[1][0] += observed


# -- spans ---------------------------------------------------------------------------------------


TRACEPARENT = "traceparent"
"""Name of the header, the metadata and the field that carries a trace context of W3C."""

AttributeValue = str | int | float | bool | tuple[str, ...]
SpanRole = Literal["internal", "server", "client", "producer", "consumer"]

_TRACER_NAME = "sharedmem"
_NO_SPAN: AbstractContextManager[None] = nullcontext()
_MOST_TEXT = 10_000
_MOST_RECORDS = 100


class ActiveSpan:
    """A span that is current inside of its block; it has ended after the block.

    An error in the block becomes the attribute `error.type`: its code, or its class. Messages of errors may quote
    values of users, so they are left out.

    Args:
        span: the started span.
    """

    __slots__ = ("_span", "_token")

    def __init__(self, span: Any) -> None:
        self._span = span

    def set(self, attributes: Mapping[str, AttributeValue]) -> None:
        """Set attributes; later values replace earlier ones."""
        self._span.set_attributes(attributes)

    def rename(self, name: str) -> None:
        """Give the span a name that is known only now, such as the route of a request."""
        self._span.update_name(name)

    def fail(self, error_type: str) -> None:
        """Mark the work as failed.

        Args:
            error_type: code of the error, or a status; from a small fixed set.
        """
        self._span.set_attribute("error.type", error_type)
        self._span.set_status(_tracing_api().StatusCode.ERROR)

    def __enter__(self) -> Self:
        self._token = _context_api().attach(_tracing_api().set_span_in_context(self._span))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, GeneratorExit | asyncio.CancelledError):
            self.fail(error.code if isinstance(error, SharedMemoryError) else type(error).__qualname__)
        _context_api().detach(self._token)
        self._span.end()


def span(name: str, **attributes: str | float | bool) -> AbstractContextManager[ActiveSpan | None]:
    """Return a context manager that runs its block as a span.

    Costs almost nothing until the application sets a tracer provider of OpenTelemetry, which decides where spans go.

    Args:
        name: name of the work; the span is called `sharedmem.<name>`.
        attributes: attributes of the span, never texts of users.

    Returns:
        The context manager; it yields None where no span is created.
    """
    if _tracer() is None:
        return _NO_SPAN
    named = {f"{_TRACER_NAME}.{key}": value for key, value in attributes.items()}
    return work_span(f"{_TRACER_NAME}.{name}", named)


def work_span(
    name: str, attributes: Mapping[str, AttributeValue], *, role: SpanRole = "internal", traceparent: str | None = None
) -> AbstractContextManager[ActiveSpan | None]:
    """As `span`, with names and attributes of a convention.

    Args:
        name: name of the span.
        attributes: attributes by their whole names.
        role: kind of the span.
        traceparent: trace context of the parent in another process; if None or invalid, the current span is the parent.
    """
    tracer = _tracer()
    if tracer is None:
        return _NO_SPAN
    kind = _kinds()[role]
    parent = _context_of(traceparent)
    return ActiveSpan(tracer.start_span(name, context=parent, kind=kind, attributes=attributes))


def is_tracing() -> bool:
    """Return whether the application has set a tracer provider."""
    return _tracer() is not None


def is_in_span() -> bool:
    """Return whether a recorded span is current."""
    return _tracer() is not None and bool(_tracing_api().get_current_span().is_recording())


def current_traceparent() -> str | None:
    """Return the trace context of the current span in the form of W3C; None without a span."""
    if _tracer() is None:
        return None
    carrier: dict[str, str] = {}
    _propagator().inject(carrier)
    return carrier.get(TRACEPARENT)


def trace_headers() -> dict[str, str]:
    """Return the headers of W3C that carry the current span to another process; empty without a span."""
    if _tracer() is None:
        return {}
    carrier: dict[str, str] = {}
    _propagator().inject(carrier)
    return carrier


def link_current(traceparent: str | None) -> None:
    """Link the current span to a span of another process; nothing happens without either."""
    if traceparent is None or not is_in_span():
        return
    trace = _tracing_api()
    linked = trace.get_current_span(_context_of(traceparent)).get_span_context()
    if linked.is_valid:
        trace.get_current_span().add_link(linked)


# -- memory operations ----------------------------------------------------------------------------


class StoreTrace(NamedTuple):
    """What spans say about a store of memories."""

    store_id: str
    """The namespace."""
    with_content: bool
    """Whether spans have the text of queries and records (setting `trace_content`)."""


class TracedRecord(NamedTuple):
    """A record in the result of a memory operation."""

    id: str
    content: str | None = None


class MemoryOperation(NamedTuple):
    """A memory operation of the GenAI conventions of OpenTelemetry."""

    name: Literal["search_memory", "create_memory", "update_memory", "delete_memory"]
    records: Callable[[tuple[Any, ...], Any], Iterable[TracedRecord]]
    """Returns the records of a call from its arguments and its result."""
    has_query: bool = False
    """Whether the first argument is the text of a query."""

    def start(self, operation: str, owner: Any, args: tuple[Any, ...]) -> AbstractContextManager[ActiveSpan | None]:
        """Start the span of a call.

        Args:
            operation: name of the operation in sharedmem, such as `memory.search`.
            owner: the object of the call, with its `StoreTrace` as `_trace`.
            args: positional arguments of the call.
        """
        if _tracer() is None:
            return _NO_SPAN
        about: StoreTrace = owner._trace  # noqa: SLF001  # as `measured` uses its counters
        attributes: dict[str, AttributeValue] = {
            "gen_ai.operation.name": self.name,
            "gen_ai.provider.name": _TRACER_NAME,
            "gen_ai.memory.store.id": about.store_id,
            "sharedmem.operation": operation,
        }
        if about.with_content and self.has_query and args:
            attributes["gen_ai.memory.query.text"] = str(args[0])[:_MOST_TEXT]
        return work_span(f"{self.name} {about.store_id}", attributes)

    def describe(self, active: ActiveSpan, owner: Any, args: tuple[Any, ...], found: Any) -> None:
        """Set the attributes of a result."""
        about: StoreTrace = owner._trace  # noqa: SLF001  # as `measured` uses its counters
        records = list(self.records(args, found))
        attributes: dict[str, AttributeValue] = {"sharedmem.memory.record_count": len(records)}
        if len(records) == 1:
            attributes["gen_ai.memory.record.id"] = records[0].id
        if about.with_content:
            shown = [
                {"id": one.id} if one.content is None else {"id": one.id, "content": one.content[:_MOST_TEXT]}
                for one in records[:_MOST_RECORDS]
            ]
            attributes["gen_ai.memory.records"] = json.dumps(shown, ensure_ascii=False)
        active.set(attributes)


# -- the library ----------------------------------------------------------------------------------


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
            began = counters.begin(operation)
            try:
                if _tracer() is None:
                    return await method(self, *args, **kwargs)
                return await traced(self, *args, **kwargs)
            except SharedMemoryError as error:
                counters.increment("operation_failures", operation=operation, code=error.code)
                raise
            finally:
                counters.end(operation, began)

        async def traced(self: Measured, *args: Any, **kwargs: Any) -> Any:
            with span(operation) if memory is None else memory.start(operation, self, args) as active:
                found = await method(self, *args, **kwargs)
                if active is not None and memory is not None:
                    memory.describe(active, self, args, found)
                return found

        return cast("_Method", call)

    return decorate


def _tracer() -> Any:
    """Return the tracer of the application; None while it has set no provider: spans that end nowhere cost time."""
    trace = _tracing_api()
    # The provider that was set is private to the API, which looks into the environment at each question until then.
    if trace is None or (getattr(trace, "_TRACER_PROVIDER", trace) is None and not _is_provider_named()):
        return None
    if isinstance(trace.get_tracer_provider(), _unset_providers()):
        return None
    return _named_tracer()


@cache
def _is_provider_named() -> bool:
    return "OTEL_PYTHON_TRACER_PROVIDER" in os.environ


def _context_of(traceparent: str | None) -> Any:
    """Return the context of a parent in another process; None for the current one."""
    if traceparent is None:
        return None
    found = _propagator().extract({TRACEPARENT: traceparent}, context=_context_api().Context())
    return found if _tracing_api().get_current_span(found).get_span_context().is_valid else None


@cache
def _tracing_api() -> Any:
    try:
        from opentelemetry import trace  # noqa: PLC0415  # optional, the application decides
    except ImportError:
        return None
    return trace


@cache
def _context_api() -> Any:
    from opentelemetry import context  # noqa: PLC0415  # optional, the application decides

    return context


@cache
def _propagator() -> Any:
    from opentelemetry.trace.propagation import tracecontext  # noqa: PLC0415  # optional, the application decides

    return tracecontext.TraceContextTextMapPropagator()


@cache
def _kinds() -> dict[SpanRole, Any]:
    kinds = _tracing_api().SpanKind
    return {
        "internal": kinds.INTERNAL,
        "server": kinds.SERVER,
        "client": kinds.CLIENT,
        "producer": kinds.PRODUCER,
        "consumer": kinds.CONSUMER,
    }


@cache
def _unset_providers() -> tuple[type, ...]:
    trace = _tracing_api()
    return trace.ProxyTracerProvider, trace.NoOpTracerProvider


@cache
def _named_tracer() -> Any:
    return _tracing_api().get_tracer(_TRACER_NAME)


# -- request units -------------------------------------------------------------------------------


class ChargedUnits:
    """Adds up the request units that are charged in its block, and in the tasks that the block starts.

    A task that another caller has started, and whose result several callers share, is charged to that caller.
    """

    def __init__(self) -> None:
        self.units = 0.0
        self._outer: Token[ChargedUnits | None] | None = None

    def __enter__(self) -> Self:
        self._outer = _CHARGED.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._outer is not None
        _CHARGED.reset(self._outer)


_CHARGED: ContextVar[ChargedUnits | None] = ContextVar("request units of the current call", default=None)


def charge(units: float) -> None:
    """Add the units of one request to the call that made it."""
    charged = _CHARGED.get()
    if charged is not None:
        charged.units += units
