"""Synthesis: costs of the pipeline and queries, beside bare commands and omnimemory, with a model without latency.

python benchmarks/synthesis.py            about five minutes
python benchmarks/synthesis.py --quick    few and short rounds, pairs of omnimemory alone only: about two minutes
python benchmarks/synthesis.py --page docs/benchmarks.md

The model answers at once, so that everything but the model is measured. Install omnimemory beside sharedmem to
measure it in the same run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import redis
import synthesis_rival as rival
import synthesis_sides as sides
from bench_report import Results, Row, Verdict, factor, put_on_page, save, show
from harness import Effort, Figures, Fleet, Load, Opener, close_sides, compare, machine, open_sides
from harness import private_server as started_server
from rest_services import Services
from rich.console import Console
from rich.table import Table
from synthesis_data import StubModel, SubjectEmbedder

FULL, QUICK = Effort(rounds=5, seconds=1.0), Effort(rounds=3, seconds=0.4)
LONG = Effort(rounds=3, seconds=0.1)
"""Rounds for pairs of memories: each round ends with the running calls."""
ONCE = Effort(rounds=1, seconds=0.1)
"""Rounds for the other side under load, whose sixteen calls of a pass take many seconds."""
RESULTS = Path(__file__).parent / "results" / "synthesis.json"
ONE, SIXTEEN = Load("1 writer", tasks=1), Load("16 writers", tasks=16)
_MOST_CPU_MS = 4.0
OURS, RULES, BARE, RIVAL = "sharedmem", "by rules", "bare", rival.NAME
ACCEPT, NOTE, PAIR, QUERY = "add_memory, accepted", "add_memory, noted", "two memories, consolidated", "query_memory"
MANY, REPEATS = 10_000, 30
_WIDTH = 110


class PipelineTimes(NamedTuple):
    """The costs of a call of one side under one load."""

    call: str
    load: str
    side: str
    figures: Figures


class Trips(NamedTuple):
    """Round trips of one call of ours on an idle server."""

    call: str
    packets: float
    """Packets that the server has read; commands sent together count once."""


class SynthesisContest(NamedTuple):
    """One call, and the sides it is compared with."""

    call: str
    sides: Mapping[str, Opener]
    commands: Mapping[str, str]
    """Descriptions of the other sides."""
    counted: tuple[str, ...] = (OURS,)
    """Sides whose round trips are counted."""


@dataclass
class SynthesisResults(Results):
    """All measurements of a run of synthesis."""

    taken: list[PipelineTimes] = field(default_factory=list)
    trips: list[Trips] = field(default_factory=list)

    def of(self, call: str, load: Load) -> PipelineTimes | None:
        """Return the costs of a call of ours, if it was measured."""
        return next((one for one in self.taken if one[:3] == (call, load.name, OURS)), None)

    def extra(self) -> dict[str, Any]:
        """Return further data for the JSON file."""
        taken = [one._asdict() | {"figures": one.figures._asdict()} for one in self.taken]
        return {"taken": taken, "round_trips": [one._asdict() for one in self.trips]}

    def page_extra(self) -> Iterator[str]:
        """Yield the costs of each call, as a table."""
        yield from ("", f"The other side: {self.machine['rival']}.", "", "### What a call takes, in milliseconds", "")
        yield "| call | by | load | calls a second | p50 | p99 | client CPU | server CPU |"
        yield "|---|---|---|---:|---:|---:|---:|---:|"
        for one in self.taken:
            yield f"| {one.call} | {one.side} | {one.load} | {' | '.join(_cells(one.figures))} |"
        yield from ("", "### Round trips", "", "| call | packets that the server reads |", "|---|---:|")
        yield from (f"| {one.call} | {one.packets:.1f} |" for one in self.trips)


def _cells(figures: Figures) -> list[str]:
    return [f"{figures.calls_per_s:,.0f}", *(f"{microseconds / 1000:,.2f}" for microseconds in figures[1:])]


# -- measuring -------------------------------------------------------------------------------------


def main() -> int:
    """Measure the contests of the command line."""
    asked = _arguments()
    lack = rival.absence()
    if lack:
        _say(f"without {rival.NAME}: {lack}")
    with ExitStack() as stack:
        server, fleet = stack.enter_context(started_server()), stack.enter_context(Fleet(1))
        process, port = (0, 0) if lack else stack.enter_context(rival.chroma_server())
        services = Services(server, {} if lack else {"chroma": process}, {})
        stack.callback(services.close)
        about = {"model": StubModel.name, "rival": lack or rival.installed_version(), "server": server.version}
        embedders = {"embedder": SubjectEmbedder.name, "embedder of queries": sides.query_embedder().name}
        results = SynthesisResults(machine() | about | embedders, asked.quick)
        bench = _Bench(fleet, services, QUICK if asked.quick else FULL, results, port)
        for contest in contests(server.urls["unix"], port):
            if not asked.only or contest.call.startswith(tuple(asked.only)):
                bench.measure(contest)
    goals = verdicts(results)
    show(results, goals, title="synthesis")
    show_taken(results)
    save(results, goals, asked.json)
    if asked.page:
        put_on_page(results, goals, asked.page, part="synthesis")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What synthesis takes besides the model.")
    parser.add_argument("--quick", action="store_true", help="few and short rounds: a first impression")
    parser.add_argument("--only", nargs="*", metavar="WORD", help="calls whose names begin so")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="PATH", help="where the figures go")
    parser.add_argument("--page", type=Path, metavar="PATH", help="a page whose ratios to replace")
    return parser.parse_args()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class _Bench:
    fleet: Fleet
    services: Services
    effort: Effort
    results: SynthesisResults
    port: int
    """Process id of the other side's store; 0 without one."""

    def measure(self, contest: SynthesisContest) -> None:
        """Measure all sides of a contest in turn."""
        _say(contest.call)
        if contest.call == QUERY:
            self._fill()
        self.fleet.ask(1, open_sides, contest.sides)
        try:
            for side in contest.counted:
                self._count(contest.call if side == OURS else f"{contest.call}, {side}", side)
            for load in (ONE, SIXTEEN):
                self._compare(contest, load)
        finally:
            self.fleet.ask(1, close_sides)

    def _fill(self) -> None:
        _say(f"filling {MANY:,} notes")
        self.fleet.ask(1, sides.filled, self.services.urls["unix"], MANY)
        if self.port:
            self.fleet.ask(1, rival.filled, self.port, MANY)

    def _compare(self, contest: SynthesisContest, load: Load) -> None:
        _say(f"{contest.call}, {load.name}")
        effort = LONG if contest.call == PAIR else self.effort
        if load == ONE or RIVAL not in contest.sides:
            self._compare_sides(contest, load, list(contest.sides), effort)
            return
        self._compare_sides(contest, load, [side for side in contest.sides if side != RIVAL], effort)
        if contest.call != PAIR or not self.results.quick:
            self._compare_sides(contest, load, [OURS, RIVAL], ONCE)

    def _compare_sides(self, contest: SynthesisContest, load: Load, asked: list[str], effort: Effort) -> None:
        compared = compare(self.fleet, self.services, asked, load, effort)
        for side in asked:
            if side != OURS or self.results.of(contest.call, load) is None:
                self.results.taken.append(PipelineTimes(contest.call, load.name, side, compared.medians(side)))
            if side != OURS:
                figures = compared.medians(OURS), compared.medians(side), compared.ratios(OURS, side)
                row = Row(contest.call, contest.commands[side], load.name, "unix", side, *figures)
                self.results.rows.append(row)

    def _count(self, call: str, side: str) -> None:
        with redis.Redis.from_url(self.services.urls["unix"]) as asking:
            self.fleet.ask(1, sides.repeated, side, REPEATS)
            before = _packets(asking)
            self.fleet.ask(1, sides.repeated, side, REPEATS)
            # One of the packets is the question itself.
            read = _packets(asking) - before - 1
        self.results.trips.append(Trips(call, read / REPEATS))


