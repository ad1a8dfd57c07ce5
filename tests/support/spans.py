"""Spans in memory, and the tree that they form."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest.mock import patch

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

Tree = list[Any]
"""A list of names of spans; the children of a span follow it as a list."""


@cache
def _recorder() -> tuple[TracerProvider, InMemorySpanExporter]:
    # Tracers stay with the first provider that they saw, so the tests of a process share it.
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider, exporter


class RecordedSpans:
    """The spans that have ended since the block began."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    def all(self) -> list[ReadableSpan]:
        """Return the spans in the order of their starts."""
        return sorted(self._exporter.get_finished_spans(), key=lambda one: one.start_time or 0)

    def one(self, name: str) -> ReadableSpan:
        """Return the only span of a name."""
        (found,) = [span for span in self.all() if span.name == name]
        return found

    def names(self) -> list[str]:
        """Return the names of the spans in the order of their starts."""
        return [span.name for span in self.all()]

    def tree(self) -> Tree:
        """Return the spans as a tree; spans of the same parent are in the order of their starts."""
        spans = self.all()
        known = {span.context.span_id for span in spans if span.context is not None}

        def below(parent: int | None) -> Tree:
            found: Tree = []
            for span in spans:
                above = None if span.parent is None or span.parent.span_id not in known else span.parent.span_id
                if above == parent and span.context is not None:
                    children = below(span.context.span_id)
                    found += [span.name, children] if children else [span.name]
            return found

        return below(None)


@contextmanager
def recorded_spans() -> Iterator[RecordedSpans]:
    """Record the spans of a block; before and after it the process has no provider, so that nothing is traced."""
    provider, exporter = _recorder()
    exporter.clear()
    # The public way to set a provider is once and for all.
    with patch.object(trace, "_TRACER_PROVIDER", provider):
        yield RecordedSpans(exporter)
    exporter.clear()
