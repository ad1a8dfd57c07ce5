"""Access to one task queue: its keys and settings, checks of arguments, putting tasks, and claiming them.

A producer puts tasks, one or many, with priority, delay and deduplication. A consumer claims tasks, renews claims, and
acknowledges, retries, fails or releases tasks.
"""

from __future__ import annotations

import random
import re
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, Literal, NamedTuple, TypeVar

from sharedmem.clock import from_microseconds
from sharedmem.coordination.names import NameAccess, check_seconds, check_wait, safe_deadline
from sharedmem.errors import ClaimLostError, InvalidError
from sharedmem.models.coordination import Backoff, PutResult, QueuedTask, Receipt, Task, TaskState
from sharedmem.models.record import all_of_checked, of_checked
from sharedmem.redis.codec import decode_member, encode_member, split_trace, with_trace
from sharedmem.redis.keys import Target
from sharedmem.redis.pubsub import Waiter
from sharedmem.redis.scripts.data import WriteBatcher, join_replies, split_replies
from sharedmem.redis.scripts.task_queues import (
    AckKeys,
    ClaimKeys,
    DoneTask,
    LeaveKeys,
    MoveKeys,
    OfferKeys,
    PutKeys,
    PutTerms,
    QueueScripts,
    ReleaseKeys,
    RenewKeys,
    TaskPayload,
)
from sharedmem.runtime.telemetry import AttributeValue, current_traceparent, work_span

LONGEST_PAUSE_S = 31 * 86_400.0
_DOUBLED_AT_MOST = 62


def pause_after(attempt: int, backoff: Backoff, luck: float) -> float:
    """Return the pause in seconds after an attempt, with jitter, so that tasks that failed together spread out.

    Args:
        attempt: number of the failed attempt, from 1.
        backoff: first and longest pause.
        luck: a random number from 0 to 1.
    """
    doubled = min(attempt - 1, _DOUBLED_AT_MOST)
    return luck * min(backoff.longest, backoff.first * 2.0**doubled)


def check_backoff(backoff: Backoff | tuple[float, float]) -> Backoff:
    """Return a backoff as a `Backoff`.

    Raises:
        InvalidError: the backoff is invalid, or its longest pause is shorter than the first.
    """
    if isinstance(backoff, tuple) and len(backoff) == 2:
        backoff = of_checked(Backoff, {"first": backoff[0], "longest": backoff[1]})
    if not isinstance(backoff, Backoff):
        raise InvalidError("backoff", backoff, "give (seconds at first, seconds at most), or a Backoff")
    check_seconds("backoff", backoff.first, least=0, most=LONGEST_PAUSE_S)
    check_seconds("backoff", backoff.longest, least=backoff.first, most=LONGEST_PAUSE_S)
    return backoff


T = TypeVar("T")
KeysOf = TypeVar("KeysOf", bound=tuple[Any, ...])
LONGEST_DELAY_S = 366 * 86_400.0
# A waiting worker polls after this, in case a notification was lost (lua/include/queue.lua relies on it).
POLL_S = (10.0, 20.0)
TASK_ID = re.compile(r"[0-9]{16}")

_MOST_ATTEMPTS = 1_000
_HIGHEST_PRIORITY = 1_000_000_000
_LONGEST_ERROR = 2_000
_LONGEST_ID_BYTES = 256
_LARGEST_TOKEN = 1 << 53
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f{}\ud800-\udfff]")


class QueueTerms(NamedTuple):
    """The settings of a queue."""

    visibility_s: float
    visibility_ms: int
    max_attempts: int
    backoff: Backoff
    result_ms: int


