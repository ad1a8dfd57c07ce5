"""Reading: records by id, what held of an entity at a time, and everything page by page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from sharedmem.errors import InvalidError, NotFoundError
from sharedmem.knowledge.graph.base import check_limit
from sharedmem.knowledge.graph.family import GRAPH
from sharedmem.knowledge.graph.lookups import Lookups, Page, facts_along
from sharedmem.knowledge.graph.meanings import Meanings
from sharedmem.knowledge.graph.naming import check_whole
from sharedmem.knowledge.graph.protocol import GraphProgress
from sharedmem.knowledge.graph.records import Edge, EntityRow, FactRow, Wanted, When
from sharedmem.knowledge.graph.relations import Vocabulary
from sharedmem.knowledge.graph.resolving import entity_text
from sharedmem.knowledge.graph.views import episode_of, fact_of, newest_fact_of, version_at
from sharedmem.models import Direction, Entity, Episode, Fact, GraphStats, RelationType
from sharedmem.telemetry import measured

MOST_LISTED = 1000
MOST_FACTS = 10_000
"""Facts of one answer."""
_MOST_EDGES = 100_000
"""Edges of one entity that are looked through for those of one direction or type."""
_BEHIND = "\x1f"
"""Between where a page of the backend begins and the last fact of it that was answered."""
_DIRECTIONS = ("out", "in", "both")
_LISTED = ("episode", "summary")


class Reading(Lookups):
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
        check_whole("id", id_)
        seen = await self._backend.look(group, Wanted(episodes=(id_,), entities=(id_,), facts=(id_,)))
        if id_ in seen.episodes:
            return episode_of(seen.episodes[id_])
        if id_ in seen.entities:
            return (await self._entities(group, [seen.entities[id_]], self._when(None, None)))[0]
        if id_ in seen.facts:
            return newest_fact_of(seen.facts[id_], group)
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
        (id_,) = await self._met(group, [name_or_id])
        rows = (await self._backend.look(group, Wanted(entities=(id_,)))).entities
        if id_ not in rows:
            raise NotFoundError("entity", name_or_id, f"it has just gone from group {group!r}")
        (found,) = await self._entities(group, [rows[id_]], when)
        return await self._with_embedding(found, rows[id_]) if embedding else found

    async def _with_embedding(self, entity: Entity, row: EntityRow) -> Entity:
        text = entity_text(row)
        vector = (await Meanings(self._minds, self._namespace).of([text])).get(text)
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
        rows = (await self._backend.look(group, Wanted(entities=tuple(ids)))).entities if ids else {}
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
        if kind not in _LISTED:
            raise InvalidError("kind", kind, f"give one of {', '.join(_LISTED)}")
        ids, cursor = await self._backend.listed(group, kind, after=after, limit=most, session=session)
        rows = (await self._backend.look(group, Wanted(episodes=tuple(ids)))).episodes if ids else {}
        return Page([episode_of(rows[id_]) for id_ in ids if id_ in rows], cursor=cursor)

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
        (id_,) = await self._met(group, [entity])
        edges = await self._edges_of(group, id_, when, type_=type, direction=direction, most=most)
        return facts_along(edges, await self._fact_rows(group, edges), group)

    async def _edges_of(
        self, group: str, entity: str, when: When, *, type_: str | None, direction: Direction, most: int
    ) -> list[Edge]:
        types, way = _kept(self._ways.vocabulary, type_, direction)
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
        (id_,) = await self._met(group, [entity])
        edges = await self._backend.edges(group, id_, when=None, limit=most)
        told = sorted(edges, key=lambda edge: (edge.version.recorded, edge.version.start, edge.fact))
        return facts_along(told, await self._fact_rows(group, edges), group)

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
        begun, _, last = after.partition(_BEHIND)
        looked_at = min(2 * most, MOST_LISTED)
        found: list[Fact] = []
        while True:
            ids, following = await self._backend.listed(group, "fact", after=begun, limit=looked_at)
            fresh = await self._holding(group, _behind(ids, last), moment)
            if len(found) + len(fresh) > most:
                found += fresh[: most - len(found)]
                return Page(found, cursor=f"{begun}{_BEHIND}{found[-1].id}")
            found += fresh
            begun, last = following, ""
            if not following:
                return Page(found, cursor="")

    async def _holding(self, group: str, ids: Sequence[str], when: When) -> list[Fact]:
        rows = (await self._backend.look(group, Wanted(facts=tuple(ids)))).facts if ids else {}
        return _held([rows[id_] for id_ in ids if id_ in rows], when, group)

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


def _behind(ids: Sequence[str], last: str) -> Sequence[str]:
    """What stands behind an id in a page; the whole page where it is not in it any more."""
    return ids[ids.index(last) + 1 :] if last in ids else ids


def _held(rows: Sequence[FactRow], when: When, group: str) -> list[Fact]:
    versions = [(row, version_at(row, when)) for row in rows]
    return [fact_of(row, version, group) for row, version in versions if version is not None]


def _kept(vocabulary: Vocabulary, type_: str | None, direction: Direction) -> tuple[tuple[str, ...], Direction]:
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
