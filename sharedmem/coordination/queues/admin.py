"""Inspect and administer a queue: outcomes, statistics, dead letters, pause and resume."""

from __future__ import annotations

import random

from sharedmem.coordination.base import check_wait
from sharedmem.coordination.queues.base import (
    POLL_S,
    QueueBase,
    check_count,
    check_task_id,
    parse_claim,
    parse_queued_task,
)
from sharedmem.errors import InvalidError, NotFoundError
from sharedmem.models.coordination import QueueCounters, QueuedTask, QueueLine, QueueStats, TaskOutcome, TaskState
from sharedmem.redis.codec import decode_member
from sharedmem.redis.scripts.queues import DiscardKeys, FollowKeys, OutcomeKeys, PauseKeys, RedriveKeys, StatsKeys
from sharedmem.redis.service_keys import decoding
from sharedmem.redis.wait_queue import Waiter

_MOST_SHOWN = 1_000
_REDRIVEN_AT_ONCE = 100
_PRIORITIES_SEARCHED = 64
_PEEKED_STATES = ("ready", "delayed", "claimed")
_UNKNOWN_TASK_ADVICE = "it was never put into this queue, was discarded, or its result has expired"


class QueueAdmin(QueueBase):
    """The calls of those who look after a queue."""

    async def result(self, task_id: str, *, wait: float | None = 0.0) -> TaskOutcome:
        """What became of a task. One round trip; whoever waits is called when there is an outcome.

        Args:
            task_id: what `put` answered.
            wait: seconds to wait until it is done or dead; None for as long as it takes.

        Returns:
            Its state, with the result once it is `done`, and the last error until then.

        Raises:
            NotFoundError: it is not there, or its result has expired.
            InvalidError: an argument is refused.
            AccessDeniedError, UnavailableError: as `write`.
        """
        check_task_id(task_id)
        clock = self._context.clock
        patience = check_wait(wait)
        give_up_at = float("inf") if patience is None else clock.monotonic() + patience
        outcome = await self._outcome(task_id)
        if patience == 0 or outcome.state in {"done", "dead"}:
            return outcome
        async with self._context.wait_notifier.waiter(self._space) as waiter:
            try:
                return await self._wait_for_outcome(task_id, waiter, give_up_at)
            finally:
                await self._follow(task_id, waiter.name, stays=False)

    async def _wait_for_outcome(self, task_id: str, waiter: Waiter, give_up_at: float) -> TaskOutcome:
        while True:
            follows = await self._follow(task_id, waiter.name, stays=True)
            outcome = await self._outcome(task_id)
            left = give_up_at - self._context.clock.monotonic()
            if not follows or left <= 0:
                return outcome
            await waiter.wait(min(left, random.uniform(*POLL_S)))  # noqa: S311  # spreads those who look again

    async def _follow(self, task_id: str, follower: str, *, stays: bool) -> bool:
        keys = self._keys(FollowKeys)
        call = self._queueing.queue_follow(self._space, keys, self._actor, id_=task_id, follower=follower, stays=stays)
        return await self._translated(self._target, call)

    async def _outcome(self, task_id: str) -> TaskOutcome:
        call = self._queueing.queue_outcome(self._keys(OutcomeKeys), self._item("queue.result", task_id), id_=task_id)
        state, value, claim = await self._translated(self._target, call)
        if state == "unknown":
            raise NotFoundError("task", task_id, _UNKNOWN_TASK_ADVICE)
        if state == "done":
            return TaskOutcome(id=task_id, state="done", value=decode_member(value))
        return TaskOutcome.model_validate({"id": task_id, "state": state, "error": parse_claim(claim).error})

    # -- looking

    async def stats(self) -> QueueStats:
        """What is in the queue, and what has happened in it. One round trip, however long it is.

        A task whose delay or visibility has just ended counts as `delayed` or `claimed` until somebody claims.

        Raises:
            AccessDeniedError, UnavailableError: as `write`.
        """
        call = self._queueing.queue_stats(self._keys(StatsKeys), levels=_PRIORITIES_SEARCHED)
        figures = await self._translated(self._target, call)
        ready, delayed, claimed, dead, tasks, waiting, paused, oldest_us, *counted = figures
        with decoding(self._key("counts")):
            done, retried, recovered, buried, discarded = counted
        return QueueStats(
            name=self._name,
            ready=ready,
            delayed=delayed,
            claimed=claimed,
            dead=dead,
            workers_waiting=waiting,
            paused=paused == 1,
            oldest_age=None if oldest_us < 0 else oldest_us / 1_000_000,
            counters=QueueCounters(
                put=tasks + done + discarded,
                done=done,
                retried=retried,
                recovered=recovered,
                dead=buried,
                discarded=discarded,
            ),
        )

    async def peek(self, n: int = 10, *, state: QueueLine = "ready") -> list[QueuedTask]:
        """The next tasks, in the order in which they will be claimed, without touching them. One round trip.

        Args:
            n: how many at most, up to 1000 (and about 4 MiB of payloads).
            state: `ready`, or `delayed` or `claimed`, by the time at which that ends.

        Raises:
            InvalidError: an argument is refused.
            AccessDeniedError, UnavailableError: as `write`.
        """
        if state not in _PEEKED_STATES:
            raise InvalidError("state", state, f"choose one of {', '.join(_PEEKED_STATES)}")
        return await self._shown(n, state)

    async def dead(self, n: int = 10) -> list[QueuedTask]:
        """The dead letters with their errors, the oldest first. One round trip.

        Args:
            n: how many at most, as `peek`.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `peek`.
        """
        return await self._shown(n, "dead")

    async def _shown(self, n: int, state: TaskState) -> list[QueuedTask]:
        count = check_count("n", n, most=_MOST_SHOWN)
        call = self._queueing.queue_show(self._key(state), self._key("tasks"), self._key("claims"), count=count)
        rows = await self._translated(self._target, call)
        with decoding(self._key("tasks")):
            return [
                parse_queued_task(task_id, text, claim, state=state, at=None if state == "ready" else score)
                for task_id, score, text, claim in rows
            ]

    # -- keeping

    async def redrive(self, task_id: str) -> bool:
        """Try a dead letter again, as if it had just been put; False when it is none. One round trip.

        Args:
            task_id: which one.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `peek`.
        """
        return await self._redrive(check_task_id(task_id)) == 1

    async def redrive_all(self) -> int:
        """Try all dead letters again; returns how many there were. One round trip for each hundred.

        Raises:
            AccessDeniedError, UnavailableError: as `write`.
        """
        total = 0
        while (redriven := await self._redrive("")) > 0:
            total += redriven
        return total

    async def _redrive(self, task_id: str) -> int:
        keys = self._keys(RedriveKeys)
        call = self._queueing.queue_redrive(self._space, keys, self._actor, id_=task_id, most=_REDRIVEN_AT_ONCE)
        return await self._translated(self._target, call)

    async def discard(self, task_id: str) -> bool:
        """Forget a task that is not done: a dead letter, or any other; False when there is none. One round trip.

        Whoever has it just now is told so when it says what became of it.

        Args:
            task_id: which one.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `peek`.
        """
        keys = self._keys(DiscardKeys)
        call = self._queueing.queue_discard(self._space, keys, self._actor, id_=check_task_id(task_id))
        return await self._translated(self._target, call)

    async def pause(self) -> bool:
        """Hand out no more tasks until `resume`; False when it was paused already. One round trip.

        Tasks may still be put, and those that are claimed be renewed, acknowledged and retried.

        Raises:
            AccessDeniedError, UnavailableError: as `write`.
        """
        return await self._set_paused(rest=True)

    async def resume(self) -> bool:
        """Hand out tasks again; False when it was not paused. One round trip.

        Raises:
            AccessDeniedError, UnavailableError: as `write`.
        """
        return await self._set_paused(rest=False)

    async def _set_paused(self, *, rest: bool) -> bool:
        keys = self._keys(PauseKeys)
        return await self._translated(
            self._target, self._queueing.queue_pause(self._space, keys, self._actor, rest=rest)
        )
