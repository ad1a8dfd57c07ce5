"""How fast the store is, as ratios to bare redis-py (asyncio, hiredis) doing the plain command in the same run.

python benchmarks/store.py                             everything, ten minutes or so
python benchmarks/store.py --quick --only read         a first impression of one row
python benchmarks/store.py --page docs/benchmarks.md   everything, and its ratios on the page
python benchmarks/store.py --compare main              this checkout beside another revision, in the same run
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from bench_report import Row, put_on_page, save, show
from harness import (
    Comparison,
    Effort,
    Fleet,
    Load,
    Server,
    can_choose_cores,
    close_sides,
    compare,
    compare_places,
    machine,
    open_sides,
)
from harness import private_server as started_server
from namespace_costs import measure_clear, measure_memory
from store_contests import BARE, CONTESTS, DEFAULT, OURS, has_sync_face, openers, sync_openers
from store_goals import ALONE, FIFTY, FOUR, ONE, SYNC, SYNC_ALONE, StoreResults, verdicts

PROCESSES = 4
FULL, QUICK = Effort(rounds=5, seconds=0.5), Effort(rounds=3, seconds=0.1)
MEMORY_KEYS = {FULL: 20_000, QUICK: 5_000}
CLEARED_KEYS = {FULL: 1_000_000, QUICK: 50_000}
RESULTS = Path(__file__).parent / "results" / "store.json"
_LOADS = (ONE, ALONE, FIFTY, FOUR)
SYNC_READ, MEMORY, CLEAR = "sync_read", "memory", "clear"


def main() -> int:
    """Measure the contests of the command line."""
    asked = _arguments()
    effort = QUICK if asked.quick else FULL
    if asked.compare:
        return _compare_code(asked, effort)
    wanted = asked.only or [*CONTESTS, SYNC_READ, MEMORY, CLEAR]
    with started_server() as server, Fleet(PROCESSES) as fleet:
        results = StoreResults(machine() | {"server": server.version}, asked.quick)
        bench = Bench(fleet, server, effort, results, _loads(asked))
        for name in wanted:
            bench.measure(name)
    goals = verdicts(results)
    show(results, goals, title="sharedmem / bare redis-py")
    save(results, goals, asked.json)
    if asked.page:
        put_on_page(results, goals, asked.page, part="ratios")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The store against bare redis-py.")
    parser.add_argument("--quick", action="store_true", help="few and short rounds, fewer keys: a first impression")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="PATH", help="where the figures go")
    parser.add_argument("--page", type=Path, metavar="PATH", help="a page whose ratios to replace")
    parser.add_argument("--compare", metavar="REV", help="measure this checkout against the code of a git revision")
    choices = [*CONTESTS, SYNC_READ, MEMORY, CLEAR]
    parser.add_argument("--only", action="append", choices=choices, metavar="NAME", help=f"one of {', '.join(choices)}")
    loads = [load.name for load in _LOADS]
    parser.add_argument("--load", action="append", choices=loads, metavar="LOAD", help=f"one of {', '.join(loads)}")
    return parser.parse_args()


def _loads(asked: argparse.Namespace) -> list[Load]:
    return [load for load in _possible(*_LOADS) if not asked.load or load.name in asked.load]


@contextmanager
def _code_of(revision: str) -> Iterator[Path]:
    """Unpack the package and the scripts of a revision into a folder of their own."""
    with TemporaryDirectory(prefix="sm-code-") as folder:
        packed = subprocess.run(
            ["git", "archive", revision, "sharedmem", "lua"],  # the git of the caller
            check=True,
            capture_output=True,
            cwd=Path(__file__).parent.parent,
        )
        with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
            archive.extractall(folder, filter="data")
        yield Path(folder)


def _open_versions(name: str, places: Mapping[str, tuple[Fleet, Server]]) -> bool:
    """Open a contest in the workers of each version; return whether all of them can do it."""
    try:
        for side, (fleet, server) in places.items():
            for worker in range(PROCESSES):
                opener = openers(name, server.urls["unix"], worker)[OURS]
                fleet.begin(worker, open_sides, {side: opener})()
    except RuntimeError as error:
        _say(f"{name}: left out, one version cannot do it: {str(error).strip().splitlines()[-1]}")
        return False
    return True


def _compare_code(asked: argparse.Namespace, effort: Effort) -> int:
    """Measure the contests by this checkout and by another revision in turn.

    Each has a server of its own: one of them may know another layout of the data.
    """
    then, now = f"sharedmem of {asked.compare}", "this checkout"
    with (
        _code_of(asked.compare) as code,
        started_server() as server,
        started_server() as server_then,
        Fleet(PROCESSES) as new,
        Fleet(PROCESSES, code=code) as old,
    ):
        results = StoreResults(machine() | {"server": server.version}, asked.quick)
        places = {now: (new, server), then: (old, server_then)}
        for name in [name for name in asked.only or CONTESTS if name in CONTESTS]:
            server.empty()
            server_then.empty()
            if _open_versions(name, places):
                for load in _loads(asked):
                    _say(f"{name}, {load.name}")
                    compared = compare_places(places, load, effort)
                    sides, ratios = (compared.medians(now), compared.medians(then)), compared.ratios(now, then)
                    results.rows.append(Row(name, then, load.name, "unix", then, *sides, ratios))
            for fleet in (new, old):
                fleet.ask(PROCESSES, close_sides)
    show(results, [], title=f"{now} / {then}")
    save(results, [], asked.json)
    return 0


class Bench:
    """Runs measurements and stores their results."""

    def __init__(self, fleet: Fleet, server: Server, effort: Effort, results: StoreResults, loads: list[Load]) -> None:
        self._fleet = fleet
        self._server = server
        self._effort = effort
        self._results = results
        self._loads = loads

    def measure(self, name: str) -> None:
        """Measure a contest, or another measurement with a name."""
        if name == MEMORY:
            _say("memory")
            self._results.memory = measure_memory(self._fleet, self._server, MEMORY_KEYS[self._effort])
        elif name == CLEAR:
            _say("clear")
            self._results.clearing = measure_clear(self._fleet, self._server, CLEARED_KEYS[self._effort])
        elif name != SYNC_READ:
            self._contest(name)
        elif has_sync_face():
            self._sync_read()

    def _contest(self, name: str) -> None:
        for transport, url in self._server.urls.items():
            self._server.empty()
            for worker in range(PROCESSES):
                self._fleet.begin(worker, open_sides, openers(name, url, worker))()
            for load in self._loads:
                _say(f"{name}, {load.name}, {transport}")
                compared = compare(self._fleet, self._server, [OURS, *BARE], load, self._effort)
                self._note(name, CONTESTS[name].command, load, transport, compared, BARE)
            self._fleet.ask(PROCESSES, close_sides)
        self._server.empty()

    def _sync_read(self) -> None:
        for transport, url in self._server.urls.items():
            sides = sync_openers(url)
            self._fleet.ask(1, open_sides, sides)
            for load in _possible(SYNC, SYNC_ALONE):
                _say(f"sync read, {load.name}, {transport}")
                compared = compare(self._fleet, self._server, [*sides], load, self._effort)
                self._note("sync read", "GET, blocking", load, transport, compared, [DEFAULT])
            self._fleet.ask(1, close_sides)

    def _note(
        self, contest: str, command: str, load: Load, transport: str, compared: Comparison, rivals: list[str]
    ) -> None:
        best = compared.fastest(rivals)
        ours, bare, ratios = compared.medians(OURS), compared.medians(best), compared.ratios(OURS, best)
        self._results.rows.append(Row(contest, command, load.name, transport, best, ours, bare, ratios))


def _possible(*loads: Load) -> list[Load]:
    return [load for load in loads if can_choose_cores() or not load.one_core]


_say = partial(print, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
