"""Task queues of a store: at-least-once delivery, redelivery when a worker dies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager

from sharedmem.coordination.names import LONGEST_LEASE_S, SHORTEST_LEASE_S, NameAccess, check_seconds
from sharedmem.coordination.queues.admin import QueueAdmin
from sharedmem.coordination.queues.consumer import QueueConsumer
from sharedmem.coordination.queues.producer import QueueProducer
from sharedmem.coordination.queues.queue_access import QueueAccess, QueueTerms, check_backoff, check_max_attempts
from sharedmem.coordination.queues.worker import ClaimedTask, QueueWorker
from sharedmem.models.coordination import (
    Backoff,
    PutResult,
    QueuedTask,
    QueueLine,
    QueueStats,
    Receipt,
    Task,
    TaskOutcome,
)
from sharedmem.redis.keys import plain_name
from sharedmem.runtime.process_bound import ProcessBound

_LONGEST_RESULT_S = 366 * 86_400.0


class TaskQueue(ProcessBound):
    """A queue of tasks, each of which is done at least once, however many workers die over it.

    A task is given to one worker at a time. Who has it renews it (heartbeat) within the visibility time and says what
    became of it; else somebody else gets it. After the last attempt it is a dead letter.
    """

    def __init__(self, queue: QueueAccess) -> None:
        self._queue = queue
        self._producer = QueueProducer(queue)
        self._consumer = QueueConsumer(queue)
        self._worker = QueueWorker(queue, self._consumer)
        self._admin = QueueAdmin(queue)

    @property
    def name(self) -> str:
        """What the queue is called, as it was asked for."""
        return self._queue.name

    # -- put tasks

    async def put(
        self,
        payload: object,
        *,
        priority: int = 0,
        delay: float = 0.0,
        id: str | None = None,  # noqa: A002  # what users call it
        unique_for: float = 0.0,
        max_attempts: int | None = None,
    ) -> PutResult:
        """Put a task into the queue. One round trip.

        Args:
            payload: what there is to do, as values of `write`, up to the blob threshold (256 KiB).
            priority: the higher, the sooner; equal ones in the order in which they were put.
            delay: seconds until somebody may have it.
            id: deduplication id: while a task put under it is not done, another put answers that task.
            unique_for: seconds from now for which that also holds once the task is done.
            max_attempts: how often it is tried; None for the queue's own.

        Returns:
            The task's `id`, and whether it is new (`is_new`).

        Raises:
            InvalidError: an argument is refused, or the payload cannot be coded or is too large.
            AccessDeniedError, UnavailableError: as `write`.
        """
        return await self._producer.put(
            payload, priority=priority, delay=delay, id=id, unique_for=unique_for, max_attempts=max_attempts
        )

    async def put_many(
        self,
        payloads: Iterable[object],
        *,
        priority: int = 0,
        delay: float = 0.0,
        max_attempts: int | None = None,
    ) -> list[PutResult]:
        """Put up to 500 tasks of one kind in one atomic step, in their order. One round trip.

        Args:
            payloads: what there is to do, a task each.
            priority, delay, max_attempts: as `put`, for all of them.

        Raises:
            InvalidError: there are more than 500, or `put` would refuse one of them.
            AccessDeniedError, UnavailableError: as `write`.
        """
        return await self._producer.put_many(payloads, priority=priority, delay=delay, max_attempts=max_attempts)

    # -- claim tasks, and report what became of them

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
        return await self._consumer.claim(wait=wait)

    async def claim_many(self, n: int, *, wait: float | None = 0.0) -> list[Task]:
        """Take up to `n` tasks (at most 100, and about 1 MiB of payloads) at once. One round trip.

        Args:
            n: how many at most.
            wait: as `claim`, for the first of them.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `claim`.
        """
        return await self._consumer.claim_many(n, wait=wait)

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
        return await self._consumer.renew(task)

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
        return await self._consumer.ack(task, result)

    async def retry(self, task: Receipt, *, error: str = "", delay: float | None = None) -> bool:
        """Say that a task has failed and may be tried again. One round trip.

        Args:
            task: what `claim` answered.
            error: what went wrong; the next worker sees it. 2000 characters are kept.
            delay: seconds to pause; None backs off: exponentially, with jitter.

        Returns:
            Whether it will be tried again; False when it was the last attempt and it is now a dead letter.

        Raises:
            ClaimLostError: somebody else has it, or it is done; nothing has changed.
            InvalidError: an argument is refused.
            UnavailableError: as `write`.
        """
        return await self._consumer.retry(task, error=error, delay=delay)

    async def fail(self, task: Receipt, error: str) -> None:
        """Say that a task cannot be done: it goes to the dead letters, however many attempts are left. One round trip.

        Args:
            task: what `claim` answered.
            error: what went wrong. 2000 characters are kept.

        Raises:
            ClaimLostError, InvalidError, UnavailableError: as `retry`.
        """
        return await self._consumer.fail(task, error)

    async def release(self, task: Receipt) -> None:
        """Give back a task that was not begun: it is ready at once, and the attempt does not count. One round trip.

        Args:
            task: what `claim` answered.

        Raises:
            ClaimLostError, UnavailableError: as `retry`.
        """
        return await self._consumer.release(task)

    # -- work on tasks

    @asynccontextmanager
    async def claimed(self, *, wait: float | None = 0.0) -> AsyncIterator[ClaimedTask | None]:
        """Claim a task for the time of a block: it is renewed meanwhile, and acknowledged at the end.

        Yields None when there is no task. A block that raises, or is cancelled, leaves the task to be retried.

        Args:
            wait: as `claim`.

        Raises:
            ClaimLostError: at the end of the block: somebody else has the task by now.
            InvalidError: `wait` is refused; or the result cannot be coded, and the task is a dead letter.
            AccessDeniedError, UnavailableError: as `claim`.
        """
        async with self._worker.claimed(wait=wait) as entered:
            yield entered

    async def tasks(self) -> AsyncIterator[Task]:
        """Claimed tasks, one by one, for ever; the loop itself reports the outcome of each (`ack`, `retry`, `fail`).

        Raises:
            AccessDeniedError, UnavailableError: as `claim`.
        """
        while True:
            task = await self._consumer.claim(wait=None)
            if task is not None:
                yield task

    async def work(self, handler: Callable[[Task], Awaitable[object] | object], *, concurrency: int = 1) -> None:
        """Do tasks for ever: what the handler returns is the result; when it raises, the task is retried.

        It ends when it is cancelled: tasks that were not begun are given back, those under way are cancelled and
        may be tried again at once. While the server is away it waits.

        Args:
            handler: gets the task; may be a coroutine function; may be called again for the same task.
            concurrency: how many tasks at a time, up to 1000.

        Raises:
            InvalidError: `concurrency` is refused.
            AccessDeniedError: as `claim`.
        """
        return await self._worker.work(handler, concurrency=concurrency)

    # -- inspect and administer

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
        return await self._admin.result(task_id, wait=wait)

    async def stats(self) -> QueueStats:
        """What is in the queue, and what has happened in it. One round trip, however long it is.

        A task whose delay or visibility has just ended counts as `delayed` or `claimed` until somebody claims.

        Raises:
            AccessDeniedError, UnavailableError: as `write`.
        """
        return await self._admin.stats()

    async def peek(self, n: int = 10, *, state: QueueLine = "ready") -> list[QueuedTask]:
        """The next tasks, in the order in which they will be claimed, without touching them. One round trip.

        Args:
            n: how many at most, up to 1000 (and about 4 MiB of payloads).
            state: `ready`, or `delayed` or `claimed`, by the time at which that ends.

        Raises:
            InvalidError: an argument is refused.
            AccessDeniedError, UnavailableError: as `write`.
        """
        return await self._admin.peek(n, state=state)

    async def dead(self, n: int = 10) -> list[QueuedTask]:
        """The dead letters with their errors, the oldest first. One round trip.

        Args:
            n: how many at most, as `peek`.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `peek`.
        """
        return await self._admin.dead(n)

    async def redrive(self, task_id: str) -> bool:
        """Try a dead letter again, as if it had just been put; False when it is none. One round trip.

        Args:
            task_id: which one.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `peek`.
        """
        return await self._admin.redrive(task_id)

    async def redrive_all(self) -> int:
        """Try all dead letters again; returns how many there were. One round trip for each hundred.

        Raises:
            AccessDeniedError, UnavailableError: as `write`.
        """
        return await self._admin.redrive_all()

    async def delete(self, task_id: str) -> bool:
        """Delete a task that is not done: a dead letter, or any other; False when there is none. One round trip.

        A worker that has it now gets the error when it reports the outcome.

        Args:
            task_id: which one.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `peek`.
        """
        return await self._admin.discard(task_id)

    async def pause(self) -> bool:
        """Hand out no more tasks until `resume`; False when it was paused already. One round trip.

        Tasks may still be put, and those that are claimed be renewed, acknowledged and retried.

        Raises:
            AccessDeniedError, UnavailableError: as `write`.
        """
        return await self._admin.pause()

    async def resume(self) -> bool:
        """Hand out tasks again; False when it was not paused. One round trip.

        Raises:
            AccessDeniedError, UnavailableError: as `write`.
        """
        return await self._admin.resume()

    def __repr__(self) -> str:
        return f"<TaskQueue {self._queue.target.key}>"


class Queues:
    """Task queues: work that is handed out, and handed out again when its worker dies."""

    def __init__(self, names: NameAccess) -> None:
        self._queue_names = names

    async def queues(self) -> list[str]:
        """The queues of the namespace, sorted, as `queue()` takes their names; pages of the server's scan.

        A queue is listed while it holds a task, is paused, or has counted one lately.

        Raises:
            AccessDeniedError: this Redis user may not list keys.
            UnavailableError: the server stayed away.
        """
        keyspace, home = self._queue_names.scope.keyspace, self._queue_names.scope.home
        found: set[str] = set()
        async for page in self._queue_names.context.client.scan(keyspace.queues_glob(home.namespace), near=home.clock):
            found |= {keyspace.queue_of(key) for key in page} - {""}
        return sorted(plain_name(key, home.namespace) for key in found)

    def queue(
        self,
        name: str,
        *,
        visibility: float = 30.0,
        max_attempts: int = 5,
        backoff: Backoff | tuple[float, float] = (1.0, 300.0),
        result_ttl: float = 86_400.0,
    ) -> TaskQueue:
        """A queue of tasks; those of one name are one queue, whoever opens it. No round trip.

        Args:
            name: like a channel: a plain one is `<namespace>:shared:<name>`.
            visibility: seconds for which a claimed task is nobody else's, unless it is renewed.
            max_attempts: how often tasks put by this object are tried.
            backoff: pauses between attempts of tasks retried by this object, in seconds: (at first, at most).
            result_ttl: seconds for which results given by this object can be asked for; 0 keeps none.

        Raises:
            InvalidError: an argument is refused.
            AccessDeniedError: the actor may not write the name.
        """
        terms = QueueTerms(
            visibility_s=visibility,
            visibility_ms=check_seconds("visibility", visibility, least=SHORTEST_LEASE_S, most=LONGEST_LEASE_S),
            max_attempts=check_max_attempts(max_attempts),
            backoff=check_backoff(backoff),
            result_ms=check_seconds("result_ttl", result_ttl, least=0, most=_LONGEST_RESULT_S),
        )
        names = self._queue_names
        return TaskQueue(QueueAccess(names, name, names.scope.common(name, "write"), terms))
