"""Traverse the graph from entities, and find shortest paths between two of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from math import sqrt

from sharedmem.errors import InvalidError
from sharedmem.graph.base import EntityLookup, check_limit
from sharedmem.graph.records import BitemporalPoint, Edge, EntityRow, FactRow, LookupRequest, LookupResult, to_fact
from sharedmem.models import Reached, Step, Traversal
from sharedmem.runtime import measured


class ShortestPaths:
    """The shortest ways from some entities, as far as a walk has come.

    Args:
        starts: ids of entities.
        edges: each with the distance of its far end, nearest first.
    """

    def __init__(self, starts: Iterable[str], edges: Iterable[tuple[int, Edge]]) -> None:
        self.distances = dict.fromkeys(starts, 0)
        """Of each entity that was reached, in the order in which they were."""
        self._edges: dict[str, Edge] = {}
        for distance, edge in edges:
            if edge.other and edge.other not in self.distances:
                self.distances[edge.other] = distance
                self._edges[edge.other] = edge

    def to(self, entity: str) -> tuple[Edge, ...]:
        """The edges of one shortest way to an entity that was reached, in their order."""
        return tuple(reversed(list(self._back_from(entity))))

    def _back_from(self, entity: str) -> Iterator[Edge]:
        while (edge := self._edges.get(entity)) is not None:
            yield edge
            entity = edge.entity


def nearness_by_id(reach: ShortestPaths, edges: Sequence[Edge]) -> dict[str, float]:
    """How near the entities and facts of a walk are, by id: 1 / (1 + distance).

    A fact that is not told of where the walk began counts less when its nearer end has many: what everybody has in
    common, such as a town, says little of any of them. It is divided by the root of their number.
    """
    near = {entity: 1 / (1 + distance) for entity, distance in reach.distances.items()}
    facts = Counter(edge.entity for edge in edges)
    for edge in reversed(edges):
        is_there = reach.distances.get(edge.entity, 0) == 0
        near[edge.fact] = near.get(edge.entity, 1.0) / (1.0 if is_there else sqrt(facts[edge.entity]))
    return near


def reverse_path(way: Sequence[Edge]) -> tuple[Edge, ...]:
    """A way walked back."""
    return tuple(
        edge._replace(entity=edge.other, other=edge.entity, forward=not edge.forward) for edge in reversed(way)
    )


def shortest_common_path(some: ShortestPaths, others: ShortestPaths) -> tuple[Edge, ...] | None:
    """The shortest way between the starts of two walks that have met; None when they have not."""
    met = [entity for entity in some.distances if entity in others.distances]
    if not met:
        return None
    middle = min(met, key=lambda entity: (some.distances[entity] + others.distances[entity], entity))
    return (*some.to(middle), *reverse_path(others.to(middle)))


def path_steps(way: Iterable[Edge], rows: Mapping[str, FactRow], group: str) -> tuple[Step, ...]:
    """The steps of a way; those whose fact has gone meanwhile are left out."""
    return tuple(path_step(edge, rows[edge.fact], group) for edge in way if edge.fact in rows)


def path_step(edge: Edge, row: FactRow, group: str) -> Step:
    """One step."""
    return Step(fact=to_fact(row, edge.version, group), forward=edge.forward)


DEEPEST = 6
MOST_FAN_OUT = 1_000
MOST_WALKED = 5_000
"""Edges of one walk."""
MOST_STARTS = 100


class GraphTraversal(EntityLookup):
    """Walks along facts."""

    @measured("graph.traverse")
    async def traverse_from_entities(
        self,
        entities: Sequence[str],
        *,
        group_id: str,
        depth: int = 2,
        fan_out: int = 25,
        limit: int = 200,
        as_of: datetime | None = None,
        known_at: datetime | None = None,
    ) -> Traversal:
        """What lies around some entities, nearest first, along facts that hold at a time. Three round trips.

        Facts are walked along in both directions. Distances are those of the shortest ways, and one of these is told.

        Args:
            entities: names or ids, 1 to 100.
            group_id: whose graph.
            depth: steps at most, 1 to 6.
            fan_out: how many facts of one entity are followed at most, 1 to 1,000: the newest.
            limit: facts in all, 1 to 5,000.
            as_of: along what was true then; None for now.
            known_at: as it was known then; None for now.

        Raises:
            InvalidError: an argument is none, or a moment has no time zone.
            NotFoundError: the group knows nobody of one of the names.
            AccessDeniedError: this actor may not read the namespace's graphs.
            UnavailableError: the server stayed away.
        """
        group = await self._enter(group_id, "read")
        when = self._when(as_of, known_at)
        _check_depth("depth", depth)
        _check_fan_out(fan_out)
        most = check_limit(limit, MOST_WALKED)
        starts = list(dict.fromkeys(await self._find_entity_ids(group, _named(entities))))
        walked = await self._backend.walk(group, starts, when=when, depth=depth, fan_out=fan_out, limit=most)
        reach = ShortestPaths(starts, walked.edges)
        edges = [edge for _, edge in walked.edges if edge.other]
        seen = await self._backend.look(
            group,
            LookupRequest(entities=tuple(reach.distances), facts=tuple(dict.fromkeys(edge.fact for edge in edges))),
        )
        return _traversal(group, reach, edges, seen, truncated=walked.truncated)

    @measured("graph.path")
    async def path(
        self,
        a: str,
        b: str,
        *,
        group_id: str,
        max_depth: int = DEEPEST,
        as_of: datetime | None = None,
        known_at: datetime | None = None,
    ) -> tuple[Step, ...]:
        """A shortest way from one entity to another, along facts that hold at a time.

        Walks from both ends, a step further each round trip: at most three of them, and two more. Of an entity with
        more than 1,000 facts the newest are followed.

        Args:
            a, b: names or ids.
            group_id: whose graph.
            max_depth: steps at most, 1 to 6.
            as_of: along what was true then; None for now.
            known_at: as it was known then; None for now.

        Returns:
            The steps from `a` to `b`; none when there is no way, or both are the same.

        Raises:
            InvalidError, NotFoundError, AccessDeniedError, UnavailableError: as `traverse_from_entities`.
        """
        group = await self._enter(group_id, "read")
        when = self._when(as_of, known_at)
        _check_depth("max_depth", max_depth)
        start, end = await self._find_entity_ids(group, [a, b])
        way = await self._way(group, start, end, when, max_depth) if start != end else ()
        return path_steps(way, await self._fact_rows(group, way), group)

    async def _way(self, group: str, start: str, end: str, when: BitemporalPoint, max_depth: int) -> tuple[Edge, ...]:
        # A way that is no longer than both walks together has an entity that both have reached.
        for far in range(1, max_depth + 1, 2):
            here, there = (far + 1) // 2, min(far + 1, max_depth) // 2
            some, others = await asyncio.gather(
                self._reach_from(group, start, when, here), self._reach_from(group, end, when, there)
            )
            way = shortest_common_path(some, others)
            if way is not None:
                return way
        return ()

    async def _reach_from(self, group: str, start: str, when: BitemporalPoint, depth: int) -> ShortestPaths:
        if not depth:
            return ShortestPaths([start], [])
        walked = await self._backend.walk(
            group, [start], when=when, depth=depth, fan_out=MOST_FAN_OUT, limit=MOST_WALKED
        )
        return ShortestPaths([start], walked.edges)


def _traversal(
    group: str, reach: ShortestPaths, edges: Sequence[Edge], seen: LookupResult, *, truncated: bool
) -> Traversal:
    steps = {edge: path_step(edge, seen.facts[edge.fact], group) for edge in edges if edge.fact in seen.facts}
    names = _entity_names(edges, seen)
    reached = [
        Reached(
            entity_id=entity,
            name=names.get(entity, entity),
            distance=distance,
            path=tuple(steps[edge] for edge in reach.to(entity) if edge in steps),
        )
        for entity, distance in reach.distances.items()
    ]
    facts = {(step.fact.id, step.fact.recorded_at): step.fact for step in steps.values()}
    return Traversal(
        reached=tuple(sorted(reached, key=lambda one: one.distance)), facts=tuple(facts.values()), truncated=truncated
    )


def _entity_names(edges: Sequence[Edge], seen: LookupResult) -> Mapping[str, str]:
    """What entities are called: by their own records, else as the facts call them."""
    names: dict[str, str] = {}
    for edge in edges:
        row = seen.facts.get(edge.fact)
        if row is not None:
            names |= {row.source: row.source_name, row.target: row.target_name}
    rows: Mapping[str, EntityRow] = seen.entities
    return names | {id_: row.name for id_, row in rows.items()}


def _named(entities: Sequence[str]) -> Sequence[str]:
    if isinstance(entities, str) or not 1 <= len(entities) <= MOST_STARTS:
        raise InvalidError("entities", entities, f"give a list of 1 to {MOST_STARTS} names or ids")
    return entities


def _check_depth(field: str, depth: int) -> None:
    if not isinstance(depth, int) or not 1 <= depth <= DEEPEST:
        raise InvalidError(field, depth, f"give 1 to {DEEPEST}")


def _check_fan_out(fan_out: int) -> None:
    if not isinstance(fan_out, int) or not 1 <= fan_out <= MOST_FAN_OUT:
        raise InvalidError("fan_out", fan_out, f"give 1 to {MOST_FAN_OUT}")
