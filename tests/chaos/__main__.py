"""The command line of chaos: `python -m chaos --quick`, with `tests` on the path."""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
from collections.abc import Sequence

from rich.console import Console

from chaos import report
from chaos.runner import Job, Report, plan_jobs, run_all
from chaos.scenarios import SCENARIOS

FULL_MINUTES, QUICK_MINUTES = 30.0, 3.0
_STOPPED, _WIDTH = 130, 120


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; returns the exit code: 0 when every promise held and every control failed."""
    asked = _parsed(arguments)
    chosen = [SCENARIOS[name] for name in asked.only or SCENARIOS]
    if asked.list:
        report.describe_scenarios(Console(), chosen)
        return 0
    seed = random.SystemRandom().randrange(10**6) if asked.seed is None else asked.seed
    minutes = asked.minutes or (QUICK_MINUTES if asked.quick else FULL_MINUTES)
    lanes = min(asked.lanes or os.cpu_count() or 1, len(chosen))
    jobs = plan_jobs(chosen, seed=seed, minutes=minutes, lanes=lanes)
    if asked.seconds:
        jobs = [Job(job.scenario, seed, asked.seconds, job.control_s) for job in jobs]
    console = Console(stderr=asked.json)
    if not console.is_terminal:
        console.width = _WIDTH
    console.print(f"seed {seed}, {len(jobs)} scenarios, about {minutes:g} minutes, {lanes} at a time", highlight=False)
    try:
        reports = asyncio.run(_run(jobs, lanes, console))
    except asyncio.CancelledError:
        console.print(f"stopped; go on with --seed {seed}", highlight=False)
        return _STOPPED
    return _print_report(reports, console, seed=seed, as_json=asked.json)


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="chaos", description="Break things under load and judge what was promised.")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_MINUTES:g} minutes instead of {FULL_MINUTES:g}")
    parser.add_argument("--minutes", type=_positive, help="how long all of it takes, roughly")
    parser.add_argument("--seconds", type=_positive, help="how long each scenario makes faults, instead of its share")
    parser.add_argument("--seed", type=int, help="repeat the choices of another run")
    parser.add_argument("--only", action="append", choices=SCENARIOS, metavar="NAME", help="this one; may be repeated")
    parser.add_argument("--lanes", type=int, choices=range(1, 65), metavar="N", help="at a time; default: one per core")
    parser.add_argument("--json", action="store_true", help="results as JSON on standard output")
    parser.add_argument("--list", action="store_true", help="say what each scenario tries")
    return parser.parse_args(arguments)


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < 10_000:
        raise argparse.ArgumentTypeError(f"expected a number between 0 and 10,000, got {text}")
    return number


async def _run(jobs: Sequence[Job], lanes: int, console: Console) -> list[Report]:
    running = asyncio.current_task()
    assert running is not None
    # Also where a shell has started this in the background and made it ignore Ctrl-C.
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    with report.Bar(console, jobs) as bar:
        return await run_all(jobs, lanes=lanes, notify=bar.show)


def _print_report(reports: Sequence[Report], console: Console, *, seed: int, as_json: bool) -> int:
    console.print(report.table(reports))
    for one in reports:
        for line in report.details(one):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    if as_json:
        sys.stdout.write(report.as_json(reports, seed=seed) + "\n")
    # Where CI is set nothing may be skipped, as in the tests.
    is_well = all(one.is_well or (one.is_skipped and not os.environ.get("CI")) for one in reports)
    console.print(f"seed {seed}: {'every promise held' if is_well else 'not every promise held'}", highlight=False)
    return int(not is_well)


if __name__ == "__main__":
    sys.exit(main())
