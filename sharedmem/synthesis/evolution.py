"""Follow how a note evolved, restore an earlier version and set a status by hand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from hashlib import sha256
from typing import TypeVar

from sharedmem.clock import Clock
from sharedmem.errors import ConflictError, InvalidError, NotFoundError
from sharedmem.models import Note, NoteStatus, StatusReason
from sharedmem.models.notes import ChainDirection
from sharedmem.redis.vectors import Vector
from sharedmem.synthesis.chains import ChainLocks, Lineage, read_lineage
from sharedmem.synthesis.note_repository.serialization import chain_id_of
from sharedmem.synthesis.protocol import NewNote, NoteChange, NoteRepository, PermissionCheck, StaleNotes

T = TypeVar("T")
Embed = Callable[[str], Awaitable[Vector | None]]
"""The vector of a text; None where nothing is embedded."""

MOST_ATTEMPTS = 8
# By hand, a note can be deleted, taken back from that, or settled as it is. Everything else has a successor or an
# archive, which a status alone would only pretend.
_ALLOWED_STATUS_CHANGES: Mapping[NoteStatus, tuple[NoteStatus, ...]] = {
    "active": ("deleted",),
    "conflict_pending": ("deleted", "active"),
    "updated": ("deleted",),
    "deleted": ("active",),
    "archived": (),
}
_ADVICE: Mapping[str, str] = {
    "updated": "a note is updated by a successor: add the newer memory, or restore an older version",
    "archived": "notes are archived with their chains: call archive",
    "conflict_pending": "only a new note waits to be settled",
}


async def run_under_chain_locks(
    chains: ChainLocks,
    app_id: str,
    first: Iterable[Note],
    work: Callable[[Mapping[str, int]], Awaitable[T | StaleNotes | set[str]]],
) -> T:
    """Do something to chains that nobody else changes meanwhile; repeated while somebody was faster.

    Args:
        chains: the locks.
        app_id: whose.
        first: notes whose chains are needed, as far as is known.
        work: called with the fencing tokens; it reads the notes anew, and answers `StaleNotes` when its commit came too
            late, or the ids of all chains that it needs when these are not held.

    Raises:
        ConflictError: somebody else was faster every time.
        LockHeldError, LockLostError: as `ChainLocks.held`.
    """
    needed = {chain_id_of(note) for note in first}
    for _ in range(MOST_ATTEMPTS):
        async with chains.held(app_id, needed) as fences:
            done = await work(fences)
        if isinstance(done, set):
            needed = done
        elif not isinstance(done, StaleNotes):
            return done
    raise ConflictError(f"the chains {sorted(needed)} of app {app_id!r} are changed all the time; try again later")


class Evolution:
    """The chains of one namespace's memories.

    Args:
        repository: where the notes are.
        chains: the locks of their chains.
        clock: the time to go by.
        embed: makes the vector of a version that is restored.
        actor: author of what is restored.
        permit: raises where a note must stay as it is.
    """

    def __init__(
        self,
        repository: NoteRepository,
        chains: ChainLocks,
        clock: Clock,
        embed: Embed,
        *,
        actor: str,
        permit: PermissionCheck,
    ) -> None:
        self._actor = actor
        self._permit = permit
        self._repository = repository
        self._chains = chains
        self._clock = clock
        self._embed = embed

    async def chain(self, app_id: str, memory_id: str, direction: ChainDirection = "forward") -> Lineage:
        """Return the chain of a memory, as `read_lineage`.

        Raises:
            InvalidError: there is no such direction.
            NotFoundError: there is no such memory.
        """
        return await read_lineage(self._repository, app_id, memory_id, direction=direction)

    async def restore(self, app_id: str, memory_id: str) -> Note:
        """Make a version valid again. A round trip for each version after it, and about six.

        What was decided stays on record: the old version is not changed. A new note with its text is made, which
        becomes the head of the chain; the present head becomes `updated`/`manual_update`, with the new note as its
        successor. The new note has the head among its `sources`, and the version it restores in `links`: that one has
        a successor of its own, and would lose it as a source of another note. A head that was deleted by hand, or
        that waits to be settled, becomes active as it is. Done again, it changes nothing.

        Args:
            app_id: whose.
            memory_id: the version.

        Returns:
            The memory that is valid now.

        Raises:
            NotFoundError: there is no such memory, or one of the chain is missing (`fsck` mends that).
            InvalidError: it is archived; unarchive it first.
            ConflictError: others change the chain all the time, or hold its lock.
        """
        way = await self._way(app_id, memory_id)
        vector = await self._embed(way.notes[0].memory_note)

        async def work(fences: Mapping[str, int]) -> Note | StaleNotes | set[str]:
            now = await self._way(app_id, memory_id)
            # The old version stays as it is: what changes is the head.
            self._permit(now.head)
            needed = {chain_id_of(now.notes[0]), chain_id_of(now.head)}
            if not needed <= fences.keys():
                return needed
            return await self._restored(app_id, now, vector, fences)

        return await run_under_chain_locks(self._chains, app_id, (way.notes[0], way.head), work)

    async def set_status(
        self, app_id: str, memory_id: str, new_status: NoteStatus, reason: StatusReason = "manual_update"
    ) -> Note:
        """Change the status of a memory by hand. About four round trips; done again, it changes nothing.

        Args:
            app_id: whose.
            memory_id: which.
            new_status: `deleted`, or `active` for one that waits to be settled or that was deleted and has no
                successor.
            reason: `manual_update`; the other reasons are synthesis's own.

        Returns:
            The memory as it is now.

        Raises:
            NotFoundError: there is no such memory.
            InvalidError: it cannot become that by hand; the message says what to do instead.
            ConflictError: others change the chain all the time, or hold its lock.
        """
        if reason != "manual_update":
            raise InvalidError("reason", reason, "what is changed by hand is a manual_update")
        if new_status not in _ALLOWED_STATUS_CHANGES:
            raise InvalidError("new_status", new_status, f"use one of {', '.join(_ALLOWED_STATUS_CHANGES)}")
        first = await self._one(app_id, memory_id)
        if first.status == new_status:
            return first
        _check_status_change(first, new_status)
        self._permit(first)

        async def work(fences: Mapping[str, int]) -> Note | StaleNotes | set[str]:
            note = await self._one(app_id, memory_id)
            if chain_id_of(note) not in fences:
                return {chain_id_of(note)}
            if note.status == new_status:
                return note
            _check_status_change(note, new_status)
            change = NoteChange(note, status=new_status, reason="manual_update")
            return await self._committed(app_id, change, fences=fences)

        return await run_under_chain_locks(self._chains, app_id, [first], work)

    async def delete(self, app_id: str, memory_id: str) -> Note:
        """Mark a memory as deleted, as `set_status`; its text stays until it is forgotten or retention removes it.

        Raises:
            NotFoundError, InvalidError, ConflictError: as `set_status`.
        """
        return await self.set_status(app_id, memory_id, "deleted")

    # -- parts

    async def _one(self, app_id: str, memory_id: str) -> Note:
        note = (await self._repository.get(app_id, [memory_id])).get(memory_id)
        if note is None:
            raise NotFoundError("memory", memory_id, f"app {app_id!r} has none of that id")
        return note

    async def _way(self, app_id: str, memory_id: str) -> Lineage:
        way = await read_lineage(self._repository, app_id, memory_id)
        if way.missing:
            raise NotFoundError("memory", way.missing[0], f"{way.head.id!r} names it as its successor; run fsck first")
        if way.head.next_id is not None:
            raise ConflictError(f"the chain of memory {memory_id!r} comes back to itself; run fsck with repair first")
        if "archived" in (way.notes[0].status, way.head.status):
            raise InvalidError("memory_id", memory_id, "its chain is archived; unarchive it first")
        return way

    async def _restored(
        self, app_id: str, way: Lineage, vector: Vector | None, fences: Mapping[str, int]
    ) -> Note | StaleNotes:
        old, head = way.notes[0], way.head
        if old.id == head.id:
            if head.status == "active":
                return head
            return await self._committed(
                app_id, NoteChange(head, status="active", reason="manual_update"), fences=fences
            )
        if head.status == "active" and head.links == (old.id,) and head.memory_note == old.memory_note:
            return head
        fresh = build_restored_note(old, head, self._clock.now(), actor=self._actor)
        retired = NoteChange(head, next_id=fresh.id)
        if head.status != "deleted":
            retired = retired._replace(status="updated", reason="manual_update")
        return await self._committed(app_id, retired, NewNote(fresh, vector), fences=fences)

    async def _committed(
        self, app_id: str, change: NoteChange, *fresh: NewNote, fences: Mapping[str, int]
    ) -> Note | StaleNotes:
        done = await self._repository.commit(app_id, fresh=fresh, changes=[change], fences=fences)
        if isinstance(done, StaleNotes):
            return done
        return done.notes[fresh[0].note.id if fresh else change.note.id]


def build_restored_note(old: Note, head: Note, now: datetime, *, actor: str) -> Note:
    """Return the note that brings the text of an older version back, to follow the head of its chain.

    Its id goes by both, so that a repeat makes no second one.
    """
    changed: dict[str, object] = {
        "id": f"note-{sha256(f'{old.id} {head.id}'.encode()).hexdigest()[:24]}",
        "status": "active",
        "status_reason": "manual_update",
        "created_by": actor,
        "created_at": now,
        "updated_at": now,
        "next_id": None,
        "sources": (head.id,),
        "chain_id": chain_id_of(head),
        "links": (old.id,),
        # Those lie with the versions that it comes from.
        "messages": (),
        "resolutions": (),
        "degraded": (),
        "task_id": None,
        "version": 0,
    }
    return old.model_copy(update=changed)


def _check_status_change(note: Note, new_status: NoteStatus) -> None:
    if new_status in _ALLOWED_STATUS_CHANGES[note.status] and not (new_status == "active" and note.next_id is not None):
        return
    if note.status == "archived":
        advice = "it is archived; unarchive it first"
    elif new_status == "active":
        advice = f"this one is {note.status} and has a successor; restore it instead"
    else:
        advice = _ADVICE[new_status]
    raise InvalidError("new_status", new_status, advice)