def _packets(asking: redis.Redis) -> int:
    return int(asking.info("stats")["total_reads_processed"])


def contests(url: str, port: int) -> list[SynthesisContest]:
    """Return the contests."""
    theirs = rival.installed_version() if port else ""
    return [
        SynthesisContest(
            ACCEPT, {OURS: partial(sides.accept, url), BARE: partial(sides.accept_bare, url)}, {BARE: "RPUSH"}
        ),
        SynthesisContest(
            NOTE,
            {
                OURS: partial(sides.note, url, "notes"),
                RULES: partial(sides.note, url, "notes-by-rules", by_rules=True),
                BARE: partial(sides.note_bare, url),
            }
            | _if(port, partial(rival.note, port, rival.app_of("notes"))),
            {RULES: "the offline rules", BARE: "RPUSH, LPOP, FT.SEARCH, HSET", RIVAL: theirs},
            (OURS, BARE),
        ),
        SynthesisContest(
            PAIR,
            {
                OURS: partial(sides.pair, url, "pairs"),
                RULES: partial(sides.pair, url, "pairs-by-rules", by_rules=True),
            }
            | _if(port, partial(rival.pair, port, rival.app_of("pairs"))),
            {RULES: "the offline rules", RIVAL: theirs},
        ),
        SynthesisContest(
            QUERY,
            {OURS: partial(sides.query, url), BARE: partial(sides.query_bare, url)}
            | _if(port, partial(rival.query, port)),
            {BARE: "its FT.SEARCH", RIVAL: theirs},
            (OURS, BARE),
        ),
    ]


