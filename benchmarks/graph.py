"""The temporal knowledge graph: costs of its calls at several sizes, beside graphiti-core and the bare commands.

python benchmarks/graph.py             1,000, 10,000 and 100,000 facts: about a quarter of an hour
python benchmarks/graph.py --quick     1,000 and 10,000 facts, few and short rounds: about three minutes
python benchmarks/graph.py --page docs/benchmarks.md
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import graph_rival
import graph_sides as sides
from bench_report import Results, Row, Verdict, factor, put_on_page, save, show
from graph_data import FACTS_EACH, World
from harness import Call, Comparison, Effort, Figures, Fleet, Load, Server, close_sides, compare, machine, open_sides
from harness import private_server as started_server
from rich.console import Console
from rich.table import Table

FULL, QUICK = Effort(rounds=5, seconds=1.0), Effort(rounds=3, seconds=0.3)
ADDING = Effort(rounds=3, seconds=0.4)
"""Rounds of additions: a graph of 1,000 facts must keep about that size."""
ONCE = Effort(rounds=1, seconds=0.1)
"""Rounds of calls that take the other side seconds."""
RESULTS = Path(__file__).parent / "results" / "graph.json"
ONE = Load("1 task")
OURS, RIVAL, RIVAL_ALL, BARE, NOW = "sharedmem", "graphiti", "graphiti, everything", "bare", "as of now"
SMALL, MIDDLE, LARGE = 1_000, 10_000, 100_000
ADD, RETRIEVE, RETRIEVE_AS_OF = "add_episode", "retrieve", "retrieve, as of then"
_BOTH = "CPU of client and server"
_MOST_GROWN = {RETRIEVE_AS_OF: 1.5, ADD: 1.3}
"""Most growth of a call's CPU from the small graph to the large one; of other calls 2 times."""

Side = Callable[[str, World], AbstractAsyncContextManager[Call]]


class CallTimes(NamedTuple):
    """The costs of a call of one side at one size."""

    call: str
    size: int
    side: str
    figures: Figures

    @property
    def cpu_us(self) -> float:
        """CPU of client and server."""
        return self.figures.client_us + self.figures.server_us


class Filling(NamedTuple):
    """The costs of filling a graph, 32 episodes in a step."""

    size: int
    seconds: float
    bytes_per_fact: float


@dataclass(frozen=True)
class GraphContest:
    """One call, and the sides it is compared with."""

    call: str
    sides: Mapping[str, Side]
    commands: Mapping[str, str]
    """Descriptions of the other sides."""
    effort: Effort | None = None


@dataclass
class GraphResults(Results):
    """All measurements of a run of the graph."""

    taken: list[CallTimes] = field(default_factory=list)
    fillings: list[Filling] = field(default_factory=list)

    def of(self, call: str, size: int, side: str = OURS) -> CallTimes | None:
        """Return the costs of a call, if it was measured."""
        return next((one for one in self.taken if one[:3] == (call, size, side)), None)

    def cpu(self, call: str, size: int, rival: str) -> float | None:
        """Return the CPU of a rival as a multiple of ours, client and server together."""
        ours, theirs = self.of(call, size), self.of(call, size, rival)
        return theirs.cpu_us / ours.cpu_us if ours and theirs else None

    def growth(self, call: str) -> float | None:
        """Return the CPU of a call in the large graph as a multiple of that in the small one."""
        small, large = self.of(call, SMALL), self.of(call, LARGE)
        return large.cpu_us / small.cpu_us if small and large else None

    def calls(self) -> list[str]:
        """Return the measured calls, in order."""
        return list(dict.fromkeys(one.call for one in self.taken if one.side == OURS))

    def extra(self) -> dict[str, Any]:
        """Return further data for the JSON file."""
        taken = [one._asdict() | {"figures": one.figures._asdict()} for one in self.taken]
        return {"taken": taken, "fillings": [one._asdict() for one in self.fillings]}

    def page_extra(self) -> Iterator[str]:
        """Yield the costs of each call, as a table."""
        yield from ("", "### What a call takes, in milliseconds", "")
        yield "| call | by | facts | p50 | p99 | client CPU | server CPU |"
        yield "|---|---|---:|---:|---:|---:|---:|"
        for one in sorted(self.taken, key=lambda one: self.calls().index(one.call)):
            yield f"| {one.call} | {one.side} | {one.size:,} | {' | '.join(_milliseconds(one.figures))} |"
        yield from (
            "",
            "### Filling",
            "",
            "| facts | seconds | episodes a second | bytes a fact |",
            "|---:|---:|---:|---:|",
        )
        for filling in self.fillings:
            rate = World(filling.size).episodes / filling.seconds
            yield f"| {filling.size:,} | {filling.seconds:,.0f} | {rate:,.0f} | {filling.bytes_per_fact:,.0f} |"


