"""Notes made by hand, and the shelf of a namespace."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np

from sharedmem import Hub
from sharedmem.models import Note
from sharedmem.providers.hashing import HashingEmbedder
from sharedmem.synthesis.protocol import Committed, Fresh
from sharedmem.synthesis.shelf import NoteShelf
from sharedmem.wire.vectors import Vector

DIMENSION = HashingEmbedder().dimension
BEGAN = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def vector(*near: float) -> Vector:
    """A direction; what is given first counts for similarity."""
    row = np.zeros(DIMENSION, dtype=np.float32)
    row[: len(near)] = near
    return row


def note(id_: str, *, app: str = "desk", user: str = "ada", **more: Any) -> Note:
    told = {"memory_note": f"What {id_} says.", "created_at": BEGAN, "updated_at": BEGAN, "task_id": f"t-{id_}"}
    return Note(id=id_, app_id=app, user_id=user, **(told | more))


def fresh(id_: str, *near: float, **more: Any) -> Fresh:
    """A new note, with a vector if there is a direction."""
    return Fresh(note(id_, **more), vector(*near) if near else None)


async def put(shelf: NoteShelf, *ones: Fresh, app: str = "desk") -> dict[str, Note]:
    """Commit new notes."""
    done = await shelf.commit(app, fresh=ones)
    assert isinstance(done, Committed)
    assert done.is_new
    return dict(done.notes)


def shelf_of(hub: Hub, namespace: str, actor: str | None = None) -> NoteShelf:
    return NoteShelf(hub._thinking(), hub.store(namespace, actor=actor)._scope)
