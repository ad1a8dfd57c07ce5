"""Costs of the REST service: beside the library itself, and beside Starlette handlers with one Redis command each.

python benchmarks/rest.py            about five minutes
python benchmarks/rest.py --quick    few and short rounds: about a minute
python benchmarks/rest.py --page docs/benchmarks.md
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import rest_sides as sides
from bench_report import Results, Row, Verdict, at_least, factor, put_on_page, save, show
from harness import Effort, Fleet, Load, Opener, close_sides, compare, machine, open_sides
from harness import private_server as started_server
from rest_services import EMBEDDER, Services, running_service

FULL, QUICK = Effort(rounds=7, seconds=1.0), Effort(rounds=3, seconds=0.5)
RESULTS = Path(__file__).parent / "results" / "rest.json"
ONE, SIXTEEN = Load("1 task"), Load("16 tasks", tasks=16)
OURS, TOKEN, BARE, LIBRARY = "sharedmem", "with a token", "bare", "library"
READ, WRITE, QUERY, EVENT = "read", "write", "query_memory", "event"
MOST_TIMES, LEAST_PER_S, LEAST_SPEED = 3, 1_000, 0.7


class RestContest(NamedTuple):
    """One call, and the sides it is compared with."""

    call: str
    sides: Mapping[str, Opener]
    commands: Mapping[str, str]
    """Descriptions of the other sides."""
    loads: tuple[Load, ...] = (ONE, SIXTEEN)


def main() -> int:
    """Measure the contests of the command line."""
    asked = _arguments()
    with started_server() as redis, TemporaryDirectory() as folder, Fleet(1) as fleet:
        tokens = Path(folder) / "tokens.json"
        token = sides.token_in(tokens)
        results = Results(_about() | {"server": redis.version}, asked.quick)
        _say("filling")
        fleet.ask(1, sides.filled, redis.urls["unix"])
        with running_service(redis, tokens=tokens) as services:
            for contest in contests(services, token):
                if not asked.only or contest.call.startswith(tuple(asked.only)):
                    _say(contest.call)
                    _measure(fleet, services, QUICK if asked.quick else FULL, results, contest)
    goals = verdicts(results)
    show(results, goals, title="REST")
    save(results, goals, asked.json)
    if asked.page:
        put_on_page(results, goals, asked.page, part="rest")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What the REST service costs.")
    parser.add_argument("--quick", action="store_true", help="few and short rounds: a first impression")
    parser.add_argument("--only", nargs="*", metavar="WORD", help="calls whose names begin so")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="PATH", help="where the figures go")
    parser.add_argument("--page", type=Path, metavar="PATH", help="a page whose ratios to replace")
    return parser.parse_args()


def _about() -> dict[str, str]:
    packages = {name: version(name) for name in ("starlette", "uvicorn", "httptools")}
    return machine() | packages | {"embedder": EMBEDDER, "workers": "1"}


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _measure(fleet: Fleet, services: Services, effort: Effort, results: Results, contest: RestContest) -> None:
    fleet.ask(1, open_sides, contest.sides)
    try:
        for load in contest.loads:
            compared = compare(fleet, services, list(contest.sides), load, effort)
            for rival, command in contest.commands.items():
                figures = compared.medians(OURS), compared.medians(rival), compared.ratios(OURS, rival)
                results.rows.append(Row(contest.call, command, load.name, "tcp", rival, *figures))
    finally:
        fleet.ask(1, close_sides)


def contests(services: Services, token: str) -> list[RestContest]:
    """Return the contests."""
    ours, bare, redis = services.addresses["service"], services.addresses["bare"], services.urls["unix"]
    guarded = services.addresses["tokens"]
    return [
        RestContest(
            READ,
            {
                OURS: partial(sides.read_over_rest, ours),
                BARE: partial(sides.read_bare, bare),
                LIBRARY: partial(sides.read_in_process, redis),
                TOKEN: partial(sides.read_over_rest, guarded, token),
            },
            {BARE: "Starlette, one GET", LIBRARY: "store.read", TOKEN: "the same with token and rate"},
        ),
        RestContest(
            WRITE,
            {
                OURS: partial(sides.write_over_rest, ours),
                BARE: partial(sides.write_bare, bare),
                LIBRARY: partial(sides.write_in_process, redis),
            },
            {BARE: "Starlette, one SET", LIBRARY: "store.write"},
        ),
        RestContest(
            QUERY,
            {OURS: partial(sides.query_over_rest, ours), LIBRARY: partial(sides.query_in_process, redis)},
            {LIBRARY: f"query_memory, {sides.NOTES:,} notes"},
        ),
        RestContest(
            EVENT,
            {OURS: partial(sides.event_over_rest, ours, redis), LIBRARY: partial(sides.event_in_process, redis)},
            {LIBRARY: "store.watch"},
            (ONE,),
        ),
    ]


# -- goals -----------------------------------------------------------------------------------------


def verdicts(results: Results) -> list[Verdict]:
    """Return the goals of the service."""
    rows = [row for load in (ONE, SIXTEEN) for row in results.find(READ, load) if row.rival == BARE]
    beside = f"times that of a bare Starlette handler with one GET, {' and '.join(row.load for row in rows)}"
    return [
        at_least(rows, f"{READ}: calls a second at least {LEAST_SPEED} {beside}", LEAST_SPEED),
        _at_most(f"{READ}: CPU of service and Redis at most {MOST_TIMES} {beside}", rows, "server_us"),
        _at_most(f"{READ}: p50 at most {MOST_TIMES} {beside}", rows, "p50_us"),
        _at_most(f"{READ}: p99 at most {MOST_TIMES} {beside}", rows, "p99_us"),
        _per_second([row for row in rows if row.load == SIXTEEN.name]),
    ]


def _at_most(goal: str, rows: list[Row], figure: str) -> Verdict:
    found = [getattr(row.ratios, figure) for row in rows]
    return Verdict(goal, ", ".join(map(factor, found)), max(found) <= MOST_TIMES if found else None)


def _per_second(rows: list[Row]) -> Verdict:
    goal = f"{READ}: at least {LEAST_PER_S:,} a second from one worker, clients on the same two cores"
    found = [row.ours.calls_per_s for row in rows]
    return Verdict(goal, ", ".join(f"{one:,.0f}" for one in found), min(found) >= LEAST_PER_S if found else None)


if __name__ == "__main__":
    sys.exit(main())
