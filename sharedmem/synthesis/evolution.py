"""Follow how a note evolved, restore an earlier version and set a status by hand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from hashlib import sha256
from typing import TypeVar

from sharedmem.clock import Clock
from sharedmem.errors import ConflictError, InvalidError, NotFoundError
from sharedmem.models import Note, NoteLink, NoteStatus, StatusReason
from sharedmem.models.notes import ChainDirection
from sharedmem.redis.vectors import Vector
from sharedmem.synthesis.chains import ChainLocks, Lineage, read_lineage
from sharedmem.synthesis.note_repository.serialization import chain_id_of
from sharedmem.synthesis.protocol import NewNote, NoteChange, NoteRepository, PermissionCheck, StaleNotes

T = TypeVar("T")
Embed = Callable[[str], Awaitable[Vector | None]]
"""The vector of a text; None without an embedder."""

MOST_ATTEMPTS = 8
# By hand, a note can be deleted, restored after that, or settled without changes. Every other status requires a
# successor or an archive, which a change of the status alone does not create.
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
    """Run work on chains that no other caller changes meanwhile; repeat it while another caller was faster.

    Args:
        chains: the locks.
        app_id: id of the app.
        first: notes whose chains are needed, as far as is known.
        work: called with the fencing tokens; it reads the notes again, and returns `StaleNotes` if its commit came too
            late, or the ids of all chains that it needs if these are not locked.

    Raises:
        ConflictError: another caller was faster every time.
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
    raise ConflictError(f"the chains {sorted(needed)} of app {app_id!r} keep changing; try again later")


class Evolution:
    """The chains of one namespace's memories.

    Args:
        repository: stores the notes.
        chains: locks of the chains.
        clock: the current time.
        embed: makes the vector of a restored version.
        actor: author of restored versions.
        permit: raises if a note must not change.
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
            InvalidError: the direction is invalid.
            NotFoundError: the memory does not exist.
        """
        return await read_lineage(self._repository, app_id, memory_id, direction=direction)

    async def restore(self, app_id: str, memory_id: str) -> Note:
        """Make a version current again. A round trip for each version after it, and about six.

        Past decisions stay on record: the old version does not change. A new note with its text becomes
        the head of the chain; the present head becomes `updated`/`manual_update`, with the new note as its
        successor. The new note has the head among its `sources`, and the restored version in `links`: that version has
        a successor of its own, and can be a source of that one only. A head that was deleted by hand, or
        that is pending, becomes active instead. A repeated call changes nothing.

        Args:
            app_id: id of the app.
            memory_id: id of the version.

        Returns:
            The memory that is current now.

        Raises:
            NotFoundError: the memory, or a note of its chain, does not exist (`fsck` repairs the latter).
            InvalidError: the chain is archived; unarchive it first.
            ConflictError: other callers keep changing the chain, or hold its lock.
        """
        way = await self._way(app_id, memory_id)
        vector = await self._embed(way.notes[0].memory_note)

        async def work(fences: Mapping[str, int]) -> Note | StaleNotes | set[str]:
            now = await self._way(app_id, memory_id)
            # The old version does not change: only the head does.
            self._permit(now.head)
            needed = {chain_id_of(now.notes[0]), chain_id_of(now.head)}
            if not needed <= fences.keys():
                return needed
            return await self._restored(app_id, now, vector, fences)

        return await run_under_chain_locks(self._chains, app_id, (way.notes[0], way.head), work)

    async def set_status(
        self, app_id: str, memory_id: str, new_status: NoteStatus, reason: StatusReason = "manual_update"
    ) -> Note:
        """Change the status of a memory by hand. About four round trips; a repeated call changes nothing.

        Args:
            app_id: id of the app.
            memory_id: id of the memory.
            new_status: `deleted`, or `active` for a pending memory, or for a deleted one without a
                successor.
            reason: `manual_update`; the other reasons are set by synthesis only.

        Returns:
            The memory after the change.

        Raises:
            NotFoundError: the memory does not exist.
            InvalidError: this change is not possible by hand; the message contains the call to use instead.
            ConflictError: other callers keep changing the chain, or hold its lock.
        """
        if reason != "manual_update":
            raise InvalidError("reason", reason, "use manual_update for a change by hand")
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
        """Mark a memory as deleted, as `set_status`; its text is stored until `erase` or retention erases it.

        Raises:
            NotFoundError, InvalidError, ConflictError: as `set_status`.
        """
        return await self.set_status(app_id, memory_id, "deleted")

    # -- parts

    async def _one(self, app_id: str, memory_id: str) -> Note:
        note = (await self._repository.get(app_id, [memory_id])).get(memory_id)
        if note is None:
            raise NotFoundError("memory", memory_id, f"app {app_id!r} has no memory with that id")
        return note

    async def _way(self, app_id: str, memory_id: str) -> Lineage:
        way = await read_lineage(self._repository, app_id, memory_id)
        if way.missing:
            raise NotFoundError("memory", way.missing[0], f"{way.head.id!r} names it as its successor; run fsck first")
        if way.head.next_id is not None:
            raise ConflictError(f"the chain of memory {memory_id!r} is a circle; run fsck with repair first")
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
        if head.status == "active" and _is_restored(head, old) and head.memory_note == old.memory_note:
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


def _is_restored(head: Note, old: Note) -> bool:
    """Return whether the head of a chain is a restored older version."""
    return [link.memory_id for link in head.links] == [old.id]


def build_restored_note(old: Note, head: Note, now: datetime, *, actor: str) -> Note:
    """Return the note with the text of an older version, to follow the head of its chain.

    Its id is derived from both, so that a repeated call makes no second one.
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
        "links": (NoteLink(memory_id=old.id, relationship_type="source"),),
        # These are stored with its source versions.
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
