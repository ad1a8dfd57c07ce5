"""Chaos itself: its judges see what they should, a control that passes fails the run, nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest
from chaos.runner import Job, Report, plan_jobs, run_trial
from chaos.scenario import Trial
from chaos.scenarios import SCENARIOS
from chaos.scenarios.barriers import Barriers, Passage, find_broken_passages
from chaos.scenarios.limits import Limits
from chaos.trial_process import Result, run_scenario
from support.waiting import wait_until

TESTS = Path(__file__).parents[1]
TRIED = {"operations": 10, "faults": 2}
KEPT, VIOLATED = Result(counts=TRIED), Result(["a violation"], TRIED)


def report(result: Result, control: Result | None) -> Report:
    return Report(Job(Limits, 1, 5.0, 5.0), result, control)


def test_a_promise_is_kept_when_nothing_is_violated_and_the_control_fails() -> None:
    assert report(KEPT, VIOLATED).is_well


@pytest.mark.parametrize(
    ("result", "control"),
    [
        (VIOLATED, VIOLATED),
        (KEPT, KEPT),
        (KEPT, None),
        (KEPT, Result(["a violation"], TRIED, error="it broke off")),
        (Result(counts=TRIED, error="it broke off"), VIOLATED),
        (Result(counts={"operations": 10}), VIOLATED),
        (Result(counts={"faults": 2}), VIOLATED),
    ],
    ids=["violated", "control passes", "no control", "control broke off", "broke off", "no fault", "no work"],
)
def test_a_run_fails_when_a_promise_is_violated_or_the_judge_may_be_blind(
    result: Result, control: Result | None
) -> None:
    assert not report(result, control).is_well


def test_scenarios_share_the_time_and_say_what_they_are() -> None:
    jobs = plan_jobs(list(SCENARIOS.values()), seed=1, minutes=30, lanes=2)

    assert {job.scenario.name for job in jobs} == set(SCENARIOS)
    assert sum(job.seconds + job.control_s for job in jobs) < 30 * 60 * 2
    for name, scenario in SCENARIOS.items():
        assert scenario.name == name
        assert all((scenario.promise, scenario.fault, scenario.work, scenario.control))


async def test_a_scenario_that_raises_is_reported_with_its_trace(tmp_path: Path) -> None:
    class Raises(Limits):
        async def run(self, trial: Trial) -> None:
            raise ValueError(f"no luck with {trial.seed}")

    result = await run_scenario(Raises(), Trial("5", 1.0, is_control=False, folder=tmp_path))

    assert "no luck with 5" in result.error
    assert not result.is_kept


def test_a_control_is_over_as_soon_as_it_has_failed(tmp_path: Path) -> None:
    control = Trial("5", 1000.0, is_control=True, folder=tmp_path)
    trial = Trial("5", 1000.0, is_control=False, folder=tmp_path)

    for one in (control, trial):
        one.judge(["a violation"])

    assert control.is_over
    assert not trial.is_over


# -- judges ---------------------------------------------------------------------------------------


def opening(generation: int, *, came: float, went: float) -> list[Passage]:
    return [Passage(party, generation, party, came, went) for party in range(5)]


def test_openings_of_a_barrier_that_let_all_through_pass() -> None:
    assert find_broken_passages(opening(1, came=0, went=1) + opening(2, came=2, went=3)) == []


@pytest.mark.parametrize(
    ("passed", "sentence"),
    [
        (opening(1, came=0, went=1)[1:], "let through the parties"),
        ([*opening(1, came=0, went=1)[1:], Passage(1, 1, 0, 0, 1)], "let through the parties"),
        ([*opening(1, came=0, went=1)[1:], Passage(0, 1, 4, 0, 1)], "gave the places"),
        ([*opening(1, came=0, went=1)[1:], Passage(0, 1, 0, 2, 3)], "before all had come"),
    ],
)
def test_a_barrier_that_misleads_is_found_out(passed: list[Passage], sentence: str) -> None:
    assert any(sentence in told for told in find_broken_passages(passed))


# -- processes ------------------------------------------------------------------------------------


async def test_a_trial_ends_with_its_result_and_its_control_fails() -> None:
    trial = await run_trial(Limits.name, "7", 1.0)
    control = await run_trial(Barriers.name, "7", 30.0, is_control=True)

    assert trial.error == ""
    assert trial.violations == []
    assert trial.counts["operations"] > 0
    assert control.has_failed_as_it_should, control


def descendants(pid: int) -> list[int]:
    found = []
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, tasks.read_text().split()):
            found += [child, *descendants(child)]
    return found


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="processes are looked up in /proc")
@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.nightly), signal.SIGKILL]
)
async def test_whatever_ends_a_run_its_servers_and_workers_end_with_it(number: signal.Signals) -> None:
    # As a shell starts what it puts into the background.
    deaf = ("sh", "-c", 'trap "" INT; exec "$@"', "sh")
    run = await asyncio.create_subprocess_exec(
        *(*deaf, sys.executable, "-m", "chaos", "--only", "once", "--minutes", "5"),
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        stdout=PIPE,
    )
    # The trial, its server and some of its agents.
    await wait_until(lambda: len(descendants(run.pid)) > 3, description="the trial is at work", within_s=60)
    started = descendants(run.pid)

    run.send_signal(number)

    async with asyncio.timeout(60):
        await run.communicate()
    await wait_until(
        lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in started),
        description="all that it has started has ended",
        within_s=60,
    )
    assert run.returncode == (130 if number != signal.SIGKILL else -number)
