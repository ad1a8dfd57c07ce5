"""The cost of metrics and logs: a write and a search with them, and without any.

python benchmarks/telemetry.py            10,000 memories, three minutes or so
python benchmarks/telemetry.py --quick    few and short rounds
python benchmarks/telemetry.py --page docs/metrics.md

The side with them counts, times and logs each call at INFO as JSON lines into a file. The side without has counters
that count nothing, and calls the methods below the decorator that measures them.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench_report import Results, Row, Verdict, factor, put_on_page, save, show
from harness import Call, Effort, Fleet, Load, WorkerState, close_sides, compare, machine, open_sides
from harness import private_server as started_server
from memory_data import TableEmbedder, fill, queries, settings_of, text_of, words

from sharedmem import Hub
from sharedmem.runtime import Counters
from sharedmem.runtime.log_output import LogOutput

FULL, QUICK = Effort(rounds=41, seconds=0.25), Effort(rounds=3, seconds=0.3)
RESULTS = Path(__file__).parent / "results" / "telemetry.json"
ONE, FIFTY = Load("1 task"), Load("50 tasks", tasks=50)
ON, OFF = "with metrics and log", "without"
SIZE = 10_000
NAMESPACE = "bench"
MOST = {"add": 1.03, "search": 1.05}
"""The most CPU time of the client for a call with metrics and log, as a multiple of that without."""
# A number for each addition, unique in this process and in the namespace.
_numbers = count(10_000_000)
_log: list[LogOutput] = []
"""The log while a side with it is measured: a process has one logger, which the sides share."""


def main() -> int:
    """Measure both sides of a write and of a search."""
    asked = _arguments()
    effort = QUICK if asked.quick else FULL
    with started_server() as server, Fleet(1) as fleet:
        results = Results(machine() | {"server": server.version}, asked.quick)
        fleet.ask(1, filled, server.urls["unix"])
        for name, opener in (("add", add), ("search", search)):
            sides = {side: partial(opener, server.urls["unix"], measured=side == ON) for side in (ON, OFF)}
            fleet.ask(1, open_sides, sides)
            for load in (ONE, FIFTY):
                print(f"{name}, {load.name}", file=sys.stderr, flush=True)
                compared = compare(fleet, server, [ON, OFF], load, effort)
                figures = compared.medians(ON), compared.medians(OFF), compared.ratios(ON, OFF)
                results.rows.append(Row(name, "the same call", load.name, "unix", OFF, *figures))
            fleet.ask(1, close_sides)
    goals = [_goal(results, name) for name in MOST]
    show(results, goals, title="memory with metrics and log / without")
    save(results, goals, asked.json)
    if asked.page:
        put_on_page(results, goals, asked.page, part="telemetry")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What metrics and logs cost.")
    parser.add_argument("--quick", action="store_true", help="few and short rounds: a first impression")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="PATH", help="where the figures go")
    parser.add_argument("--page", type=Path, metavar="PATH", help="a page whose figures to replace")
    return parser.parse_args()


def _goal(results: Results, name: str) -> Verdict:
    rows = results.find(name, ONE)
    shown = ", ".join(f"{row.ratios.client_us:.3f} x" for row in rows)
    met = all(row.ratios.client_us <= MOST[name] for row in rows) if rows else None
    return Verdict(f"{name}: at most {factor(MOST[name])} the client's CPU, 1 task", shown, met)


async def filled(_: WorkerState, url: str) -> None:
    """Run a job: fill the namespace."""
    await fill(url, NAMESPACE, SIZE)


# -- sides -----------------------------------------------------------------------------------------


class SilentCounters(Counters):
    """Counters that count nothing."""

    def add(self, name: str, amount: float, /, **labels: str) -> None:
        """Do nothing."""

    def increment(self, name: str, /, **labels: str) -> None:
        """Do nothing."""

    def observe(self, name: str, seconds: float, /, **labels: str) -> None:
        """Do nothing."""

    def observe_batch(self, operation: str, size: int) -> None:
        """Do nothing."""


@asynccontextmanager
async def add(url: str, *, measured: bool) -> AsyncIterator[Call]:
    """Add new memories."""
    vocabulary = words()
    texts = [text_of(number, vocabulary) for number in range(1_000)]
    async with _side(url, measured=measured) as (hub, turn):
        memory = hub.store(NAMESPACE).memory
        run = _method(memory.add, measured=measured)

        async def call(_: int) -> object:
            turn()
            number = next(_numbers)
            return await run(f"{texts[number % 1_000]} n{number}", user_id=f"user-{number % 10}", category="note")

        yield call


@asynccontextmanager
async def search(url: str, *, measured: bool) -> AsyncIterator[Call]:
    """Search by words and by meaning."""
    asked = queries(words())
    async with _side(url, measured=measured) as (hub, turn):
        run = _method(hub.store(NAMESPACE).memory.search, measured=measured)

        async def call(number: int) -> object:
            turn()
            return await run(asked[number % len(asked)])

        yield call


def _method(method: Callable[..., Awaitable[Any]], *, measured: bool) -> Callable[..., Awaitable[Any]]:
    """Return a bound method with or without the decorator that measures it."""
    if measured:
        return method
    return partial(inspect.unwrap(method), getattr(method, "__self__"))  # noqa: B009  # typed as a function here


@asynccontextmanager
async def _side(url: str, *, measured: bool) -> AsyncIterator[tuple[Hub, Callable[[], None]]]:
    """Yield a hub, and a function that puts the log of the process into the state of this side."""
    with tempfile.TemporaryDirectory(prefix="sm-telemetry-") as folder:
        file = Path(folder) / "calls.log"

        def turn() -> None:
            if bool(_log) is measured:
                return
            if measured:
                _log.append(LogOutput("info", "json", file))
            else:
                _log.pop().close()

        counted = Counters if measured else SilentCounters
        try:
            with patch("sharedmem.hub.composition.Counters", counted):
                async with Hub.open(settings=settings_of(url, SIZE), embedder=TableEmbedder()) as hub:
                    yield hub, turn
        finally:
            if measured and _log:
                _log.pop().close()


if __name__ == "__main__":
    sys.exit(main())
