"""Read the part of a graph for a drawing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import orjson

from sharedmem.clock import Clock
from sharedmem.graph.protocol import GraphBackend
from sharedmem.graph.records import EntityRow, EpisodeRow, FactRow, LookupRequest, Version, from_stamp
from sharedmem.models import DrawnEntity, DrawnEpisode, DrawnFact, DrawnVersion, GraphDrawing

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
