"""Follow how a note evolved along its chain, lock chains, restore an earlier version and set a status by hand."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from hashlib import sha256
from typing import NamedTuple, TypeVar

from sharedmem.clock import Clock
from sharedmem.context import HubContext
from sharedmem.coordination.locks import Leases
from sharedmem.coordination.names import NameAccess
from sharedmem.errors import ConflictError, InvalidError, NotFoundError
from sharedmem.models import Note, NoteLink, NoteStatus, StatusReason
from sharedmem.models.notes import ChainDirection, sort_by_succession
from sharedmem.redis.scope import Scope
from sharedmem.redis.vectors import Vector
from sharedmem.synthesis.note_serialization import chain_id_of
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


# -- chains of notes -----------------------------------------------------------------------------


_DIRECTIONS = ("forward", "backward", "both")


class Lineage(NamedTuple):
    """Notes of a chain, in the order in which they were read."""

    notes: tuple[Note, ...]
    missing: tuple[str, ...] = ()
    """Ids of successors or sources that do not exist; `fsck` repairs that."""

    @property
    def head(self) -> Note:
        """The last note: with direction `forward`, the head of the chain."""
        return self.notes[-1]


async def read_lineage(
    repository: NoteRepository,
    app_id: str,
    memory_id: str,
    *,
    direction: ChainDirection = "forward",
    most: int | None = None,
) -> Lineage:
    """Return the chain of a note. The read ends even if the chain is damaged: no note is read twice.

    Forward there is one path, along `next_id`, a round trip a step. Backward the path branches at every note that
    replaced several: breadth first, in the order in which each names its sources, a round trip a step.

    Args:
        repository: stores the notes.
        app_id: id of the app.
        memory_id: first note.
        direction: `forward` for the note and its successors, `backward` for the note and its sources, nearest
            first, `both` for all connected notes, in the order of their creation.
        most: notes to stop after; None for all.

    Raises:
        InvalidError: the direction is invalid.
        NotFoundError: the note does not exist.
    """
    if direction not in _DIRECTIONS:
        raise InvalidError("direction", direction, f"use one of {', '.join(_DIRECTIONS)}")
    met: dict[str, Note] = {}
    missing: dict[str, None] = {}
    frontier = [memory_id]
    while frontier and (most is None or len(met) < most):
        found = await repository.get(app_id, frontier)
        missing.update(dict.fromkeys(id_ for id_ in frontier if id_ not in found))
        if not met and not found:
            raise NotFoundError("memory", memory_id, f"app {app_id!r} has no note with that id")
        level = [found[id_] for id_ in frontier if id_ in found]
        met.update((note.id, note) for note in level)
        onward = (id_ for note in level for id_ in _next_ids(note, direction))
        frontier = [id_ for id_ in dict.fromkeys(onward) if id_ not in met and id_ not in missing]
    notes = sort_by_succession(met.values()) if direction == "both" else tuple(met.values())
    return Lineage(notes, tuple(missing))


def _next_ids(note: Note, direction: ChainDirection) -> Sequence[str]:
    after = () if note.next_id is None else (note.next_id,)
    if direction == "both":
        return (*after, *note.sources)
    return after if direction == "forward" else note.sources


def group_by_chain(notes: Iterable[Note]) -> list[list[Note]]:
    """Group notes by chain: connected by successors, by sources, or by their chain id.

    Args:
        notes: all notes of an app, so that no connection is missing.
    """
    known = {note.id: note for note in notes}
    above = {id_: id_ for id_ in known}

    def of(id_: str) -> str:
        while above[id_] != id_:
            above[id_] = above[above[id_]]
            id_ = above[id_]
        return id_

    first_of_chain: dict[str, str] = {}
    for note in known.values():
        kin = (note.next_id, *note.sources, first_of_chain.setdefault(chain_id_of(note), note.id))
        for other in kin:
            if other in above:
                above[of(note.id)] = of(other)
    members: defaultdict[str, list[Note]] = defaultdict(list)
    for note in known.values():
        members[of(note.id)].append(note)
    return list(members.values())


_LEASE_S = 30.0
_PATIENCE_S = 900.0


class ChainLocks:
    """The locks of all chains of a namespace.

    Args:
        scope: the namespace and the actor, with the actor's rights.
        context: dependencies that the hub shares with its stores.
        lease_s: seconds after which the locks of a dead process expire.
    """

    def __init__(self, scope: Scope, context: HubContext, *, lease_s: float = _LEASE_S) -> None:
        self._leases = Leases(NameAccess(context, scope))
        self._lease_s = lease_s

    @asynccontextmanager
    async def held(self, app_id: str, chain_ids: Iterable[str]) -> AsyncIterator[dict[str, int]]:
        """Hold the locks of some chains while the block runs; two round trips a chain.

        All callers take them in the same order, so that there is no deadlock.

        Args:
            app_id: id of the app.
            chain_ids: any number of ids of chains.

        Yields:
            The fencing token of each chain, as a commit takes them.

        Raises:
            LockLostError: a lock was lost before the block ended, which was cancelled.
            LockHeldError: other callers held one for a quarter of an hour.
            AccessDeniedError, UnavailableError: as locks.
        """
        fences: dict[str, int] = {}
        async with AsyncExitStack() as stack:
            for chain_id in sorted(set(chain_ids)):
                lock = self._leases.lock(chain_lock_name(app_id, chain_id), lease=self._lease_s, wait=_PATIENCE_S)
                fences[chain_id] = (await stack.enter_async_context(lock)).token
            yield fences


def note_chain_id(note: Note) -> str:
    """Return the id of the chain of a note: a note without consolidation is a chain of its own."""
    return note.chain_id or note.id


def chain_lock_name(app_id: str, chain_id: str) -> str:
    """Return the name of the lock of a chain: of fixed length, as ids may be longer than names of locks."""
    parted = f"{len(app_id)}:{app_id}:{chain_id}"
    return f"synthesis-{hashlib.sha256(parted.encode()).hexdigest()[:32]}"