class QueueAccess:
    """One queue as one actor uses it: its keys, its scripts and its settings.

    Args:
        names: the names within the actor's rights.
        name: the name of the queue, as callers give it.
        target: the key of the name.
        terms: the settings of the queue.
    """

    def __init__(self, names: NameAccess, name: str, target: Target, terms: QueueTerms) -> None:
        self.names = names
        self.context = names.context
        self.actor = names.actor
        self.name = name
        self.target = target
        self.space = target.space
        self.terms = terms
        self.scripts = QueueScripts(names.context.executor)
        self._spelled: dict[type, Any] = {}

    def keys(self, kind: type[KeysOf]) -> KeysOf:
        """Return the keys of one script, looked up by its field names."""
        if kind not in self._spelled:
            fields: tuple[str, ...] = vars(kind)["_fields"]
            self._spelled[kind] = kind(*(self.key(field) for field in fields))
        keys: KeysOf = self._spelled[kind]
        return keys

    def key(self, field: str) -> bytes:
        """Return the key of one part of the queue."""
        return self.target.physical if field == "queue" else self.names.part(self.target, f"queue.{field}")

    def item(self, part: str, name: str) -> bytes:
        """Return the key of one item of a part, such as the result of a task."""
        return self.names.scope.keyspace.item(self.target, part, name)

    def encoded(self, field: str, value: object) -> bytes:
        """Return an encoded payload or result.

        Raises:
            InvalidError: the value cannot be encoded, or is larger than the blob threshold.
        """
        member = encode_member(value)
        most = self.context.settings.blob_threshold_bytes
        if len(member) > most:
            advice = f"it takes {len(member)} bytes, tasks may take {most}; store it as a value and put its key here"
            raise InvalidError(field, "...", advice)
        return member

    def span(self, action: Literal["send", "process"], task: Task | None = None) -> AbstractContextManager[object]:
        """Return a span by the conventions of messaging: of tasks that are put, or of a task that a worker runs.

        Args:
            action: `send` or `process`.
            task: the task of the worker; its span is a child of the span that put the task.
        """
        attributes: dict[str, AttributeValue] = {
            "messaging.system": "sharedmem",
            "messaging.operation.type": action,
            "messaging.operation.name": action,
            "messaging.destination.name": self.name,
        }
        if task is None:
            return work_span(f"{action} {self.name}", attributes, role="producer")
        attributes |= {"messaging.message.id": task.id, "sharedmem.attempt": task.attempt}
        return work_span(f"{action} {self.name}", attributes, role="consumer", traceparent=task.traceparent)

    async def explained(self, call: Awaitable[T]) -> T:
        """Return the call's result; turn a refusal of the server into an error with the name of the queue.

        Raises:
            SharedMemoryError: the public error for the server's refusal.
        """
        return await self.names.explained(self.target, call)


# -- argument checks ------------------------------------------------------------------------------


def check_priority(priority: int) -> int:
    """Return a priority.

    Raises:
        InvalidError: the priority is not a whole number, or is beyond a thousand million.
    """
    if isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) > _HIGHEST_PRIORITY:
        raise InvalidError(
            "priority", priority, f"give a whole number from {-_HIGHEST_PRIORITY} to {_HIGHEST_PRIORITY}"
        )
    return priority


def check_delay_ms(delay: float) -> int:
    """Return a delay in seconds as whole milliseconds.

    Raises:
        InvalidError: the delay is negative, not a number, or over a year.
    """
    return check_seconds("delay", delay, least=0, most=LONGEST_DELAY_S)


def check_max_attempts(max_attempts: int) -> int:
    """Return the highest number of attempts.

    Raises:
        InvalidError: the number is not from 1 to 1000.
    """
    return check_count("max_attempts", max_attempts, most=_MOST_ATTEMPTS)


def check_count(field: str, count: int, *, most: int) -> int:
    """Return a count of at least one.

    Raises:
        InvalidError: the count is not a whole number from 1 to `most`.
    """
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= most:
        raise InvalidError(field, count, f"give a whole number from 1 to {most}")
    return count


def check_task_id(task_id: str) -> str:
    """Return the id of a task.

    Raises:
        InvalidError: the id is not a task id.
    """
    if not isinstance(task_id, str) or not TASK_ID.fullmatch(task_id):
        raise InvalidError("task id", task_id, "ids have 16 digits; give the one that the put returned")
    return task_id


def check_dedup_id(dedup_id: str) -> str:
    """Return a deduplication id.

    Raises:
        InvalidError: the id is empty, over 256 bytes, or contains braces or control characters.
    """
    if not isinstance(dedup_id, str) or not dedup_id or _CONTROL.search(dedup_id):
        raise InvalidError("id", dedup_id, "give a non-empty text without braces and control characters")
    if len(dedup_id.encode()) > _LONGEST_ID_BYTES:
        raise InvalidError("id", dedup_id, f"keep it within {_LONGEST_ID_BYTES} bytes")
    return dedup_id


