"""A walk breadth first: what has been reached, and which entities are next. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sharedmem.knowledge.graph.falkordb.rows import versions_of
from sharedmem.knowledge.graph.records import Edge, Walked, When


class Walk:
    """Follows edges from some entities, step by step.

    Args:
        starts: where it begins.
        when: along versions that held then.
        fan_out: edges of one entity that are followed at most.
        limit: edges in all.
    """

    def __init__(self, starts: Sequence[str], when: When, *, fan_out: int, limit: int) -> None:
        self.level = list(dict.fromkeys(starts))
        """The entities from which the next step goes."""
        self._when = when
        self._fan_out = fan_out
        self._limit = limit
        self._distances = dict.fromkeys(self.level, 0)
        self._walked: dict[str, tuple[int, Edge]] = {}
        self._truncated = False

    @property
    def walked(self) -> Walked:
        """What it came along, nearest first; each edge once."""
        return Walked(sorted(self._walked.values(), key=lambda each: each[0]), self._truncated)

    def step(self, rows: Sequence[Sequence[Any]]) -> None:
        """Take a step along the edges of the level, newest first for each entity, one more of each than it follows."""
        by_entity: dict[str, list[Edge]] = {entity: [] for entity in self.level}
        for edge in edges_of(rows, self._when):
            by_entity[edge.entity].append(edge)
        self._truncated |= any(len(edges) > self._fan_out for edges in by_entity.values())
        fresh = [edge for edges in by_entity.values() for edge in edges[: self._fan_out]]
        self.level = [entity for edge in fresh for entity in self._take(edge)]
        if len(self._walked) >= self._limit:
            self.level = []

    def _take(self, edge: Edge) -> Iterator[str]:
        """The entity to which an edge leads, if nobody has been there."""
        if edge.fact in self._walked:
            return
        if len(self._walked) >= self._limit:
            self._truncated = True
            return
        is_new = edge.other not in self._distances
        far = self._distances.setdefault(edge.other, self._distances[edge.entity] + 1)
        self._walked[edge.fact] = (far, edge)
        if is_new:
            yield edge.other


def edges_of(rows: Sequence[Sequence[Any]], when: When | None) -> list[Edge]:
    """The edges of rows (entity, fact, type, source, target, versions).

    Of each the version that held, or all of them, newest knowledge first.
    """
    return [edge for row in rows for edge in _versions_of(row, when)]


def _versions_of(row: Sequence[Any], when: When | None) -> Iterator[Edge]:
    entity, fact, type_, source, target, numbers = row
    forward = source == entity
    other = target if forward else source
    for version in reversed(versions_of(numbers)):
        if when is None or version.holds(when.world, when.known):
            yield Edge(entity, other, forward, type_, fact, version)
