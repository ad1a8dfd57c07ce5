"""Read graphs: records by id, facts of an entity at a time, pages of a group, search, retrieval and traversal."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from sharedmem.errors import InvalidError, NotFoundError
from sharedmem.graph.access import (
    EntityLookup,
    GraphAccess,
    IngestRules,
    Page,
    TextEmbeddings,
    check_limit,
    facts_of_edges,
)
from sharedmem.graph.entity_versions import to_versions
from sharedmem.graph.names import check_encodable
from sharedmem.graph.protocol import GraphBackend
from sharedmem.graph.ranking import Weights
from sharedmem.graph.records import (
    OPEN,
    BitemporalPoint,
    Edge,
    EntityRow,
    FactRow,
    LookupRequest,
    to_episode,
    to_fact,
    to_latest_fact,
    version_at,
)
from sharedmem.graph.relations import Vocabulary
from sharedmem.graph.resolver import entity_text
from sharedmem.graph.retriever import GraphRetriever, RetrievalQuery, embed_question
from sharedmem.graph.search import MOST_HITS, GraphSearch, search_request
from sharedmem.graph.traversal import (
    DEEPEST,
    MOST_DRAWN,
    MOST_WALKED,
    DrawingReader,
    GraphTraversal,
    check_depth,
    check_fan_out,
    check_starts,
    path_steps,
)
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.memory.search import check_query
from sharedmem.models import (
    ContextSet,
    Direction,
    Entity,
    Episode,
    Fact,
    GraphDrawing,
    GraphHit,
    GraphKind,
    GraphStats,
    RelationType,
    Step,
    Traversal,
)
from sharedmem.runtime import measured
from sharedmem.runtime.concurrency import ProcessBound

MOST_LISTED = 1000
MOST_FACTS = 10_000
"""Most facts of one result."""
_MOST_EDGES = 100_000
"""Edges of one entity that are read to find the edges of one direction or type."""
_CURSOR_SEPARATOR = "\x1f"
"""Separates the place of a backend page and the last returned fact in a cursor."""
_DIRECTIONS = ("out", "in", "both")
_LISTED_KINDS = ("episode", "summary")


class GraphQueries(ProcessBound):
    """The graphs of one namespace, read with the rights of one actor.

    Args:
        context: dependencies that the hub shares with its stores.
        access: rights of the actor.
        backend: stores the graphs.
        rules: relation types and extractor.
    """

    def __init__(
        self, context: KnowledgeContext, access: GraphAccess, backend: GraphBackend, rules: IngestRules
    ) -> None:
        self._access = access
        self._backend = backend
        self._rules = rules
        self._counters = context.counters
        self._clock = context.clock
        self._embedder = context.embedder_of(access.namespace)
        self._lookup = EntityLookup(backend)
        self._embeddings = TextEmbeddings(context, access.namespace)
        self._search = GraphSearch(context, access.namespace, backend)
        self._traversal = GraphTraversal(backend)
        self._drawings = DrawingReader(backend, context.clock)

    @property
    def backend(self) -> GraphBackend:
        """The storage of the graphs, without the rights and rules of this object."""
        return self._backend

    @property
    def rules(self) -> IngestRules:
        """The relation types, and the extractor of entities and facts."""
        return self._rules

    @measured("graph.get")
    async def get(self, id_: str, *, group_id: str) -> Episode | Entity | Fact:
        """Return a record by its id: a fact as it is known now, an entity with its current attributes.

        One round trip; three for an entity.

        Args:
            id_: id of an episode, an entity or a fact.
            group_id: group of the graph.

        Raises:
            InvalidError: the id is invalid.
            NotFoundError: the group has no record with that id.
            AccessDeniedError: this actor may not read the namespace's graphs.
            UnavailableError: the server cannot be reached.
        """
        group = await self._access.enter(group_id, "read")
        if not isinstance(id_, str) or not id_:
            raise InvalidError("id", id_, "give the id of an episode, an entity or a fact")
        check_encodable("id", id_)
        seen = await self._backend.look(group, LookupRequest(episodes=(id_,), entities=(id_,), facts=(id_,)))
        if id_ in seen.episodes:
            return to_episode(seen.episodes[id_])
        if id_ in seen.entities:
            return (await self._lookup.entities(group, [seen.entities[id_]], self._access.point_in_time(None, None)))[0]
        if id_ in seen.facts:
            return to_latest_fact(seen.facts[id_], group)
        raise NotFoundError("record", id_, f"group {group!r} has no episode, entity or fact with that id")

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
        """Return an entity as it was at a time; for a merged one, the entity it leads to. Four round trips.

        Type, summary, further names and attributes are as of that time. Of a time at which nothing was known of it,
        only its id and name are returned, without `recorded_at`. As with `facts`, present merges apply at any time;
        `entity_versions` returns when an entity was merged.

        Args:
            name_or_id: any of its names, in any case, or its id.
            group_id: group of the graph.
            as_of: time at which this was true; None for now.
            known_at: time of knowledge; None for now.
            embedding: whether to return its `embedding` too; None without an embedder.

        Raises:
            InvalidError: the name is invalid, or a moment has no time zone.
            NotFoundError: the group has no entity of that name.
            AccessDeniedError, UnavailableError: as `get`.
        """
        group = await self._access.enter(group_id, "read")
        when = self._access.point_in_time(as_of, known_at)
        (id_,) = await self._lookup.find_ids(group, [name_or_id])
        rows = (await self._backend.look(group, LookupRequest(entities=(id_,)))).entities
        if id_ not in rows:
            raise NotFoundError("entity", name_or_id, f"it was just deleted from group {group!r}")
        (found,) = await self._lookup.entities(group, [rows[id_]], when)
        return await self._with_embedding(found, rows[id_]) if embedding else found

    async def _with_embedding(self, entity: Entity, row: EntityRow) -> Entity:
        text = entity_text(row)
        vector = (await self._embeddings.of([text])).get(text)
        return entity if vector is None else entity.model_copy(update={"embedding": tuple(vector.tolist())})

    @measured("graph.entity_versions")
    async def entity_versions(self, entity: str, *, group_id: str) -> list[Entity]:
        """Return every version of an entity, oldest knowledge first: its types, summaries, further names and merges.

        The versions come without attributes: these are facts, and `history` returns theirs. One round trip; two for an
        alias.

        Args:
            entity: its name or id; of a merged entity, its own versions, in which `merged_into` says since when it
                leads to the other one.
            group_id: group of the graph.

        Returns:
            Each version with the time at which it was true (`valid_from`, `valid_to`) and the time at which it was
                known (`recorded_at`, `superseded_at`), from at most the newest 200 changes. No two of them are true at
                the same time, as known at the same time.

        Raises:
            InvalidError: the name is invalid.
            NotFoundError: the group has no entity of that name.
            AccessDeniedError, UnavailableError: as `get`.
        """
        group = await self._access.enter(group_id, "read")
        return to_versions(await self._lookup.own_row(group, entity), group)

    @measured("graph.entities")
    async def entities(self, *, group_id: str, after: str = "", limit: int = 100) -> Page[Entity]:
        """Return entities page by page, merged ones too, with their current attributes. Four round trips.

        Args:
            group_id: group of the graph.
            after: `cursor` of the page before.
            limit: most items, 1 to 1,000.

        Raises:
            InvalidError: an argument is invalid.
            AccessDeniedError, UnavailableError: as `get`.
        """
        group = await self._access.enter(group_id, "read")
        ids, cursor = await self._backend.listed(group, "entity", after=after, limit=check_limit(limit, MOST_LISTED))
        rows = (await self._backend.look(group, LookupRequest(entities=tuple(ids)))).entities if ids else {}
        found = [rows[id_] for id_ in ids if id_ in rows]
        return Page(await self._lookup.entities(group, found, self._access.point_in_time(None, None)), cursor=cursor)

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
        """Return episodes, or summaries, page by page in the order in which they occurred, with undone ones.

        Two round trips.

        Args:
            group_id: group of the graph.
            session: only episodes of this session.
            kind: `summary` for the graph's summaries of earlier episodes.
            after: `cursor` of the page before.
            limit: most items, 1 to 1,000.

        Raises:
            InvalidError: an argument is invalid.
            AccessDeniedError, UnavailableError: as `get`.
        """
        group = await self._access.enter(group_id, "read")
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
        type: str | None = None,  # noqa: A002  # as in the specification
        direction: Direction = "both",
        limit: int = 1000,
    ) -> list[Fact]:
        """Return the facts of an entity that hold at a time, as known at a time; by default now and now.

        Three round trips.

        Args:
            entity: its name or id; a merged one means the entity that it leads to.
            group_id: group of the graph.
            as_of: time at which the facts hold.
            known_at: time of knowledge; later knowledge does not count.
            type: only facts of this relation type, or `@name` for an attribute.
            direction: `out` for facts whose source it is, `in` for facts whose target it is.
            limit: most facts, 1 to 10,000; the newest.

        Raises:
            InvalidError: an argument is invalid, or a moment has no time zone.
            NotFoundError: the group has no entity of that name.
            AccessDeniedError, UnavailableError: as `get`.
        """
        group = await self._access.enter(group_id, "read")
        when, most = self._access.point_in_time(as_of, known_at), check_limit(limit, MOST_FACTS)
        if direction not in _DIRECTIONS:
            raise InvalidError("direction", direction, f"give one of {', '.join(_DIRECTIONS)}")
        (id_,) = await self._lookup.find_ids(group, [entity])
        edges = await self._edges_of(group, id_, when, type_=type, direction=direction, most=most)
        return facts_of_edges(edges, await self._lookup.fact_rows(group, edges), group)

    async def _edges_of(
        self, group: str, entity: str, when: BitemporalPoint, *, type_: str | None, direction: Direction, most: int
    ) -> list[Edge]:
        types, way = _canonical_relation(self._rules.vocabulary, type_, direction)
        limit = most if way == "both" else _MOST_EDGES
        edges = await self._backend.edges(group, entity, when=when, limit=limit, types=types)
        return [edge for edge in edges if way == "both" or edge.forward == (way == "out")][:most]

    @measured("graph.history")
    async def history(self, entity: str, *, group_id: str, limit: int = 1000) -> list[Fact]:
        """Return every version of every fact of an entity, also the ones that turned out wrong; oldest knowledge first.

        Three round trips.

        Args:
            entity: its name or id.
            group_id: group of the graph.
            limit: most versions, 1 to 10,000; if there are more, the versions of the newest facts.

        Raises:
            InvalidError, NotFoundError, AccessDeniedError, UnavailableError: as `facts`.
        """
        group = await self._access.enter(group_id, "read")
        most = check_limit(limit, MOST_FACTS)
        (id_,) = await self._lookup.find_ids(group, [entity])
        edges = await self._backend.edges(group, id_, when=None, limit=most)
        ordered = sorted(edges, key=lambda edge: (edge.version.recorded, edge.version.start, edge.fact))
        return facts_of_edges(ordered, await self._lookup.fact_rows(group, edges), group)

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
        """Return all facts of a group that were true at a moment, page by page.

        Two round trips for every 1,000 facts that are read, or twice `limit`.

        Args:
            when: the moment.
            group_id: group of the graph.
            known_at: time of knowledge; None for now.
            limit: most items, 1 to 10,000.
            after: `cursor` of the page before.

        Raises:
            InvalidError: an argument is invalid, or a moment has no time zone.
            AccessDeniedError, UnavailableError: as `get`.
        """
        group = await self._access.enter(group_id, "read")
        moment, most = self._access.point_in_time(when, known_at), check_limit(limit, MOST_FACTS)
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
        """Return the counts of a group's records. One round trip.

        Raises:
            InvalidError: the group is invalid.
            AccessDeniedError, UnavailableError: as `get`.
        """
        return await self._backend.stats(await self._access.enter(group_id, "read"))

    @measured("graph.groups")
    async def groups(self) -> list[str]:
        """Return the names of the namespace's groups, and none of their content. One round trip, two on FalkorDB.

        Raises:
            AccessDeniedError, UnavailableError: as `get`.
        """
        await self._access.enter_namespace()
        return sorted(await self._backend.groups())

    def relations(self) -> tuple[RelationType, ...]:
        """Return the vocabulary: every declared relation type. No round trip."""
        vocabulary = self._rules.vocabulary
        return tuple(map(vocabulary.declared, vocabulary.names()))

    @measured("graph.vector_search")
    async def vector_search(
        self,
        query: str | Sequence[float],
        *,
        group_id: str,
        limit: int = 10,
        kinds: Sequence[GraphKind] = ("episode",),
        as_of: datetime | None = None,
        known_at: datetime | None = None,
    ) -> list[GraphHit]:
        """Return the records nearest in meaning; a score is the cosine similarity.

        Two round trips; two more if entities are found, and if many hits hold at another time.

        Args:
            query: a text, or a vector as long as the embedder's.
            group_id: group of the graph.
            limit: most items, 1 to 100.
            kinds: kinds of records: `episode`, `summary`, `entity`, `fact`; a statement is found as a fact.
            as_of: facts that were true then, episodes until then; None for now.
            known_at: time of knowledge; None for now.

        Raises:
            InvalidError: an argument is invalid, or a moment has no time zone.
            UnsupportedError: there is no embedder.
            UnavailableError: the embedder or the server cannot be reached.
            AccessDeniedError: this actor may not read the namespace's graphs.
        """
        group = await self._access.enter(group_id, "read")
        when = self._access.point_in_time(as_of, known_at)
        search = search_request(kinds, check_limit(limit, MOST_HITS), as_of, known_at)
        return await self._search.by_vector(group, query, search, when, limit)

    @measured("graph.text_search")
    async def text_search(
        self,
        query: str,
        *,
        group_id: str,
        limit: int = 10,
        kinds: Sequence[GraphKind] = ("episode",),
        as_of: datetime | None = None,
        known_at: datetime | None = None,
    ) -> list[GraphHit]:
        """Return the records with any word of a text, best first; scores are BM25. Round trips as `vector_search`.

        Args:
            query: the words; inflected forms count as the same, and there is no query syntax.
            group_id, limit, kinds, as_of, known_at: as `vector_search` takes them.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `vector_search`.
        """
        group = await self._access.enter(group_id, "read")
        when = self._access.point_in_time(as_of, known_at)
        search = search_request(kinds, check_limit(limit, MOST_HITS), as_of, known_at)
        return await self._search.by_words(group, query, search, when, limit)

    @measured("graph.retrieve")
    async def retrieve(  # noqa: PLR0913  # each narrows the query
        self,
        query: str,
        *,
        group_id: str,
        k: int = 20,
        as_of: datetime | None = None,
        known_at: datetime | None = None,
        depth: int = 2,
        session: str | None = None,
        include_past: bool = False,
        explain: bool = False,
        weights: Weights | None = None,
    ) -> ContextSet:
        """Return the context for a question: facts, episodes and summaries that help to answer it, best first.

        Hits are found by words, by meaning, and along the facts of the entities that the question names; without a
        language model. At most three round trips. Without an embedder, or while it is down, words and graph decide,
        and `degraded` contains the reason.

        Args:
            query: the question, in everyday language.
            group_id: group of the graph.
            k: most items, 1 to 100.
            as_of: facts that were true then, and episodes until then; None for now.
            known_at: time of knowledge; later knowledge does not count; None for now.
            depth: steps from the entities that the question names, 1 to 6.
            session: only episodes of this session; facts are of the whole group.
            include_past: whether to include facts that have ended, except those found to be wrong.
            explain: whether each item has the contribution of every signal to its score.
            weights: other weights than the default.

        Raises:
            InvalidError: an argument is invalid, or a moment has no time zone.
            AccessDeniedError: this actor may not read the namespace's graphs.
            UnavailableError: the server cannot be reached, or could not finish in time.
        """
        group = await self._access.enter(group_id, "read")
        began = self._clock.monotonic()
        when, text = self._access.point_in_time(as_of, known_at), check_query("query", query)
        check_depth("depth", depth)
        meaning = await embed_question(self._embedder, text, self._counters)
        sought = RetrievalQuery(
            query=text,
            group=group,
            when=when,
            until=OPEN if as_of is None else when.world,
            vector=meaning.vector,
            k=check_limit(k, MOST_HITS),
            depth=depth,
            session=session,
            is_past=include_past or as_of is not None or known_at is not None,
            include_past=include_past,
            explain=explain,
        )
        retriever = GraphRetriever(self._backend, self._rules.vocabulary, weights or Weights())
        items, entities, round_trips = await retriever.context(sought)
        return ContextSet(
            query=text,
            group_id=group,
            items=tuple(items),
            entities=entities,
            as_of=as_of,
            known_at=known_at,
            round_trips=round_trips,
            milliseconds=round((self._clock.monotonic() - began) * 1000, 3),
            degraded=meaning.missing,
        )

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
        """Return what is around some entities, nearest first, along facts that hold at a time. Three round trips.

        Facts are followed in both directions. Distances are lengths of shortest paths; one such path is returned.

        Args:
            entities: names or ids, 1 to 100.
            group_id: group of the graph.
            depth: most steps, 1 to 6.
            fan_out: most facts of one entity that are followed, 1 to 1,000: the newest.
            limit: facts in all, 1 to 5,000.
            as_of: facts that were true then are followed; None for now.
            known_at: time of knowledge; None for now.

        Raises:
            InvalidError: an argument is invalid, or a moment has no time zone.
            NotFoundError: the group has no entity of one of the names.
            AccessDeniedError: this actor may not read the namespace's graphs.
            UnavailableError: the server cannot be reached.
        """
        group = await self._access.enter(group_id, "read")
        when = self._access.point_in_time(as_of, known_at)
        check_depth("depth", depth)
        check_fan_out(fan_out)
        most = check_limit(limit, MOST_WALKED)
        starts = list(dict.fromkeys(await self._lookup.find_ids(group, check_starts(entities))))
        return await self._traversal.around(group, starts, when, depth=depth, fan_out=fan_out, limit=most)

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
        """Return a shortest path from one entity to another, along facts that hold at a time.

        The search runs from both ends, a step further in each round trip: at most three of them, and two more. For an
        entity with more than 1,000 facts the newest are followed.

        Args:
            a, b: names or ids.
            group_id: group of the graph.
            max_depth: most steps, 1 to 6.
            as_of: facts that were true then are followed; None for now.
            known_at: time of knowledge; None for now.

        Returns:
            The steps from `a` to `b`; none if there is no path, or both are the same.

        Raises:
            InvalidError, NotFoundError, AccessDeniedError, UnavailableError: as `traverse_from_entities`.
        """
        group = await self._access.enter(group_id, "read")
        when = self._access.point_in_time(as_of, known_at)
        check_depth("max_depth", max_depth)
        start, end = await self._lookup.find_ids(group, [a, b])
        way = await self._traversal.shortest(group, start, end, when, max_depth) if start != end else ()
        return path_steps(way, await self._lookup.fact_rows(group, way), group)

    @measured("graph.drawing")
    async def drawing(
        self, *, group_id: str, entity: str | None = None, depth: int = 2, limit: int = 500
    ) -> GraphDrawing:
        """Return a part of a graph with every version of its facts, for `as_mermaid`, `as_dot` and `as_html`.

        About four round trips, and one more for each page of ids or, around an entity, for every 64 neighbours of a
        step.

        Args:
            group_id: group of the graph.
            entity: name or id of the central entity; None for the whole group.
            depth: steps from the entity, at any time, at most 6; ignored without an entity.
            limit: most facts, and most entities, up to 2,000.

        Raises:
            InvalidError: an argument is invalid.
            NotFoundError: there is no such entity.
            AccessDeniedError: this actor may not read graphs of the namespace.
            UnavailableError: the server cannot be reached.
        """
        group = await self._access.enter(group_id, "read")
        check_limit(limit, MOST_DRAWN)
        if not 0 <= depth <= DEEPEST:
            raise InvalidError("depth", depth, f"give a number from 0 to {DEEPEST}")
        if entity is None:
            return await self._drawings.of_group(group, limit)
        (centre,) = await self._lookup.find_ids(group, (entity,))
        return await self._drawings.around(group, centre, depth, limit)


def _after_cursor(ids: Sequence[str], last: str) -> Sequence[str]:
    """Return the ids after an id in a page; the whole page if it is not in it any more."""
    return ids[ids.index(last) + 1 :] if last in ids else ids


def _facts_held(rows: Sequence[FactRow], when: BitemporalPoint, group: str) -> list[Fact]:
    versions = [(row, version_at(row, when)) for row in rows]
    return [to_fact(row, version, group) for row, version in versions if version is not None]


def _canonical_relation(
    vocabulary: Vocabulary, type_: str | None, direction: Direction
) -> tuple[tuple[str, ...], Direction]:
    """Return a type and a direction as facts are stored: `employs` out is `works_for` in."""
    if type_ is None:
        return (), direction
    normal = vocabulary.normal(type_)
    declared = vocabulary.declared(normal)
    if declared.symmetric:
        return (declared.name,), "both"
    if declared.name != normal and direction != "both":
        direction = "in" if direction == "out" else "out"
    return (declared.name,), direction
