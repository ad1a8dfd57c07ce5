"""Inspect and administer a queue: outcomes, statistics, dead letters, pause and resume."""

from __future__ import annotations

import random

from sharedmem.coordination.names import check_wait
from sharedmem.coordination.queues.queue_access import (
    POLL_S,
    QueueAccess,
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


class QueueAdmin:
    """The administrative calls of a queue."""

    def __init__(self, queue: QueueAccess) -> None:
        self._queue = queue

    async def result(self, task_id: str, *, wait: float | None = 0.0) -> TaskOutcome:
        """As `TaskQueue.result`."""
        queue = self._queue
        check_task_id(task_id)
        clock = queue.context.clock
        patience = check_wait(wait)
        give_up_at = float("inf") if patience is None else clock.monotonic() + patience
        outcome = await self._outcome(task_id)
        if patience == 0 or outcome.state in {"done", "dead"}:
            return outcome
        async with queue.context.wait_notifier.waiter(queue.space) as waiter:
            try:
                return await self._wait_for_outcome(task_id, waiter, give_up_at)
            finally:
                await self._follow(task_id, waiter.name, stays=False)

    async def _wait_for_outcome(self, task_id: str, waiter: Waiter, give_up_at: float) -> TaskOutcome:
        while True:
            follows = await self._follow(task_id, waiter.name, stays=True)
            outcome = await self._outcome(task_id)
            left = give_up_at - self._queue.context.clock.monotonic()
            if not follows or left <= 0:
                return outcome
            await waiter.wait(min(left, random.uniform(*POLL_S)))  # noqa: S311  # spreads the polls

    async def _follow(self, task_id: str, follower: str, *, stays: bool) -> bool:
        queue = self._queue
        keys = queue.keys(FollowKeys)
        call = queue.scripts.queue_follow(queue.space, keys, queue.actor, id_=task_id, follower=follower, stays=stays)
        return await queue.explained(call)

    async def _outcome(self, task_id: str) -> TaskOutcome:
        queue = self._queue
        call = queue.scripts.queue_outcome(queue.keys(OutcomeKeys), queue.item("queue.result", task_id), id_=task_id)
        state, value, claim = await queue.explained(call)
        if state == "unknown":
            raise NotFoundError("task", task_id, _UNKNOWN_TASK_ADVICE)
        if state == "done":
            return TaskOutcome(id=task_id, state="done", value=decode_member(value))
        return TaskOutcome.model_validate({"id": task_id, "state": state, "error": parse_claim(claim).error})

    # -- inspection

    async def stats(self) -> QueueStats:
        """As `TaskQueue.stats`."""
        queue = self._queue
        call = queue.scripts.queue_stats(queue.keys(StatsKeys), levels=_PRIORITIES_SEARCHED)
        figures = await queue.explained(call)
        ready, delayed, claimed, dead, tasks, waiting, paused, oldest_us, *counted = figures
        with decoding(queue.key("counts")):
            done, retried, recovered, buried, discarded = counted
        return QueueStats(
            name=queue.name,
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
        """As `TaskQueue.peek`."""
        if state not in _PEEKED_STATES:
            raise InvalidError("state", state, f"choose one of {', '.join(_PEEKED_STATES)}")
        return await self._shown(n, state)

    async def dead(self, n: int = 10) -> list[QueuedTask]:
        """As `TaskQueue.dead`."""
        return await self._shown(n, "dead")

    async def _shown(self, n: int, state: TaskState) -> list[QueuedTask]:
        queue = self._queue
        count = check_count("n", n, most=_MOST_SHOWN)
        call = queue.scripts.queue_show(queue.key(state), queue.key("tasks"), queue.key("claims"), count=count)
        rows = await queue.explained(call)
        with decoding(queue.key("tasks")):
            return [
                parse_queued_task(task_id, text, claim, state=state, at=None if state == "ready" else score)
                for task_id, score, text, claim in rows
            ]

    # -- administration

    async def redrive(self, task_id: str) -> bool:
        """As `TaskQueue.redrive`."""
        return await self._redrive(check_task_id(task_id)) == 1

    async def redrive_all(self) -> int:
        """As `TaskQueue.redrive_all`."""
        total = 0
        while (redriven := await self._redrive("")) > 0:
            total += redriven
        return total

    async def _redrive(self, task_id: str) -> int:
        queue = self._queue
        keys = queue.keys(RedriveKeys)
        call = queue.scripts.queue_redrive(queue.space, keys, queue.actor, id_=task_id, most=_REDRIVEN_AT_ONCE)
        return await queue.explained(call)

    async def discard(self, task_id: str) -> bool:
        """As `TaskQueue.delete`."""
        queue = self._queue
        keys = queue.keys(DiscardKeys)
        call = queue.scripts.queue_discard(queue.space, keys, queue.actor, id_=check_task_id(task_id))
        return await queue.explained(call)

    async def pause(self) -> bool:
        """As `TaskQueue.pause`."""
        return await self._set_paused(rest=True)

    async def resume(self) -> bool:
        """As `TaskQueue.resume`."""
        return await self._set_paused(rest=False)

    async def _set_paused(self, *, rest: bool) -> bool:
        queue = self._queue
        keys = queue.keys(PauseKeys)
        return await queue.explained(queue.scripts.queue_pause(queue.space, keys, queue.actor, rest=rest))
