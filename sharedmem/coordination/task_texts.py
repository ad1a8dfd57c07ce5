"""Tasks and claims as the scripts spell them, read as records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sharedmem.clock import from_microseconds
from sharedmem.models.tasks import QueuedTask, Task, TaskState
from sharedmem.wire.codec import decode_member


class Claim(NamedTuple):
    """What became of a task before, and who has it."""

    attempts: int
    worker: str | None
    error: str | None


def read_tasks(reply: bytes, deadline: float) -> Iterator[Task]:
    """The tasks that `lua/queue_claim.lua` hands out.

    Args:
        reply: what it answered.
        deadline: until when they are held, on the local clock.
    """
    at = 0
    while at < len(reply):
        end = reply.index(b"\n", at)
        task_id, token, attempt, error_bytes, task_bytes = reply[at:end].split(b" ")
        begin = end + 1 + int(error_bytes)
        at = begin + int(task_bytes)
        error = reply[end + 1 : begin]
        yield _task(task_id.decode(), int(token), int(attempt), error, reply[begin:at], deadline)


def _task(task_id: str, token: int, attempt: int, error: bytes, text: bytes, deadline: float) -> Task:
    head, _, payload = text.partition(b"\n")
    priority, max_attempts, put_by, dedup_id = head.split(b" ", 3)
    return Task.model_construct(
        id=task_id,
        token=token,
        attempt=attempt,
        payload=decode_member(payload),
        priority=int(priority),
        max_attempts=int(max_attempts),
        put_by=put_by.decode(),
        put_at=from_microseconds(int(task_id)),
        dedup_id=dedup_id.decode() or None,
        error=_words(error),
        deadline=deadline,
    )


def read_queued(task_id: str, text: bytes, claim_text: bytes, *, state: TaskState, at: int | None) -> QueuedTask:
    """A task that somebody looks at.

    Args:
        task_id: which one.
        text: the task as it was put.
        claim_text: its claim, or nothing.
        state: where it was found.
        at: the microseconds by which it stands there; None where it does not stand by a time.
    """
    head, _, payload = text.partition(b"\n")
    priority, max_attempts, put_by, dedup_id = head.split(b" ", 3)
    claim = read_claim(claim_text)
    return QueuedTask(
        id=task_id,
        state=state,
        payload=decode_member(payload),
        priority=int(priority),
        attempts=claim.attempts,
        max_attempts=int(max_attempts),
        put_by=put_by.decode(),
        put_at=from_microseconds(int(task_id)),
        dedup_id=dedup_id.decode() or None,
        worker=claim.worker,
        error=claim.error,
        at=None if at is None else from_microseconds(at),
    )


def read_claim(text: bytes) -> Claim:
    """A claim; one that was never made has no attempts."""
    if not text:
        return Claim(0, None, None)
    head, _, error = text.partition(b"\n")
    _, attempts, worker, _ = head.split(b" ", 3)
    return Claim(int(attempts), worker.decode(), _words(error))


def _words(error: bytes) -> str | None:
    # An error that was cut short may end within a character.
    return error.decode(errors="replace") or None
