"""Notes made by hand, and the repository of a namespace."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np

from sharedmem import Hub
from sharedmem.models import Note
from sharedmem.providers.local_embedders import HashingEmbedder
from sharedmem.redis.vectors import Vector
from sharedmem.synthesis.note_repository import RedisNoteRepository
from sharedmem.synthesis.protocol import CommittedNotes, NewNote
from support.contexts import knowledge_of, scope_of

DIMENSION = HashingEmbedder().dimension
BEGAN = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def vector(*near: float) -> Vector:
    """A direction; what is given first counts for similarity."""
    row = np.zeros(DIMENSION, dtype=np.float32)
    row[: len(near)] = near
    return row


def make_note(id_: str, *, app: str = "desk", user: str = "ada", **more: Any) -> Note:
    told = {"memory_note": f"What {id_} says.", "created_at": BEGAN, "updated_at": BEGAN, "task_id": f"t-{id_}"}
    return Note(id=id_, app_id=app, user_id=user, **(told | more))


def make_fresh_note(id_: str, *near: float, **more: Any) -> NewNote:
    """A new note, with a vector if there is a direction."""
    return NewNote(make_note(id_, **more), vector(*near) if near else None)


async def put_notes(repository: RedisNoteRepository, *ones: NewNote, app: str = "desk") -> dict[str, Note]:
    """Commit new notes."""
    done = await repository.commit(app, fresh=ones)
    assert isinstance(done, CommittedNotes)
    assert done.is_new
    return dict(done.notes)


def open_note_repository(hub: Hub, namespace: str, actor: str | None = None) -> RedisNoteRepository:
    return RedisNoteRepository(knowledge_of(hub), scope_of(hub.store(namespace, actor=actor)))
