"""What the calls of a task queue share: its name, its terms, its keys, and what they refuse."""

from __future__ import annotations

import re
from typing import Any, NamedTuple, TypeVar

from sharedmem.coordination.ground import Ground, Primitive, check_seconds
from sharedmem.errors import InvalidError
from sharedmem.models.tasks import Backoff, Receipt
from sharedmem.wire.access import Scope
from sharedmem.wire.codec import encode_member
from sharedmem.wire.keys import Target
from sharedmem.wire.queueing import Queueing

KeysOf = TypeVar("KeysOf", bound=tuple[Any, ...])
LONGEST_DELAY_S = 366 * 86_400.0
# A worker in line looks again by itself after this, in case a call was lost (lua/include/queue.lua relies on it).
PATIENCE_S = (10.0, 20.0)

_MOST_ATTEMPTS = 1_000
_HIGHEST_PRIORITY = 1_000_000_000
_LONGEST_ERROR = 2_000
_LONGEST_ID_BYTES = 256
_LARGEST_TOKEN = 1 << 53
_TASK_ID = re.compile(r"[0-9]{16}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f{}\ud800-\udfff]")


class QueueTerms(NamedTuple):
    """How a queue treats its tasks."""

    visibility_s: float
    visibility_ms: int
    max_attempts: int
    backoff: Backoff
    result_ms: int


class QueueBase(Primitive):
    """One queue, seen with the rights of one actor.

    Args:
        ground: what the hub lends.
        scope: hands out names within the actor's rights.
        name: the queue, as its users spell it.
        target: where it lies.
        terms: how it treats its tasks.
    """

    def __init__(self, ground: Ground, scope: Scope, name: str, target: Target, terms: QueueTerms) -> None:
        super().__init__(ground, scope)
        self._name = name
        self._target = target
        self._space = target.space
        self._terms = terms
        self._queueing = Queueing(ground.sender)
        self._spelled: dict[type, Any] = {}

    @property
    def name(self) -> str:
        """What the queue is called, as it was asked for."""
        return self._name

    def _keys(self, kind: type[KeysOf]) -> KeysOf:
        """The keys of one script, found by the names of its fields."""
        if kind not in self._spelled:
            fields: tuple[str, ...] = vars(kind)["_fields"]
            self._spelled[kind] = kind(*(self._key(field) for field in fields))
        keys: KeysOf = self._spelled[kind]
        return keys

    def _key(self, field: str) -> bytes:
        return self._target.physical if field == "queue" else self._part(self._target, f"queue.{field}")

    def _item(self, part: str, name: str) -> bytes:
        return self._scope.keyspace.item(self._target, part, name)

    def _coded(self, field: str, value: object) -> bytes:
        member = encode_member(value)
        most = self._ground.settings.blob_threshold_bytes
        if len(member) > most:
            advice = f"it takes {len(member)} bytes, tasks may take {most}; store it as a value and put its key here"
            raise InvalidError(field, "...", advice)
        return member

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._target.key}>"


# -- what is refused before anything is sent ------------------------------------------------------


def check_priority(priority: int) -> int:
    """A priority.

    Raises:
        InvalidError: it is no whole number, or beyond a thousand million.
    """
    if isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) > _HIGHEST_PRIORITY:
        raise InvalidError(
            "priority", priority, f"give a whole number from {-_HIGHEST_PRIORITY} to {_HIGHEST_PRIORITY}"
        )
    return priority


def check_delay_ms(delay: float) -> int:
    """A delay in seconds as whole milliseconds.

    Raises:
        InvalidError: it is negative, no number, or over a year.
    """
    return check_seconds("delay", delay, least=0, most=LONGEST_DELAY_S)


def check_max_attempts(max_attempts: int) -> int:
    """How often a task may be tried.

    Raises:
        InvalidError: it is not from 1 to 1000.
    """
    return check_count("max_attempts", max_attempts, most=_MOST_ATTEMPTS)


def check_count(field: str, count: int, *, most: int) -> int:
    """How many, at least one.

    Raises:
        InvalidError: it is no whole number from 1 to `most`.
    """
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= most:
        raise InvalidError(field, count, f"give a whole number from 1 to {most}")
    return count


def check_task_id(task_id: str) -> str:
    """The id of a task.

    Raises:
        InvalidError: no queue ever gave out such an id.
    """
    if not isinstance(task_id, str) or not _TASK_ID.fullmatch(task_id):
        raise InvalidError("task id", task_id, "ids have 16 digits; give the one that the put returned")
    return task_id


def check_dedup_id(dedup_id: str) -> str:
    """A deduplication id.

    Raises:
        InvalidError: it is empty, over 256 bytes, or holds braces or control characters.
    """
    if not isinstance(dedup_id, str) or not dedup_id or _CONTROL.search(dedup_id):
        raise InvalidError("id", dedup_id, "give a non-empty text without braces and control characters")
    if len(dedup_id.encode()) > _LONGEST_ID_BYTES:
        raise InvalidError("id", dedup_id, f"keep it within {_LONGEST_ID_BYTES} bytes")
    return dedup_id


def check_receipt(task: Receipt) -> Receipt:
    """What a worker shows for its claim.

    Raises:
        InvalidError: it is no receipt.
    """
    if not isinstance(task, Receipt):
        raise InvalidError("task", task, "give the Task that claim() answered, or a Receipt")
    check_task_id(task.id)
    check_count("token", task.token, most=_LARGEST_TOKEN)
    check_count("attempt", task.attempt, most=_MOST_ATTEMPTS)
    return task


def check_error(error: str) -> str:
    """What went wrong, cut to what is kept of it.

    Raises:
        InvalidError: it is no text.
    """
    if not isinstance(error, str):
        raise InvalidError("error", error, "say in a text what went wrong")
    return error.encode(errors="replace").decode()[:_LONGEST_ERROR]
