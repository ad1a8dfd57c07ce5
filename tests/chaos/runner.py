"""Trials in lanes: each in a process group of its own, bounded in time, with nothing left behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from chaos.scenario import Scenario
from chaos.trial_process import Result

TESTS = Path(__file__).resolve().parent.parent
GRACE_S, FAREWELL_S = 75.0, 8.0
"""What a trial may take beyond its time, for its judge; and to clean up when it is told to stop."""
CONTROL_TRIES = 3
_CONTROL_SHARE, _MOST_CONTROL_S, _OVERHEAD_S, _LEAST_S = 0.3, 60.0, 4.0, 4.0
_LONGEST_LINE = 2**22


@dataclass(frozen=True)
class Job:
    """A scenario, and how long it and its control may take.

    Attributes:
        control_s: for all tries of the control together.
    """

    scenario: type[Scenario]
    seed: int
    seconds: float
    control_s: float


@dataclass(frozen=True)
class Report:
    """What became of a job; `control` is None when there was no point in it."""

    job: Job
    result: Result
    control: Result | None

    @property
    def is_skipped(self) -> bool:
        """Whether the machine lacks what the scenario needs."""
        return bool(self.result.skipped)

    @property
    def is_well(self) -> bool:
        """Whether the promise held, and the judge would have seen it broken."""
        return self.result.is_kept and self.control is not None and self.control.has_failed_as_it_should


def plan_jobs(scenarios: Sequence[type[Scenario]], *, seed: int, minutes: float, lanes: int) -> list[Job]:
    """Share the time out, the longest first, so that all lanes end together."""
    total = sum(scenario.weight for scenario in scenarios)
    jobs = []
    for scenario in sorted(scenarios, key=lambda one: (-one.weight, one.name)):
        share = min(minutes * 60 * lanes / total * scenario.weight, minutes * 60)
        control = min(share * _CONTROL_SHARE, _MOST_CONTROL_S)
        jobs.append(Job(scenario, seed, max(share - control - _OVERHEAD_S, _LEAST_S), max(control, _LEAST_S)))
    return jobs


async def run_all(
    jobs: Sequence[Job], *, lanes: int, notify: Callable[[str, Job, Report | None], None]
) -> list[Report]:
    """Run jobs in lanes.

    Args:
        notify: called with `began` and a job, with `ended` and its report.

    Returns:
        the reports in the order in which they ended.
    """
    waiting, reports = list(reversed(jobs)), list[Report]()

    async def lane() -> None:
        while waiting:
            job = waiting.pop()
            notify("began", job, None)
            report = await _report(job)
            reports.append(report)
            notify("ended", job, report)

    async with asyncio.TaskGroup() as group:
        for _ in range(lanes):
            group.create_task(lane())
    return reports


async def _report(job: Job) -> Report:
    seed = f"{job.seed} {job.scenario.name}"
    result = await run_trial(job.scenario.name, seed, job.seconds)
    if result.error:
        # That says nothing about the promise: once more. A violation is never tried again.
        result = await run_trial(job.scenario.name, seed, job.seconds)
    control: Result | None = None
    ends_at = time.monotonic() + job.control_s
    for attempt in range(0 if result.skipped else CONTROL_TRIES):
        left = ends_at - time.monotonic()
        seed = f"{job.seed} {job.scenario.name} control {attempt}"
        # The first try may take what there is: a control ends as soon as it has failed.
        control = await run_trial(job.scenario.name, seed, max(left, _LEAST_S), is_control=True)
        if control.has_failed_as_it_should:
            break
    return Report(job, result, control)


async def run_trial(name: str, seed: str, seconds: float, *, is_control: bool = False) -> Result:
    """Run one trial in a process of its own; whatever it has started is gone afterwards."""
    words = [sys.executable, "-m", "chaos.trial_process", name, seed, str(seconds), *["control"][: int(is_control)]]
    environment = os.environ | {"PYTHONPATH": str(TESTS)}
    process = await asyncio.create_subprocess_exec(
        *words, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment, cwd=TESTS.parent,
        start_new_session=True, limit=_LONGEST_LINE,
    )  # fmt: skip
    began = time.monotonic()
    try:
        async with asyncio.timeout(seconds + GRACE_S):
            output, errors = await process.communicate()
    except TimeoutError:
        await _stop(process)
        return Result(seconds=time.monotonic() - began, error=f"it had not ended {GRACE_S:g} s after its time")
    finally:
        await _stop(process)
    return _read(output, errors.decode(errors="replace"), process.returncode)


def _read(output: bytes, errors: str, code: int | None) -> Result:
    lines = output.splitlines()
    with suppress(IndexError, ValueError, TypeError):
        result = Result(**json.loads(lines[-1]))
        if not (result.violations or result.error or result.skipped or result.has_tried):
            return replace(result, error=f"nothing was tried; the trial printed: {errors[-2000:]}")
        return result
    return Result(error=f"the trial ended with code {code} and no result: {errors[-2000:]}")


async def _stop(process: Process) -> None:
    """Let a trial clean up, then end all of its group."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_S):
                await process.wait()
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
