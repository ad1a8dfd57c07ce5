"""Spans of OpenTelemetry, where the application has it; nothing where it has not."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

_NAME = "sharedmem"


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
    named = {f"{_NAME}.{key}": value for key, value in attributes.items()}
    entered: AbstractContextManager[object] = tracer.start_as_current_span(f"{_NAME}.{name}", attributes=named)
    return entered


@cache
def _tracer() -> Any:
    try:
        from opentelemetry import trace  # noqa: PLC0415  # optional, and the application's to choose
    except ImportError:
        return None
    # A proxy until the application sets its provider, also later.
    return trace.get_tracer(_NAME)
