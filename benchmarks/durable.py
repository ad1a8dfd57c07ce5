"""Costs of the durable tier: writes with and without it, and the speed of drain and restore.

python benchmarks/durable.py                               everything on SQLite, ten minutes or so
python benchmarks/durable.py --quick                       a first impression
python benchmarks/durable.py --cosmos URL --cosmos-key KEY the drain and the reads against an account or emulator too
python benchmarks/durable.py --page docs/benchmarks.md
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bench_report import Results, Row, Verdict, at_least, factor, put_on_page, save, show
from durable_throughput import Export, ThroughputRow, export_jobs, measure_throughput
from harness import Call, Effort, Fleet, Load, Opener, Server, close_sides, compare, machine, open_sides
from harness import private_server as started_server
from rich.console import Console
from rich.table import Table
from store_contests import KEYS, VALUE

from sharedmem import Hub, Settings, SharedMemoryStore

FULL, QUICK = Effort(rounds=7, seconds=0.5), Effort(rounds=3, seconds=0.15)
RESULTS = Path(__file__).parent / "results" / "durable.json"
ONE, FIFTY = Load("1 task"), Load("50 tasks", tasks=50)
OFF, BEHIND, THROUGH = "no tier", "behind", "through"
WRITE, APPEND, READ = "write", "append", "read"
RULES = {"bench:*": "knowledge"}
MOST_EXPORT_MIB = 150.0
SQLITE = "SQLite"
LEAST_KEPT_PER_S, LEAST_RESTORED_PER_S = 25_000, 20_000


@dataclass
class DurableResults(Results):
    """All measurements of a run of the durable tier."""

    voyages: list[ThroughputRow] = field(default_factory=list)
    export: Export | None = None

    def extra(self) -> dict[str, Any]:
        """Return further data for the JSON file."""
        return {
            "voyages": [voyage._asdict() for voyage in self.voyages],
            "export": self.export and self.export._asdict(),
        }

    def page_extra(self) -> Iterator[str]:
        """Yield the speed of drain and restore, as a table."""
        yield from ("", "### There and back", "")
        yield "| tier | keys | kept a second | restored a second | a cold read takes, against a hot one |"
        yield "|---|---:|---:|---:|---:|"
        for one in self.voyages:
            rates = f"{one.kept_per_s:,.0f} | {one.restored_per_s:,.0f}"
            yield f"| {one.tier} | {one.keys:,} | {rates} | {factor(one.cold_ratio)} |"


def main() -> int:
    """Measure the contests of the command line."""
    asked = _arguments()
    effort = QUICK if asked.quick else FULL
    with started_server() as server, Fleet(1) as fleet, tempfile.TemporaryDirectory(prefix="sm-bench-") as folder:
        results = DurableResults(machine() | {"server": server.version}, asked.quick)
        for contest in (WRITE, APPEND, READ):
            _measure(fleet, server, effort, results, contest, Path(folder))
        tiers = {SQLITE: Settings(durable_url=f"sqlite://{folder}/voyages.sqlite3")}
        if asked.cosmos:
            tiers["Cosmos"] = Settings(durable_url=asked.cosmos, cosmos_key=asked.cosmos_key)
        for name, settings in tiers.items():
            print(f"voyages to {name} and back", file=sys.stderr, flush=True)
            count = asked.keys or (2_000 if asked.quick else 100_000 if name == SQLITE else 5_000)
            results.voyages += fleet.ask(1, measure_throughput, server.urls["unix"], settings, name, count)
            server.empty()
        results.export = export_jobs(server, 20_000 if asked.quick else 1_000_000)
    goals = verdicts(results)
    show(results, goals, title="with a durable tier / without")
    show_throughput(results)
    save(results, goals, asked.json)
    if asked.page:
        put_on_page(results, goals, asked.page, part="durable")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What a durable tier costs and gives.")
    parser.add_argument("--quick", action="store_true", help="few and short rounds: a first impression")
    parser.add_argument("--keys", type=int, metavar="N", help="keys that are drained and restored (100,000)")
    parser.add_argument("--cosmos", metavar="URL", help="also against this account or emulator")
    parser.add_argument("--cosmos-key", metavar="KEY", help="its key; without it Entra ID logs in")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="PATH", help="where the figures go")
    parser.add_argument("--page", type=Path, metavar="PATH", help="a page whose ratios to replace")
    return parser.parse_args()


def show_throughput(results: DurableResults) -> None:
    """Print the speed of drain and restore, and the cost of an export."""
    table = Table(title="to the tier and back")
    for name in ("tier", "keys", "kept a second", "restored a second", "hot read p50", "cold read p50", "cold / hot"):
        table.add_column(name, justify="right")
    for one in results.voyages:
        rates = f"{one.kept_per_s:,.0f}", f"{one.restored_per_s:,.0f}"
        reads = f"{one.hot_p50_us:.0f} µs", f"{one.cold_p50_us:.0f} µs", factor(one.cold_ratio)
        table.add_row(one.tier, f"{one.keys:,}", *rates, *reads)
    Console().print(table)
    if (export := results.export) is not None:
        rate = export.records / export.seconds
        print(f"export: {export.records:,} records, {rate:,.0f} a second, peak {export.peak_mib:.0f} MiB")


# -- calls with and without a tier ------------------------------------------------------------------


def _measure(fleet: Fleet, server: Server, effort: Effort, results: Results, contest: str, folder: Path) -> None:
    server.empty()
    fleet.ask(1, open_sides, openers(contest, server.urls["unix"], folder))
    for load in (ONE, FIFTY):
        print(f"{contest}, {load.name}", file=sys.stderr, flush=True)
        compared = compare(fleet, server, [OFF, BEHIND, THROUGH], load, effort)
        for side in (BEHIND, THROUGH):
            figures = compared.medians(side), compared.medians(OFF), compared.ratios(side, OFF)
            results.rows.append(Row(f"{contest}, {side}", OFF, load.name, "unix", OFF, *figures))
    fleet.ask(1, close_sides)
    server.empty()


def openers(contest: str, url: str, folder: Path) -> Mapping[str, Opener]:
    """Return the same call on three hubs; each has a prefix of its own on the one server, and a tier of its own."""
    base = {"redis_url": url, "kind_rules": RULES}
    tiers = {
        OFF: {"durable_url": "none", "prefix": "off"},
        BEHIND: {"durable_url": f"sqlite://{folder}/{contest}-behind.sqlite3", "prefix": "behind"},
        THROUGH: {
            "durable_url": f"sqlite://{folder}/{contest}-through.sqlite3",
            "prefix": "through",
            "knowledge_durability": "through",
        },
    }
    return {side: partial(open_side, contest, Settings(**base, **tier)) for side, tier in tiers.items()}


@dataclass
class Side:
    """One call of a store, which may leave work for the worker."""

    hub: Hub
    call: Call
    has_tier: bool

    async def __call__(self, number: int) -> object:
        return await self.call(number)

    async def rest(self) -> None:
        """Wait until the tier has all changes, before another side is measured."""
        if self.has_tier:
            await self.hub.durable.drain()


@asynccontextmanager
async def open_side(contest: str, settings: Settings) -> AsyncIterator[Call]:
    """Open one side of a contest."""
    async with Hub.open(settings=settings) as hub:
        store = hub.store("bench", actor="agent")
        await store.write_many(dict.fromkeys(KEYS, VALUE))
        side = Side(hub, _call(contest, store), settings.durable_url != "none")
        await side.rest()
        yield side


def _call(contest: str, store: SharedMemoryStore) -> Call:
    if contest == WRITE:
        return lambda number: store.write(KEYS[number % len(KEYS)], VALUE)
    if contest == APPEND:
        return lambda number: store.append(f"log-{number % 100}", VALUE, max_length=100)
    return lambda number: store.read(KEYS[number % len(KEYS)])


# -- goals -----------------------------------------------------------------------------------------


def verdicts(results: DurableResults) -> list[Verdict]:
    """Return the goals of the durable tier."""
    behind, through = f"{WRITE}, {BEHIND}", f"{WRITE}, {THROUGH}"
    reads = f"{READ}, {BEHIND}"
    export = results.export
    memory = None if export is None or results.quick else export.peak_mib < MOST_EXPORT_MIB
    return [
        at_least(results.find(behind, ONE), "write behind, 1 task: at least 0.9 of the rate without a tier", 0.9),
        at_least(results.find(behind, FIFTY), "write behind, 50 tasks: at least 0.8 of the rate without a tier", 0.8),
        at_least(results.find(through, FIFTY), "write through, 50 tasks: at least 0.4 of the rate without a tier", 0.4),
        at_least(results.find(reads, ONE), "read of what is in Redis: as without a tier (0.95)", 0.95),
        *(verdict for voyage in results.voyages if voyage.tier == SQLITE for verdict in voyage_verdicts(voyage)),
        Verdict(
            f"export of a million records: under {MOST_EXPORT_MIB:g} MiB",
            "" if export is None else f"{export.peak_mib:.0f} MiB for {export.records:,} records",
            memory,
        ),
    ]


def voyage_verdicts(voyage: ThroughputRow) -> Iterator[Verdict]:
    """Return the goals of moving keys to SQLite and back."""
    for work, rate, least in (
        ("kept a second by", voyage.kept_per_s, LEAST_KEPT_PER_S),
        ("restored a second from", voyage.restored_per_s, LEAST_RESTORED_PER_S),
    ):
        yield Verdict(f"{work} {voyage.tier}: at least {least:,} keys", f"{rate:,.0f}", rate >= least)


if __name__ == "__main__":
    sys.exit(main())
