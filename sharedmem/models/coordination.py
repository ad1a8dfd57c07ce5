"""Results of coordination: locks and leases, rate limits, barriers, run-once, presence, task queues."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from sharedmem.models.record import Record


class Arrival(Record):
    """How somebody came through a barrier."""

    position: int
    """0 for who came first, up to the number of parties less one; each is given once a generation."""
    generation: int
    """Fencing token of this opening, the same for all parties: it rises with every opening."""


class Holder(Record):
    """Somebody who holds something now."""

    token: int
    """Fencing token: higher than those of all earlier holders."""
    actor: str
    remaining_ms: int
    """Until the lease ends if it is not renewed, by the server's clock."""


class LeaseGrant(Record):
    """A lock that was given to a holder who renews it by itself, call by call."""

    name: str
    token: int
    """Fencing token: goes along with what is written under the lock."""
    id: str
    """Renews the lease, and gives it back: whoever knows it may."""
    remaining: float
    """Seconds until it ends if it is not renewed."""


class LeaseState(Record):
    """Who holds a name, and how many wait for it."""

    holders: tuple[Holder, ...]
    """In the order in which their leases end."""
    waiting: int


class Permit(Record):
    """Whether a cost was admitted; true in a condition if it was."""

    allowed: bool
    remaining: int
    """What is left just after this."""
    retry_after: float
    """Seconds until this cost can be admitted, if nobody else is faster; 0 when it was."""

    def __bool__(self) -> bool:
        return self.allowed


class LimitState(Record):
    """A rate limit as it stands."""

    name: str
    algorithm: str
    limit: int
    per: float
    """Seconds in which so much is admitted."""
    burst: int
    """What may be admitted at once: the size of the token bucket, or the limit."""
    remaining: int
    """What would be admitted now."""
    retry_after: float
    """Seconds until a cost of one can be admitted; 0 when it can be now."""


class OnceGrant(Record):
    """Whether a piece of work is the caller's to do now, or was done already."""

    key: str
    done: bool
    """True if it was done already: `result` is what it returned. False if the caller is to do it now."""
    result: Any = None
    token: int = 0
    """Fencing token of the caller's run, higher than those of all earlier runs; 0 when it was done already."""
    attempt: int = 0
    """How often it was begun, this run included; 0 when it was done already."""
    remaining: float = 0.0
    """Seconds until the lease of the run ends if it is not renewed."""


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


class Present(Record):
    """An actor who is here."""

    actor: str
    role: str
    info: Any
    """What it says of itself."""
    since: datetime
    last_seen: datetime
    remaining: float
    """Seconds until it counts as lapsed, unless it is heard of again."""


QueueLine = Literal["ready", "delayed", "claimed"]
"""Where a task that is not done waits."""
TaskState = Literal["ready", "delayed", "claimed", "done", "dead"]


class Backoff(Record):
    """How long to pause before a task is tried again: up to `first` seconds, then twice that, up to `longest`."""

    first: float = 1.0
    longest: float = 300.0


class Receipt(Record):
    """What a worker shows to say what became of a task; `token` tells its claim from all others."""

    id: str
    token: int
    attempt: int = 1


class Task(Receipt):
    """A task that a worker has claimed."""

    payload: Any
    priority: int
    max_attempts: int
    put_by: str
    put_at: datetime
    dedup_id: str | None = None
    error: str | None = None
    """What went wrong in the attempt before."""
    deadline: float = Field(float("inf"), exclude=True)
    """Until when nobody else gets it if it is not renewed, on this process's monotonic clock."""


class PutResult(Record):
    """A task that was put, or the one that was there under the same deduplication id."""

    id: str
    is_new: bool


class QueuedTask(Record):
    """A task as somebody sees it who only looks."""

    id: str
    state: TaskState
    payload: Any
    priority: int
    attempts: int
    """How often it was claimed."""
    max_attempts: int
    put_by: str
    put_at: datetime
    dedup_id: str | None
    worker: str | None
    """Who has it, or had it last."""
    error: str | None
    at: datetime | None
    """When its delay or its visibility ends, or when it died; None for one that is ready."""


class TaskOutcome(Record):
    """What became of a task."""

    id: str
    state: TaskState
    value: Any = None
    """The result of one that is done."""
    error: str | None = None
    """What went wrong last in one that is not."""

    @property
    def is_done(self) -> bool:
        """Whether it was done, and `value` is its result."""
        return self.state == "done"


class QueueCounters(Record):
    """What has happened in a queue so far; nothing counted for a week begins anew."""

    put: int
    done: int
    retried: int
    recovered: int
    """Taken back from workers that were not heard of."""
    dead: int
    discarded: int


class QueueStats(Record):
    """What is in a queue now."""

    name: str
    ready: int
    delayed: int
    claimed: int
    dead: int
    workers_waiting: int
    paused: bool
    oldest_age: float | None
    """Seconds since the oldest task that could be claimed was put; None when there is none."""
    counters: QueueCounters
