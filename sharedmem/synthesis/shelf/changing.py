"""What becomes of a note by a change: no I/O."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sharedmem.errors import InvalidError
from sharedmem.models import Note
from sharedmem.synthesis.protocol import Change

_CARRIED = ("status", "next_id", "chain_id", "archived_at", "archival_location")
_CARRIED_ROWS = ("sources", "links", "resolutions", "degraded")


def changed(change: Change, now: datetime) -> Note:
    """The note as it is to be stored; whatever changes, its `updated_at` is now.

    Raises:
        InvalidError: it contradicts itself, or the body is that of another note.
    """
    _check(change)
    fields: dict[str, Any] = {name: value for name in _CARRIED if (value := getattr(change, name)) is not None}
    fields |= {name: tuple(rows) for name in _CARRIED_ROWS if (rows := getattr(change, name)) is not None}
    if change.reason is not None:
        fields["status_reason"] = change.reason
    if change.clears_next:
        fields["next_id"] = None
    if change.drops_body:
        fields |= {"memory_note": "", "messages": ()}
    if change.body is not None:
        fields |= {"memory_note": change.body.memory_note, "messages": change.body.messages}
        fields |= {"archived_at": None, "archival_location": None}
        # It lies here again, and in the archive no more.
        fields |= {"archived_at": None, "archival_location": None}
    return change.note.model_copy(update={**fields, "updated_at": now})


def told_of(change: Change) -> str:
    """What is told of a change on the change stream: the status that it gets, if another one."""
    if change.status is None or change.status == change.note.status:
        return "note.changed"
    return f"note.{change.status}"


def _check(change: Change) -> None:
    id_ = change.note.id
    if change.note.version < 1:
        raise InvalidError("changes", id_, "change notes that were read; this one has no version")
    if change.clears_next and change.next_id is not None:
        raise InvalidError("changes", id_, "either it gets a successor, or it loses it")
    if change.drops_body and (change.body is not None or change.vector is not None):
        raise InvalidError("changes", id_, "either its text goes, or it comes back")
    if change.body is not None and change.archival_location is not None:
        raise InvalidError("changes", id_, "either its text comes back, or it lies elsewhere")
    if change.body is not None and change.body.id != id_:
        raise InvalidError("changes", id_, f"its text is that of {change.body.id!r}")
