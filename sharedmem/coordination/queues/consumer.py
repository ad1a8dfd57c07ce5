"""Claim tasks, renew claims, and acknowledge, retry, fail or release tasks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from sharedmem.coordination.names import check_wait, safe_deadline
from sharedmem.coordination.queues.queue_access import (
    POLL_S,
    QueueAccess,
    check_count,
    check_delay_ms,
    check_error,
    check_receipt,
    parse_tasks,
    pause_after,
)
from sharedmem.errors import ClaimLostError
from sharedmem.models.coordination import Receipt, Task
from sharedmem.redis.scripts.queues import AckKeys, ClaimKeys, LeaveKeys, MoveKeys, ReleaseKeys, RenewKeys
from sharedmem.redis.wait_queue import Waiter

_MOST_CLAIMED_AT_ONCE = 100
_MOST_RECOVERED_AT_ONCE = 100


class QueueConsumer:
    """The calls of workers."""

    def __init__(self, queue: QueueAccess) -> None:
        self._queue = queue

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
                queue.context.release_in_background(f"leave queue {queue.name}", lambda: self._leave(waiter.name))
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
            if not reply.startswith(b"overdue"):
                # Rounded up, so that the time has passed at the next attempt.
                microseconds = reply.removeprefix(b"none").strip()
                return [], int(microseconds) / 1_000_000 + 0.001 if microseconds else None
            await self._recover()

    def _take(self, count: int, waiter: str) -> Coroutine[Any, Any, bytes]:
        queue = self._queue
        terms = queue.terms
        return queue.scripts.queue_claim(
            queue.space,
            queue.keys(ClaimKeys),
            queue.actor,
            count=count,
            visibility_ms=terms.visibility_ms,
            waiter=waiter,
        )

    async def _take_or_return(self, count: int, waiter: str, asked_at: float) -> bytes:
        """Return the reply of a claim; if its caller is cancelled before, release the tasks.

        Callers that wait are often cancelled; callers that do not wait should not pay for this.
        """
        call = asyncio.ensure_future(self._take(count, waiter))
        # When the hub is closed, no caller is left to receive the failure.
        call.add_done_callback(lambda done: None if done.cancelled() else done.exception())
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            self._queue.context.release_in_background(
                f"return tasks of queue {self._queue.name}", lambda: self._return_tasks(call, asked_at)
            )
            raise

    async def _return_tasks(self, call: asyncio.Future[bytes], asked_at: float) -> None:
        reply = await call
        for task in parse_tasks(reply, asked_at) if reply[:1].isdigit() else ():
            with suppress(ClaimLostError):
                await self.release(task)

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
        call = queue.scripts.queue_ack(
            queue.space,
            queue.keys(AckKeys),
            queue.item("queue.result", held.id),
            queue.actor,
            id_=held.id,
            token=held.token,
            keep_result_ms=queue.terms.result_ms,
            outcome=queue.encoded("result", result),
        )
        if not await queue.explained(call):
            raise ClaimLostError("task", held.id, held.token)

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
