"""The cost of metrics and logs: an addition, a write and a search with them, and without any.

python benchmarks/telemetry.py            10,000 memories, five minutes or so
python benchmarks/telemetry.py --quick    few rounds
python benchmarks/telemetry.py --page docs/metrics.md

The side with them counts, times and logs each call at INFO as JSON lines into a file. The side without has counters
that count nothing, and calls the methods below the decorator that measures them. The sides take turns of a few calls in
one process, and each turn is compared with its neighbor, so that a busy machine slows both; what a turn has counted and
logged is added up and written before its CPU time is read. A second side without shows how far to trust the ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import inspect
import logging
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from bench_report import Results, Row, Verdict, factor, put_on_page, save, show
from harness import Call, Comparison, Figures, Fleet, Load, Server, WorkerState, machine, percentile
from harness import private_server as started_server
from memory_data import TableEmbedder, fill, queries, settings_of, text_of, words

from sharedmem import Hub
from sharedmem.runtime import Counters, logger
from sharedmem.runtime.log_output import LogOutput
from sharedmem.runtime.telemetry import MetricKey

FULL_ROUNDS, QUICK_ROUNDS = 60, 20
CALLS_PER_TURN = 40
RESULTS = Path(__file__).parent / "results" / "telemetry.json"
ONE, FIFTY = Load("1 task"), Load("50 tasks", tasks=50)
ON, OFF, AGAIN = "with metrics and log", "without", "without, again"
SIZE = 10_000
NAMESPACE = "bench"
MOST = {"search": 1.05, "write": 1.03, "add": 1.03}
"""The most CPU time of the client for a call with metrics and log, as a multiple of that without.

