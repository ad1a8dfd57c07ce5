"""How long commands take from their start to their end, beside an interpreter that imports redis-py and does nothing.

python benchmarks/startup.py                  about two minutes
python benchmarks/startup.py --quick          a first impression: half a minute
python benchmarks/startup.py --page docs/benchmarks.md

Each command is a process of its own, whose modules are compiled; all take turns, round by round. The seconds of a round
are divided by those of `python -c "import redis"` in that round, and the medians of these ratios are reported: of wall
time, and of the CPU time of the process.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

from bench_report import Verdict, factor, replace_part
from harness import machine, private_server
from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results" / "startup.json"
ROUNDS, QUICK_ROUNDS = 25, 7
GET = "sharedmem get KEY"
MOST_GET = 2.0
_SHAREDMEM = Path(sys.executable).with_name("sharedmem")
_BASELINE = 'python -c "import redis"'


class Program(NamedTuple):
    """A command line with the variables that it needs."""

    words: tuple[str, ...]
    variables: Mapping[str, str] = {}


class Cost(NamedTuple):
    """Seconds that one process took."""

    wall_s: float
    cpu_s: float


@dataclass
class StartupResults:
    """What a run has measured."""

    machine: dict[str, str]
    quick: bool
    costs: dict[str, list[Cost]] = field(default_factory=dict)
    """By command: one in each round."""

    def ratios(self, command: str) -> Cost:
        """Return the times of a command as multiples of the baseline's: medians over the rounds."""
        pairs = list(zip(self.costs[command], self.costs[_BASELINE], strict=True))
        return Cost(*(median(ours[at] / base[at] for ours, base in pairs) for at in range(2)))

    def milliseconds(self, command: str) -> Cost:
        """Return the medians of a command's times, in milliseconds."""
        return Cost(*(median(times) * 1000 for times in zip(*self.costs[command], strict=True)))


def main() -> int:
    """Measure what the command line asks for."""
    asked = _arguments()
    results = StartupResults(machine() | {"load": f"{os.getloadavg()[0]:.1f}"}, asked.quick)
    with _programs() as programs:
        for program in programs.values():
            _run(program)  # what is compiled, and loaded by the server, is there from now on
        for _ in range(QUICK_ROUNDS if asked.quick else ROUNDS):
            for name, program in programs.items():
                results.costs.setdefault(name, []).append(_run(program))
    goal = verdict(results)
    _show(results, goal)
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    told = asdict(results) | {
        "ratios": {name: results.ratios(name)._asdict() for name in results.costs},
        "goals": [asdict(goal) | {"verdict": goal.word}],
    }
    asked.json.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    if asked.page:
        replace_part(asked.page, "startup", _page_lines(results, goal))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="How long commands take, beside an interpreter that imports redis-py.")
    parser.add_argument("--quick", action="store_true", help="few rounds: a first impression")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="PATH", help="where the figures go")
    parser.add_argument("--page", type=Path, metavar="PATH", help="a page whose part to replace")
    return parser.parse_args()


@contextmanager
def _programs() -> Iterator[dict[str, Program]]:
    """Yield the commands by their names; the servers that they use run until the block ends."""
    with private_server() as server, TemporaryDirectory(prefix="sm-bench-") as folder, _compiled(Path(folder)):
        place = ("--url", server.urls["tcp"])
        own = ("--data-dir", f"{folder}/data")
        completion = {"_SHAREDMEM_COMPLETE": "complete_bash", "COMP_WORDS": "sharedmem get top", "COMP_CWORD": "2"}
        for given in (place, own):
            _run(_sharedmem(*given, "set", "topic", "tides"))
        _run(_sharedmem(*own, "up"))
        try:
            yield {
                _BASELINE: _python("import redis"),
                GET: _sharedmem(*place, "get", "topic"),
                f"{GET}, embedded server that runs": _sharedmem(*own, "get", "topic"),
                "sharedmem get --help": _sharedmem("get", "--help"),
                "sharedmem --help": _sharedmem("--help"),
                "completion of a key by bash": Program(
                    (str(_SHAREDMEM),), completion | {"SHAREDMEM_REDIS_URL": server.urls["tcp"]}
                ),
                "sharedmem doctor": _sharedmem(*place, "doctor"),
                'python -c "import sharedmem"': _python("import sharedmem"),
                'python -c "from sharedmem import Hub"': _python("from sharedmem import Hub"),
            }
        finally:
            _run(_sharedmem(*own, "down"))


@contextmanager
def _compiled(folder: Path) -> Iterator[None]:
    """Let processes keep and find compiled modules below a folder, whatever the environment says of them."""
    before = dict(os.environ)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _sharedmem(*words: str) -> Program:
    return Program((str(_SHAREDMEM), *words))


def _python(code: str) -> Program:
    return Program((sys.executable, "-c", code))


def _run(program: Program) -> Cost:
    """Run a program to its end."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SHAREDMEM_")}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(program.words, env={**kept, **program.variables}, check=True, stdout=subprocess.DEVNULL)
    wall_s, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


# -- report ----------------------------------------------------------------------------------------


def verdict(results: StartupResults) -> Verdict:
    """Return whether a command that reads one value is as short as it should be."""
    found = results.ratios(GET)
    goal = f"{GET}, against {_BASELINE}: at most {MOST_GET:g} times the wall time"
    return Verdict(goal, f"{factor(found.wall_s)} (CPU {factor(found.cpu_s)})", found.wall_s <= MOST_GET)


def _rows(results: StartupResults) -> Iterator[tuple[str, ...]]:
    for name in results.costs:
        ratios, took = results.ratios(name), results.milliseconds(name)
        yield name, *(f"{time_ms:.0f}" for time_ms in took), *map(factor, ratios)


_COLUMNS = ("command", "wall, ms", "CPU, ms", "wall", "CPU")


def _show(results: StartupResults, goal: Verdict) -> None:
    table = Table(title="from start to end; medians of interleaved rounds")
    for name in _COLUMNS:
        table.add_column(name, justify="left" if name == "command" else "right")
    for row in _rows(results):
        table.add_row(*row)
    goals = Table(title="goals")
    for name in ("goal", "found", "verdict"):
        goals.add_column(name)
    goals.add_row(goal.goal, goal.found, goal.word)
    terminal = Console()
    terminal.width = max(terminal.width, 150)
    terminal.print(table)
    terminal.print(goals)


def _page_lines(results: StartupResults, goal: Verdict) -> Iterator[str]:
    about = results.machine
    yield (
        f"Redis-py {about['redis']}, Python {about['python']}, {about['system']}, {about['cores']} cores; "
        f"the load average was {about['load']} at the beginning."
    )
    yield from ("", "| goal | found | |", "|---|---|---|", f"| {goal.goal} | {goal.found} | {goal.word} |", "")
    yield f"| {' | '.join(_COLUMNS)} |"
    yield "|---|---:|---:|---:|---:|"
    yield from (f"| {' | '.join(row)} |" for row in _rows(results))


if __name__ == "__main__":
    sys.exit(main())
