"""Spans of OpenTelemetry, the trace context of W3C, and the decorator that times, counts and traces a call.

No span is created until the application sets a tracer provider; the provider decides where spans go.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cache, wraps
from types import TracebackType
from typing import Any, Literal, NamedTuple, Protocol, Self, TypeVar, cast

from sharedmem.errors import SharedMemoryError
from sharedmem.runtime.counters import Counters

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
