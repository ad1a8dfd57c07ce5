"""`store.remember`: one task files a conversation as what it is, and returns what became of it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias, get_args

from sharedmem.coordination.names import NameAccess
from sharedmem.coordination.queue_access import check_dedup_id
from sharedmem.coordination.queues import Queues, TaskQueue
from sharedmem.errors import AccessDeniedError, InvalidError, UnsupportedError
from sharedmem.graph.extraction.model_extractor import ModelExtractor
from sharedmem.graph.graph import Graph, open_graph
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.memory.memories import Memories
from sharedmem.models import Episode, EpisodeResult, MemoryItem, MemoryMessage, SynthesisMessage, Task, TaskOutcome
from sharedmem.models.coordination import TaskState
from sharedmem.models.notes import SynthesisState
from sharedmem.models.recall import RecallPart, RememberCost, RememberReceipt
from sharedmem.models.record import Record
from sharedmem.providers.chunks import count_tokens
from sharedmem.providers.extractive import can_follow_instructions
from sharedmem.providers.protocol import ChatMessage, LanguageModel, Model
from sharedmem.recall.recall import MAIN, PARTS, group_of
from sharedmem.redis.keys import SHARED_SCOPE
from sharedmem.redis.scope import Scope
from sharedmem.runtime import get_logger, measured
from sharedmem.runtime.concurrency import BackgroundTask
from sharedmem.synthesis.note_text import check_fuzzy_matching
from sharedmem.synthesis.pipeline import TaskAttempt
from sharedmem.synthesis.tasks import AddMemoryTask, check_id, check_messages
from sharedmem.synthesis.worker import SynthesisServices

QUEUE = "remember"
"""The task queue of a namespace for what is to be remembered."""
_VISIBILITY_S = 30.0
_BACKOFF_S = (1.0, 300.0)
_CONCURRENCY = 4
_LONGEST_WINDOW_S = 31 * 86_400.0
_NO_USER = "shared"
"""The user of notes that were made for no user."""
_STATES: Mapping[TaskState, SynthesisState] = {
    "ready": "pending",
    "delayed": "pending",
    "claimed": "running",
    "done": "done",
    "dead": "failed",
}
_log = get_logger("recall")

Conversation: TypeAlias = Sequence[SynthesisMessage | Mapping[str, object]] | str


class RememberTask(Record):
    """What is to be remembered, and whose it is."""

    messages: tuple[SynthesisMessage, ...]
    is_text: bool = False
    """Whether it was one text and no conversation."""
    at: datetime
    """When it was said, for messages without a time."""
    parts: tuple[RecallPart, ...]
    user_id: str | None = None
    thread_id: str = MAIN
    group_id: str
    app_id: str


@dataclass
class _Filed:
    """What became of a task so far."""

    fields: dict[str, Any] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    def result(self, model: MeteredModel | None, attempts: int) -> dict[str, Any]:
        """Return it as the result of the task."""
        cost = RememberCost() if model is None else RememberCost(model_calls=model.calls, model_tokens=model.tokens)
        told = {"skipped": self.skipped, "remarks": self.remarks, "cost": cost.model_dump(), "attempts": attempts}
        return self.fields | told


class ConversationFiler:
    """Files conversations with the rights of one actor: as memories, as facts of the graph, and as a note.

    Each part finds what an earlier attempt of the task has written, so that a repeated task writes nothing twice.

    Args:
        context: dependencies that the hub shares with its stores.
        scope: the namespace and the actor.
    """

    def __init__(self, context: KnowledgeContext, scope: Scope) -> None:
        self._model = MeteredModel(context.model) if can_follow_instructions(context.model) else None
        metered = context if self._model is None else context.extended(KnowledgeContext, model=self._model)
        self._context: KnowledgeContext = metered
        self._scope = scope

    async def file(self, request: RememberTask, turn: TaskAttempt) -> dict[str, Any]:
        """Write all parts of a task at the same time; return the fields of its receipt.

        A part that cannot be written however often it is tried is skipped, with the reason.

        Raises:
            UnavailableError, LimitedError, ConfigError: a retry may succeed.
        """
        filed = _Filed()
        parts: dict[RecallPart, Callable[[RememberTask, TaskAttempt, _Filed], Awaitable[None]]] = {
            "memory": self._add_memories,
            "graph": self._add_episodes,
            "notes": self._make_note,
        }
        filed.skipped = {part: "it was switched off" for part in PARTS if part not in request.parts}
        done = await asyncio.gather(
            *(parts[part](request, turn, filed) for part in request.parts), return_exceptions=True
        )
        for part, failure in zip(request.parts, done, strict=True):
            if isinstance(failure, InvalidError | AccessDeniedError | UnsupportedError):
                filed.skipped[part] = str(failure)
            elif failure is not None:
                raise failure
        return filed.result(self._model, turn.attempt)

    async def _add_memories(self, request: RememberTask, turn: TaskAttempt, filed: _Filed) -> None:
        memory = Memories(self._context, self._scope)
        items = [_memory_of(request, turn.task_id, place) for place in range(len(request.messages))]
        added = await memory.add_many(items)
        filed.fields["memories"] = [one.id for one in added]
        filed.fields["merged"] = [one.id for one in added if one.merged]

    async def _add_episodes(self, request: RememberTask, turn: TaskAttempt, filed: _Filed) -> None:
        graph = self._graph()
        episodes = [
            Episode(
                content=message.content,
                group_id=request.group_id,
                id=f"{turn.task_id}-{place}",
                occurred_at=message.timestamp or request.at,
                source=message.role,
                session=request.thread_id,
                user=request.user_id,
            )
            for place, message in enumerate(request.messages)
        ]
        results = await graph.add_episodes(episodes)
        filed.fields["episodes"] = [one.id for one in results]
        filed.fields["facts"] = list(dict.fromkeys(fact.id for one in results for fact in one.facts))
        filed.fields["closed_facts"] = list(dict.fromkeys(fact.id for one in results for fact in one.closed))
        filed.remarks += [remark for one in results for remark in _remarks(one)]

    async def _make_note(self, request: RememberTask, turn: TaskAttempt, filed: _Filed) -> None:
        check_fuzzy_matching()
        services = SynthesisServices(self._context, self._scope)
        task = AddMemoryTask(
            app_id=request.app_id, user_id=request.user_id or _NO_USER, messages=request.messages, callback_url=None
        )
        made = await services.pipeline.do(task, turn)
        filed.fields["note"] = made["successor_id"] or made["memory_id"]
        degraded = made["degraded"]
        filed.remarks += [f"note: {reason}" for reason in degraded] if isinstance(degraded, list) else []

    def _graph(self) -> Graph:
        graph = open_graph(self._context, self._scope)
        if self._model is None:
            return graph
        # The extractor of the hub does not know what this task costs.
        return graph.using(extractor=ModelExtractor(self._model, graph.rules.vocabulary))


def _memory_of(request: RememberTask, task_id: str, place: int) -> MemoryItem:
    """Return a message as a turn of its thread; one text as a memory of its own."""
    message = request.messages[place]
    at = message.timestamp or request.at
    item = MemoryItem(
        id=f"{task_id}-{place}",
        memory=message.content,
        user_id=request.user_id,
        thread_id=request.thread_id,
        timestamp=at,
    )
    if request.is_text:
        return item
    role = "agent" if message.role == "assistant" else message.role
    spoken = MemoryMessage(role=role, name=message.name, content=message.content, timestamp=at)
    return item.model_copy(update={"messages": (spoken,)})


def _remarks(result: EpisodeResult) -> list[str]:
    failed = ["the model could not extract its facts; graph.extract tries again"]
    told = [*result.warnings, *(failed if result.episode.extraction == "failed" else [])]
    return [f"episode {result.id}: {one}" for one in told]


class RememberWorker:
    """Does the tasks of one namespace, each with the rights of the actor that has put it; all stores of a hub share it.

    A task that fails is tried again after a growing pause, and by another process if this one dies.

    Args:
        context: dependencies that the hub shares with its stores.
        scope: the namespace, as any of its actors.
        visibility: seconds after which the task of a dead worker is given to another one.
    """

    def __init__(self, context: KnowledgeContext, scope: Scope, *, visibility: float = _VISIBILITY_S) -> None:
        self._context = context
        self._visibility = visibility
        self._own = scope.acting_as(SHARED_SCOPE)
        self._work: BackgroundTask | None = None

    @classmethod
    def of(cls, context: KnowledgeContext, scope: Scope) -> RememberWorker:
        """Return the worker that all stores of a namespace share in this hub."""
        return context.shared(cls, scope.identity.namespace, lambda: cls(context, scope))

    def start(self) -> None:
        """Start working in the background of the hub, unless it works already. No round trip.

        Raises:
            UsageError: the hub is closed.
        """
        if self._work is None or self._work.done:
            name = f"remember conversations of {self._own.identity.namespace}"
            self._work = self._context.background.start(name, self._run())

    async def _run(self) -> None:
        try:
            queue = queue_of(self._context, self._own, visibility=self._visibility)
            await queue.work(self._done, concurrency=_CONCURRENCY)
        except AccessDeniedError as error:
            _log.warning("what is to be remembered is left to other hubs: %s", error)

    async def _done(self, task: Task) -> dict[str, Any]:
        request = RememberTask.model_validate(task.payload, strict=False)
        filer = ConversationFiler(self._context, self._own.acting_as(task.put_by))
        turn = TaskAttempt(task.id, attempt=task.attempt, is_last=task.attempt >= task.max_attempts)
        return await filer.file(request, turn)


def queue_of(context: KnowledgeContext, scope: Scope, *, visibility: float = _VISIBILITY_S) -> TaskQueue:
    """Return the queue of a namespace for what is to be remembered, as an actor."""
    settings = context.settings
    return Queues(NameAccess(context, scope)).queue(
        QUEUE,
        visibility=visibility,
        max_attempts=settings.synthesis_attempts,
        backoff=_BACKOFF_S,
        result_ttl=settings.synthesis_result_s,
    )


class ConversationIntake:
    """Accepts what is to be remembered, and returns what became of it, with the rights of one actor.

    Args:
        context: dependencies that the hub shares with its stores.
        scope: the namespace and the actor.
    """

    def __init__(self, context: KnowledgeContext, scope: Scope) -> None:
        self._context = context
        self._counters = context.counters
        self._queue = queue_of(context, scope)
        self._worker = RememberWorker.of(context, scope)

    @measured("remember")
    async def remember(
        self,
        conversation: Conversation,
        *,
        user_id: str | None,
        thread_id: str,
        parts: Sequence[RecallPart] | None,
        group_id: str | None,
        app_id: str | None,
        task_id: str | None,
        wait: float | None,
    ) -> RememberReceipt:
        """Put a task and wait for it; see `SharedMemoryStore.remember`."""
        is_text = isinstance(conversation, str)
        given = [SynthesisMessage(role="user", content=conversation)] if isinstance(conversation, str) else conversation
        request = RememberTask(
            messages=check_messages(given, self._context.settings),
            is_text=is_text,
            at=self._context.clock.now(),
            parts=_check_parts(parts),
            user_id=None if user_id is None else check_id("user_id", user_id),
            thread_id=check_id("thread_id", thread_id),
            group_id=check_id("group_id", group_of(group_id, user_id)),
            app_id=check_id("app_id", MAIN if app_id is None else app_id),
        )
        key = None if task_id is None else hashlib.sha256(f"{user_id}\0{check_dedup_id(task_id)}".encode()).hexdigest()
        window_s = 0.0 if key is None else min(self._context.settings.synthesis_result_s, _LONGEST_WINDOW_S)
        put = await self._queue.put(request.model_dump(mode="json", exclude_defaults=True), id=key, unique_for=window_s)
        self._worker.start()
        return await self.receipt(put.id, wait=wait)

    async def receipt(self, task_id: str, *, wait: float | None) -> RememberReceipt:
        """Return what became of a task; see `SharedMemoryStore.remember_receipt`."""
        self._worker.start()
        return _receipt_of(await self._queue.result(task_id, wait=wait))


def _receipt_of(outcome: TaskOutcome) -> RememberReceipt:
    fields = outcome.value if isinstance(outcome.value, dict) else {}
    told = {**fields, "task_id": outcome.id, "status": _STATES[outcome.state], "error": outcome.error}
    return RememberReceipt.model_validate(told, strict=False)


def _check_parts(parts: Sequence[RecallPart] | None) -> tuple[RecallPart, ...]:
    chosen = get_args(RecallPart) if parts is None else parts
    if isinstance(chosen, str) or not isinstance(chosen, Sequence) or not chosen or not set(chosen) <= set(PARTS):
        raise InvalidError("parts", parts, f"give a list of one or more of {', '.join(PARTS)}")
    return tuple(dict.fromkeys(chosen))


# -- what a task costs ---------------------------------------------------------------------------


class MeteredModel:
    """Passes calls on to a language model, and counts them and their tokens.

    Args:
        inner: the model.
    """

    def __init__(self, inner: LanguageModel) -> None:
        self._inner = inner
        self.calls = 0
        """Calls so far, also failed ones."""
        self.tokens = 0
        """Tokens of all messages and answers so far, counted as `count_tokens` does for this model."""

    @property
    def name(self) -> str:
        """Name of the model."""
        return self._inner.name

    async def complete(self, messages: Sequence[ChatMessage], schema: type[Model]) -> Model:
        """See `LanguageModel.complete`."""
        self._asked(messages)
        answer = await self._inner.complete(messages, schema)
        self._answered(answer.model_dump_json())
        return answer

    async def write(self, messages: Sequence[ChatMessage], *, max_tokens: int = 500) -> str:
        """See `LanguageModel.write`."""
        self._asked(messages)
        answer = await self._inner.write(messages, max_tokens=max_tokens)
        self._answered(answer)
        return answer

    async def close(self) -> None:
        """Do nothing: the hub closes the model."""

    def _asked(self, messages: Sequence[ChatMessage]) -> None:
        self.calls += 1
        self.tokens += sum(count_tokens(message.content, model=self.name) for message in messages)

    def _answered(self, answer: str) -> None:
        self.tokens += count_tokens(answer, model=self.name)

    def __repr__(self) -> str:
        return f"<MeteredModel {self.name}, {self.calls} calls>"