def _milliseconds(figures: Figures) -> list[str]:
    return [f"{microseconds / 1000:,.2f}" for microseconds in figures[1:]]


# -- measuring -------------------------------------------------------------------------------------


def main() -> int:
    """Measure the contests of the command line."""
    asked = _arguments()
    if not graph_rival.is_installed():
        _say(f"without graphiti, which is not installed: {graph_rival.INSTALL}")
    effort = QUICK if asked.quick else FULL
    with started_server(modules=("search", "json", "graph")) as server, Fleet(1) as fleet:
        about = machine() | {"server": server.version, "embedder": sides.embedder().name}
        results = GraphResults(about, asked.quick)
        for size in asked.sizes or ([SMALL, MIDDLE] if asked.quick else [SMALL, MIDDLE, LARGE]):
            has_rival = graph_rival.is_installed() and size <= asked.rival_up_to
            _measure(_Bench(fleet, server, effort, results, tuple(asked.only or ())), World(size), has_rival=has_rival)
    goals = verdicts(results)
    show(results, goals, title="knowledge graph")
    show_taken(results)
    save(results, goals, asked.json)
    if asked.page:
        put_on_page(results, goals, asked.page, part="graph")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What the calls of the knowledge graph take.")
    parser.add_argument("--quick", action="store_true", help="few and short rounds: a first impression")
    parser.add_argument("--sizes", type=int, nargs="*", metavar="N", help="facts that are there (1,000 to 100,000)")
    parser.add_argument("--only", nargs="*", metavar="WORD", help="calls whose names begin so")
    parser.add_argument(
        "--rival-up-to", type=int, default=MIDDLE, metavar="N", help="facts up to which graphiti is measured (10,000)"
    )
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="PATH", help="where the figures go")
    parser.add_argument("--page", type=Path, metavar="PATH", help="a page whose ratios to replace")
    return parser.parse_args()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class _Bench:
    fleet: Fleet
    server: Server
    effort: Effort
    results: GraphResults
    only: tuple[str, ...]


def _measure(bench: _Bench, world: World, *, has_rival: bool) -> None:
    url = bench.server.urls["unix"]
    bench.server.empty()
    _say(f"{world.facts:,} facts")
    before, began = bench.server.memory_bytes(), time.monotonic()
    bench.fleet.ask(1, sides.filled, url, world)
    seconds, space = time.monotonic() - began, bench.server.memory_bytes() - before
    bench.results.fillings.append(Filling(world.facts, seconds, space / world.facts))
    if has_rival:
        _say(f"{world.facts:,} facts, graphiti")
        bench.fleet.ask(1, sides.filled_rival, url, world)
    for contest in contests(has_rival=has_rival):
        if not bench.only or contest.call.startswith(bench.only):
            _say(f"{world.facts:,}: {contest.call}")
            _note(bench.results, contest, world.facts, _compared(bench, contest, url, world))


def _compared(bench: _Bench, contest: GraphContest, url: str, world: World) -> Comparison:
    openers = {side: partial(opener, url, world) for side, opener in contest.sides.items()}
    bench.fleet.ask(1, open_sides, openers)
    try:
        return compare(bench.fleet, bench.server, list(openers), ONE, contest.effort or bench.effort)
    finally:
        bench.fleet.ask(1, close_sides)


def _note(results: GraphResults, contest: GraphContest, size: int, compared: Comparison) -> None:
    for side in contest.sides:
        results.taken.append(CallTimes(contest.call, size, side, compared.medians(side)))
        if side != OURS:
            figures = compared.medians(OURS), compared.medians(side), compared.ratios(OURS, side)
            name = f"{contest.call}, {size:,}"
            results.rows.append(Row(name, contest.commands[side], ONE.name, "unix", side, *figures))


