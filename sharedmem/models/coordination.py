"""Results of coordination: locks and leases, rate limits, barriers, run-once, presence, task queues."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from sharedmem.models.record import Record


class Arrival(Record):
    """The passage of one party through a barrier."""

    position: int
    """From 0 for the first party up to the number of parties less one; each is given once a generation."""
    generation: int
    """Fencing token of this opening, the same for all parties: it rises with every opening."""


class Holder(Record):
    """A holder of a lease."""

    token: int
    """Fencing token: higher than the tokens of all earlier holders."""
    actor: str
    remaining_ms: int
    """Milliseconds until the lease expires if it is not renewed, by the server's clock."""
    shared: bool = False
    """Whether there may be others beside it: a place of a semaphore, or a reader."""


class LeaseGrant(Record):
    """A lock for a holder that renews it itself, with separate calls."""

    name: str
    token: int
    """Fencing token: send it with every write under the lock."""
    id: str
    """Id for renewing and releasing the lease: every caller that has it may do both."""
    remaining: float
    """Seconds until the lease expires if it is not renewed."""


class LeaseState(Record):
    """The holders of a name, and the number of waiters."""

    holders: tuple[Holder, ...]
    """Ordered by the end of their leases."""
    waiting: int


CoordinationKind = Literal["lock", "leader", "semaphore", "rwlock", "barrier", "limit"]


class CoordinationEntry(Record):
    """A name of coordination that is in use."""

    kind: CoordinationKind
    name: str
    """As the calls of its kind take it."""
    holders: tuple[Holder, ...] = ()
    """Of a lock, leader, semaphore or read/write lock, ordered by the end of their leases."""
    waiting: int = 0
    """Callers that wait for it; at a barrier the parties that have arrived."""
    parties: int | None = None
    """Number of parties that a barrier waits for."""
    used: int | None = None
    """Cost that counts against a rate limit now; of a token bucket rounded up."""
    algorithm: str | None = None
    """Of a rate limit. Its limit itself is not stored: callers give it."""
    remaining: float | None = None
    """Seconds until nothing of a rate limit is used any more."""


class CoordinationPage(Record):
    """Names of coordination that are in use, by kind and name."""

    entries: list[CoordinationEntry]
    cursor: str | None
    """Where the next page begins; None after the last."""


class Permit(Record):
    """Whether a rate limit admitted a cost; true in a condition if it did."""

    allowed: bool
    remaining: int
    """Cost that the limit can still admit after this one."""
    retry_after: float
    """Seconds until this cost can be admitted, unless other callers use it first; 0 if it was admitted."""

    def __bool__(self) -> bool:
        return self.allowed


class LimitState(Record):
    """The present state of a rate limit."""

    name: str
    algorithm: str
    limit: int
    per: float
    """Period of the limit in seconds."""
    burst: int
    """Highest cost that can be admitted at once: the size of the token bucket, or the limit."""
    remaining: int
    """Cost that the limit would admit now."""
    retry_after: float
    """Seconds until a cost of one can be admitted; 0 if it can be admitted now."""


class OnceGrant(Record):
    """The claim on a piece of work, or its result if it is done already."""

    key: str
    done: bool
    """True: the work is done, `result` is its result. False: the caller must run it now."""
    result: Any = None
    token: int = 0
    """Fencing token of the caller's run, higher than the tokens of all earlier runs; 0 if it is done already."""
    attempt: int = 0
    """Number of runs that were begun, this one included; 0 if it is done already."""
    remaining: float = 0.0
    """Seconds until the lease of the run expires if it is not renewed."""


class OnceState(Record):
    """The state of one piece of work that runs once."""

    key: str
    state: Literal["none", "running", "done"]
    """Also `none` after a run that failed, or whose lease has expired."""
    attempt: int
    """Number of runs that were begun."""
    token: int
    """Fencing token of the latest run: it rises with every run."""
    actor: str
    """The actor that began the latest run."""
    remaining: float
    """Seconds until the runner's lease or the result expires; 0 for `none`."""


class Present(Record):
    """An actor that is present."""

    actor: str
    role: str
    info: Any
    """Data that the actor published about itself."""
    since: datetime
    last_seen: datetime
    remaining: float
    """Seconds until the actor counts as gone, unless it sends a heartbeat."""


QueueLine = Literal["ready", "delayed", "claimed"]
"""The state of a task that is not done."""
TaskState = Literal["ready", "delayed", "claimed", "done", "dead"]
SearchedState = Literal["dead", "claimed", "ready", "delayed"]
"""The states that a search looks through, in its order."""


class Backoff(Record):
    """The pause before a task is tried again: up to `first` seconds, then up to twice that, at most `longest`."""

    first: float = 1.0
    longest: float = 300.0


class Receipt(Record):
    """A worker's claim on a task, needed to report its outcome; `token` is unique to the claim."""

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
    """Error of the previous attempt."""
    traceparent: str | None = None
    """Trace context (W3C) of the call that put the task; None if that was not traced."""
    deadline: float = Field(float("inf"), exclude=True)
    """When another worker can claim the task if it is not renewed, on this process's monotonic clock."""


class PutResult(Record):
    """A task that was put, or the existing one with the same deduplication id."""

    id: str
    is_new: bool


class QueuedTask(Record):
    """A task in a queue, for inspection without a claim."""

    id: str
    state: TaskState
    payload: Any
    priority: int
    attempts: int
    """Number of claims."""
    max_attempts: int
    put_by: str
    put_at: datetime
    dedup_id: str | None
    worker: str | None
    """The worker that has the task, or had it last."""
    error: str | None
    at: datetime | None
    """When its delay or visibility timeout ends, or when it became a dead letter; None for a ready task."""


class TaskPage(Record):
    """Tasks that a search has found."""

    tasks: list[QueuedTask]
    cursor: str | None
    """Where the next page begins; None after the last."""
    looked_at: int
    """Number of tasks that were compared for this page."""


class TaskOutcome(Record):
    """The outcome of a task."""

    id: str
    state: TaskState
    value: Any = None
    """Result of the task if it is done."""
    error: str | None = None
    """Last error of the task if it is not done."""

    @property
    def is_done(self) -> bool:
        """Whether the task is done and `value` is its result."""
        return self.state == "done"


class QueueCounters(Record):
    """Counts of what has happened in a queue; they restart at 0 after a week without a change."""

    put: int
    done: int
    retried: int
    recovered: int
    """Tasks whose claims expired because their workers did not renew them."""
    dead: int
    discarded: int


class QueueStats(Record):
    """The present content of a queue."""

    name: str
    ready: int
    delayed: int
    claimed: int
    dead: int
    workers_waiting: int
    paused: bool
    oldest_age: float | None
    """Seconds since the oldest claimable task was put; None if no task can be claimed."""
    counters: QueueCounters
