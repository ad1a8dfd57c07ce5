"""Read records by id, facts of an entity at a time, pages of a group, and the content of a drawing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Literal

import orjson

from sharedmem.errors import InvalidError, NotFoundError
from sharedmem.graph.base import EntityLookup, Page, check_limit, facts_of_edges
from sharedmem.graph.bitemporal.relations import Vocabulary
from sharedmem.graph.commits import TextEmbeddings
from sharedmem.graph.protocol import GraphProgress
from sharedmem.graph.records import (
    GRAPH,
    BitemporalPoint,
    Edge,
    EntityRow,
    EpisodeRow,
    FactRow,
    LookupRequest,
    Version,
    from_stamp,
    to_episode,
    to_fact,
    to_latest_fact,
    version_at,
)
from sharedmem.graph.resolution.names import check_encodable
from sharedmem.graph.resolution.resolver import entity_text
from sharedmem.models import (
    Direction,
    DrawnEntity,
    DrawnEpisode,
    DrawnFact,
    DrawnVersion,
    Entity,
    Episode,
    Fact,
    GraphDrawing,
    GraphStats,
    RelationType,
)
from sharedmem.runtime import measured

MOST_LISTED = 1000
MOST_FACTS = 10_000
"""Facts of one answer."""
_MOST_EDGES = 100_000
"""Edges of one entity that are looked through for those of one direction or type."""
_CURSOR_SEPARATOR = "\x1f"
"""Between where a page of the backend begins and the last fact of it that was answered."""
_DIRECTIONS = ("out", "in", "both")
_LISTED_KINDS = ("episode", "summary")


class GraphReader(EntityLookup):
    """Reads graphs without looking for anything."""

    @measured("graph.get")
    async def get(self, id_: str, *, group_id: str) -> Episode | Entity | Fact:
        """A record by its id: a fact as it is known now, an entity with its attributes of now.

        One round trip; three for an entity.

        Args:
            id_: of an episode, an entity or a fact.
            group_id: whose graph.

        Raises:
            InvalidError: it can be no id.
            NotFoundError: the group has none of that id.
            AccessDeniedError: this actor may not read the namespace's graphs.
            UnavailableError: the server stayed away.
        """
        group = await self._enter(group_id, "read")
        if not isinstance(id_, str) or not id_:
            raise InvalidError("id", id_, "give the id of an episode, an entity or a fact")
        check_encodable("id", id_)
        seen = await self._backend.look(group, LookupRequest(episodes=(id_,), entities=(id_,), facts=(id_,)))
        if id_ in seen.episodes:
            return to_episode(seen.episodes[id_])
        if id_ in seen.entities:
            return (await self._entities(group, [seen.entities[id_]], self._when(None, None)))[0]
        if id_ in seen.facts:
            return to_latest_fact(seen.facts[id_], group)
        raise NotFoundError("record", id_, f"group {group!r} has no episode, entity or fact of that id")

    @measured("graph.entity")
    async def entity(
        self,
        name_or_id: str,
        *,
        group_id: str,
        as_of: datetime | None = None,
        known_at: datetime | None = None,
        embedding: bool = False,
    ) -> Entity:
        """An entity with its attributes at a time; of one that was merged, what it became. Four round trips.

        Args:
            name_or_id: any of its names, in any case, or its id.
            group_id: whose graph.
            as_of: the attributes that it had then; None for now.
            known_at: as they were known then; None for now.
            embedding: whether its `embedding` is wanted too; None where nobody embeds.

        Raises:
            InvalidError: it can be no name, or a moment has no time zone.
            NotFoundError: the group knows nobody of that name.
            AccessDeniedError, UnavailableError: as `get`.
        """
        group = await self._enter(group_id, "read")
        when = self._when(as_of, known_at)
        (id_,) = await self._find_entity_ids(group, [name_or_id])
        rows = (await self._backend.look(group, LookupRequest(entities=(id_,)))).entities
        if id_ not in rows:
            raise NotFoundError("entity", name_or_id, f"it has just gone from group {group!r}")
        (found,) = await self._entities(group, [rows[id_]], when)
        return await self._with_embedding(found, rows[id_]) if embedding else found

    async def _with_embedding(self, entity: Entity, row: EntityRow) -> Entity:
        text = entity_text(row)
        vector = (await TextEmbeddings(self._context, self._namespace).of([text])).get(text)
        return entity if vector is None else entity.model_copy(update={"embedding": tuple(vector.tolist())})

    @measured("graph.entities")
    async def entities(self, *, group_id: str, after: str = "", limit: int = 100) -> Page[Entity]:
        """Entities page by page, those that were merged too, with their attributes of now. Four round trips.

        Args:
            group_id: whose graph.
            after: `cursor` of the page before.
            limit: at most so many, 1 to 1,000.

        Raises:
            InvalidError: an argument is none.
            AccessDeniedError, UnavailableError: as `get`.
        """
        group = await self._enter(group_id, "read")
        ids, cursor = await self._backend.listed(group, "entity", after=after, limit=check_limit(limit, MOST_LISTED))
        rows = (await self._backend.look(group, LookupRequest(entities=tuple(ids)))).entities if ids else {}
        found = [rows[id_] for id_ in ids if id_ in rows]
        return Page(await self._entities(group, found, self._when(None, None)), cursor=cursor)

    @measured("graph.episodes")
    async def episodes(
        self,
        *,
        group_id: str,
        session: str | None = None,
        kind: Literal["episode", "summary"] = "episode",
        after: str = "",
        limit: int = 100,
    ) -> Page[Episode]:
        """Episodes, or summaries, page by page as they occurred, oldest first, with those that were undone.

        Two round trips.

        Args:
            group_id: whose graph.
            session: only of this one.
            kind: `summary` for what the graph made of earlier ones.
            after: `cursor` of the page before.
            limit: at most so many, 1 to 1,000.

        Raises:
            InvalidError: an argument is none.
            AccessDeniedError, UnavailableError: as `get`.
        """
        group = await self._enter(group_id, "read")
        most = check_limit(limit, MOST_LISTED)
        if kind not in _LISTED_KINDS:
            raise InvalidError("kind", kind, f"give one of {', '.join(_LISTED_KINDS)}")
        ids, cursor = await self._backend.listed(group, kind, after=after, limit=most, session=session)
        rows = (await self._backend.look(group, LookupRequest(episodes=tuple(ids)))).episodes if ids else {}
        return Page([to_episode(rows[id_]) for id_ in ids if id_ in rows], cursor=cursor)

    @measured("graph.facts")
    async def facts(
        self,
        entity: str,
        *,
        group_id: str,
        as_of: datetime | None = None,
        known_at: datetime | None = None,
        type: str | None = None,  # noqa: A002  # as the specification has it
        direction: Direction = "both",
        limit: int = 1000,
    ) -> list[Fact]:
        """What holds of an entity at a time, as known at a time: now and now, when nothing is said.

        Three round trips.

        Args:
            entity: its name or id; of one that was merged, what it became is meant.
            group_id: whose graph.
            as_of: what was true then.
            known_at: as it was known then, whatever has been learned since.
            type: only of this type of relation, or `@name` for an attribute.
            direction: `out` for those of which it is the source, `in` for those of which it is the target.
            limit: at most so many, 1 to 10,000; the newest.

        Raises:
            InvalidError: an argument is none, or a moment has no time zone.
            NotFoundError: the group knows nobody of that name.
            AccessDeniedError, UnavailableError: as `get`.
        """
        group = await self._enter(group_id, "read")
        when, most = self._when(as_of, known_at), check_limit(limit, MOST_FACTS)
        if direction not in _DIRECTIONS:
            raise InvalidError("direction", direction, f"give one of {', '.join(_DIRECTIONS)}")
        (id_,) = await self._find_entity_ids(group, [entity])
        edges = await self._edges_of(group, id_, when, type_=type, direction=direction, most=most)
        return facts_of_edges(edges, await self._fact_rows(group, edges), group)

    async def _edges_of(
        self, group: str, entity: str, when: BitemporalPoint, *, type_: str | None, direction: Direction, most: int
    ) -> list[Edge]:
        types, way = _canonical_relation(self._ways.vocabulary, type_, direction)
        limit = most if way == "both" else _MOST_EDGES
        edges = await self._backend.edges(group, entity, when=when, limit=limit, types=types)
        return [edge for edge in edges if way == "both" or edge.forward == (way == "out")][:most]

    @measured("graph.history")
    async def history(self, entity: str, *, group_id: str, limit: int = 1000) -> list[Fact]:
        """Every version of every fact of an entity, what turned out to be wrong too; oldest knowledge first.

        Three round trips.

        Args:
            entity: its name or id.
            group_id: whose graph.
            limit: versions at most, 1 to 10,000; of more, those of the newest facts.

        Raises:
            InvalidError, NotFoundError, AccessDeniedError, UnavailableError: as `facts`.
        """
        group = await self._enter(group_id, "read")
        most = check_limit(limit, MOST_FACTS)
        (id_,) = await self._find_entity_ids(group, [entity])
        edges = await self._backend.edges(group, id_, when=None, limit=most)
        told = sorted(edges, key=lambda edge: (edge.version.recorded, edge.version.start, edge.fact))
        return facts_of_edges(told, await self._fact_rows(group, edges), group)

    @measured("graph.as_of")
    async def as_of(
        self,
        when: datetime,
        *,
        group_id: str,
        known_at: datetime | None = None,
        limit: int = 1000,
        after: str = "",
    ) -> Page[Fact]:
        """All that was true at a moment in a group, page by page.

        Two round trips for each 1,000 facts that are looked at, or twice `limit`.

        Args:
            when: the moment.
            group_id: whose graph.
            known_at: as it was known then; None for what is known now.
            limit: at most so many, 1 to 10,000.
            after: `cursor` of the page before.

        Raises:
            InvalidError: an argument is none, or a moment has no time zone.
            AccessDeniedError, UnavailableError: as `get`.
        """
        group = await self._enter(group_id, "read")
        moment, most = self._when(when, known_at), check_limit(limit, MOST_FACTS)
        begun, _, last = after.partition(_CURSOR_SEPARATOR)
        looked_at = min(2 * most, MOST_LISTED)
        found: list[Fact] = []
        while True:
            ids, following = await self._backend.listed(group, "fact", after=begun, limit=looked_at)
            fresh = await self._holding(group, _after_cursor(ids, last), moment)
            if len(found) + len(fresh) > most:
                found += fresh[: most - len(found)]
                return Page(found, cursor=f"{begun}{_CURSOR_SEPARATOR}{found[-1].id}")
            found += fresh
            begun, last = following, ""
            if not following:
                return Page(found, cursor="")

    async def _holding(self, group: str, ids: Sequence[str], when: BitemporalPoint) -> list[Fact]:
        rows = (await self._backend.look(group, LookupRequest(facts=tuple(ids)))).facts if ids else {}
        return _facts_held([rows[id_] for id_ in ids if id_ in rows], when, group)

    @measured("graph.stats")
    async def stats(self, *, group_id: str) -> GraphStats:
        """What a group holds. One round trip.

        Raises:
            InvalidError: the group is none.
            AccessDeniedError, UnavailableError: as `get`.
        """
        return await self._backend.stats(await self._enter(group_id, "read"))

    @measured("graph.groups")
    async def groups(self) -> list[str]:
        """The names of the namespace's groups, and nothing of what they hold. One round trip.

        Raises:
            AccessDeniedError, UnavailableError: as `get`.
        """
        self._scope.common(GRAPH, "read")
        await self._gather()
        return sorted(await self._backend.groups())

    @measured("graph.delete_by_group")
    async def delete_by_group(self, group_id: str, *, progress: GraphProgress | None = None) -> int:
        """Delete everything of a group. Its episodes, entities and facts are gone for good. Several round trips.

        Args:
            group_id: whose graph.
            progress: called with (records deleted, records in all).

        Returns:
            How many records were deleted; 0 where there was nothing.

        Raises:
            InvalidError: the group is none.
            AccessDeniedError: this actor may not write the namespace's graphs.
            UnavailableError: the server stayed away; call it again to go on.
        """
        group = await self._enter(group_id, "write")
        self._check_everyone(group)
        return await self._backend.delete(group, progress=progress)

    def relations(self) -> tuple[RelationType, ...]:
        """The vocabulary: every relation that is declared, with how it behaves. No round trip."""
        vocabulary = self._ways.vocabulary
        return tuple(map(vocabulary.declared, vocabulary.names()))


def _after_cursor(ids: Sequence[str], last: str) -> Sequence[str]:
    """What stands behind an id in a page; the whole page where it is not in it any more."""
    return ids[ids.index(last) + 1 :] if last in ids else ids


def _facts_held(rows: Sequence[FactRow], when: BitemporalPoint, group: str) -> list[Fact]:
    versions = [(row, version_at(row, when)) for row in rows]
    return [to_fact(row, version, group) for row, version in versions if version is not None]


def _canonical_relation(
    vocabulary: Vocabulary, type_: str | None, direction: Direction
) -> tuple[tuple[str, ...], Direction]:
    """A type and a direction as facts of it are kept: `employs` from here is `works_for` from there."""
    if type_ is None:
        return (), direction
    normal = vocabulary.normal(type_)
    declared = vocabulary.declared(normal)
    if declared.symmetric:
        return (declared.name,), "both"
    if declared.name != normal and direction != "both":
        direction = "in" if direction == "out" else "out"
    return (declared.name,), direction


MOST_DRAWN, DEEPEST = 2_000, 6
_AT_ONCE = 64
"""Entities whose edges are asked for at the same time."""
_MOST_SOURCES = 8
"""Episodes of one fact that are drawn."""
_LONGEST_TEXT = 400


class DrawingReader(EntityLookup):
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
        (centre,) = await self._find_entity_ids(group, (entity,))
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
        seen = await self._backend.look(group, LookupRequest(facts=tuple(facts), entities=tuple(entities)))
        rows = [seen.facts[id_] for id_ in facts if id_ in seen.facts and seen.facts[id_].versions]
        ends = {end for row in rows for end in (row.source, row.target) if end}
        told = {id_ for row in rows for id_ in row.episodes[:_MOST_SOURCES]}
        beside = LookupRequest(entities=tuple(sorted(ends - seen.entities.keys())), episodes=tuple(sorted(told)))
        more = await self._backend.look(group, beside)
        nodes = [row for row in (seen.entities | more.entities).values() if row.id in ends or not row.merged_into]
        return GraphDrawing(
            group_id=group,
            drawn_at=self._context.clock.now(),
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
