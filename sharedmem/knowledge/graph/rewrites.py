"""Writing what lies otherwise than it should: more than one commit may write, in parts that can be begun again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import orjson

from sharedmem.knowledge.graph.meanings import Meanings
from sharedmem.knowledge.graph.protocol import GraphBackend
from sharedmem.knowledge.graph.records import Behind, Changes, EpisodeRow, FactRow, Row

RECORDS_AT_ONCE = 400
"""Records that one commit writes, of a step that has to write more."""


def kept(row: FactRow, held: FactRow | None) -> FactRow:
    """A fact as it should be, with the version and the vector of the one that is there."""
    return row if held is None else replace(row, version=held.version, vector=held.vector)


def with_facts(row: EpisodeRow, *, ended: set[str], come: Iterable[str]) -> bytes:
    """The body of an episode that names the facts which follow from it now."""
    told = orjson.loads(row.body)
    before = told.get("fact_ids", [])
    fresh = [id_ for id_ in come if id_ not in before]
    if ended.isdisjoint(before) and not fresh:
        return row.body
    told["fact_ids"] = [*(id_ for id_ in before if id_ not in ended), *fresh]
    return orjson.dumps(told)


def pieces(changes: Changes) -> list[Changes]:
    """The same in parts of so many records as one commit may write: the episodes first, then the facts."""
    former = {(type(row), row.id): row for row in changes.former}
    left: list[Row] = [*changes.episodes, *changes.facts]
    taken = {(type(row), row.id) for row in left}
    gone = [row for key, row in former.items() if key not in taken]
    every = [*left, *gone]
    return [
        replace(
            changes,
            episodes=tuple(row for row in some if isinstance(row, EpisodeRow)),
            facts=tuple(row for row in some if isinstance(row, FactRow) and (FactRow, row.id) in taken),
            former=tuple(former[type(row), row.id] for row in some if (type(row), row.id) in former),
        )
        for some in (every[first : first + RECORDS_AT_ONCE] for first in range(0, len(every), RECORDS_AT_ONCE))
    ]


class Rewrites:
    """Writes steps of any size.

    Args:
        backend: keeps the graph.
        meanings: vectors for facts that come to be.
    """

    def __init__(self, backend: GraphBackend, meanings: Meanings) -> None:
        self._backend = backend
        self._meanings = meanings

    async def write(self, group: str, changes: Changes, former: Mapping[str, FactRow], *, seen: int) -> bool | Behind:
        """Write a step. Cut off between two commits, it is begun again and finds what is still to be done.

        Args:
            group: whose graph.
            changes: the episodes and facts.
            former: facts by id as they are, so that vectors are made only for those that come to be.
            seen: the version that includes all that was read.

        Raises:
            UnavailableError: the server cannot be reached.
        """
        embedded = await self._embedded(changes, former)
        for piece in pieces(embedded):
            outcome = await self._backend.commit(group, piece, seen=seen)
            if isinstance(outcome, Behind):
                return outcome
            # Nobody was between: else this piece would have found its lines changed.
            seen = outcome.version
        return True

    async def _embedded(self, changes: Changes, former: Mapping[str, FactRow]) -> Changes:
        fresh = [row.text for row in changes.facts if row.id not in former]
        halves = await self._meanings.halves(fresh)
        facts = tuple(row if row.id in former else replace(row, vector=halves.get(row.text)) for row in changes.facts)
        return replace(changes, facts=facts)
