"""Task queues of a store: at-least-once delivery, redelivery when a worker dies.

A worker runs a handler for each claimed task, renews its claim while it runs, and reports the outcome.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from sharedmem.coordination.lease_session import lease_renewer
from sharedmem.coordination.names import LONGEST_LEASE_S, SHORTEST_LEASE_S, NameAccess, check_seconds
from sharedmem.coordination.queue_access import (
    QueueAccess,
    QueueConsumer,
    QueueProducer,
    QueueTerms,
    check_backoff,
    check_count,
    check_max_attempts,
)
from sharedmem.coordination.queue_admin import QueueAdmin
from sharedmem.errors import ClaimLostError, InvalidError, SharedMemoryError, UnavailableError
from sharedmem.models.coordination import (
    Backoff,
    PutResult,
    QueuedTask,
    QueueLine,
    QueueStats,
    Receipt,
    SearchedState,
    Task,
    TaskOutcome,
    TaskPage,
)
from sharedmem.redis.keys import plain_name
from sharedmem.redis.name_index import IndexedName
from sharedmem.redis.replies import Command
from sharedmem.runtime import get_logger
from sharedmem.runtime.concurrency import ProcessBound

_LONGEST_RESULT_S = 366 * 86_400.0


class TaskQueue(ProcessBound):
    """A queue of tasks. Each task is done at least once, even if workers die.

    One worker at a time has a task. It must renew the task (heartbeat) within the visibility timeout and report the
    outcome; otherwise another worker gets the task. After the last attempt the task becomes a dead letter.
    """

    def __init__(self, queue: QueueAccess) -> None:
        self._queue = queue
        self._producer = QueueProducer(queue)
        self._consumer = QueueConsumer(queue)
        self._worker = QueueWorker(queue, self._consumer)
        self._admin = QueueAdmin(queue)

    @property
    def name(self) -> str:
        """The name of the queue, as the caller gave it."""
        return self._queue.name

    # -- put tasks

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
        """Put a task into the queue. One round trip, shared with concurrent puts through this object.

        Args:
            payload: content of the task, a value as in `write`, up to the blob threshold (256 KiB).
            priority: higher ones are claimed first; equal ones in the order in which they were put.
            delay: seconds until a worker may claim it.
            id: deduplication id: while a task with this id is not done, another put returns that task.
            unique_for: seconds from now for which that also holds after the task is done.
            max_attempts: highest number of attempts; None: the setting of the queue.

        Returns:
            The task's `id`, and whether it is new (`is_new`).

        Raises:
            InvalidError: an argument is invalid, or the payload cannot be encoded or is too large.
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
        """Put up to 500 tasks in one atomic step, in their order. One round trip.

        Args:
            payloads: the payloads, one for each task.
            priority, delay, max_attempts: as `put`, for all tasks.

        Raises:
            InvalidError: there are more than 500 payloads, or `put` would reject one of them.
            AccessDeniedError, UnavailableError: as `write`.
        """
        return await self._producer.put_many(payloads, priority=priority, delay=delay, max_attempts=max_attempts)

    # -- claim tasks, and report their outcomes

    async def claim(self, *, wait: float | None = 0.0) -> Task | None:
        """Claim the next task; no other worker gets it during its visibility timeout.

        One round trip, shared with concurrent claims through this object.

        A waiting caller is notified when there is a task, so it does not poll.

        Args:
            wait: longest wait in seconds; None: no limit.

        Returns:
            The task; None if no task is ready or the queue is paused.

        Raises:
            InvalidError: `wait` is invalid.
            AccessDeniedError, UnavailableError: as `write`.
        """
        return await self._consumer.claim(wait=wait)

    async def claim_many(self, n: int, *, wait: float | None = 0.0) -> list[Task]:
        """Claim up to `n` tasks (at most 100, and about 1 MiB of payloads) at once. One round trip.

        Args:
            n: most tasks to claim.
            wait: as in `claim`, for the first task.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `claim`.
        """
        return await self._consumer.claim_many(n, wait=wait)

    async def renew(self, task: Receipt) -> float:
        """Renew a claim: its visibility timeout starts again now. One round trip.

        Args:
            task: the task that `claim` returned.

        Returns:
            The end of the visibility timeout, on this process's monotonic clock.

        Raises:
            ClaimLostError: another worker has the task, or it is done.
            UnavailableError: as `write`.
        """
        return await self._consumer.renew(task)

    async def ack(self, task: Receipt, result: object = None) -> None:
        """Acknowledge that a task is done. One round trip, shared with concurrent calls through this object.

        Args:
            task: the task that `claim` returned.
            result: the result of the task, stored for the `result_ttl` of the queue.

        Raises:
            ClaimLostError: another worker has the task, or it is done; nothing was changed.
            InvalidError: the result cannot be encoded or is too large; the task is still claimed.
            UnavailableError: as `write`.
        """
        return await self._consumer.ack(task, result)

    async def retry(self, task: Receipt, *, error: str = "", delay: float | None = None) -> bool:
        """Report that a task has failed and may be tried again. One round trip.

        Args:
            task: the task that `claim` returned.
            error: what went wrong; the next worker can read it. 2000 characters are stored.
            delay: pause in seconds; None: exponential backoff with jitter.

        Returns:
            Whether it will be tried again; False if this was the last attempt and it is now a dead letter.

        Raises:
            ClaimLostError: another worker has the task, or it is done; nothing was changed.
            InvalidError: an argument is invalid.
            UnavailableError: as `write`.
        """
        return await self._consumer.retry(task, error=error, delay=delay)

    async def fail(self, task: Receipt, error: str) -> None:
        """Report that a task cannot be done: it becomes a dead letter, even with attempts left. One round trip.

        Args:
            task: the task that `claim` returned.
            error: what went wrong. 2000 characters are stored.

        Raises:
            ClaimLostError, InvalidError, UnavailableError: as `retry`.
        """
        return await self._consumer.fail(task, error)

    async def release(self, task: Receipt) -> None:
        """Release a task that was not begun: it is ready at once, and the attempt does not count. One round trip.

        Args:
            task: the task that `claim` returned.

        Raises:
            ClaimLostError, UnavailableError: as `retry`.
        """
        return await self._consumer.release(task)

    # -- work on tasks

    @asynccontextmanager
    async def claimed(self, *, wait: float | None = 0.0) -> AsyncIterator[ClaimedTask | None]:
        """Claim a task for a block: it is renewed while the block runs, and acknowledged at its end.

        Yields None if there is no task. If the block raises or is cancelled, the task is retried.

        Args:
            wait: as in `claim`.

        Raises:
            ClaimLostError: at the end of the block: another worker has the task by now.
            InvalidError: `wait` is invalid; or the result cannot be encoded, and the task is a dead letter.
            AccessDeniedError, UnavailableError: as `claim`.
        """
        async with self._worker.claimed(wait=wait) as entered:
            yield entered

    async def tasks(self) -> AsyncIterator[Task]:
        """Yield claimed tasks, one by one, without end; the caller reports each outcome (`ack`, `retry`, `fail`).

        Raises:
            AccessDeniedError, UnavailableError: as `claim`.
        """
        while True:
            task = await self._consumer.claim(wait=None)
            if task is not None:
                yield task

    async def work(self, handler: Callable[[Task], Awaitable[object] | object], *, concurrency: int = 1) -> None:
        """Run a handler for tasks without end; its return value is the result; if it raises, the task is retried.

        Cancel it to end it: tasks that were not begun are released; running ones are cancelled and may be tried
        again at once. While the server is unreachable, it waits.

        Args:
            handler: function or coroutine function that receives the task; may be called again for the same task.
            concurrency: most tasks at a time, up to 1000.

        Raises:
            InvalidError: `concurrency` is invalid.
            AccessDeniedError: as `claim`.
        """
        return await self._worker.work(handler, concurrency=concurrency)

    # -- inspect and administer

    async def result(self, task_id: str, *, wait: float | None = 0.0) -> TaskOutcome:
        """Return the outcome of a task. One round trip; a waiting caller is notified of the outcome.

        Args:
            task_id: the id that `put` returned.
            wait: longest wait in seconds until the task is done or a dead letter; None: no limit.

        Returns:
            The state of the task, with its result once it is `done`, and its last error until then.

        Raises:
            NotFoundError: the task does not exist, or its result has expired.
            InvalidError: an argument is invalid.
            AccessDeniedError, UnavailableError: as `write`.
        """
        return await self._admin.result(task_id, wait=wait)

    async def stats(self) -> QueueStats:
        """Return the content of the queue and its counters. One round trip, however long the queue is.

        A task whose delay or visibility has just ended counts as `delayed` or `claimed` until the next claim.

        Raises:
            AccessDeniedError, UnavailableError: as `write`.
        """
        return await self._admin.stats()

    async def peek(self, n: int = 10, *, state: QueueLine = "ready") -> list[QueuedTask]:
        """Return the next tasks, in the order in which they will be claimed, without claiming them. One round trip.

        Args:
            n: most tasks to return, up to 1000 (and about 4 MiB of payloads).
            state: `ready`; or `delayed` or `claimed`, ordered by the end of that state.

        Raises:
            InvalidError: an argument is invalid.
            AccessDeniedError, UnavailableError: as `write`.
        """
        return await self._admin.peek(n, state=state)

    async def dead(self, n: int = 10) -> list[QueuedTask]:
        """Return the dead letters with their errors, the oldest first. One round trip.

        Args:
            n: as in `peek`.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `peek`.
        """
        return await self._admin.dead(n)

    async def search(
        self, words: str = "", *, state: SearchedState | None = None, limit: int = 50, cursor: str | None = None
    ) -> TaskPage:
        """Find tasks by words of their payload, error, deduplication id, producer or worker, without claiming them.

        Compares 10,000 tasks at most, so that a rare word in a long queue takes several calls: a page may be empty, and
        the last is the one without a cursor. A task that changes its state meanwhile may come twice, or not at all. Up
        to 21 round trips, of up to 4 MiB each; one for the id of a task.

        Args:
            words: all of them have to be there, in any case and order, also within longer ones; empty: every task. The
                id of a task finds that task.
            state: `dead`, `claimed`, `ready` or `delayed`; None: all, in this order. Within a state the order is that
                of `peek`.
            limit: most tasks to return, 1 to 1,000.
            cursor: of the page before; None begins.

        Raises:
            InvalidError: the state, limit or cursor is invalid.
            AccessDeniedError, UnavailableError: as `write`.
        """
        return await self._admin.search(words, state=state, limit=limit, cursor=cursor)

    async def bury(self, task_id: str, *, error: str = "") -> bool:
        """Make a task that is not done a dead letter; return False if it does not exist or is one. One round trip.

        For people who look after a queue; a worker reports `fail`. A worker that has the task gets an error when it
        reports the outcome. `redrive` takes it back. Of a task that no worker had, the actor of this store becomes
        the `worker`.

        Args:
            task_id: id of the task.
            error: why; shown as the error of the dead letter. 2000 characters are stored.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `peek`.
        """
        return await self._admin.bury(task_id, error=error)

    async def redrive(self, task_id: str) -> bool:
        """Try a dead letter again, as if it had just been put; return False if it is no dead letter. One round trip.

        Args:
            task_id: id of the task.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `peek`.
        """
        return await self._admin.redrive(task_id)

    async def redrive_all(self) -> int:
        """Try all dead letters again; return their number. One round trip for each hundred.

        Raises:
            AccessDeniedError, UnavailableError: as `write`.
        """
        return await self._admin.redrive_all()

    async def delete(self, task_id: str) -> bool:
        """Delete a task that is not done, such as a dead letter; return False if it does not exist. One round trip.

        A worker that has it now gets an error when it reports the outcome.

        Args:
            task_id: id of the task.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `peek`.
        """
        return await self._admin.discard(task_id)

    async def pause(self) -> bool:
        """Stop claims until `resume`; return False if the queue was paused already. One round trip.

        Producers can still put tasks, and workers can renew, acknowledge and retry claimed ones.

        Raises:
            AccessDeniedError, UnavailableError: as `write`.
        """
        return await self._admin.pause()

    async def resume(self) -> bool:
        """Allow claims again; return False if the queue was not paused. One round trip.

        Raises:
            AccessDeniedError, UnavailableError: as `write`.
        """
        return await self._admin.resume()

    def __repr__(self) -> str:
        return f"<TaskQueue {self._queue.target.key}>"


