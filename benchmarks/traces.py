"""The cost of traces: a search of memory with spans, with spans of Redis too, and without any.

python benchmarks/traces.py            10,000 memories, a minute or so
python benchmarks/traces.py --quick    few and short rounds

The sides run in turn in one process on one event loop. A process can have one tracer provider, so the rounds without
spans run as if the library of OpenTelemetry were not installed. Spans go through a batch processor to an exporter that
drops them: what the exporter does is the application's choice. The figure is the median of the ratios of neighbouring
rounds; the CPU time is that of the whole process.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Sequence

from harness import private_server
from memory_data import TableEmbedder, fill, queries, settings_of, words
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from sharedmem import Hub
from sharedmem.memory.memories import Memories
from sharedmem.runtime import telemetry

SIZE, NAMESPACE = 10_000, "bench"
MOST = 1.15
"""The most time of a search with spans, as a multiple of one without."""


class DroppingExporter(SpanExporter):
    """Drops spans."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Drop spans."""
        del spans
        return SpanExportResult.SUCCESS


def main() -> int:
    """Measure a search with spans and without."""
    parser = argparse.ArgumentParser(description="What traces cost.")
    parser.add_argument("--quick", action="store_true", help="few and short rounds: a first impression")
    rounds, calls = (5, 100) if parser.parse_args().quick else (41, 300)
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(DroppingExporter()))
    with private_server() as server:
        ratios = asyncio.run(_measured(server.urls["unix"], provider, rounds, calls))
    is_met = True
    for side, found in ratios.items():
        wall, cpu = (statistics.median(pair[at] for pair in found) for at in (0, 1))
        print(f"memory.search {side}: {wall:.3f} x the time, {cpu:.3f} x the CPU of one without")
        is_met = is_met and wall <= MOST
    return 0 if is_met else 1


async def _measured(
    url: str, provider: TracerProvider, rounds: int, calls: int
) -> dict[str, list[tuple[float, float]]]:
    """Return the ratios (time, CPU) of each round, by side."""
    await fill(url, NAMESPACE, SIZE)
    plain = settings_of(url, SIZE)
    ratios: dict[str, list[tuple[float, float]]] = {"with spans": [], "with spans of Redis too": []}
    async with (
        Hub.open(settings=plain, embedder=TableEmbedder()) as hub,
        Hub.open(settings=plain.replace(trace_redis=True), embedder=TableEmbedder()) as deep,
    ):
        sides = (hub.store(NAMESPACE).memory, deep.store(NAMESPACE).memory)
        trace.set_tracer_provider(provider)
        for side in sides:
            await _round(side, calls, is_traced=True)
        for _ in range(rounds):
            for name, side in zip(ratios, sides, strict=True):
                without = await _round(sides[0], calls, is_traced=False)
                spent = await _round(side, calls, is_traced=True)
                ratios[name].append((spent[0] / without[0], spent[1] / without[1]))
    return ratios


async def _round(memory: Memories, calls: int, *, is_traced: bool) -> tuple[float, float]:
    """Return (seconds, CPU seconds) of some searches, one after the other."""
    asked = queries(words())
    found = telemetry._tracing_api  # noqa: SLF001  # the switch is the provider of the process, which cannot be taken away
    if not is_traced:
        telemetry._tracing_api = lambda: None  # type: ignore[assignment]  # noqa: SLF001  # likewise
    try:
        began, began_cpu = time.perf_counter(), time.process_time()
        for number in range(calls):
            await memory.search(asked[number % len(asked)])
        return time.perf_counter() - began, time.process_time() - began_cpu
    finally:
        telemetry._tracing_api = found  # noqa: SLF001  # likewise


if __name__ == "__main__":
    sys.exit(main())