def check_receipt(task: Receipt) -> Receipt:
    """Return a receipt.

    Raises:
        InvalidError: the task is not a receipt.
    """
    if not isinstance(task, Receipt):
        raise InvalidError("task", task, "give the Task that claim() returned, or a Receipt")
    check_task_id(task.id)
    check_count("token", task.token, most=_LARGEST_TOKEN)
    check_count("attempt", task.attempt, most=_MOST_ATTEMPTS)
    return task


def check_error(error: str) -> str:
    """Return an error text, truncated to the stored length.

    Raises:
        InvalidError: the error is not a text.
    """
    if not isinstance(error, str):
        raise InvalidError("error", error, "describe the failure in a text")
    return error.encode(errors="replace").decode()[:_LONGEST_ERROR]


class ClaimInfo(NamedTuple):
    """The claim of a task."""

    attempts: int
    worker: str | None
    error: str | None


def _split_tasks(reply: bytes, counts: Sequence[int]) -> list[bytes]:
    """Return parts of a reply of `lua/queue_claim.lua`: so many tasks each, as far as there are."""
    parts, at = [], 0
    for count in counts:
        begin = at
        for _ in range(count):
            if at == len(reply):
                break
            end = reply.index(b"\n", at)
            *_, error_bytes, task_bytes = reply[at:end].split(b" ")
            at = end + 1 + int(error_bytes) + int(task_bytes)
        parts.append(reply[begin:at])
    return parts


def parse_tasks(reply: bytes, deadline: float) -> Iterator[Task]:
    """Yield the tasks in a reply of `lua/queue_claim.lua`.

    Args:
        reply: the reply of the script.
        deadline: end of the claims, on the local clock.
    """
    at = 0
    while at < len(reply):
        end = reply.index(b"\n", at)
        task_id, token, attempt, error_bytes, task_bytes = reply[at:end].split(b" ")
        begin = end + 1 + int(error_bytes)
        at = begin + int(task_bytes)
        error = reply[end + 1 : begin]
        yield _parse_task(task_id.decode(), int(token), int(attempt), error, reply[begin:at], deadline)


def _parse_task(task_id: str, token: int, attempt: int, error: bytes, text: bytes, deadline: float) -> Task:
    head, _, stored = text.partition(b"\n")
    priority, max_attempts, put_by, dedup_id = head.split(b" ", 3)
    payload, traceparent = split_trace(stored)
    return of_checked(
        Task,
        {
            "id": task_id,
            "token": token,
            "attempt": attempt,
            "payload": decode_member(payload),
            "priority": int(priority),
            "max_attempts": int(max_attempts),
            "put_by": put_by.decode(),
            "put_at": from_microseconds(int(task_id)),
            "dedup_id": dedup_id.decode() or None,
            "error": _decode_error(error),
            "traceparent": traceparent,
            "deadline": deadline,
        },
    )


def parse_queued_task(task_id: str, text: bytes, claim_text: bytes, *, state: TaskState, at: int | None) -> QueuedTask:
    """Return a task for inspection.

    Args:
        task_id: id of the task.
        text: the task as it was put.
        claim_text: its claim, or empty.
        state: the state in which it was found.
        at: the microseconds by which this state is ordered; None for a state without times.
    """
    head, _, stored = text.partition(b"\n")
    priority, max_attempts, put_by, dedup_id = head.split(b" ", 3)
    payload, _ = split_trace(stored)
    claim = parse_claim(claim_text)
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


def parse_claim(text: bytes) -> ClaimInfo:
    """Parse a claim; without one, the number of attempts is 0."""
    if not text:
        return ClaimInfo(0, None, None)
    head, _, error = text.partition(b"\n")
    _, attempts, worker, _ = head.split(b" ", 3)
    return ClaimInfo(int(attempts), worker.decode(), _decode_error(error))


def _decode_error(error: bytes) -> str | None:
    # A truncated error may end within a character.
    return error.decode(errors="replace") or None