_NAMES_AT_ONCE = 1_000
_QUEUE = ("queue",)


class Queues:
    """Task queues: tasks for workers, redelivered if a worker dies."""

    def __init__(self, names: NameAccess) -> None:
        self._queue_names = names

    async def queues(self) -> list[str]:
        """Return the queues of the namespace, sorted, by the names that `queue()` accepts.

        A queue is listed while it has tasks, is paused, or has recent counters. Two round trips for 1,000 queues, and
        one if some do not exist any more. In data that only earlier versions have written, queues are looked for once
        with SCAN.

        Raises:
            AccessDeniedError: queues were never looked for, and this Redis user may not list keys.
            UnavailableError: the server cannot be reached.
            CorruptionError: another client has written to the index of names.
        """
        names, found = self._queue_names, list[str]()
        page = await names.index.page(_QUEUE, limit=_NAMES_AT_ONCE)
        while page:
            lasting = await self._are_in_use(page)
            await names.drop_names([one for one, lasts in zip(page, lasting, strict=True) if not lasts])
            found += [one.name for one, lasts in zip(page, lasting, strict=True) if lasts]
            is_last = len(page) < _NAMES_AT_ONCE
            page = [] if is_last else await names.index.page(_QUEUE, after=page[-1], limit=_NAMES_AT_ONCE)
        namespace = names.scope.home.namespace
        return sorted(plain_name(f"{namespace}:{name}", namespace) for name in found)

    async def _are_in_use(self, queues: Sequence[IndexedName]) -> list[bool]:
        names = self._queue_names
        targets = [names.scope.keyspace.target(f"{names.scope.home.namespace}:{one.name}") for one in queues]
        parts = ("queue.tasks", "queue.counts", "queue.paused")
        looks: list[Command] = [("EXISTS", *(names.part(target, part) for part in parts)) for target in targets]
        return [bool(count) for count in await names.context.client.read_many(looks)]

    def queue(
        self,
        name: str,
        *,
        visibility: float = 30.0,
        max_attempts: int = 5,
        backoff: Backoff | tuple[float, float] = (1.0, 300.0),
        result_ttl: float = 86_400.0,
    ) -> TaskQueue:
        """Return a task queue; all users of a name share one queue. No round trip.

        Args:
            name: plain (`<namespace>:shared:<name>`) or absolute, like a channel.
            visibility: seconds after which another worker gets a claimed task that was not renewed.
            max_attempts: highest number of attempts for tasks that this object puts.
            backoff: pauses in seconds between attempts of tasks that this object retries: (first, longest).
            result_ttl: seconds for which results from this object are stored; 0: not stored.

        Raises:
            InvalidError: an argument is invalid.
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


# -- workers -------------------------------------------------------------------------------------


FAILURES = "failed_tasks"
"""Counter of tasks that failed or whose outcome could not be reported, with the label `error` (class name)."""

_MOST_AT_ONCE = 1_000
_RENEWALS_A_VISIBILITY = 3
_logger = get_logger("queues")


class ClaimedTask(ProcessBound):
    """A claimed task in progress; it is renewed until its block ends.

    Pass its result to `finish`.
    """

    def __init__(self, queue: QueueConsumer, task: Task, *, renew_every_s: float, now: float) -> None:
        self._queue = queue
        self._renew_every_s = renew_every_s
        self._task = task
        self._result: object = None
        self.deadline = task.deadline
        self.renew_at = now + renew_every_s

    @property
    def task(self) -> Task:
        """The claimed task."""
        return self._task

    @property
    def id(self) -> str:
        """The id of the task."""
        return self._task.id

    @property
    def payload(self) -> Any:
        """The payload of the task."""
        return self._task.payload

    @property
    def attempt(self) -> int:
        """The number of claims, this one included."""
        return self._task.attempt

    @property
    def token(self) -> int:
        """Fencing token: higher than the tokens of all earlier claims of this task."""
        return self._task.token

    @property
    def result(self) -> Any:
        """The result so far."""
        return self._result

    def finish(self, result: object) -> None:
        """Set the result; it is sent at the end of the block. No round trip."""
        self._result = result

    async def renew(self) -> bool:
        """Renew the claim; return False if another worker has the task. One round trip."""
        try:
            self.deadline = await self._queue.renew(self._task)
        except ClaimLostError:
            return False
        except UnavailableError:
            # The server may be back before the visibility timeout: the deadline stays as it is.
            pass
        self.renew_at += self._renew_every_s
        return True

    def lose(self) -> None:
        """Record that the task was not renewed in time; the end of the block raises the error."""
        _logger.warning("task %s could not be renewed in time; another worker may get it", self._task.id)

    def __repr__(self) -> str:
        return f"<ClaimedTask {self.id}, attempt {self.attempt}, token {self.token}>"


class QueueWorker:
    """Runs handlers for claimed tasks.

    Args:
        queue: the queue of the tasks.
        consumer: claims tasks and reports their outcomes.
    """

    def __init__(self, queue: QueueAccess, consumer: QueueConsumer) -> None:
        self._queue = queue
        self._consumer = consumer

    @asynccontextmanager
    async def claimed(self, *, wait: float | None = 0.0) -> AsyncIterator[ClaimedTask | None]:
        """As `TaskQueue.claimed`."""
        task = await self._consumer.claim(wait=wait)
        if task is None:
            yield None
            return
        async with self._renewed_task(task) as claimed:
            yield claimed

    async def work(self, handler: Callable[[Task], Awaitable[object] | object], *, concurrency: int = 1) -> None:
        """As `TaskQueue.work`."""
        loops = [self._work_on(handler) for _ in range(check_count("concurrency", concurrency, most=_MOST_AT_ONCE))]
        workers = [asyncio.ensure_future(loop) for loop in loops]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _work_on(self, handler: Callable[[Task], Awaitable[object] | object]) -> None:
        while True:
            try:
                task = await self._consumer.claim(wait=None)
            except UnavailableError as error:
                _logger.warning("queue %s: cannot claim tasks now: %s", self._queue.name, error)
                await self._queue.context.clock.sleep(error.retry_after)
                continue
            if task is not None:
                await self._run_handler(handler, task)

    async def _run_handler(self, handler: Callable[[Task], Awaitable[object] | object], task: Task) -> None:
        try:
            async with self._renewed_task(task) as claimed:
                answer = handler(task)
                claimed.finish(await answer if inspect.isawaitable(answer) else answer)
        except BaseException as error:
            if not _is_failure(error):
                raise
            # The worker survives failing tasks.
            self._queue.context.counters.increment(FAILURES, error=type(error).__name__)
            _logger.warning("task %s of queue %s, attempt %d", task.id, self._queue.name, task.attempt, exc_info=error)

    @asynccontextmanager
    async def _renewed_task(self, task: Task) -> AsyncIterator[ClaimedTask]:
        queue = self._queue
        every_s = queue.terms.visibility_s / _RENEWALS_A_VISIBILITY
        claimed = ClaimedTask(self._consumer, task, renew_every_s=every_s, now=queue.context.clock.monotonic())
        keeper = lease_renewer(queue.context)
        keeper.keep(claimed)
        try:
            with queue.span("process", task):
                yield claimed
        except BaseException as error:
            keeper.stop_renewing(claimed)
            # Without this report, the visibility timeout does the same.
            with suppress(SharedMemoryError):
                await self._consumer.retry(task, error=_format_error(error), delay=None if _is_failure(error) else 0)
            raise
        try:
            await self._acknowledge(task, claimed.result)
        except InvalidError as error:
            # A retry would fail in the same way.
            await self._consumer.fail(task, _format_error(error))
            raise
        finally:
            keeper.stop_renewing(claimed)

    async def _acknowledge(self, task: Task, result: object) -> None:
        try:
            await self._consumer.ack(task, result)
        except asyncio.CancelledError:
            # The task is done: it must not be done again because of a caller that is cancelled in this moment.
            self._queue.context.background.start_last_call(
                f"acknowledge task {task.id}", lambda: self._consumer.ack(task, result)
            )
            raise


def _is_failure(error: BaseException) -> bool:
    """Return whether a handler has failed, and its worker goes on: something that it awaits may be cancelled alone."""
    if isinstance(error, asyncio.CancelledError):
        running = asyncio.current_task()
        return running is not None and not running.cancelling()
    return isinstance(error, Exception)


def _format_error(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