def _if(port: int, opener: Opener) -> dict[str, Opener]:
    return {RIVAL: opener} if port else {}


def show_taken(results: SynthesisResults) -> None:
    """Print the costs of each call."""
    table = Table(title="milliseconds a call")
    for name in ("call", "by", "load", "calls/s", "p50", "p99", "client CPU", "server CPU"):
        table.add_column(name, justify="left" if name in {"call", "by", "load"} else "right")
    for one in results.taken:
        table.add_row(one.call, one.side, one.load, *_cells(one.figures))
    console = Console()
    console.width = max(console.width, _WIDTH)
    console.print(table)
    for trip in results.trips:
        console.print(f"{trip.call}: {trip.packets:.1f} packets that the server reads")


# -- verdicts --------------------------------------------------------------------------------------


def verdicts(results: SynthesisResults) -> list[Verdict]:
    """Return verdicts on whether we are at least as fast as the other side, and on what a note costs."""
    return [
        *(_no_slower(results, call) for call in (NOTE, PAIR, QUERY)),
        *(_costs(results, load) for load in (ONE, SIXTEEN)),
    ]


def _costs(results: SynthesisResults, load: Load) -> Verdict:
    goal = f"{NOTE}, {load.name}: at most {_MOST_CPU_MS:g} ms of CPU, client and server"
    taken = results.of(NOTE, load)
    if taken is None:
        return Verdict(goal, "", None)
    spent_ms = (taken.figures.client_us + taken.figures.server_us) / 1000
    return Verdict(goal, f"{spent_ms:.1f} ms", spent_ms <= _MOST_CPU_MS)


def _no_slower(results: SynthesisResults, call: str) -> Verdict:
    rows = [row for load in (ONE, SIXTEEN) for row in results.find(call, load) if row.rival == RIVAL]
    goal = f"{call}: at least as many a second as {rival.NAME}, {ONE.name} and {SIXTEEN.name}"
    found = ", ".join(factor(row.ratios.calls_per_s) for row in rows)
    return Verdict(goal, found, all(row.ratios.calls_per_s >= 1 for row in rows) if rows else None)


if __name__ == "__main__":
    sys.exit(main())
