"""What calls on task queues take and answer with."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from sharedmem.models.record import Record

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
