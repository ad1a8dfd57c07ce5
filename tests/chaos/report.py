"""What a run of chaos shows: a bar while it runs, a table at the end, or JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from chaos.runner import Job, Report


class Bar:
    """Says on a terminal what is running, and elsewhere a line for each scenario that has ended.

    Args:
        console: where.
        jobs: all that will run.
    """

    def __init__(self, console: Console, jobs: Sequence[Job]) -> None:
        self._console = console
        self._running: list[str] = []
        self._progress = Progress(
            SpinnerColumn(),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}"),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("", total=len(jobs))

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, what: str, job: Job, report: Report | None) -> None:
        """Show that a job begins or ends."""
        name = job.scenario.name
        if what == "began":
            self._running.append(name)
        else:
            self._running.remove(name)
            self._progress.advance(self._task)
        self._progress.update(self._task, description=", ".join(self._running))
        if report is not None:
            self._console.print(f"{time.strftime('%H:%M:%S')} {name}: {verdict(report)}", highlight=False)


def verdict(report: Report) -> str:
    """One word or two on what became of a scenario, with colours."""
    result, control = report.result, report.control
    if result.skipped:
        return f"[yellow]skipped[/]: {result.skipped}"
    if result.error:
        return "[red]broke off[/]"
    if result.violations:
        return f"[red]{result.counts.get('violations', len(result.violations))} violated[/]"
    if control is None or not control.has_failed_as_it_should:
        return "[red]its control does not fail[/]"
    return "[green]kept[/]"


def table(reports: Sequence[Report]) -> Table:
    """A line for each scenario, by name."""
    shown = Table(title="What is promised under chaos", title_justify="left")
    shown.add_column("scenario", no_wrap=True)
    for name in ("seconds", "operations", "faults", "violations"):
        shown.add_column(name, justify="right", no_wrap=True)
    shown.add_column("control", no_wrap=True)
    shown.add_column("verdict")
    for report in sorted(reports, key=lambda one: one.job.scenario.name):
        counts, control = report.result.counts, report.control
        shown.add_row(
            report.job.scenario.name,
            f"{report.result.seconds:.0f}",
            *(f"{counts.get(name, 0):,}" for name in ("operations", "faults", "violations")),
            "" if control is None else f"{control.counts.get('violations', 0):,} found",
            verdict(report),
        )
    return shown


def details(report: Report) -> list[str]:
    """What a developer needs to analyse a failed scenario."""
    if report.is_well or report.is_skipped:
        return []
    name = report.job.scenario.name
    told = [f"{name}: {report.job.scenario.promise}", *(f"  {line}" for line in report.result.violations)]
    told += [f"  {line}" for line in report.result.error.splitlines()]
    if report.control is not None and not report.control.has_failed_as_it_should:
        told.append(f"  The control found nothing ({report.job.scenario.control}).")
        told += [f"  {line}" for line in report.control.error.splitlines()]
    again = f"--only {name} --seed {report.job.seed} --seconds {report.job.seconds:.0f}"
    return [*told, f"  again: make chaos ARGS='{again}'"]


def as_json(reports: Sequence[Report], *, seed: int) -> str:
    """All that the table shows, and the violations, for programs."""
    scenarios: list[dict[str, Any]] = [
        {
            "name": report.job.scenario.name,
            "promise": report.job.scenario.promise,
            "is_well": report.is_well,
            "result": asdict(report.result),
            "control": None if report.control is None else asdict(report.control),
        }
        for report in sorted(reports, key=lambda one: one.job.scenario.name)
    ]
    return json.dumps({"seed": seed, "scenarios": scenarios}, indent=2)


def describe_scenarios(console: Console, scenarios: Sequence[Any]) -> None:
    """Say what each scenario tries."""
    for scenario in scenarios:
        console.print(f"[bold]{scenario.name}[/]: {scenario.promise}", highlight=False)
        for what in ("fault", "work", "control"):
            console.print(f"  {what}: {getattr(scenario, what)}", highlight=False)
