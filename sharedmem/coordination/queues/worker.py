"""Run a handler for each claimed task, renew its claim while it runs, and report the outcome."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from sharedmem.coordination.lease_session import lease_renewer
from sharedmem.coordination.queues.consumer import QueueConsumer
from sharedmem.coordination.queues.queue_access import QueueAccess, check_count
from sharedmem.errors import ClaimLostError, InvalidError, SharedMemoryError, UnavailableError
from sharedmem.models.coordination import Task
from sharedmem.runtime import get_logger
from sharedmem.runtime.process_bound import ProcessBound

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
        except Exception as error:  # the worker survives failing tasks
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
                await self._consumer.retry(
                    task, error=_format_error(error), delay=None if isinstance(error, Exception) else 0
                )
            raise
        try:
            await self._consumer.ack(task, claimed.result)
        except InvalidError as error:
            # A retry would fail in the same way.
            await self._consumer.fail(task, _format_error(error))
            raise
        finally:
            keeper.stop_renewing(claimed)


def _format_error(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
