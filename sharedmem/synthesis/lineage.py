"""Lineage: what a note came from and what it became, and which notes hang together."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sharedmem.errors import InvalidError, NotFoundError
from sharedmem.models import Note
from sharedmem.models.notes import ChainDirection
from sharedmem.synthesis.checking import age_key
from sharedmem.synthesis.protocol import Shelf
from sharedmem.synthesis.shelf.rows import chain_of

_DIRECTIONS = ("forward", "backward", "both")


class Lineage(NamedTuple):
    """Notes of a chain, in the order in which they were met."""

    notes: tuple[Note, ...]
    missing: tuple[str, ...] = ()
    """Ids that notes name as successor or source, of which there is none: `fsck` mends that."""

    @property
    def head(self) -> Note:
        """The last one: of a way forward, that which stands for the chain."""
        return self.notes[-1]


async def lineage(
    shelf: Shelf, app_id: str, memory_id: str, *, direction: ChainDirection = "forward", most: int | None = None
) -> Lineage:
    """The chain of a note. It ends however damaged the chain is: no note is met twice.

    Forward there is one way, along `next_id`, a round trip a step. Backward the ways part at every note that has
    taken the place of several: breadth first, in the order in which each names its sources, a round trip a step.

    Args:
        shelf: where the notes are.
        app_id: whose.
        memory_id: where to begin.
        direction: `forward` answers the note and what it became, `backward` the note and what it came from, nearest
            first, `both` all that hangs together with it, in the order in which it came about.
        most: notes to stop after; None for all.

    Raises:
        InvalidError: there is no such direction.
        NotFoundError: there is no such note.
    """
    if direction not in _DIRECTIONS:
        raise InvalidError("direction", direction, f"use one of {', '.join(_DIRECTIONS)}")
    met: dict[str, Note] = {}
    missing: dict[str, None] = {}
    frontier = [memory_id]
    while frontier and (most is None or len(met) < most):
        found = await shelf.get(app_id, frontier)
        missing.update(dict.fromkeys(id_ for id_ in frontier if id_ not in found))
        if not met and not found:
            raise NotFoundError("memory", memory_id, f"app {app_id!r} has none of that id")
        level = [found[id_] for id_ in frontier if id_ in found]
        met.update((note.id, note) for note in level)
        onward = (id_ for note in level for id_ in _onward(note, direction))
        frontier = [id_ for id_ in dict.fromkeys(onward) if id_ not in met and id_ not in missing]
    notes = evolved(met.values()) if direction == "both" else tuple(met.values())
    return Lineage(notes, tuple(missing))


def _onward(note: Note, direction: ChainDirection) -> Sequence[str]:
    after = () if note.next_id is None else (note.next_id,)
    if direction == "both":
        return (*after, *note.sources)
    return after if direction == "forward" else note.sources


def evolved(notes: Iterable[Note]) -> tuple[Note, ...]:
    """Notes in the order in which they came about: each before those that took its place, else by age.

    Notes of a ring, which has no such order, come last.
    """
    known = {note.id: note for note in notes}
    waits_for = Counter(note.next_id for note in known.values() if note.next_id in known)
    ready = [age_key(note) for note in known.values() if not waits_for[note.id]]
    heapq.heapify(ready)
    found: dict[str, Note] = {}
    while ready:
        note = known[heapq.heappop(ready)[1]]
        found[note.id] = note
        after = known.get(note.next_id or "")
        if after is not None:
            waits_for[after.id] -= 1
            if not waits_for[after.id]:
                heapq.heappush(ready, age_key(after))
    ring = sorted((note for note in known.values() if note.id not in found), key=age_key)
    return (*found.values(), *ring)


def together(notes: Iterable[Note]) -> list[list[Note]]:
    """Notes by what they hang together with: by successors, by sources, by the chain they say they belong to.

    Args:
        notes: all of an app, so that none is left out.
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
        kin = (note.next_id, *note.sources, first_of_chain.setdefault(chain_of(note), note.id))
        for other in kin:
            if other in above:
                above[of(note.id)] = of(other)
    members: defaultdict[str, list[Note]] = defaultdict(list)
    for note in known.values():
        members[of(note.id)].append(note)
    return list(members.values())
