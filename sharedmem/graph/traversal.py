"""Traverse the graph from entities, find shortest paths between two of them, and read the part for a drawing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import sqrt

import orjson

from sharedmem.clock import Clock
from sharedmem.errors import InvalidError
from sharedmem.graph.protocol import GraphBackend
from sharedmem.graph.records import (
    BitemporalPoint,
    Edge,
    EntityRow,
    EpisodeRow,
    FactRow,
    LookupRequest,
    LookupResult,
    Version,
    from_stamp,
    to_fact,
)
from sharedmem.models import DrawnEntity, DrawnEpisode, DrawnFact, DrawnVersion, GraphDrawing, Reached, Step, Traversal


class ShortestPaths:
    """The shortest paths from some entities, as far as a walk has come.

    Args:
        starts: ids of entities.
        edges: each with the distance of its far end, nearest first.
    """

    def __init__(self, starts: Iterable[str], edges: Iterable[tuple[int, Edge]]) -> None:
        self.distances = dict.fromkeys(starts, 0)
        """For each reached entity, in the order in which they were reached."""
        self._edges: dict[str, Edge] = {}
        for distance, edge in edges:
            if edge.other and edge.other not in self.distances:
                self.distances[edge.other] = distance
                self._edges[edge.other] = edge

    def to(self, entity: str) -> tuple[Edge, ...]:
        """Return the edges of one shortest path to a reached entity, in their order."""
        return tuple(reversed(list(self._back_from(entity))))

    def _back_from(self, entity: str) -> Iterator[Edge]:
        while (edge := self._edges.get(entity)) is not None:
            yield edge
            entity = edge.entity


def nearness_by_id(reach: ShortestPaths, edges: Sequence[Edge]) -> dict[str, float]:
    """Return how near the entities and facts of a walk are, by id: 1 / (1 + distance).

    A fact that does not touch the start counts less if its nearer end has many facts: a common neighbour, such as a
    town, says little about its entities. It is divided by the square root of their number.
    """
    near = {entity: 1 / (1 + distance) for entity, distance in reach.distances.items()}
    facts = Counter(edge.entity for edge in edges)
    for edge in reversed(edges):
        is_there = reach.distances.get(edge.entity, 0) == 0
        near[edge.fact] = near.get(edge.entity, 1.0) / (1.0 if is_there else sqrt(facts[edge.entity]))
    return near


def reverse_path(way: Sequence[Edge]) -> tuple[Edge, ...]:
    """Return a path in the other direction."""
    return tuple(
        edge._replace(entity=edge.other, other=edge.entity, forward=not edge.forward) for edge in reversed(way)
    )


def shortest_common_path(some: ShortestPaths, others: ShortestPaths) -> tuple[Edge, ...] | None:
    """Return the shortest path between the starts of two walks that have met; None if they have not."""
    met = [entity for entity in some.distances if entity in others.distances]
    if not met:
        return None
    middle = min(met, key=lambda entity: (some.distances[entity] + others.distances[entity], entity))
    return (*some.to(middle), *reverse_path(others.to(middle)))


def path_steps(way: Iterable[Edge], rows: Mapping[str, FactRow], group: str) -> tuple[Step, ...]:
    """Return the steps of a path; steps whose fact was deleted meanwhile are left out."""
    return tuple(path_step(edge, rows[edge.fact], group) for edge in way if edge.fact in rows)


def path_step(edge: Edge, row: FactRow, group: str) -> Step:
    """Return one step."""
    return Step(fact=to_fact(row, edge.version, group), forward=edge.forward)


DEEPEST = 6
MOST_FAN_OUT = 1_000
MOST_WALKED = 5_000
"""Most edges of one walk."""
MOST_STARTS = 100


class GraphTraversal:
    """Walks along facts.

    Args:
        backend: stores the graphs.
    """

    def __init__(self, backend: GraphBackend) -> None:
        self._backend = backend

    async def around(
        self, group: str, starts: Sequence[str], when: BitemporalPoint, *, depth: int, fan_out: int, limit: int
    ) -> Traversal:
        """Return what is around some entities; see `GraphQueries.traverse_from_entities`. Two round trips."""
        walked = await self._backend.walk(group, starts, when=when, depth=depth, fan_out=fan_out, limit=limit)
        reach = ShortestPaths(starts, walked.edges)
        edges = [edge for _, edge in walked.edges if edge.other]
        seen = await self._backend.look(
            group,
            LookupRequest(entities=tuple(reach.distances), facts=tuple(dict.fromkeys(edge.fact for edge in edges))),
        )
        return _traversal(group, reach, edges, seen, truncated=walked.truncated)

    async def shortest(
        self, group: str, start: str, end: str, when: BitemporalPoint, max_depth: int
    ) -> tuple[Edge, ...]:
        """Return a shortest path between two entities; empty if none exists. At most three round trips."""
        # A path that is no longer than both walks together contains an entity that both have reached.
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
    """Return the names of entities: from their own records, else from the facts."""
    names: dict[str, str] = {}
    for edge in edges:
        row = seen.facts.get(edge.fact)
        if row is not None:
            names |= {row.source: row.source_name, row.target: row.target_name}
    rows: Mapping[str, EntityRow] = seen.entities
    return names | {id_: row.name for id_, row in rows.items()}


def check_starts(entities: Sequence[str]) -> Sequence[str]:
    """Return the entities from which a traversal begins.

    Raises:
        InvalidError: the argument is not a list of 1 to 100.
    """
    if isinstance(entities, str) or not 1 <= len(entities) <= MOST_STARTS:
        raise InvalidError("entities", entities, f"give a list of 1 to {MOST_STARTS} names or ids")
    return entities


def check_depth(field: str, depth: int) -> None:
    """Reject a depth that is out of bounds.

    Raises:
        InvalidError: the depth is not a number from 1 to 6.
    """
    if isinstance(depth, bool) or not isinstance(depth, int) or not 1 <= depth <= DEEPEST:
        raise InvalidError(field, depth, f"give 1 to {DEEPEST}")


def check_fan_out(fan_out: int) -> None:
    """Reject a fan-out that is out of bounds.

    Raises:
        InvalidError: the fan-out is not a number from 1 to 1,000.
    """
    if not isinstance(fan_out, int) or not 1 <= fan_out <= MOST_FAN_OUT:
        raise InvalidError("fan_out", fan_out, f"give 1 to {MOST_FAN_OUT}")


# -- the part of a graph for a drawing -----------------------------------------------------------


MOST_DRAWN = 2_000
_AT_ONCE = 64
"""Entities whose edges are read at the same time."""
_MOST_SOURCES = 8
"""Most episodes of one fact in a drawing."""
_LONGEST_TEXT = 400


class DrawingReader:
    """Reads the data of drawings.

    Args:
        backend: stores the graphs.
        clock: dates the drawings.
    """

    def __init__(self, backend: GraphBackend, clock: Clock) -> None:
        self._backend = backend
        self._clock = clock

    async def of_group(self, group: str, limit: int) -> GraphDrawing:
        """Return a whole group, limited to so many facts and entities."""
        facts, more_facts = await self._ids(group, "fact", limit)
        entities, more_entities = await self._ids(group, "entity", limit)
        return await self._drawn(group, facts, entities, truncated=more_facts or more_entities)

    async def around(self, group: str, centre: str, depth: int, limit: int) -> GraphDrawing:
        """Return everything within so many steps of an entity, limited to so many facts."""
        facts, truncated = await self._around(group, centre, depth, limit)
        return await self._drawn(group, facts, (centre,), truncated=truncated)

    async def _ids(self, group: str, kind: str, limit: int) -> tuple[list[str], bool]:
        """Return the first ids of a kind, and whether there are more."""
        ids: list[str] = []
        after = ""
        while True:
            page, after = await self._backend.listed(group, kind, after=after, limit=limit - len(ids))
            ids += page
            if not after or len(ids) >= limit:
                return ids, bool(after)

    async def _around(self, group: str, centre: str, depth: int, limit: int) -> tuple[list[str], bool]:
        """Return the ids of facts around an entity, breadth first, and whether there are more."""
        facts: dict[str, None] = {}
        met, frontier = {centre}, [centre]
        for _ in range(depth):
            reached: dict[str, None] = {}
            for start in range(0, len(frontier), _AT_ONCE):
                for fact, other in await self._steps(group, frontier[start : start + _AT_ONCE], limit):
                    facts[fact] = None
                    reached[other] = None
                if len(facts) > limit:
                    return list(facts)[:limit], True
            frontier = [other for other in reached if other and other not in met]
            met.update(frontier)
        return list(facts), False

    async def _steps(self, group: str, entities: Sequence[str], limit: int) -> list[tuple[str, str]]:
        """Return the facts of some entities at any time, each with its other end."""
        # A fact has an edge for each version; one edge more than the limit shows that something is left out.
        looks = (self._backend.edges(group, entity, when=None, limit=2 * limit + 2) for entity in entities)
        return [(edge.fact, edge.other) for edges in await asyncio.gather(*looks) for edge in edges]

    async def _drawn(
        self, group: str, facts: Sequence[str], entities: Sequence[str], *, truncated: bool
    ) -> GraphDrawing:
        seen = await self._backend.look(group, LookupRequest(facts=tuple(facts), entities=tuple(entities)))
        rows = [seen.facts[id_] for id_ in facts if id_ in seen.facts and seen.facts[id_].versions]
        ends = {end for row in rows for end in (row.source, row.target) if end}
        episode_ids = {id_ for row in rows for id_ in row.episodes[:_MOST_SOURCES]}
        beside = LookupRequest(entities=tuple(sorted(ends - seen.entities.keys())), episodes=tuple(sorted(episode_ids)))
        more = await self._backend.look(group, beside)
        nodes = [row for row in (seen.entities | more.entities).values() if row.id in ends or not row.merged_into]
        return GraphDrawing(
            group_id=group,
            drawn_at=self._clock.now(),
            entities=tuple(map(_drawn_entity, sorted(nodes, key=lambda row: row.id))),
            facts=tuple(map(_drawn_fact, sorted(rows, key=lambda row: (row.source, row.type, row.id)))),
            episodes=tuple(_drawn_episodes(more.episodes.values())),
            truncated=truncated,
        )


def _drawn_entity(row: EntityRow) -> DrawnEntity:
    return DrawnEntity(
        id=row.id,
        name=row.name,
        type=row.type,
        aliases=row.aliases,
        summary=row.summary,
        recorded_at=from_stamp(row.recorded),
    )


def _drawn_fact(row: FactRow) -> DrawnFact:
    value = orjson.loads(row.value) if row.value else ""
    return DrawnFact(
        id=row.id,
        source_id=row.source,
        type=row.type,
        target_id=row.target or None,
        value=value if isinstance(value, str) else row.value,
        fact=row.text,
        versions=tuple(map(_drawn_version, row.versions)),
        episode_ids=row.episodes[:_MOST_SOURCES],
    )


def _drawn_version(version: Version) -> DrawnVersion:
    return DrawnVersion.model_validate(
        {
            "valid_from": from_stamp(version.start),
            "valid_to": from_stamp(version.end),
            "recorded_at": from_stamp(version.recorded),
            "superseded_at": from_stamp(version.superseded),
        }
    )


def _drawn_episodes(rows: Iterable[EpisodeRow]) -> Iterable[DrawnEpisode]:
    for row in sorted(rows, key=lambda row: (row.occurred, row.id)):
        occurred = from_stamp(row.occurred)
        if occurred is not None:
            text = row.text if len(row.text) <= _LONGEST_TEXT else f"{row.text[: _LONGEST_TEXT - 1]}…"
            yield DrawnEpisode(id=row.id, text=text, source=row.source, occurred_at=occurred)
