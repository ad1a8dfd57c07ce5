"""Claim tasks, renew claims, and acknowledge, retry, fail or release tasks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from sharedmem.coordination.base import check_wait, safe_deadline
from sharedmem.coordination.queues.base import (
    POLL_S,
    QueueBase,
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


class QueueConsumer(QueueBase):
    """The calls of those who do tasks."""

    # -- claiming

    async def claim(self, *, wait: float | None = 0.0) -> Task | None:
        """Take the next task; for the time of its visibility nobody else gets it. One round trip.

        Whoever waits is called when there is something, and does not ask again and again.

        Args:
            wait: seconds to wait for a task; None for as long as it takes.

        Returns:
            The task, or None when there is none, or the queue is paused.

        Raises:
            InvalidError: `wait` is refused.
            AccessDeniedError, UnavailableError: as `write`.
        """
        tasks = await self._claim(1, wait)
        return tasks[0] if tasks else None

    async def claim_many(self, n: int, *, wait: float | None = 0.0) -> list[Task]:
        """Take up to `n` tasks (at most 100, and about 1 MiB of payloads) at once. One round trip.

        Args:
            n: how many at most.
            wait: as `claim`, for the first of them.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `claim`.
        """
        return await self._claim(check_count("n", n, most=_MOST_CLAIMED_AT_ONCE), wait)

    async def _claim(self, count: int, wait: float | None) -> list[Task]:
        clock = self._context.clock
        patience = check_wait(wait)
        give_up_at = float("inf") if patience is None else clock.monotonic() + patience
        tasks, _ = await self._ask(count, None if patience == 0 else "")
        if tasks or patience == 0:
            return tasks
        async with self._context.wait_notifier.waiter(self._space) as waiter:
            try:
                tasks = await self._wait_for_turn(count, waiter, give_up_at)
            except BaseException:
                self._context.release_in_background(f"leave queue {self._name}", lambda: self._leave(waiter.name))
                raise
            if not tasks:
                await self._leave(waiter.name)
        return tasks

    async def _wait_for_turn(self, count: int, waiter: Waiter, give_up_at: float) -> list[Task]:
        while True:
            tasks, next_end_s = await self._ask(count, waiter.name)
            left = give_up_at - self._context.clock.monotonic()
            if tasks or left <= 0:
                return tasks
            patience = random.uniform(*POLL_S)  # noqa: S311  # spreads those who look again
            await waiter.wait(min(left, patience if next_end_s is None else next_end_s, patience))

    async def _ask(self, count: int, waiter: str | None) -> tuple[list[Task], float | None]:
        """The tasks, and for the first in line the seconds after which to look again.

        Args:
            count: how many at most.
            waiter: who stands in line; empty for one who may do so later, None for one who only tries.
        """
        while True:
            asked_at = self._context.clock.monotonic()
            taking = self._take(count, "") if waiter is None else self._take_or_return(count, waiter, asked_at)
            reply = await self._translated(self._target, taking)
            if reply[:1].isdigit():
                return list(parse_tasks(reply, self._claim_deadline(asked_at))), None
            if not reply.startswith(b"overdue"):
                # Rounded up, so that the end has come when it looks again.
                microseconds = reply.removeprefix(b"none").strip()
                return [], int(microseconds) / 1_000_000 + 0.001 if microseconds else None
            await self._recover()

    def _take(self, count: int, waiter: str) -> Coroutine[Any, Any, bytes]:
        terms = self._terms
        return self._queueing.queue_claim(
            self._space,
            self._keys(ClaimKeys),
            self._actor,
            count=count,
            visibility_ms=terms.visibility_ms,
            waiter=waiter,
        )

    async def _take_or_return(self, count: int, waiter: str, asked_at: float) -> bytes:
        """The reply of a claim; when its caller is cancelled meanwhile, the tasks are given back.

        Whoever waits is cancelled as a matter of course; whoever only tries does not pay for this.
        """
        call = asyncio.ensure_future(self._take(count, waiter))
        # When the hub is closed there is nobody left to hear that it failed.
        call.add_done_callback(lambda done: None if done.cancelled() else done.exception())
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            self._context.release_in_background(
                f"return tasks of queue {self._name}", lambda: self._return_tasks(call, asked_at)
            )
            raise

    async def _return_tasks(self, call: asyncio.Future[bytes], asked_at: float) -> None:
        reply = await call
        for task in parse_tasks(reply, asked_at) if reply[:1].isdigit() else ():
            with suppress(ClaimLostError):
                await self.release(task)

    async def _recover(self) -> None:
        keys = self._keys(MoveKeys)
        call = self._queueing.queue_recover(self._space, keys, self._actor, most=_MOST_RECOVERED_AT_ONCE)
        await self._translated(self._target, call)

    async def _leave(self, waiter: str) -> None:
        keys = self._keys(LeaveKeys)
        await self._translated(self._target, self._queueing.queue_leave(self._space, keys, self._actor, waiter=waiter))

    def _claim_deadline(self, asked_at: float) -> float:
        return safe_deadline(asked_at, self._terms.visibility_s)

    # -- what becomes of a claimed task

    async def renew(self, task: Receipt) -> float:
        """Keep a task for another visibility time from now on. One round trip.

        Args:
            task: what `claim` answered.

        Returns:
            Until when nobody else gets it, on this process's monotonic clock.

        Raises:
            ClaimLostError: somebody else has it, or it is done.
            UnavailableError: as `write`.
        """
        held = check_receipt(task)
        asked_at = self._context.clock.monotonic()
        visibility_ms = self._terms.visibility_ms
        call = self._queueing.queue_renew(
            self._keys(RenewKeys), id_=held.id, token=held.token, visibility_ms=visibility_ms
        )
        if not await self._translated(self._target, call):
            raise ClaimLostError("task", held.id, held.token)
        return self._claim_deadline(asked_at)

    async def ack(self, task: Receipt, result: object = None) -> None:
        """Say that a task is done. One round trip.

        Args:
            task: what `claim` answered.
            result: what came out of it, kept for the `result_ttl` of the queue.

        Raises:
            ClaimLostError: somebody else has it, or it is done; nothing has changed.
            InvalidError: the result cannot be coded or is too large; the task is still yours.
            UnavailableError: as `write`.
        """
        held = check_receipt(task)
        call = self._queueing.queue_ack(
            self._space,
            self._keys(AckKeys),
            self._item("queue.result", held.id),
            self._actor,
            id_=held.id,
            token=held.token,
            keep_result_ms=self._terms.result_ms,
            outcome=self._coded("result", result),
        )
        if not await self._translated(self._target, call):
            raise ClaimLostError("task", held.id, held.token)

    async def retry(self, task: Receipt, *, error: str = "", delay: float | None = None) -> bool:
        """Say that a task has failed and may be tried again. One round trip.

        Args:
            task: what `claim` answered.
            error: what went wrong; the next worker sees it. 2000 characters are kept.
            delay: seconds to pause; None backs off: exponentially, with jitter.

        Returns:
            Whether it will be tried again; False when it was the last attempt and it now lies with the dead letters.

        Raises:
            ClaimLostError: somebody else has it, or it is done; nothing has changed.
            InvalidError: an argument is refused.
            UnavailableError: as `write`.
        """
        held = check_receipt(task)
        if delay is None:
            luck = random.random()  # noqa: S311  # spreads retries; no secret depends on it
            delay = pause_after(held.attempt, self._terms.backoff, luck)
        return await self._give_up(held, check_error(error), check_delay_ms(delay)) == "again"

    async def fail(self, task: Receipt, error: str) -> None:
        """Say that a task cannot be done: it goes to the dead letters, however many attempts are left. One round trip.

        Args:
            task: what `claim` answered.
            error: what went wrong. 2000 characters are kept.

        Raises:
            ClaimLostError, InvalidError, UnavailableError: as `retry`.
        """
        await self._give_up(check_receipt(task), check_error(error), -1)

    async def release(self, task: Receipt) -> None:
        """Give back a task that was not begun: it is ready at once, and the attempt does not count. One round trip.

        Args:
            task: what `claim` answered.

        Raises:
            ClaimLostError, UnavailableError: as `retry`.
        """
        held = check_receipt(task)
        keys = self._keys(ReleaseKeys)
        call = self._queueing.queue_release(self._space, keys, self._actor, id_=held.id, token=held.token)
        if not await self._translated(self._target, call):
            raise ClaimLostError("task", held.id, held.token)

    async def _give_up(self, held: Receipt, reason: str, delay_ms: int) -> str:
        keys = self._keys(MoveKeys)
        call = self._queueing.queue_retry(
            self._space, keys, self._actor, id_=held.id, token=held.token, delay_ms=delay_ms, reason=reason
        )
        outcome = await self._translated(self._target, call)
        if outcome == "lost":
            raise ClaimLostError("task", held.id, held.token)
        return outcome