# -- producers -----------------------------------------------------------------------------------


_MOST_AT_ONCE = 500
_LONGEST_WINDOW_S = 31 * 86_400.0


class QueueProducer:
    """The calls of producers."""

    def __init__(self, queue: QueueAccess) -> None:
        self._queue = queue
        self._batcher = WriteBatcher[PutTerms, TaskPayload](self._put_alike, queue.context.background)

    async def put(
        self,
        payload: object,
        *,
        priority: int = 0,
        delay: float = 0.0,
        id: str | None = None,  # noqa: A002  # the public name
        unique_for: float = 0.0,
        max_attempts: int | None = None,
    ) -> PutResult:
        """As `TaskQueue.put`."""
        queue = self._queue
        terms = self._put_terms(priority, delay, max_attempts)
        coded = queue.encoded("payload", payload)
        if id is None and unique_for:
            raise InvalidError("unique_for", unique_for, "it needs a deduplication id; give id as well")
        with queue.span("send"):
            traced = with_trace(coded, current_traceparent())
            if id is not None:
                return await self._offer(traced, terms, check_dedup_id(id), unique_for)
            task_id = await queue.explained(self._batcher.put(terms, TaskPayload(traced)))
        return of_checked(PutResult, {"id": task_id.decode(), "is_new": True})

    async def put_many(
        self,
        payloads: Iterable[object],
        *,
        priority: int = 0,
        delay: float = 0.0,
        max_attempts: int | None = None,
    ) -> list[PutResult]:
        """As `TaskQueue.put_many`."""
        queue = self._queue
        terms = self._put_terms(priority, delay, max_attempts)
        coded = [queue.encoded("payload", payload) for payload in payloads]
        if len(coded) > _MOST_AT_ONCE:
            raise InvalidError("payloads", f"({len(coded)} of them)", f"put at most {_MOST_AT_ONCE} at a time")
        if not coded:
            return []
        with queue.span("send"):
            traceparent = current_traceparent()
            first = await self._put(terms, [with_trace(one, traceparent) for one in coded])
        return all_of_checked(PutResult, [{"id": str(first + number), "is_new": True} for number in range(len(coded))])

    async def _put_alike(self, terms: PutTerms, payloads: Sequence[TaskPayload]) -> bytes:
        """Put tasks of several callers; return the id of each, one a line."""
        first = await self._put(terms, [one.payload for one in payloads])
        return b"\n".join([b"%d" % number for number in range(first, first + len(payloads))])

    async def _put(self, terms: PutTerms, payloads: Sequence[bytes]) -> int:
        """Put tasks; return the number of the first."""
        queue = self._queue
        call = queue.scripts.queue_put(queue.space, queue.keys(PutKeys), queue.actor, terms=terms, payloads=payloads)
        return await queue.explained(call)

    async def _offer(self, payload: bytes, terms: PutTerms, dedup_id: str, unique_for: float) -> PutResult:
        queue = self._queue
        window_ms = check_seconds("unique_for", unique_for, least=0, most=_LONGEST_WINDOW_S)
        call = queue.scripts.queue_offer(
            queue.space,
            queue.keys(OfferKeys),
            queue.item("queue.recent", dedup_id),
            queue.actor,
            terms=terms,
            unique=dedup_id,
            window_ms=window_ms,
            payload=payload,
        )
        task_id, is_new = await queue.explained(call)
        return of_checked(PutResult, {"id": task_id, "is_new": is_new})

    def _put_terms(self, priority: int, delay: float, max_attempts: int | None) -> PutTerms:
        attempts = self._queue.terms.max_attempts if max_attempts is None else check_max_attempts(max_attempts)
        return PutTerms(check_priority(priority), check_delay_ms(delay), attempts)


# -- consumers -----------------------------------------------------------------------------------


_MOST_CLAIMED_AT_ONCE = 100
_MOST_RECOVERED_AT_ONCE = 100
_NO_TASK = b"none"
_ASK_AGAIN = b"again"
# The script hands out no more tasks after so many bytes.
_MOST_CLAIMED_BYTES = 1_048_576