Searches come first: additions fill the namespace.
"""
# A number for each addition, unique in this process and in the namespace.
_numbers = count(10_000_000)


def main() -> int:
    """Measure both sides of each call."""
    asked = _arguments()
    rounds = QUICK_ROUNDS if asked.quick else FULL_ROUNDS
    with started_server() as server, Fleet(1) as fleet:
        results = Results(machine() | {"server": server.version}, asked.quick)
        fleet.ask(1, filled, server.urls["unix"])
        for name in MOST:
            for load in (ONE, FIFTY):
                print(f"{name}, {load.name}", file=sys.stderr, flush=True)
                (measured,) = fleet.ask(1, turns, server.urls["unix"], name, load.tasks, rounds)
                results.rows += _rows(name, load, Comparison(measured))
    goals = [_goal(results, name) for name in MOST]
    show(results, goals, title="with metrics and log / without")
    save(results, goals, asked.json)
    if asked.page:
        put_on_page(results, goals, asked.page, part="telemetry")
    return 0


def _rows(name: str, load: Load, compared: Comparison) -> Iterable[Row]:
    for contest, side in ((name, ON), (f"{name}, noise", AGAIN)):
        figures = compared.medians(side), compared.medians(OFF), compared.ratios(side, OFF)
        yield Row(contest, "the same call", load.name, "unix", OFF, *figures)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What metrics and logs cost.")
    parser.add_argument("--quick", action="store_true", help="few rounds: a first impression")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="PATH", help="where the figures go")
    parser.add_argument("--page", type=Path, metavar="PATH", help="a page whose figures to replace")
    return parser.parse_args()


def _goal(results: Results, name: str) -> Verdict:
    (row,), (noise,) = results.find(name, ONE), results.find(f"{name}, noise", ONE)
    shown = f"{row.ratios.client_us:.3f} x CPU, {row.ratios.p50_us:.3f} x p50 (without twice: "
    shown += f"{noise.ratios.client_us:.3f} x, {noise.ratios.p50_us:.3f} x)"
    return Verdict(
        f"{name}: at most {factor(MOST[name])} the client's CPU, 1 task", shown, row.ratios.client_us <= MOST[name]
    )


async def filled(_: WorkerState, url: str) -> None:
    """Run a job: fill the namespace."""
    await fill(url, NAMESPACE, SIZE)


# -- turns -----------------------------------------------------------------------------------------


async def turns(_: WorkerState, url: str, name: str, tasks: int, rounds: int) -> dict[str, list[Figures]]:
    """Run a job: let the sides of a call take turns."""
    opener = {"add": add, "write": write, "search": search}[name]
    sides = [ON, OFF, AGAIN]
    found: dict[str, list[Figures]] = {side: [] for side in sides}
    async with AsyncExitStack() as stack:
        server = stack.enter_context(closing(Server(url, "")))
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="sm-telemetry-"))
        stack.callback(LogOutput("info", "json", Path(folder) / "calls.log").close)
        opened = {side: await stack.enter_async_context(opener(url, measured=side == ON)) for side in sides}
        for number in range(rounds):
            at = number % len(sides)
            for side in sides[at:] + sides[:at]:
                logger.setLevel(logging.INFO if side == ON else logging.ERROR)
                found[side].append(await _turn(opened[side], server, tasks))
    return found


class _Side(NamedTuple):
    call: Call
    hub: Hub


async def _turn(side: _Side, server: Server, tasks: int) -> Figures:
    latencies: list[int] = []
    numbers = count()
    each = max(1, CALLS_PER_TURN // tasks)

    async def work() -> None:
        now = time.perf_counter_ns
        for _ in range(each):
            begun = now()
            await side.call(next(numbers))
            latencies.append(now() - begun)

    await side.call(next(numbers))
    gc.collect()
    server_s, begun, cpu_s = server.cpu_s(), time.monotonic(), time.process_time()
    await (work() if tasks == 1 else asyncio.gather(*(work() for _ in range(tasks))))
    seconds = time.monotonic() - begun
    side.hub.counters.timings()
    for handler in logger.handlers:
        handler.flush()
    cpu_s = time.process_time() - cpu_s
    server_s = server.cpu_s() - server_s
    calls, latencies = len(latencies), sorted(latencies)
    p50, p99 = (percentile(latencies, share) / 1000 for share in (0.50, 0.99))
    return Figures(calls / seconds, p50, p99, cpu_s / calls * 1e6, server_s / calls * 1e6)


# -- sides -----------------------------------------------------------------------------------------


class SilentCounters(Counters):
    """Counters that count nothing."""

    def add(self, name: str, amount: float, /, **labels: str) -> None:
        """Do nothing."""

    def increment(self, name: str, /, **labels: str) -> None:
        """Do nothing."""

    def observe(self, name: str, seconds: float, /, **labels: str) -> None:
        """Do nothing."""

    def add_to(self, key: MetricKey, amount: float) -> None:
        """Do nothing."""

    def observe_at(self, key: MetricKey, seconds: float) -> None:
        """Do nothing."""

    def observe_batch(self, operation: str, size: int, outcomes: Iterable[tuple[MetricKey, int]] = ()) -> None:
        """Do nothing."""

    def begin(self, operation: str) -> float:  # noqa: ARG002  # as `Counters`
        """Do nothing."""
        return 0.0

    def end(self, operation: str, began: float) -> None:
        """Do nothing."""


@asynccontextmanager
async def add(url: str, *, measured: bool) -> AsyncIterator[_Side]:
    """Add new memories."""
    vocabulary = words()
    texts = [text_of(number, vocabulary) for number in range(1_000)]
    async with _hub(url, measured=measured) as hub:
        run = _method(hub.store(NAMESPACE).memory.add, measured=measured)

        async def call(_: int) -> object:
            number = next(_numbers)
            return await run(f"{texts[number % 1_000]} n{number}", user_id=f"user-{number % 10}", category="note")

        yield _Side(call, hub)


@asynccontextmanager
async def write(url: str, *, measured: bool) -> AsyncIterator[_Side]:
    """Write values, which are neither timed nor logged: their counters are those of the connection."""
    async with _hub(url, measured=measured) as hub:
        store = hub.store(NAMESPACE)

        async def call(number: int) -> object:
            return await store.write(f"value-{number % 100}", {"number": number, "text": "x" * 100})

        yield _Side(call, hub)


@asynccontextmanager
async def search(url: str, *, measured: bool) -> AsyncIterator[_Side]:
    """Search by words and by meaning."""
    asked = queries(words())
    async with _hub(url, measured=measured) as hub:
        run = _method(hub.store(NAMESPACE).memory.search, measured=measured)
        yield _Side(lambda number: run(asked[number % len(asked)]), hub)


def _method(method: Callable[..., Awaitable[Any]], *, measured: bool) -> Callable[..., Awaitable[Any]]:
    """Return a bound method with or without the decorator that measures it."""
    if measured:
        return method
    return partial(inspect.unwrap(method), getattr(method, "__self__"))  # noqa: B009  # typed as a function here


@asynccontextmanager
async def _hub(url: str, *, measured: bool) -> AsyncIterator[Hub]:
    counted = Counters if measured else SilentCounters
    with patch("sharedmem.hub.composition.Counters", counted):
        async with Hub.open(settings=settings_of(url, SIZE), embedder=TableEmbedder()) as hub:
            yield hub


if __name__ == "__main__":
    sys.exit(main())
