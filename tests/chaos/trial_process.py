"""One trial as a process of its own: `python -m chaos.trial_process <name> <seed> <seconds> [control]`.

The last line that it prints is JSON (see `Result`). It ends with its standard input, so also when its parent is killed,
and takes all processes of its group with it.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from chaos.scenario import Scenario, SkippedError, Trial
from chaos.scenarios import SCENARIOS


@dataclass(frozen=True)
class Result:
    """What became of a trial.

    Attributes:
        seconds: how long it took, all in all.
        skipped: what the machine lacks; empty when the trial took place.
        error: why it could not end as planned; empty when it did.
    """

    violations: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    skipped: str = ""
    error: str = ""

    @property
    def is_kept(self) -> bool:
        """Whether the trial took place, something was tried and broken, and the promise held."""
        return not self.violations and not self.error and not self.skipped and self.has_tried

    @property
    def has_tried(self) -> bool:
        """Whether something was done, and something broken meanwhile."""
        return self.counts.get("operations", 0) > 0 and self.counts.get("faults", 0) > 0

    @property
    def has_failed_as_it_should(self) -> bool:
        """For a control: whether the judge has seen the violation."""
        return bool(self.violations) and not self.error


async def run_scenario(scenario: Scenario, trial: Trial) -> Result:
    """Run a trial; whatever it raises is part of the result."""
    began = time.monotonic()
    skipped = error = ""
    try:
        await scenario.run(trial)
    except SkippedError as reason:
        skipped = str(reason)
    except Exception:  # noqa: BLE001  # a scenario that breaks is reported beside the others
        error = traceback.format_exc(limit=-12)
    return Result(trial.violations, dict(trial.counts), time.monotonic() - began, skipped, error)


def _end_with_the_parent() -> None:
    while os.read(0, 4096):
        pass
    os.killpg(0, signal.SIGKILL)


async def _main(name: str, seed: str, seconds: str, *control: str) -> None:
    running = asyncio.current_task()
    assert running is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="smk"))
    try:
        trial = Trial(seed, float(seconds), bool(control), folder)
        result = await run_scenario(SCENARIOS[name](), trial)
        sys.stdout.write(json.dumps(asdict(result)) + "\n")
        sys.stdout.flush()
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


if __name__ == "__main__":
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    with suppress(asyncio.CancelledError):
        asyncio.run(_main(*sys.argv[1:]))
