"""Chains of notes: read the lineage of a note, group notes by chain, and lock chains."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

from sharedmem.context import HubContext
from sharedmem.coordination.locks import Leases
from sharedmem.coordination.names import NameAccess
from sharedmem.errors import InvalidError, NotFoundError
from sharedmem.models import Note
from sharedmem.models.notes import ChainDirection, sort_by_succession
from sharedmem.redis.scope import Scope
from sharedmem.synthesis.note_repository.serialization import chain_id_of
from sharedmem.synthesis.protocol import NoteRepository

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