def contests(*, has_rival: bool) -> list[GraphContest]:
    """Return the contests; additions last, since they make the graph larger."""
    return [
        GraphContest(
            RETRIEVE,
            {OURS: sides.retrieve, BARE: sides.bare_searches}
            | _if(has_rival, {RIVAL: sides.rival_search, RIVAL_ALL: sides.rival_search_all}),
            {BARE: "its FT.SEARCHes", RIVAL: "graphiti's search", RIVAL_ALL: "graphiti's search_, everything"},
        ),
        GraphContest(
            RETRIEVE_AS_OF,
            {OURS: sides.retrieve_as_of} | _if(has_rival, {RIVAL: sides.rival_search_as_of}),
            {RIVAL: "graphiti's search by dates"},
            ONCE if has_rival else None,
        ),
        GraphContest(
            "vector_search",
            {OURS: sides.vector_search, BARE: sides.bare_knn} | _if(has_rival, {RIVAL: sides.rival_by_meaning}),
            {BARE: "its KNN", RIVAL: "graphiti, cosine"},
        ),
        GraphContest(
            "text_search",
            {OURS: sides.text_search, BARE: sides.bare_words} | _if(has_rival, {RIVAL: sides.rival_by_words}),
            {BARE: "its FT.SEARCH", RIVAL: "graphiti, BM25"},
        ),
        GraphContest(
            "traverse, depth 2",
            {OURS: sides.traverse} | _if(has_rival, {BARE: sides.bare_cypher}),
            {BARE: "GRAPH.RO_QUERY"},
        ),
        GraphContest("facts, as of then", {OURS: sides.facts_as_of, NOW: sides.facts_now}, {NOW: "facts of now"}),
        GraphContest(
            ADD,
            {OURS: sides.add_episode} | _if(has_rival, {RIVAL: sides.rival_add_episode}),
            {RIVAL: "graphiti's add_episode"},
            ADDING,
        ),
    ]


def _if(wanted: bool, some: Mapping[str, Side]) -> dict[str, Side]:
    return dict(some) if wanted else {}


def show_taken(results: GraphResults) -> None:
    """Print the costs of each call."""
    table = Table(title="milliseconds a call")
    for name in ("call", "by", "facts", "p50", "p99", "client CPU", "server CPU"):
        table.add_column(name, justify="left" if name in {"call", "by"} else "right")
    for one in results.taken:
        table.add_row(one.call, one.side, f"{one.size:,}", *_milliseconds(one.figures))
    console = Console()
    console.print(table)
    for filling in results.fillings:
        console.print(
            f"{filling.size:,} facts filled in {filling.seconds:.1f} s, {filling.bytes_per_fact:,.0f} bytes each"
        )


# -- goals -----------------------------------------------------------------------------------------


def verdicts(results: GraphResults) -> list[Verdict]:
    """Return the goals of the graph."""
    retrieved, added = results.of(RETRIEVE, MIDDLE), results.of(ADD, MIDDLE)
    filling = next((one for one in results.fillings if one.size == LARGE), None)
    return [
        _less(results, ADD, RIVAL, 20),
        _less(results, RETRIEVE, RIVAL, 10),
        _at_most(f"{RETRIEVE} at {MIDDLE:,}: p50", retrieved and retrieved.figures.p50_us / 1000, 7, "ms"),
        _at_most(f"{RETRIEVE} at {MIDDLE:,}: {_BOTH}", retrieved and retrieved.cpu_us / 1000, 5, "ms"),
        _at_most(f"{ADD} of {FACTS_EACH} facts at {MIDDLE:,}: {_BOTH}", added and added.cpu_us / 1000, 3, "ms"),
        *(_grown(results, call) for call in results.calls()),
        _at_most(f"a graph of {LARGE:,} facts: bytes a fact", filling and filling.bytes_per_fact, 2_500, "bytes"),
        _at_most(f"a graph of {LARGE:,} facts: filled within", filling and filling.seconds, 60, "s"),
    ]


def _less(results: GraphResults, call: str, rival: str, times: float) -> Verdict:
    found = results.cpu(call, MIDDLE, rival)
    goal = f"{call} at {MIDDLE:,}: at least {times:g} times less CPU than {rival}, client and server together"
    return Verdict(goal, "" if found is None else f"{found:.1f} times less", None if found is None else found >= times)


def _at_most(what: str, found: float | None, most: float, unit: str) -> Verdict:
    shown = "" if found is None else f"{found:,.0f} {unit}" if found >= 100 else f"{found:.1f} {unit}"
    return Verdict(f"{what}, at most {most:,g} {unit}", shown, None if found is None else found <= most)


def _grown(results: GraphResults, call: str) -> Verdict:
    found, most = results.growth(call), _MOST_GROWN.get(call, 2)
    goal = f"{call}: CPU at {LARGE:,} at most {most:g} times that at {SMALL:,}"
    return Verdict(goal, "" if found is None else factor(found), None if found is None else found <= most)


if __name__ == "__main__":
    sys.exit(main())
