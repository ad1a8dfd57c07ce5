"""Roll-ups by themselves: request them after additions and on a schedule, and make them in the background.

Requests are tasks of the queue `memory-rollups` of the namespace: each is done once however many hubs are open, again
if a worker dies, and with the rights of the actor whose addition made it due.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import blake2b

from sharedmem.coordination.names import NameAccess
from sharedmem.coordination.queues.task_queue import Queues, TaskQueue
from sharedmem.errors import AccessDeniedError, InvalidError, SharedMemoryError
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.memory.rollups import MemoryRollups
from sharedmem.memory.validation import NewMemory, check_thread
from sharedmem.models import Task
from sharedmem.redis.keys import SHARED_SCOPE
from sharedmem.redis.scope import Scope
from sharedmem.runtime import get_logger
from sharedmem.runtime.background import BackgroundTask

QUEUE = "memory-rollups"
_TOKENS_CHECKED_EVERY = 10
"""Turns after which a thread is checked for `rollup_tokens`."""
_VISIBILITY_S = 60.0
_MOST_ATTEMPTS = 10
_log = get_logger("memory")

OpenRollups = Callable[[Scope], MemoryRollups]
"""Returns the roll-ups of a namespace, made as an actor of it."""


class RollupWorker:
    """Requests and makes the roll-ups of one namespace; all stores of a hub share it.

    Args:
        context: dependencies that the hub shares with its stores.
        scope: the namespace, as any of its actors.
        open_rollups: returns its roll-ups as an actor.
    """

    def __init__(self, context: KnowledgeContext, scope: Scope, open_rollups: OpenRollups) -> None:
        self._context = context
        self._namespace = scope.identity.namespace
        self._settings = context.settings_of(self._namespace)
        self._own = scope.acting_as(SHARED_SCOPE)
        self._open_rollups = open_rollups
        self._works: list[BackgroundTask] = []

    @classmethod
    def of(cls, context: KnowledgeContext, scope: Scope, open_rollups: OpenRollups) -> RollupWorker | None:
        """Return the worker that all stores of a namespace share in this hub; None where nothing is rolled up."""
        settings = context.settings_of(scope.identity.namespace)
        if not (settings.rollup_turns or settings.rollup_tokens or settings.rollup_old_after_days):
            return None
        return context.shared(cls, scope.identity.namespace, lambda: cls(context, scope, open_rollups))

    def note(self, scope: Scope, drafts: Sequence[NewMemory]) -> None:
        """Request roll-ups that added memories have made due, and start to work. No round trip.

        Args:
            scope: the actor that has added them.
            drafts: the added memories, with their turn indexes.
        """
        with suppress(SharedMemoryError):  # the hub closes: other hubs do the tasks
            if not self._works:
                self._start()
            step = self._step
            added = Counter(draft.item.thread_id for draft in drafts if draft.turn >= 0)
            for thread, count in added.items() if step else ():
                top = max(draft.turn for draft in drafts if draft.item.thread_id == thread) + 1
                if top // step > (top - count) // step:
                    self._context.background.start("request a roll-up", self._request(scope, thread, top // step))

    @property
    def _step(self) -> int:
        """After how many turns a thread is checked; 0 if turns are not rolled up."""
        turns, tokens = self._settings.rollup_turns, self._settings.rollup_tokens
        return min(turns or _TOKENS_CHECKED_EVERY, _TOKENS_CHECKED_EVERY) if tokens else turns

    def _start(self) -> None:
        start = self._context.background.start
        self._works = [start(f"roll up memories of {self._namespace}", self._work())]
        if self._settings.rollup_old_after_days:
            self._works.append(start(f"schedule roll-ups of {self._namespace}", self._schedule()))

    async def _work(self) -> None:
        try:
            await self._queue(self._own).work(self._done)
        except AccessDeniedError as error:
            _log.warning("roll-ups in %s are left to other hubs: %s", self._namespace, error)

    async def _request(self, scope: Scope, thread: str, number: int) -> None:
        digest = blake2b(thread.encode(errors="replace"), digest_size=8).hexdigest()
        try:
            await self._queue(scope).put({"thread_id": thread}, id=f"{digest}-{number}")
        except SharedMemoryError as error:
            # The turns stay, and a later request covers them.
            _log.warning("a roll-up in %s is not requested: %s", self._namespace, error)

    async def _schedule(self) -> None:
        """Request the roll-ups of old memories once for each period, whichever hubs are open."""
        every_s = self._settings.rollup_old_every_s
        while True:
            now_s = self._context.clock.now().timestamp()
            period = int(now_s // every_s)
            try:
                await self._queue(self._own).put({"old": period}, id=f"old-{period}", unique_for=every_s)
            except SharedMemoryError as error:
                _log.warning("roll-ups of old memories in %s are not requested: %s", self._namespace, error)
            await self._context.clock.sleep((period + 1) * every_s - now_s)

    async def _done(self, task: Task) -> list[str]:
        """Do one task; return the ids of the new memories."""
        rollups = self._open_rollups(self._own.acting_as(task.put_by))
        payload = task.payload
        if isinstance(payload, dict) and isinstance(thread := payload.get("thread_id"), str):
            check_thread(thread)
            made = await rollups.roll_up_thread(thread)
        elif isinstance(payload, dict) and "old" in payload:
            made = await rollups.roll_up_old()
        else:
            raise InvalidError("payload", payload, "a task for roll-ups has a thread_id, or old")
        self._context.counters.add("memory_rollups", len(made))
        return made

    def _queue(self, scope: Scope) -> TaskQueue:
        names = NameAccess(self._context, scope)
        return Queues(names).queue(QUEUE, visibility=_VISIBILITY_S, max_attempts=_MOST_ATTEMPTS)
