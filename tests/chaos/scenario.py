"""What a scenario is, and what one run of it may use."""

from __future__ import annotations

import asyncio
import random
import time
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

MOST_VIOLATIONS = 20
"""How many of them a trial keeps: one is enough to fail, and some more show the pattern."""


class SkippedError(Exception):
    """This machine lacks something that the scenario needs; the message says what."""


@dataclass
class Trial:
    """One run of a scenario.

    Args:
        seed: decides every choice that the scenario makes.
        seconds: how long it goes on making faults.
        is_control: whether the cure is switched off, so that the judge has something to find.
        folder: an empty folder of its own, removed afterwards.
    """

    seed: str
    seconds: float
    is_control: bool
    folder: Path
    violations: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self._ends_at = time.monotonic() + self.seconds

    @property
    def remaining_s(self) -> float:
        """Seconds left; 0 when the time is over, and as soon as a control has shown what it had to."""
        if self.is_control and self.violations:
            return 0.0
        return max(self._ends_at - time.monotonic(), 0.0)

    @property
    def is_over(self) -> bool:
        """Whether it is time to stop and to judge."""
        return self.remaining_s == 0.0

    def did(self, operations: int = 1) -> None:
        """Count calls of the product."""
        self.counts["operations"] += operations

    def broke(self, faults: int = 1) -> None:
        """Count faults that were made."""
        self.counts["faults"] += faults

    def judge(self, found: list[str]) -> None:
        """Take down what broke the promise."""
        self.counts["violations"] += len(found)
        self.violations += found[: MOST_VIOLATIONS - len(self.violations)]

    async def pause(self, least_s: float, most_s: float) -> None:
        """Let the work go on for a while before the next fault, but not beyond the end."""
        await asyncio.sleep(min(self.dice.uniform(least_s, most_s), self.remaining_s))


class Scenario(ABC):
    """A promise, a fault that could break it, the work that goes on meanwhile, and a judge.

    Attributes:
        name: how `--only` names it.
        promise: what callers rely on, in one sentence.
        fault: what is broken.
        work: what clients do meanwhile.
        control: what is switched off in the control, which has to fail.
        weight: its share of the time, where 1 is usual.
    """

    name: ClassVar[str]
    promise: ClassVar[str]
    fault: ClassVar[str]
    work: ClassVar[str]
    control: ClassVar[str]
    weight: ClassVar[float] = 1.0

    @abstractmethod
    async def run(self, trial: Trial) -> None:
        """Work and break until the trial is over; tell the trial what broke the promise.

        Raises:
            SkippedError: the machine lacks something.
        """
