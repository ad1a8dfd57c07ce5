"""Inspect and administer a queue: outcomes, statistics, dead letters, pause and resume."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence

from sharedmem.coordination.names import check_wait
from sharedmem.coordination.queue_access import (
    POLL_S,
    TASK_ID,
    QueueAccess,
    check_count,
    check_error,
    check_task_id,
    parse_claim,
    parse_queued_task,
)
from sharedmem.errors import InvalidError, NotFoundError
from sharedmem.models.coordination import (
    QueueCounters,
    QueuedTask,
    QueueLine,
    QueueStats,
    SearchedState,
    TaskOutcome,
    TaskPage,
    TaskState,
)
from sharedmem.redis.change_stream import text_of
from sharedmem.redis.codec import decode_member
from sharedmem.redis.pubsub import Waiter
from sharedmem.redis.scripts.task_queues import (
    BuryKeys,
    DiscardKeys,
    FollowKeys,
    OutcomeKeys,
    PauseKeys,
    RedriveKeys,
    ShowKeys,
    StatsKeys,
)
from sharedmem.redis.service_keys import decoding

_MOST_SHOWN = 1_000
_REDRIVEN_AT_ONCE = 100
_PRIORITIES_SEARCHED = 64
_LOOKED_AT_ONCE = 500
_MOST_LOOKED_AT = 10_000
_SEARCHED_STATES: tuple[SearchedState, ...] = ("dead", "claimed", "ready", "delayed")
_SCORE = re.compile(r"-?[0-9]{1,16}")
_ENDS = frozenset({"done", "dead"})
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
        if patience == 0 or outcome.state in _ENDS:
            return outcome
        async with queue.context.wait_notifier.waiter(queue.space) as waiter:
            is_followed = True
            try:
                outcome = await self._wait_for_outcome(task_id, waiter, give_up_at)
                # The step that ends a task also removes its waiters.
                is_followed = outcome.state not in _ENDS
                return outcome
            finally:
                if is_followed:
                    await self._follow(task_id, waiter.name, stays=False)

    async def _wait_for_outcome(self, task_id: str, waiter: Waiter, give_up_at: float) -> TaskOutcome:
        """Return the outcome once there is one, or the state at the end of the wait."""
        while await self._follow(task_id, waiter.name, stays=True):
            left = give_up_at - self._queue.context.clock.monotonic()
            if left > 0:
                await waiter.wait(min(left, random.uniform(*POLL_S)))  # noqa: S311  # spreads the polls
            outcome = await self._outcome(task_id)
            if left <= 0 or outcome.state in _ENDS:
                return outcome
        return await self._outcome(task_id)

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
        return [task for task, _ in await self._page(state, check_count("n", n, most=_MOST_SHOWN))]

    async def _page(
        self, state: TaskState, count: int, after: tuple[str, str] = ("", "")
    ) -> list[tuple[QueuedTask, int]]:
        """Return tasks of a state behind a place (score, id), each with its score."""
        queue = self._queue
        keys = ShowKeys(queue.key(state), queue.key("tasks"), queue.key("claims"))
        call = queue.scripts.queue_show(keys, count=count, after_score=after[0], after_id=after[1])
        rows = await queue.explained(call)
        with decoding(keys.tasks):
            return [
                (parse_queued_task(task_id, text, claim, state=state, at=None if state == "ready" else score), score)
                for task_id, score, text, claim in rows
            ]

    async def search(
        self, words: str = "", *, state: SearchedState | None = None, limit: int = 50, cursor: str | None = None
    ) -> TaskPage:
        """As `TaskQueue.search`."""
        check_count("limit", limit, most=_MOST_SHOWN)
        if state is not None and state not in _SEARCHED_STATES:
            raise InvalidError("state", state, f"choose one of {', '.join(_SEARCHED_STATES)}, or leave it out")
        wanted = words.casefold().split()
        if TASK_ID.fullmatch(words.strip()):
            return await self._look_up(words.strip(), state)
        here, *after = _parse_cursor(cursor, state)
        left = [state] if state else [*_SEARCHED_STATES[_SEARCHED_STATES.index(here) :]]
        found: list[QueuedTask] = []
        looked_at, score, last_id = 0, after[0], after[1]
        while left and len(found) < limit and looked_at < _MOST_LOOKED_AT:
            rows = await self._page(left[0], _LOOKED_AT_ONCE, (score, last_id))
            for task, place in rows:
                looked_at, score, last_id = looked_at + 1, str(place), task.id
                if _matches(task, wanted):
                    found.append(task)
                if len(found) == limit:
                    break
            if not rows:
                left, score, last_id = left[1:], "", ""
        following = f"{left[0]}.{score}.{last_id}" if left else None
        return TaskPage(tasks=found, cursor=following, looked_at=looked_at)

    async def _look_up(self, task_id: str, state: SearchedState | None) -> TaskPage:
        """Return the task with an id, from wherever it is, without a look at others. One round trip."""
        queue = self._queue
        lines = [("ZSCORE", queue.key(name), task_id) for name in _SEARCHED_STATES]
        looks = [("HGET", queue.key("tasks"), task_id), ("HGET", queue.key("claims"), task_id), *lines]
        text, claim, *scores = await queue.explained(queue.context.client.read_many(looks))
        places = ((name, score) for name, score in zip(_SEARCHED_STATES, scores, strict=True) if score is not None)
        where, score = next(places, (None, None))
        if where is None or not isinstance(text, bytes) or state not in {None, where}:
            return TaskPage(tasks=[], cursor=None, looked_at=1)
        held = claim if isinstance(claim, bytes) else b""
        with decoding(queue.key(where)):
            at = None if where == "ready" else round(float(text_of(score)))
        with decoding(queue.key("tasks")):
            task = parse_queued_task(task_id, text, held, state=where, at=at)
        return TaskPage(tasks=[task], cursor=None, looked_at=1)

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

    async def bury(self, task_id: str, *, error: str = "") -> bool:
        """As `TaskQueue.bury`."""
        queue = self._queue
        keys = queue.keys(BuryKeys)
        call = queue.scripts.queue_bury(
            queue.space, keys, queue.actor, id_=check_task_id(task_id), reason=check_error(error)
        )
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


def _matches(task: QueuedTask, words: Sequence[str]) -> bool:
    """Return whether each of the words is in what was put, in the error, or in a name of the task."""
    if not words:
        return True
    payload = (
        task.payload if isinstance(task.payload, str) else json.dumps(task.payload, ensure_ascii=False, default=str)
    )
    named = (payload, task.error, task.dedup_id, task.put_by, task.worker)
    text = "\n".join(part for part in named if part).casefold()
    return all(word in text for word in words)


def _parse_cursor(cursor: str | None, state: SearchedState | None) -> tuple[SearchedState, str, str]:
    """Return (state, score, id) of where a page begins."""
    if cursor is None:
        return state or _SEARCHED_STATES[0], "", ""
    where, _, place = cursor.partition(".")
    found = next((name for name in _SEARCHED_STATES if name == where), None)
    score, _, task_id = place.partition(".")
    is_sound = not place.strip(".") or (_SCORE.fullmatch(score) and TASK_ID.fullmatch(task_id))
    if found is None or not is_sound or state not in {None, found}:
        raise InvalidError("cursor", cursor, "give that of the page before, with the same state, or none to begin")
    return found, score, task_id
