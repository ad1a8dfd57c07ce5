"""Batching: messages wait in Redis until there are enough of them, or the first has waited long enough.

One value contains the messages of a conversation: the open batch, and the sealed one that is being put into the queue.
Each step is a conditional write, and any client may repeat it: a timer task is in the queue
before the first message is stored, and a sealed batch gets an id of its own before its tasks are put.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pydantic import ValidationError

from sharedmem.clock import new_id
from sharedmem.errors import ConflictError, CorruptionError, InvalidError
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.models import Record
from sharedmem.models.notes import SynthesisMessage
from sharedmem.redis.codec import encode, parse_record
from sharedmem.redis.scope import Scope
from sharedmem.redis.scripts.data import KeyWrite, ValueScripts
from sharedmem.runtime.concurrency import ProcessBound
from sharedmem.synthesis.tasks import AddMemoryTask, FlushBatchTask, TaskIntake, batch_name, check_id, check_messages

_DEFAULT_WAIT_S = 30.0
_TTL_MS = 31 * 86_400_000
_CONFLICT_TIMEOUT_S = 60.0
_LONGEST_WAIT_S = 7 * 86_400.0


class MessageBatches(Record):
    """The messages of one conversation that are not in a task yet, or are being put into one."""

    batch: str
    """Id of the open batch."""
    open: tuple[SynthesisMessage, ...] = ()
    by: str = ""
    """The actor who began the open batch: the worker acts as this actor."""
    sealed_batch: str = ""
    sealed: tuple[SynthesisMessage, ...] = ()
    sealed_by: str = ""


class _StoredBatches(NamedTuple):
    waiting: MessageBatches
    expect: str
    """The version that the next write expects."""


class Batcher(ProcessBound):
    """Collects the messages of one conversation; each of them ends in exactly one note.

    No message waits in this process: it is in Redis when `add` returns, and any worker of the namespace makes the note,
    even if this process dies.

    Args:
        context: dependencies that the hub shares with its stores.
        scope: the namespace and the actor, with the actor's rights.
        intake: accepts the tasks.
        app_id, user_id, session_id: identify the conversation.
        size: messages of a batch; None for the most that one note is made from.
        wait_s: seconds after which a note is made although the batch is not full.

    Raises:
        InvalidError: an argument is invalid.
    """

    def __init__(  # its context, the conversation, and the limits
        self,
        context: KnowledgeContext,
        scope: Scope,
        intake: TaskIntake,
        *,
        app_id: str,
        user_id: str,
        session_id: str | None = None,
        size: int | None = None,
        wait_s: float = _DEFAULT_WAIT_S,
    ) -> None:
        self._context = context
        self._intake = intake
        self._app_id = check_id("app_id", app_id)
        self._user_id = check_id("user_id", user_id)
        self._session_id = None if session_id is None else check_id("session_id", session_id)
        self._size = _check_size(size, context.settings.synthesis_max_messages)
        self._wait_s = _check_wait(wait_s)
        self._name = batch_name(app_id, user_id, session_id)
        self._target = scope.common(self._name, "write")
        self._actor = scope.signature
        self._value_scripts = ValueScripts(context.executor)

    async def add(self, message: SynthesisMessage | Mapping[str, object]) -> list[str]:
        """Add a message to the batch; three round trips at most, without concurrent callers.

        Args:
            message: a message, or a mapping with `role` and `content`.

        Returns:
            The ids of the tasks that were put because the batch was full; mostly none.

        Raises:
            InvalidError: the message is invalid, blank or too large. Nothing was written.
            ConflictError: other callers kept adding messages for a minute.
            AccessDeniedError, UnavailableError: as `write`.
        """
        settings = self._context.settings
        (checked,) = check_messages((message,), settings)
        deadline = self._context.clock.monotonic() + _CONFLICT_TIMEOUT_S
        for pause in self._context.client.pauses():
            read = await self._read()
            if read.waiting.open and self._is_too_much((*read.waiting.open, checked)):
                # Together they would exceed a request: the earlier ones are put first.
                await self.flush(read.waiting.batch)
                continue
            if not read.waiting.open:
                await self._set_timer(read.waiting.batch)
            by = read.waiting.by if read.waiting.open else self._actor.decode()
            grown = read.waiting.model_copy(update={"open": (*read.waiting.open, checked), "by": by})
            if await self._write(read, grown):
                return await self.flush(grown.batch) if len(grown.open) >= self._size else []
            self._check_patience(deadline)
            await self._context.clock.sleep(pause)
        raise AssertionError  # the pauses never end

    async def flush(self, batch: str | None = None) -> list[str]:
        """Put the waiting messages into the queue now; return the ids of the tasks.

        Three round trips, and one for each task.

        Args:
            batch: only this batch; None for the open one.

        Raises:
            ConflictError: other callers kept changing the batch for a minute.
            AccessDeniedError, UnavailableError: as `write`.
        """
        put: list[str] = []
        deadline = self._context.clock.monotonic() + _CONFLICT_TIMEOUT_S
        for pause in self._context.client.pauses():
            read = await self._read()
            waiting = read.waiting
            if waiting.sealed:
                tasks = await self._put(waiting)
                # A faster caller has put the same tasks: they have the same ids.
                if await self._write(
                    read, waiting.model_copy(update={"sealed": (), "sealed_batch": "", "sealed_by": ""})
                ):
                    put += tasks
                continue
            if read.expect == "" or batch not in (None, waiting.batch):
                return put
            if not waiting.open and batch is None:
                return put
            sealed = MessageBatches(
                batch=new_id(), sealed=waiting.open, sealed_batch=waiting.batch, sealed_by=waiting.by
            )
            # An empty open batch gets a new id, too: a caller that has just set a timer for it sets another one.
            if await self._write(read, sealed):
                if not sealed.sealed:
                    return put
                continue
            self._check_patience(deadline)
            await self._context.clock.sleep(pause)
        raise AssertionError  # the pauses never end

    async def waiting(self) -> int:
        """Return how many messages are not in a task yet. One round trip."""
        state = (await self._read()).waiting
        return len(state.open) + len(state.sealed)

    # -- stored batches

    async def _read(self) -> _StoredBatches:
        raw = await self._context.client.call("GET", self._target.physical)
        if not isinstance(raw, bytes):
            return _StoredBatches(MessageBatches(batch=new_id()), "")
        stored = parse_record(raw)
        try:
            return _StoredBatches(MessageBatches.model_validate(stored.value(self._target.key)), stored.expectation)
        except (ValidationError, CorruptionError):
            # Another client has overwritten the value; its content is dropped.
            return _StoredBatches(MessageBatches(batch=new_id()), stored.expectation)

    async def _write(self, read: _StoredBatches, waiting: MessageBatches) -> bool:
        """Store the batches; return False if another caller was faster."""
        codec, body = encode(waiting.model_dump(mode="json", exclude_defaults=True))
        record = KeyWrite(self._target, read.expect, _TTL_MS, codec, body)
        reply = await self._value_scripts.value_write(self._target.space, self._actor, (record,), together=False)
        return reply.partition(b" ")[0].isdigit()

    async def _set_timer(self, batch: str) -> None:
        """Put a timer task for the batch, before there is a message in it."""
        flush = FlushBatchTask(app_id=self._app_id, user_id=self._user_id, session_id=self._session_id, batch=batch)
        await self._intake.put_as(flush, f"timer-{batch}", delay_s=self._wait_s)

    async def _put(self, waiting: MessageBatches) -> list[str]:
        """Return the tasks of the sealed batch, put now or before, with the actor who began it as requester."""
        most, tasks = self._context.settings.synthesis_max_messages, []
        for first in range(0, len(waiting.sealed), most):
            request = AddMemoryTask(
                app_id=self._app_id,
                user_id=self._user_id,
                session_id=self._session_id,
                messages=waiting.sealed[first : first + most],
            )
            task_id = f"batch-{waiting.sealed_batch}-{first}"
            tasks.append(await self._intake.put_as(request, task_id, requester=waiting.sealed_by))
        return tasks

    def _is_too_much(self, messages: tuple[SynthesisMessage, ...]) -> bool:
        try:
            check_messages(messages, self._context.settings)
        except InvalidError:
            return True
        return False

    def _check_patience(self, deadline: float) -> None:
        if self._context.clock.monotonic() > deadline:
            raise ConflictError(f"batch {self._name!r}: other callers keep changing it; try again")

    def __repr__(self) -> str:
        return f"<Batcher {self._name}, {self._size} messages or {self._wait_s:g} s>"


def open_batcher(context: KnowledgeContext, scope: Scope, intake: TaskIntake, request: FlushBatchTask) -> Batcher:
    """Return the batcher of the conversation of a timer task."""
    return Batcher(
        context, scope, intake, app_id=request.app_id, user_id=request.user_id, session_id=request.session_id
    )


def _check_size(size: int | None, most: int) -> int:
    if size is None:
        return most
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= most:
        raise InvalidError("size", size, f"give a whole number from 1 to {most}")
    return size


def _check_wait(wait_s: float) -> float:
    if isinstance(wait_s, bool) or not isinstance(wait_s, int | float) or not 0 <= wait_s <= _LONGEST_WAIT_S:
        raise InvalidError("wait_s", wait_s, f"give seconds from 0 to {_LONGEST_WAIT_S:g}")
    return float(wait_s)
