"""What is known of work that is done a single time."""

from __future__ import annotations

from typing import Literal

from sharedmem.models.record import Record


class OnceState(Record):
    """How far a piece of work is, and how it came about."""

    key: str
    state: Literal["none", "running", "done"]
    """`none` also after a run that failed, or whose lease has ended."""
    attempt: int
    """How often it was begun; 0 when never."""
    token: int
    """Fencing token of the latest run: it rises with every run."""
    actor: str
    """Who began the latest run."""
    remaining: float
    """Seconds until the runner's lease ends, or the result expires; 0 for `none`."""