class _ClaimRequest(NamedTuple):
    most: int

    @property
    def size(self) -> int:
        """As if each task had so many bytes that a shared call takes about `_MOST_CLAIMED_AT_ONCE` of them."""
        return self.most * 490


class QueueConsumer:
    """The calls of workers."""

    def __init__(self, queue: QueueAccess) -> None:
        self._queue = queue
        self._acks = WriteBatcher[None, DoneTask](self._ack_together, queue.context.background)
        self._claims = WriteBatcher[None, _ClaimRequest](self._claim_together, queue.context.background, split_replies)

    # -- claiming

    async def claim(self, *, wait: float | None = 0.0) -> Task | None:
        """As `TaskQueue.claim`."""
        tasks = await self._claim(1, wait)
        return tasks[0] if tasks else None

    async def claim_many(self, n: int, *, wait: float | None = 0.0) -> list[Task]:
        """As `TaskQueue.claim_many`."""
        return await self._claim(check_count("n", n, most=_MOST_CLAIMED_AT_ONCE), wait)

    async def _claim(self, count: int, wait: float | None) -> list[Task]:
        queue = self._queue
        clock = queue.context.clock
        patience = check_wait(wait)
        give_up_at = float("inf") if patience is None else clock.monotonic() + patience
        tasks, _ = await self._ask(count, None if patience == 0 else "")
        if tasks or patience == 0:
            return tasks
        async with queue.context.wait_notifier.waiter(queue.space) as waiter:
            try:
                tasks = await self._wait_for_turn(count, waiter, give_up_at)
            except BaseException:
                queue.context.background.start_last_call(f"leave queue {queue.name}", lambda: self._leave(waiter.name))
                raise
            if not tasks:
                await self._leave(waiter.name)
        return tasks

    async def _wait_for_turn(self, count: int, waiter: Waiter, give_up_at: float) -> list[Task]:
        while True:
            tasks, next_end_s = await self._ask(count, waiter.name)
            left = give_up_at - self._queue.context.clock.monotonic()
            if tasks or left <= 0:
                return tasks
            patience = random.uniform(*POLL_S)  # noqa: S311  # spreads the polls
            await waiter.wait(min(left, patience if next_end_s is None else next_end_s, patience))

    async def _ask(self, count: int, waiter: str | None) -> tuple[list[Task], float | None]:
        """Return the tasks, and for the first waiter the seconds after which to try again.

        Args:
            count: most tasks to claim.
            waiter: name of the waiter; empty for a caller that may wait later, None for one that does not wait.
        """
        while True:
            asked_at = self._queue.context.clock.monotonic()
            taking = self._take(count, "") if waiter is None else self._take_or_return(count, waiter, asked_at)
            reply = await self._queue.explained(taking)
            if reply[:1].isdigit():
                return list(parse_tasks(reply, self._claim_deadline(asked_at))), None
            if reply == _ASK_AGAIN:
                continue
            if not reply.startswith(b"overdue"):
                # Rounded up, so that the time has passed at the next attempt.
                microseconds = reply.removeprefix(_NO_TASK).strip()
                return [], int(microseconds) / 1_000_000 + 0.001 if microseconds else None
            await self._recover()

    async def _take(self, count: int, waiter: str) -> bytes:
        call = self._claim_as(waiter, count) if waiter else self._claims.put(None, _ClaimRequest(count))
        return await call

    async def _claim_together(self, _: None, requests: Sequence[_ClaimRequest]) -> bytes:
        """Claim tasks for several callers, none of which is in line; return a reply for each (see `split_replies`)."""
        counts = [request.most for request in requests]
        reply = await self._claim_as("", sum(counts))
        if len(counts) == 1:
            return reply
        if not reply[:1].isdigit():
            parts = [reply] * len(counts)
        else:
            left = _ASK_AGAIN if len(reply) >= _MOST_CLAIMED_BYTES else _NO_TASK
            parts = [part or left for part in _split_tasks(reply, counts)]
        return join_replies(parts)

    def _claim_as(self, waiter: str, count: int) -> Awaitable[bytes]:
        queue = self._queue
        return queue.scripts.queue_claim(
            queue.space,
            queue.keys(ClaimKeys),
            queue.actor,
            count=count,
            visibility_ms=queue.terms.visibility_ms,
            waiter=waiter,
        )

    async def _take_or_return(self, count: int, waiter: str, asked_at: float) -> bytes:
        """Return the reply of a claim; if its caller is cancelled before, release the tasks.

        Callers that wait are often cancelled; callers that do not wait should not pay for this.
        """

        async def return_tasks(reply: bytes) -> None:
            for task in parse_tasks(reply, asked_at) if reply[:1].isdigit() else ():
                with suppress(ClaimLostError):
                    await self.release(task)

        return await self._queue.context.background.result_or_undone(
            f"return tasks of queue {self._queue.name}", self._take(count, waiter), return_tasks
        )

    async def _recover(self) -> None:
        queue = self._queue
        keys = queue.keys(MoveKeys)
        call = queue.scripts.queue_recover(queue.space, keys, queue.actor, most=_MOST_RECOVERED_AT_ONCE)
        await queue.explained(call)

    async def _leave(self, waiter: str) -> None:
        queue = self._queue
        keys = queue.keys(LeaveKeys)
        await queue.explained(queue.scripts.queue_leave(queue.space, keys, queue.actor, waiter=waiter))

    def _claim_deadline(self, asked_at: float) -> float:
        return safe_deadline(asked_at, self._queue.terms.visibility_s)

    # -- outcomes of claimed tasks

    async def renew(self, task: Receipt) -> float:
        """As `TaskQueue.renew`."""
        queue = self._queue
        held = check_receipt(task)
        asked_at = queue.context.clock.monotonic()
        visibility_ms = queue.terms.visibility_ms
        call = queue.scripts.queue_renew(
            queue.keys(RenewKeys), id_=held.id, token=held.token, visibility_ms=visibility_ms
        )
        if not await queue.explained(call):
            raise ClaimLostError("task", held.id, held.token)
        return self._claim_deadline(asked_at)

    async def ack(self, task: Receipt, result: object = None) -> None:
        """As `TaskQueue.ack`."""
        queue = self._queue
        held = check_receipt(task)
        ack = DoneTask(held.id, held.token, queue.encoded("result", result))
        if await queue.explained(self._acks.put(None, ack)) != b"1":
            raise ClaimLostError("task", held.id, held.token)

    def _ack_together(self, _: None, acks: Sequence[DoneTask]) -> Awaitable[bytes]:
        """Acknowledge tasks of several callers; return `1` or `0` for each, one a line."""
        queue = self._queue
        return queue.scripts.queue_ack(
            queue.space,
            queue.keys(AckKeys),
            [queue.item("queue.result", ack.id) for ack in acks],
            queue.actor,
            keep_result_ms=queue.terms.result_ms,
            acks=acks,
        )

    async def retry(self, task: Receipt, *, error: str = "", delay: float | None = None) -> bool:
        """As `TaskQueue.retry`."""
        held = check_receipt(task)
        if delay is None:
            luck = random.random()  # noqa: S311  # spreads retries; no secret depends on it
            delay = pause_after(held.attempt, self._queue.terms.backoff, luck)
        return await self._end_attempt(held, check_error(error), check_delay_ms(delay)) == "again"

    async def fail(self, task: Receipt, error: str) -> None:
        """As `TaskQueue.fail`."""
        await self._end_attempt(check_receipt(task), check_error(error), -1)

    async def release(self, task: Receipt) -> None:
        """As `TaskQueue.release`."""
        queue = self._queue
        held = check_receipt(task)
        keys = queue.keys(ReleaseKeys)
        call = queue.scripts.queue_release(queue.space, keys, queue.actor, id_=held.id, token=held.token)
        if not await queue.explained(call):
            raise ClaimLostError("task", held.id, held.token)

    async def _end_attempt(self, held: Receipt, reason: str, delay_ms: int) -> str:
        queue = self._queue
        keys = queue.keys(MoveKeys)
        call = queue.scripts.queue_retry(
            queue.space, keys, queue.actor, id_=held.id, token=held.token, delay_ms=delay_ms, reason=reason
        )
        outcome = await queue.explained(call)
        if outcome == "lost":
            raise ClaimLostError("task", held.id, held.token)
        return outcome
