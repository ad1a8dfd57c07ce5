"""Accept synthesis tasks into a queue and report their status."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias, cast

import orjson
from pydantic import Field, TypeAdapter, ValidationError

from sharedmem.config import Settings
from sharedmem.coordination.names import NameAccess
from sharedmem.coordination.queue_access import check_dedup_id
from sharedmem.coordination.queues import Queues, TaskQueue
from sharedmem.errors import InvalidError
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.models import QueuedTask, Record, SynthesisMessage, SynthesisState, SynthesisTask, TaskOutcome
from sharedmem.models.coordination import QueueLine, TaskState
from sharedmem.redis.scope import Scope
from sharedmem.redis.scripts.data import DataScripts
from sharedmem.synthesis.note_repository import NOTES_COLLECTION

QUEUE = "synthesis"
"""The task queue of a namespace for requests."""

_BACKOFF_S = (5.0, 300.0)
_VISIBILITY_S = 30.0
_LONGEST_ID_BYTES = 256
_LONGEST_WINDOW_S = 31 * 86_400.0
# Bytes of a task besides its messages.
_ENVELOPE_BYTES = 4096
_MOST_SCANNED = 1000
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f{}\ud800-\udfff]")
_QUEUE_LINES: tuple[QueueLine, ...] = ("claimed", "ready", "delayed")
_STATES: dict[TaskState, SynthesisState] = {
    "ready": "pending",
    "delayed": "pending",
    "claimed": "running",
    "done": "done",
    "dead": "failed",
}


# -- requests ---------------------------------------------------------------------------------


class _TaskBase(Record):
    """Base of requests: an invalid field raises `InvalidError`, as in every call."""

    def __init__(self, **fields: object) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            place = error.errors(include_url=False, include_context=False)[0]["loc"]
            field = str(place[0]) if place else "request"
            raise InvalidError(field, fields.get(field), _first_error(error)) from error


class AddMemoryTask(_TaskBase):
    """Make a note of a conversation, and settle it with known notes."""

    kind: Literal["memory"] = "memory"
    app_id: str
    user_id: str
    session_id: str | None = None
    messages: tuple[SynthesisMessage, ...]
    callback_url: str | None = None


class AddAgentMemoryTask(_TaskBase):
    """Make a short note of a conversation, without conflict resolution."""

    kind: Literal["agent"] = "agent"
    app_id: str
    user_id: str
    session_id: str | None = None
    messages: tuple[SynthesisMessage, ...]
    callback_url: str | None = None


class SummarizeTask(_TaskBase):
    """Summarise a conversation, and store nothing."""

    kind: Literal["summary"] = "summary"
    app_id: str
    user_id: str
    mode: Literal["fast", "full"] = "fast"
    messages: tuple[SynthesisMessage, ...]
    callback_url: str | None = None


class FlushBatchTask(_TaskBase):
    """Make a request of the messages of a batch, unless that was done."""

    kind: Literal["flush"] = "flush"
    app_id: str
    user_id: str
    session_id: str | None = None
    batch: str
    """Id of the batch: later messages have a task of their own."""
    callback_url: None = None


CallerTask: TypeAlias = AddMemoryTask | AddAgentMemoryTask | SummarizeTask
TaskPayload: TypeAlias = CallerTask | FlushBatchTask
_PAYLOAD_ADAPTER: TypeAdapter[TaskPayload] = TypeAdapter(Annotated[TaskPayload, Field(discriminator="kind")])
_MESSAGE_ADAPTER: TypeAdapter[SynthesisMessage] = TypeAdapter(SynthesisMessage)


def parse_task(payload: object) -> TaskPayload:
    """Return the request in a task of the queue.

    Raises:
        InvalidError: the task contains no request.
    """
    try:
        return _PAYLOAD_ADAPTER.validate_python(payload, strict=False)
    except ValidationError as error:
        raise InvalidError("task", "...", f"it contains no request: {_first_error(error)}") from error
    except InvalidError as error:
        raise InvalidError("task", "...", f"it contains no request: {error}") from error


# -- checks -----------------------------------------------------------------------------------


def check_id(field: str, value: str) -> str:
    """Return a checked id of an app, a user or a session.

    Raises:
        InvalidError: it is not a text, empty, over 256 bytes, or contains braces or control characters.
    """
    if not isinstance(value, str) or not value:
        raise InvalidError(field, value, "give a non-empty text")
    if _CONTROL.search(value):
        raise InvalidError(field, value, "leave out braces and control characters")
    if len(value.encode()) > _LONGEST_ID_BYTES:
        raise InvalidError(field, value, f"keep it within {_LONGEST_ID_BYTES} bytes")
    return value


def check_messages(
    messages: Sequence[SynthesisMessage | Mapping[str, object]], settings: Settings
) -> tuple[SynthesisMessage, ...]:
    """Return the messages of a conversation, checked.

    Args:
        messages: the messages, or mappings with `role` and `content`.
        settings: the limits of their number and bytes.

    Raises:
        InvalidError: there are no messages or too many, one is invalid or blank, or together they are too large.
    """
    most = settings.synthesis_max_messages
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence) or not messages:
        raise InvalidError("messages", messages, "give a list with one message or more")
    if len(messages) > most:
        raise InvalidError("messages", f"({len(messages)} of them)", f"give {most} at most, in several calls if needed")
    checked = tuple(_check_message(number, message) for number, message in enumerate(messages))
    size = sum(len(_MESSAGE_ADAPTER.dump_json(message)) for message in checked)
    largest = max(settings.blob_threshold_bytes - _ENVELOPE_BYTES, settings.blob_threshold_bytes // 2)
    if size > largest:
        advice = f"they take {size} bytes, one call takes {largest}; shorten them, or make several calls"
        raise InvalidError("messages", "...", advice)
    return checked


def _check_message(number: int, message: SynthesisMessage | Mapping[str, object]) -> SynthesisMessage:
    field = f"messages[{number}]"
    try:
        checked = _MESSAGE_ADAPTER.validate_python(message)
    except ValidationError as error:
        raise InvalidError(field, message, _first_error(error)) from error
    if not checked.content.strip():
        raise InvalidError(f"{field}.content", checked.content, "give a text, or leave the message out")
    if re.search(r"[\ud800-\udfff]", checked.content + (checked.name or "")):
        raise InvalidError(field, "...", "it holds half of a character (a lone surrogate); leave that out")
    return checked


def _first_error(error: ValidationError) -> str:
    """Return the first error as a sentence."""
    found = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(str(part) for part in found["loc"])
    return f"{place}: {found['msg']}" if place else found["msg"]


def check_task(request: CallerTask) -> CallerTask:
    """Return the request with checked ids.

    Raises:
        InvalidError: as `check_id`.
    """
    check_id("app_id", request.app_id)
    check_id("user_id", request.user_id)
    session_id = getattr(request, "session_id", None)
    if session_id is not None:
        check_id("session_id", session_id)
    return request


# -- task intake ---------------------------------------------------------------------------------


class TaskIntake:
    """Accepts tasks of synthesis, and returns their state.

    Args:
        context: dependencies that the hub shares with its stores.
        scope: the namespace and the actor, with the actor's rights.
        backoff: pauses between attempts, in seconds: (at first, at most).
        visibility: seconds after which the task of a dead worker is given to another one.
    """

    def __init__(
        self,
        context: KnowledgeContext,
        scope: Scope,
        *,
        backoff: tuple[float, float] = _BACKOFF_S,
        visibility: float = _VISIBILITY_S,
    ) -> None:
        self._settings = context.settings
        self._scope = scope
        self._mutations = DataScripts(context.executor)

        def queue_of(scope: Scope) -> TaskQueue:
            return Queues(NameAccess(context, scope)).queue(
                QUEUE,
                visibility=visibility,
                max_attempts=context.settings.synthesis_attempts,
                backoff=backoff,
                result_ttl=context.settings.synthesis_result_s,
            )

        self._queue_of = queue_of
        self.queue = queue_of(scope)

    async def put(self, request: CallerTask, *, idempotency_key: str | None = None) -> SynthesisTask:
        """Put a task. One round trip.

        Args:
            request: the task; its messages were checked (`check_messages`).
            idempotency_key: a repeated key of the same app and user returns the same task, as long as its result
                is stored (31 days at most); 1 to 256 bytes.

        Returns:
            The accepted task; nothing was done yet.

        Raises:
            InvalidError: an id is invalid, or the request is too large. Nothing was written.
            AccessDeniedError, UnavailableError: as queues.
        """
        check_task(request)
        dedup_id = None if idempotency_key is None else _dedup_id(request, idempotency_key)
        return SynthesisTask(task_id=await self.put_as(request, dedup_id), status="accepted")

    async def put_as(
        self, request: TaskPayload, dedup_id: str | None, *, delay_s: float = 0, requester: str | None = None
    ) -> str:
        """Return the id of the task that was put under a deduplication id, now or before. One round trip.

        Args:
            request: the task.
            dedup_id: None puts a new task in any case.
            delay_s: seconds until it may be claimed.
            requester: the actor in whose name the task is put and done; None is the actor of this intake.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as queues.
        """
        window_s = 0.0 if dedup_id is None else min(self._settings.synthesis_result_s, _LONGEST_WINDOW_S)
        payload = request.model_dump(mode="json", exclude_defaults=True) | {"kind": request.kind}
        queue = self._queue_of(self._scope.acting_as(requester)) if requester else self.queue
        put = await queue.put(payload, id=dedup_id, unique_for=window_s, delay=delay_s)
        return put.id

    async def status(self, task_id: str) -> SynthesisTask:
        """Return the state of a task. One round trip.

        Args:
            task_id: id of the task.

        Raises:
            NotFoundError: the task does not exist, or its result has expired.
            InvalidError, AccessDeniedError, UnavailableError: as queues.
        """
        return to_synthesis_task(await self.queue.result(task_id))

    async def wait(self, task_id: str, *, timeout: float | None = None) -> SynthesisTask:  # noqa: ASYNC109  # as queues
        """Return what `status` returns, as soon as the task is done or has failed; the server notifies the caller.

        Args:
            task_id: id of the task.
            timeout: seconds; then the task is returned in its current state. None waits without limit.

        Raises:
            NotFoundError, InvalidError, AccessDeniedError, UnavailableError: as `status`.
        """
        return to_synthesis_task(await self.queue.result(task_id, wait=timeout))

    async def list(self, limit: int = 100) -> list[SynthesisTask]:
        """Return the tasks that run, wait, or have failed. Four round trips.

        Timers of batches are not included.

        Args:
            limit: most tasks of each state, up to 1000.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as queues.
        """
        return [_to_listed_task(task) for task in await self._queued(limit) if not _is_timer(task)]

    async def redrive(self, task_id: str) -> bool:
        """Retry a failed task; return False if it does not exist. One round trip.

        Args:
            task_id: id of the task.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as queues.
        """
        return await self.queue.redrive(task_id)

    async def forget(self, app_id: str, user_id: str | None = None) -> int:
        """Discard a user's open and failed tasks, and messages that wait in batches.

        The first thousand tasks of each state are read. A round trip for each that is discarded.

        Args:
            app_id: id of the app.
            user_id: None means all users of the app.

        Returns:
            How many tasks and batches were discarded.

        Raises:
            AccessDeniedError, UnavailableError: as queues.
        """
        discarded = 0
        for task in await self._tasks_of(app_id, user_id):
            self._scope.check_author(task.put_by, NOTES_COLLECTION, f"task {task.id}")
            if _is_timer(task):
                name = batch_name(app_id, task.payload["user_id"], task.payload.get("session_id"))
                await self._mutations.key_delete(self._scope.common(name, "write"), self._scope.signature)
            discarded += await self.queue.delete(task.id)
        return discarded

    async def check_authors(self, app_id: str, user_id: str | None = None) -> None:
        """Reject an actor that may not discard all open tasks of a user, as `forget` does. Four round trips.

        Raises:
            AccessDeniedError: another actor has put some of them, and `memory_rights` is `owner`.
            UnavailableError: as queues.
        """
        for task in await self._tasks_of(app_id, user_id):
            self._scope.check_author(task.put_by, NOTES_COLLECTION, f"task {task.id}")

    async def _tasks_of(self, app_id: str, user_id: str | None) -> Sequence[QueuedTask]:
        tasks = await self._queued(_MOST_SCANNED)
        return [
            task for task in tasks if isinstance(task.payload, dict) and _concerns_user(task.payload, app_id, user_id)
        ]

    async def _queued(self, limit: int) -> Sequence[QueuedTask]:
        waiting = [task for line in _QUEUE_LINES for task in await self.queue.peek(limit, state=line)]
        return [*waiting, *await self.queue.dead(limit)]

    def __repr__(self) -> str:
        return f"<Desk {self.queue.name}>"


def batch_name(app_id: str, user_id: str, session_id: str | None) -> str:
    """Return the key of the value in which the messages of a conversation wait."""
    whose = orjson.dumps([app_id, user_id, session_id])
    return f"synthesis-batch-{hashlib.sha256(whose).hexdigest()[:32]}"


def _is_timer(task: QueuedTask) -> bool:
    return isinstance(task.payload, dict) and task.payload.get("kind") == "flush"


def _concerns_user(payload: Mapping[str, object], app_id: str, user_id: str | None) -> bool:
    return payload.get("app_id") == app_id and (user_id is None or payload.get("user_id") == user_id)


def _dedup_id(request: CallerTask, key: str) -> str:
    parts = [request.kind, request.app_id, request.user_id, check_dedup_id(key)]
    return hashlib.sha256(orjson.dumps(parts)).hexdigest()


def to_synthesis_task(outcome: TaskOutcome) -> SynthesisTask:
    """Return the public form of a task.

    Args:
        outcome: the state in the queue.
    """
    result = cast("dict[str, Any] | None", outcome.value) if isinstance(outcome.value, dict) else None
    return SynthesisTask(
        task_id=outcome.id,
        status=_STATES[outcome.state],
        attempts=int((result or {}).get("attempts", 0)),
        result=result,
        error=outcome.error,
    )


def _to_listed_task(task: QueuedTask) -> SynthesisTask:
    return SynthesisTask(task_id=task.id, status=_STATES[task.state], attempts=task.attempts, error=task.error)
