"""How fast agents agree, as ratios to redis-py calling the same scripts, to its Lock, and to a queue library.

python benchmarks/coordination.py                          everything, ten minutes or so
python benchmarks/coordination.py --quick --only lock      a first impression of one primitive
python benchmarks/coordination.py --page docs/benchmarks.md
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench_report import Results, Row, Verdict, at_least, put_on_page, save, show
from coordination_contests import CONTESTS, EVALSHA, FREE_LOCK, LOCK, ONE_LOCK, OURS, QUEUE, SAQ, openers
from harness import Effort, Fleet, Load, Server, can_choose_cores, close_sides, compare, machine, open_sides
from harness import private_server as started_server

FULL, QUICK = Effort(rounds=5, seconds=0.4), Effort(rounds=3, seconds=0.1)
RESULTS = Path(__file__).parent / "results" / "coordination.json"
ONE, ALONE = Load("1 task"), Load("1 task, one core", one_core=True)
CONTENDERS, FIFTY = Load("32 tasks", tasks=32), Load("50 tasks", tasks=50)


def main() -> int:
    """Measure the contests of the command line."""
    asked = _arguments()
    with started_server() as server, Fleet(1) as fleet:
        results = Results(machine() | {"server": server.version}, asked.quick)
        for name in asked.only or CONTESTS:
            _measure(fleet, server, QUICK if asked.quick else FULL, results, name)
    goals = verdicts(results)
    show(results, goals, title="sharedmem / the others")
    save(results, goals, asked.json)
    if asked.page:
        compared = [row for row in results.rows if row.rival != OURS]
        put_on_page(replace(results, rows=compared), goals, asked.page, part="coordination")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Coordination against redis-py and a queue library.")
    parser.add_argument("--quick", action="store_true", help="few and short rounds: a first impression")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="PATH", help="where the figures go")
    parser.add_argument("--page", type=Path, metavar="PATH", help="a page whose ratios to replace")
    parser.add_argument("--only", action="append", choices=[*CONTESTS], metavar="NAME", help=", ".join(CONTESTS))
    return parser.parse_args()


def _measure(fleet: Fleet, server: Server, effort: Effort, results: Results, name: str) -> None:
    """Measure all sides of one primitive, over the unix socket, the transport with the least overhead."""
    server.empty()
    sides = openers(name, server.urls["unix"], 0)
    fleet.ask(1, open_sides, sides)
    for load in (ONE, ALONE, CONTENDERS, FIFTY):
        if load.one_core and not can_choose_cores():
            continue
        print(f"{name}, {load.name}", file=sys.stderr, flush=True)
        compared = compare(fleet, server, [*sides], load, effort)
        bare = [compared.fastest([*EVALSHA])] if CONTESTS[name].bare is not None else []
        for rival in bare + [side for side in sides if side != OURS and side not in EVALSHA] or [OURS]:
            figures = compared.medians(OURS), compared.medians(rival), compared.ratios(OURS, rival)
            results.rows.append(Row(name, rival, load.name, "unix", rival, *figures))
    fleet.ask(1, close_sides)
    server.empty()


# -- goals -----------------------------------------------------------------------------------------


def verdicts(results: Results) -> list[Verdict]:
    """Return the goals of coordination."""
    single = [name for name, contest in CONTESTS.items() if contest.bare is not None]
    against = partial(_against, results)
    return [
        *(at_least(against(name, ONE), f"{name}, 1 task: at least 0.7 of EVALSHA", 0.7) for name in single),
        *(at_least(against(name, FIFTY), f"{name}, 50 tasks: at least 3 times EVALSHA", 3) for name in single),
        at_least(against(FREE_LOCK, ONE, LOCK), "a free lock, 1 task: faster than redis-py's Lock", 1),
        at_least(against(FREE_LOCK, FIFTY, LOCK), "a free lock, 50 tasks: 3 times redis-py's Lock", 3),
        at_least(against(ONE_LOCK, CONTENDERS, LOCK), "one lock for 32: faster than redis-py's Lock", 1),
        at_least(against(QUEUE, ONE, SAQ), "queue, 1 task: at least 1.5 times saq", 1.5),
        at_least(against(QUEUE, FIFTY, SAQ), "queue, 50 tasks: at least 1.5 times saq", 1.5),
    ]


def _against(results: Results, name: str, load: Load, rival: str | None = None) -> list[Row]:
    rows = results.find(name, load)
    return [row for row in rows if row.rival == rival or (rival is None and row.rival in EVALSHA)]


if __name__ == "__main__":
    sys.exit(main())
