"""The background worker, and the services behind `store.synthesis` for one namespace and actor.

The worker claims synthesis tasks, runs a few at a time and reports their outcome.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import NamedTuple, Protocol

from sharedmem.coordination.queues import ClaimedTask
from sharedmem.errors import ConflictError, InvalidError, LimitedError, SharedMemoryError, UnavailableError
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.models import Note, Task
from sharedmem.providers.extractive import can_follow_instructions
from sharedmem.providers.protocol import LanguageModel
from sharedmem.redis.keys import SHARED_SCOPE
from sharedmem.redis.scope import Scope
from sharedmem.redis.vectors import Vector
from sharedmem.runtime import get_logger
from sharedmem.runtime.concurrency import BackgroundTask
from sharedmem.synthesis.batcher import open_batcher
from sharedmem.synthesis.chain_archive import ArchiveSearch, ChainArchiver, ChainArchiveStore
from sharedmem.synthesis.erasure import NoteEraser, NoteRetention
from sharedmem.synthesis.evolution import ChainLocks, Evolution
from sharedmem.synthesis.model_agents import ModelAgents
from sharedmem.synthesis.note_repository import NOTES_COLLECTION, RedisNoteRepository
from sharedmem.synthesis.pipeline import Pipeline, TaskAttempt
from sharedmem.synthesis.protocol import Agents, NoteRepository
from sharedmem.synthesis.resolver import embed_note
from sharedmem.synthesis.rule_agents import RuleAgents
from sharedmem.synthesis.search import NoteSearch
from sharedmem.synthesis.tasks import FlushBatchTask, TaskIntake, TaskPayload, parse_task
from sharedmem.synthesis.webhooks import Webhooks

TASKS_METRIC = "synthesis_tasks"
"""Counter of attempts at tasks, with the labels `kind` and `outcome`: done, retried, failed."""

_LONGEST_PAUSE_S = 3600.0
_CALLS_AT_ONCE = 4
_GRACE_S = 3.0
_SHUTDOWN_TRIPS = 3
_logger = get_logger("synthesis")


class TaskAnnouncer(Protocol):
    """Reports the outcome of tasks to receivers outside."""

    async def announce(self, task_id: str, callback_url: str, payload: Mapping[str, object]) -> object:
        """Queue a report, once, however often this is called."""

    async def work(self, *, concurrency: int = 8) -> None:
        """Send the reports, until cancelled."""


class ActorServices(NamedTuple):
    """The services for tasks of one actor, with its name and rights."""

    scope: Scope
    intake: TaskIntake
    pipeline: Pipeline
    webhooks: TaskAnnouncer | None = None


class SynthesisWorker:
    """Works on the tasks of a namespace until it is drained or cancelled.

    Each task runs in the name and with the rights of the actor who put it, as the queue has recorded it, in any
    process and at every retry.

    No other worker gets a task while it runs. A failed task is retried after a growing pause; in
    the last attempt unavailable models are replaced by rules. A task that fails even then is a dead letter with its
    reason.

    Args:
        context: dependencies that the hub shares with its stores.
        intake: accepts the tasks.
        requester: returns the services for an actor, by its name.
        webhooks: calls the receivers of outcomes; None for no calls.
        concurrency: most tasks at a time; None uses the settings.
    """

    def __init__(
        self,
        context: KnowledgeContext,
        *,
        intake: TaskIntake,
        requester: Callable[[str], ActorServices],
        webhooks: TaskAnnouncer | None = None,
        concurrency: int | None = None,
    ) -> None:
        self._context = context
        self._intake = intake
        self._requester = requester
        self._webhooks = webhooks
        self._concurrency = context.settings.synthesis_concurrency if concurrency is None else concurrency
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy: set[asyncio.Task[None]] = set()
        self._drains = False
        self._rests = asyncio.Event()
        self._rests.set()
        self._work: BackgroundTask | None = None

    @property
    def under_way(self) -> int:
        """The number of running tasks."""
        return len(self._busy)

    @property
    def is_running(self) -> bool:
        """Whether it claims tasks."""
        return bool(self._tasks) and not self._drains

    def start(self) -> None:
        """Start working in the background of the hub, unless it works already or must not. No round trip.

        Raises:
            UsageError: the hub is closed.
        """
        if self._concurrency and not self._drains and (self._work is None or self._work.done):
            self._work = self._context.background.start("synthesize memories", self.run())

    async def run(self) -> None:
        """Do tasks, and call webhooks, until it is drained; while the server is unavailable it waits.

        After a cancellation it returns its tasks to the queue, which retries them at once.

        Raises:
            AccessDeniedError: as queues.
            UsageError: the hub is closed.
        """
        calls = None
        if self._webhooks is not None:
            work = self._webhooks.work(concurrency=_CALLS_AT_ONCE)
            calls = self._context.background.start("call webhooks", work)
        self._tasks = {asyncio.create_task(self._work_on()) for _ in range(self._concurrency)}
        self._rests.clear()
        try:
            await _wait_for_all(self._tasks)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._tasks.clear()
            if calls is not None:
                await calls.stop()
            self._rests.set()

    async def drain(self) -> None:
        """Claim no more tasks, and return when the running ones have ended. It does not start again."""
        self._drains = True
        for task in self._tasks - self._busy:
            task.cancel()
        await self._rests.wait()
        # Cancelled claims leave the queue and return tasks that were on their way to them in the background. If the hub
        # closed right now, this would be cut off, and others would wait for these tasks; so it is done first.
        with suppress(SharedMemoryError):
            for _ in range(_SHUTDOWN_TRIPS):
                await self._intake.queue.stats()

    async def close(self) -> None:
        """Drain, but return tasks that do not end within a few seconds to the queue: others do them at once."""
        if not await self._drained() and self._work is not None:
            await self._work.stop()
            await self._drained()

    async def _drained(self) -> bool:
        # An unavailable server must not keep a hub from closing.
        try:
            async with asyncio.timeout(_GRACE_S):
                await self.drain()
        except TimeoutError:
            return False
        return True

    async def work_once(self, *, wait: float | None = 0.0) -> bool:
        """Claim one task and do it; return False if there is no task.

        Args:
            wait: seconds to wait for a task; None waits without limit.

        Raises:
            SharedMemoryError: the task has failed, which the queue has recorded; or the queue is unavailable.
        """
        async with self._intake.queue.claimed(wait=wait) as claimed:
            if claimed is None:
                return False
            await self._done(claimed)
        return True

    # -- claiming tasks

    async def _work_on(self) -> None:
        own = asyncio.current_task()
        assert own is not None
        while not self._drains:
            try:
                async with self._intake.queue.claimed(wait=None) as claimed:
                    self._busy.add(own)
                    if claimed is not None:
                        await self._done(claimed)
            except Exception as error:  # a worker survives errors of its tasks
                if own not in self._busy:
                    await self._pause(error)
                _logger.warning("a task of synthesis has failed", exc_info=error)
            finally:
                self._busy.discard(own)

    async def _pause(self, error: Exception) -> None:
        """Wait while no tasks can be claimed; raise errors that do not pass by waiting."""
        if not isinstance(error, UnavailableError):
            raise error
        await self._context.clock.sleep(error.retry_after)

    # -- a task

    async def _done(self, claimed: ClaimedTask) -> None:
        task = claimed.task
        try:
            request = parse_task(task.payload)
        except InvalidError as error:
            await self._intake.queue.fail(task, str(error))
            raise
        is_last = task.attempt >= task.max_attempts
        requester = self._requester(task.put_by)
        try:
            result = await self._result(requester, request, TaskAttempt(task.id, attempt=task.attempt, is_last=is_last))
        except Exception as error:
            self._count(request, "failed" if is_last or _is_final(error) else "retried")
            await self._not_done(requester, request, task, error, is_last=is_last)
            raise
        await _announce_outcome(requester, request, task, {"status": "done", "result": result})
        claimed.finish(result | {"attempts": task.attempt})
        self._count(request, "done")

    async def _result(self, requester: ActorServices, request: TaskPayload, turn: TaskAttempt) -> dict[str, object]:
        if not isinstance(request, FlushBatchTask):
            return await requester.pipeline.do(request, turn)
        batcher = open_batcher(self._context, requester.scope, requester.intake, request)
        return {"tasks": await batcher.flush(request.batch)}

    async def _not_done(
        self, requester: ActorServices, request: TaskPayload, task: Task, error: Exception, *, is_last: bool
    ) -> None:
        """Report a final failure, or set the pause of a retry; without either, the end of the block retries."""
        if is_last or _is_final(error):
            await _announce_outcome(
                requester, request, task, {"status": "failed", "error": f"{type(error).__name__}: {error}"}
            )
            await self._intake.queue.fail(task, f"{type(error).__name__}: {error}")
        elif isinstance(error, LimitedError):
            pause_s = min(max(error.retry_after, 0.0), _LONGEST_PAUSE_S)
            await self._intake.queue.retry(task, error=str(error), delay=pause_s)

    def _count(self, request: TaskPayload, outcome: str) -> None:
        self._context.counters.increment(TASKS_METRIC, kind=request.kind, outcome=outcome)

    def __repr__(self) -> str:
        state = "draining" if self._drains else "running" if self._tasks else "idle"
        return f"<Worker of {self._intake.queue.name}, {state}, {self.under_way} under way>"


async def _announce_outcome(
    requester: ActorServices, request: TaskPayload, task: Task, payload: Mapping[str, object]
) -> None:
    """Queue a report to the receiver in the request, if there is one."""
    webhooks = requester.webhooks
    if webhooks is None or isinstance(request, FlushBatchTask) or request.callback_url is None:
        return
    if payload["status"] == "done":
        await webhooks.announce(task.id, request.callback_url, payload)
        return
    with suppress(SharedMemoryError):  # the original failure must be raised
        await webhooks.announce(task.id, request.callback_url, payload)


def _is_final(error: Exception) -> bool:
    """Return whether a retry would fail in the same way."""
    return isinstance(error, InvalidError) and not isinstance(error, ConflictError)


async def _wait_for_all(tasks: set[asyncio.Task[None]]) -> None:
    """Return when all have ended, or raise the error of one of them; a cancellation is not an error."""
    ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    for task in ended:
        if not task.cancelled():
            task.result()


# -- the services of a namespace and actor -------------------------------------------------------


def select_agents(model: LanguageModel) -> Agents:
    """Return the agents for a model: rules for the offline one, else agents that call it.

    Args:
        model: model of the settings, or of the caller.
    """
    return ModelAgents(model) if can_follow_instructions(model) else RuleAgents()


class SynthesisServices:
    """The services behind `store.synthesis`.

    Args:
        context: dependencies that the hub shares with its stores.
        scope: the namespace and the actor.
        repository: stores the notes; None for Redis.
    """

    def __init__(self, context: KnowledgeContext, scope: Scope, *, repository: NoteRepository | None = None) -> None:
        self._context = context
        self._scope = scope
        self.repository: NoteRepository = repository or RedisNoteRepository(context, scope)
        self.agents: Agents = select_agents(context.model)
        self.chains = ChainLocks(scope, context)
        self.intake = TaskIntake(context, scope)
        self.webhooks = Webhooks(context, scope)
        self.archives = ChainArchiveStore(context.blobs, scope.identity.namespace)
        archive_search = ArchiveSearch(
            scope.identity.namespace,
            repository=self.repository,
            archives=self.archives,
            embedder=context.embedder_of(scope.identity.namespace),
        )
        self.search = NoteSearch(context, scope, repository=self.repository, archives=archive_search)
        self.evolution = Evolution(
            self.repository, self.chains, context.clock, self.embed, actor=scope.identity.name, permit=self.permit
        )
        self.pipeline = Pipeline(context, scope, repository=self.repository, agents=self.agents, chains=self.chains)

    @property
    def archiver(self) -> ChainArchiver:
        """Archives chains."""
        return ChainArchiver(
            self._context,
            repository=self.repository,
            chains=self.chains,
            archives=self.archives,
            embed=self.embed,
            permit=self.permit,
        )

    @property
    def eraser(self) -> NoteEraser:
        """Erases notes."""
        return NoteEraser(
            repository=self.repository,
            archives=self.archives,
            check_tasks=self.intake.check_authors,
            tasks=self.intake.forget,
            permit=self.permit,
        )

    @property
    def retention(self) -> NoteRetention:
        """Erases old retired notes."""
        return NoteRetention(
            repository=self.repository,
            chains=self.chains,
            archives=self.archives,
            clock=self._context.clock,
            permit=self.permit,
        )

    @cached_property
    def worker(self) -> SynthesisWorker:
        """The one worker of the namespace in this hub; it claims tasks as the namespace's own actor."""

        def make() -> SynthesisWorker:
            own = self._requester(SHARED_SCOPE)
            worker = SynthesisWorker(self._context, intake=own.intake, requester=self._requester, webhooks=own.webhooks)
            self._context.endings.append(worker.close)
            return worker

        return self._context.shared(SynthesisWorker, self._scope.identity.namespace, make)

    def _requester(self, actor: str) -> ActorServices:
        scope = self._scope.acting_as(actor)
        parts = SynthesisServices(self._context, scope)
        return ActorServices(scope, parts.intake, parts.pipeline, parts.webhooks)

    def permit(self, note: Note) -> None:
        """Reject an actor that may not change or erase a note by hand.

        Raises:
            AccessDeniedError: the note belongs to another actor, and `memory_rights` is `owner`.
        """
        self._scope.check_author(note.created_by, NOTES_COLLECTION, f"{note.app_id}/{note.id}")

    async def embed(self, text: str) -> Vector | None:
        """Return the vector of a text; None when it is empty, or there is no embedder."""
        embedder = self._context.embedder_of(self._scope.identity.namespace)
        return None if embedder is None else await embed_note(embedder, text)
