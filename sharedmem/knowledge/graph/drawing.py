"""Drawing: what a picture of a graph needs, with all its times, so that the picture can go back and forth in them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import orjson

from sharedmem.errors import InvalidError
from sharedmem.knowledge.graph.base import check_limit
from sharedmem.knowledge.graph.lookups import Lookups
from sharedmem.knowledge.graph.records import EntityRow, EpisodeRow, FactRow, Version, Wanted
from sharedmem.knowledge.graph.times import moment_of
from sharedmem.models import DrawnEntity, DrawnEpisode, DrawnFact, DrawnVersion, GraphDrawing
from sharedmem.telemetry import measured

MOST_DRAWN, DEEPEST = 2_000, 6
_AT_ONCE = 64
"""Entities whose edges are asked for at the same time."""
_TOLD_BY = 8
"""Episodes of one fact that are drawn."""
_LONGEST_TEXT = 400


class Drawing(Lookups):
    """Gathers what pictures are made from."""

    @measured("graph.drawing")
    async def drawing(
        self, *, group_id: str, entity: str | None = None, depth: int = 2, limit: int = 500
    ) -> GraphDrawing:
        """A part of a graph with every version of its facts, for `as_mermaid`, `as_dot` and `as_html`.

        About four round trips, and one more for each page of ids or, around an entity, for each 64 neighbours of a
        depth.

        Args:
            group_id: whose graph.
            entity: name or id of whom it is drawn around; None for the whole group.
            depth: steps from the entity, at any time, at most 6; of no account without one.
            limit: facts at most, and entities at most, up to 2,000.

        Raises:
            InvalidError: an argument is out of its bounds.
            NotFoundError: there is no such entity.
            AccessDeniedError: this actor must not read graphs of the namespace.
            UnavailableError: the server cannot be reached.
        """
        group = await self._enter(group_id, "read")
        check_limit(limit, MOST_DRAWN)
        if not 0 <= depth <= DEEPEST:
            raise InvalidError("depth", depth, f"go 0 to {DEEPEST} steps far")
        if entity is None:
            facts, more_facts = await self._ids(group, "fact", limit)
            entities, more_entities = await self._ids(group, "entity", limit)
            return await self._drawn(group, facts, entities, truncated=more_facts or more_entities)
        (centre,) = await self._met(group, (entity,))
        facts, truncated = await self._around(group, centre, depth, limit)
        return await self._drawn(group, facts, (centre,), truncated=truncated)

    async def _ids(self, group: str, kind: str, limit: int) -> tuple[list[str], bool]:
        """The first ids of a kind, and whether there are more."""
        ids: list[str] = []
        after = ""
        while True:
            page, after = await self._backend.listed(group, kind, after=after, limit=limit - len(ids))
            ids += page
            if not after or len(ids) >= limit:
                return ids, bool(after)

    async def _around(self, group: str, centre: str, depth: int, limit: int) -> tuple[list[str], bool]:
        """Ids of the facts around an entity, breadth first, and whether there are more."""
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
        """The facts of some entities at any time, each with its other end."""
        # A fact has an edge for each version; with one edge too many it is known that something is left out.
        looks = (self._backend.edges(group, entity, when=None, limit=2 * limit + 2) for entity in entities)
        return [(edge.fact, edge.other) for edges in await asyncio.gather(*looks) for edge in edges]

    async def _drawn(
        self, group: str, facts: Sequence[str], entities: Sequence[str], *, truncated: bool
    ) -> GraphDrawing:
        seen = await self._backend.look(group, Wanted(facts=tuple(facts), entities=tuple(entities)))
        rows = [seen.facts[id_] for id_ in facts if id_ in seen.facts and seen.facts[id_].versions]
        ends = {end for row in rows for end in (row.source, row.target) if end}
        told = {id_ for row in rows for id_ in row.episodes[:_TOLD_BY]}
        beside = Wanted(entities=tuple(sorted(ends - seen.entities.keys())), episodes=tuple(sorted(told)))
        more = await self._backend.look(group, beside)
        nodes = [row for row in (seen.entities | more.entities).values() if row.id in ends or not row.merged_into]
        return GraphDrawing(
            group_id=group,
            drawn_at=self._minds.clock.now(),
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
        recorded_at=moment_of(row.recorded),
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
        episode_ids=row.episodes[:_TOLD_BY],
    )


def _drawn_version(version: Version) -> DrawnVersion:
    return DrawnVersion.model_validate(
        {
            "valid_from": moment_of(version.start),
            "valid_to": moment_of(version.end),
            "recorded_at": moment_of(version.recorded),
            "superseded_at": moment_of(version.superseded),
        }
    )


def _drawn_episodes(rows: Iterable[EpisodeRow]) -> Iterable[DrawnEpisode]:
    for row in sorted(rows, key=lambda row: (row.occurred, row.id)):
        occurred = moment_of(row.occurred)
        if occurred is not None:
            text = row.text if len(row.text) <= _LONGEST_TEXT else f"{row.text[: _LONGEST_TEXT - 1]}…"
            yield DrawnEpisode(id=row.id, text=text, source=row.source, occurred_at=occurred)
