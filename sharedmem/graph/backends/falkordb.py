"""A knowledge graph in the FalkorDB module (extra `falkordb`): commits, reads, search, and the creation of a group."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from sharedmem.clock import Clock, new_id
from sharedmem.errors import InvalidError, UnavailableError
from sharedmem.graph.backends import falkordb_queries
from sharedmem.graph.backends.falkordb_client import FalkorClient
from sharedmem.graph.backends.falkordb_queries import (
    PLACE_LIMIT,
    any_word_query,
    commit_parameters,
    index_words,
    parse_claim,
    parse_entity,
    parse_episode,
    parse_fact,
    parse_versions,
    session_property,
    vector_text,
)
from sharedmem.graph.protocol import GraphProgress
from sharedmem.graph.records import (
    LATEST,
    UNKNOWN_START,
    BitemporalPoint,
    CommitReceipt,
    CommitRequest,
    Edge,
    IndexDiscrepancy,
    KindCode,
    LookupRequest,
    LookupResult,
    RecordHits,
    RecordSearch,
    ScoredRecord,
    StaleGroup,
    WalkResult,
    to_stamp,
)
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.models import GraphStats
from sharedmem.redis.client import RedisClient
from sharedmem.redis.keys import KeySpace
from sharedmem.redis.scripts.knowledge import GraphScripts
from sharedmem.search.scoring import inverse_document_frequency, term_score

FAMILY, PART = "graph", "falkor"
_READY, _TURN = "falkor.ready", "falkor.turn"
_TIMEOUT_S = 30.0
_PAUSE_S = 0.005
_TURN_MS = 10_000
_READY_MS = 60_000
"""How long a graph is kept that was not put in its place."""


class GroupCreation:
    """Creates the graphs of a namespace.

    Args:
        asker: sends queries to them.
        line: the client of the server.
        graphing: calls the script that puts them in their places.
        keyspace, namespace: where these places are.
        clock: for pauses.
        dimension: numbers of a vector; 0 without vectors.
    """

    def __init__(  # each is a property of the namespace
        self,
        asker: FalkorClient,
        line: RedisClient,
        graphing: GraphScripts,
        *,
        keyspace: KeySpace,
        namespace: str,
        clock: Clock,
        dimension: int,
    ) -> None:
        self._asker = asker
        self._client = line
        self._graphing = graphing
        self._keyspace = keyspace
        self._namespace = namespace
        self._clock = clock
        self._dimension = dimension

    def key(self, group: str) -> bytes:
        """Return the key of the graph of a group."""
        return self._keyspace.record_item(FAMILY, self._namespace, PART, group)

    async def begin(self, group: str) -> int:
        """Return the version with which the graph of a group began; create it if missing, in some 35 round trips.

        Raises:
            UnavailableError: the server cannot be reached, or another caller does not finish the creation.
            UnsupportedError: the server lacks the module.
        """
        deadline = self._clock.monotonic() + _TIMEOUT_S
        while self._clock.monotonic() < deadline:
            born = await self._born(group)
            if born is not None:
                return born
            token = new_id()
            if await self._has_turn(group, token):
                await self._make(group, token)
            else:
                await self._clock.sleep(_PAUSE_S)
        raise UnavailableError(f"group {group!r}", "its graph was not created in time; try again")

    async def clear(self, group: str) -> None:
        """Delete the graph of a deleted group, if a late query has created an empty one."""
        token = new_id()
        if await self._has_turn(group, token) and await self._born(group) is None:
            await self._install(group, token)

    async def _born(self, group: str) -> int | None:
        rows = await self._asker.read(self.key(group), falkordb_queries.BORN, {})
        return int(rows[0][0]) if rows else None

    async def _has_turn(self, group: str, token: str) -> bool:
        """Return whether this caller, and no other, may create the graph of the group now."""
        turn = self._turn(group)
        if await self._client.call("SET", turn, token, "NX", "PX", _TURN_MS) is not None:
            return True
        # It may have been its own turn, sent twice.
        return await self._client.call("GET", turn) == token.encode()

    async def _make(self, group: str, token: str) -> None:
        # Check again: it may have been created between the read and the turn.
        if await self._born(group) is not None:
            await self._client.call("DEL", self._turn(group))
            return
        ready = self._ready(token)
        for statement in falkordb_queries.indexes(self._dimension):
            await self._asker.index(ready, statement)
            await self._client.call("PEXPIRE", ready, _READY_MS)
        while await self._asker.read(ready, falkordb_queries.INDEXES_UNDER_WAY, {}):
            await self._clock.sleep(_PAUSE_S)
        await self._asker.write(ready, falkordb_queries.BEGIN, {})
        await self._install(group, token)

    async def _install(self, group: str, token: str) -> None:
        await self._graphing.graph_install(
            turn=self._turn(group), graph=self.key(group), ready=self._ready(token), token=token
        )

    def _turn(self, group: str) -> bytes:
        return self._keyspace.record_item(FAMILY, self._namespace, _TURN, group)

    def _ready(self, token: str) -> bytes:
        return self._keyspace.record_item(FAMILY, self._namespace, _READY, token)


_POOL = 4
"""For each requested hit by words, how many are ranked again."""


class CypherQuery(NamedTuple):
    """A query that returns (search, part, letter, id, number, words)."""

    query: str
    parameters: dict[str, Any]


def build_query(searches: Sequence[RecordSearch], dimension: int) -> CypherQuery | None:
    """Return all searches as one query; None if there is nothing to search for.

    Raises:
        InvalidError: a vector has another dimension.
    """
    legs: list[str] = []
    parameters: dict[str, Any] = {}
    for number, one in enumerate(searches):
        vector = _vector(one, dimension)
        is_narrowed = one.since is not None or one.until is not None
        has_session = one.session is not None
        for letter in dict.fromkeys(one.letters):
            if one.terms:
                legs.append(falkordb_queries.text_leg(number, letter, is_narrowed=is_narrowed, has_session=has_session))
                legs += falkordb_queries.rarity_legs(number, letter)
            if vector is not None:
                legs.append(
                    falkordb_queries.vector_leg(number, letter, is_narrowed=is_narrowed, has_session=has_session)
                )
        parameters |= _parameters(number, one, vector)
    return CypherQuery("UNION ALL".join(legs), parameters) if legs else None


def parse_hits(searches: Sequence[RecordSearch], rows: Sequence[Sequence[Any]]) -> list[RecordHits]:
    """Return the hits of each search from the rows of its query."""
    found = [_SearchMatches() for _ in searches]
    for number, part, letter, id_, score, words in rows:
        found[number].take(part, letter, id_, score, words)
    return [each.hits(one) for each, one in zip(found, searches, strict=True)]


class _SearchMatches:
    """The matches of one search."""

    def __init__(self) -> None:
        self._texts: list[tuple[KindCode, str, Counter[str]]] = []
        self._vectors: list[ScoredRecord] = []
        self._holders: Counter[str] = Counter()
        self._documents = 0

    def take(self, part: str, letter: KindCode, id_: str, score: float, words: str) -> None:
        if part == "text":
            self._texts.append((letter, id_, Counter(words.split())))
        elif part == "vector":
            self._vectors.append(ScoredRecord(id_, letter, score))
        elif part == "holders":
            self._holders[id_] += int(score)
        else:
            self._documents += int(score or 0)

    def hits(self, search: RecordSearch) -> RecordHits:
        texts = self._ranked(index_words(search.terms).split()) if self._texts else []
        return RecordHits(*(_best(found, search.candidates) for found in (texts, self._vectors)))

    def _ranked(self, words: Sequence[str]) -> list[ScoredRecord]:
        lengths = np.array([counts.total() for _, _, counts in self._texts], dtype=np.float64)
        scores = np.zeros(len(self._texts))
        for word in words:
            frequencies = np.array([counts[word] for _, _, counts in self._texts], dtype=np.float64)
            # No deletion can happen between the parts of a query; but a record may be missing if its index lags behind.
            rare = inverse_document_frequency(max(self._documents, self._holders[word]), self._holders[word])
            scores += rare * term_score(frequencies, lengths, float(lengths.mean()))
        return [
            ScoredRecord(id_, letter, float(score)) for (letter, id_, _), score in zip(self._texts, scores, strict=True)
        ]


def _vector(search: RecordSearch, dimension: int) -> str | None:
    if search.vector is None or not dimension:
        return None
    if search.vector.shape != (dimension,):
        raise InvalidError("vector", f"shape {search.vector.shape}", f"this graph takes vectors of {dimension} numbers")
    return vector_text(search.vector)


def _parameters(number: int, search: RecordSearch, vector: str | None) -> dict[str, Any]:
    parameters: dict[str, Any] = {
        "any": any_word_query(search.terms),
        "words": index_words(search.terms).split(),
        "pool": _POOL * search.candidates,
        "vector": vector,
        "most": search.candidates,
        "within": None if search.session is None else session_property(search.session),
        "since": UNKNOWN_START if search.since is None else search.since,
        "until": LATEST if search.until is None else search.until,
    }
    return {f"{name}{number}": value for name, value in parameters.items()}


def _best(found: Sequence[ScoredRecord], candidates: int) -> list[ScoredRecord]:
    return sorted(found, key=lambda one: (-one.score, one.id))[:candidates]


class BreadthFirstWalk:
    """Follows edges from some entities, step by step.

    Args:
        starts: ids of the first entities.
        when: the versions that held then are followed.
        fan_out: most edges of one entity that are followed.
        limit: edges in all.
    """

    def __init__(self, starts: Sequence[str], when: BitemporalPoint, *, fan_out: int, limit: int) -> None:
        self.level = list(dict.fromkeys(starts))
        """The entities from which the next step starts."""
        self._when = when
        self._fan_out = fan_out
        self._limit = limit
        self._distances = dict.fromkeys(self.level, 0)
        self._walked: dict[str, tuple[int, Edge]] = {}
        self._truncated = False

    @property
    def walked(self) -> WalkResult:
        """The edges of the walk, nearest first; each edge once."""
        return WalkResult(sorted(self._walked.values(), key=lambda each: each[0]), self._truncated)

    def step(self, rows: Sequence[Sequence[Any]]) -> None:
        """Take a step along the edges of the level, newest first for each entity, one more of each than it follows."""
        by_entity: dict[str, list[Edge]] = {entity: [] for entity in self.level}
        for edge in parse_edges(rows, self._when):
            by_entity[edge.entity].append(edge)
        self._truncated |= any(len(edges) > self._fan_out for edges in by_entity.values())
        fresh = [edge for edges in by_entity.values() for edge in edges[: self._fan_out]]
        self.level = [entity for edge in fresh for entity in self._take(edge)]
        if len(self._walked) >= self._limit:
            self.level = []

    def _take(self, edge: Edge) -> Iterator[str]:
        """Yield the entity at the end of an edge, if it was not reached before."""
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


def parse_edges(rows: Sequence[Sequence[Any]], when: BitemporalPoint | None) -> list[Edge]:
    """Return the edges of rows (entity, fact, type, source, target, versions).

    Each edge has the version that held at `when`; without `when` all of them, newest knowledge first.
    """
    return [edge for row in rows for edge in _matching_versions(row, when)]


def _matching_versions(row: Sequence[Any], when: BitemporalPoint | None) -> Iterator[Edge]:
    entity, fact, type_, source, target, numbers = row
    forward = source == entity
    other = target if forward else source
    for version in reversed(parse_versions(numbers)):
        if when is None or version.holds(when.world, when.known):
            yield Edge(entity, other, forward, type_, fact, version)


_REMEMBERED_MS = 120_000
"""How long, beyond the time of retries, a commit is remembered, to recognise one that was sent twice."""
_ATTRIBUTES = "@"
_PLACE_DIGITS = len(str(PLACE_LIMIT))


class FalkorBackend:
    """The graphs of one namespace, stored by the FalkorDB module of the hub's server.

    A group is a graph at `$graph.falkor:<group>` in the slot of its namespace: a query of it cannot reach another
    group, its indexes hold it alone, and deleting it is one command. A small graph takes about 0.6 MB, and its first
    commit some 60 round trips, which create its indexes (`beginning`).

    With a session or time filter, vectors are searched exactly, among the records that match; else by HNSW. Words are
    ranked by BM25 among the records that the module ranks first, with their average length. A hub with 50,000 facts is
    scanned at each step (about 50 ms), in a thread of the module and not in that of the server.

    This backend lacks two abilities of the Redis backend: the durable tier does not get its records (the server's own
    persistence stores them), and its commits are not on the change stream of the namespace.

    The module stores the last queries of a graph, with their parameters, in a stream `telemetry{<key>}`, which is
    deleted with the graph; `GRAPH.CONFIG SET CMD_INFO no` disables that, and the embedded server starts so.

    Args:
        context: dependencies that the hub shares with its stores.
        namespace: namespace of the graphs.

    Raises:
        UnsupportedError: the client is not installed.
    """

    name = "falkordb"

    def __init__(self, context: KnowledgeContext, namespace: str) -> None:
        self._clock = context.clock
        self._asker = FalkorClient(context.client)
        self._dimension = context.embedder.dimension if context.embedder is not None else 0
        self._beginning = GroupCreation(
            self._asker,
            context.client,
            GraphScripts(context.executor),
            keyspace=context.keyspace,
            namespace=namespace,
            clock=context.clock,
            dimension=self._dimension,
        )
        self._patience_ms = context.settings.search_timeout_ms
        self._keep_ms = round(context.settings.retry_for_s * 1000) + _REMEMBERED_MS

    async def look(self, group: str, wanted: LookupRequest) -> LookupResult:
        """See `GraphBackend.look`. One round trip."""
        parameters: dict[str, Any] = {name: list(getattr(wanted, name)) for name in _LOOKUP_FIELDS}
        seen = LookupResult(0, claims=dict.fromkeys(wanted.lines, ()))
        for kind, id_, number, row, more in await self._read(group, falkordb_queries.LOOK, parameters):
            _TAKE[kind](seen, id_, number, row, more)
        return seen

    async def commit(self, group: str, changes: CommitRequest, *, seen: int) -> CommitReceipt | StaleGroup:
        """See `GraphBackend.commit`. One round trip; two when it is behind, some 60 when the group is new."""
        key, token = self._key(group), new_id()
        now = to_stamp("now", self._clock.now())
        parameters = {**commit_parameters(changes, now=now), "token": token, "keep": self._keep_ms}
        if not seen:
            seen = await self._beginning.begin(group)
        written = await self._asker.write(key, falkordb_queries.COMMIT, {**parameters, "seen": seen})
        return _commit_receipt(*written[0]) if written else await self._verdict(group, token, parameters["turns"])

    async def search(
        self,
        group: str,
        searches: Sequence[RecordSearch],
        *,
        seen: int = 0,  # noqa: ARG002  # the protocol's; this backend has no durable tier
    ) -> list[RecordHits]:
        """See `GraphBackend.search`. One round trip for all; none without searches."""
        asked = build_query(searches, self._dimension)
        rows = await self._read(group, asked.query, asked.parameters, patient=False) if asked is not None else []
        return parse_hits(searches, rows)

    async def walk(
        self, group: str, starts: Sequence[str], *, when: BitemporalPoint, depth: int, fan_out: int, limit: int
    ) -> WalkResult:
        """See `GraphBackend.walk`. One round trip a step. Attributes are not followed, since they have no other end."""
        walk = BreadthFirstWalk(starts, when, fan_out=fan_out, limit=limit)
        query = falkordb_queries.WALK_THEN if when.is_past_knowledge else falkordb_queries.WALK_NOW
        for _ in range(depth):
            if not walk.level:
                break
            parameters = {"at": walk.level, "most": fan_out + 1, **_times(when)}
            walk.step(await self._read(group, query, parameters, patient=False))
        return walk.walked

    async def edges(
        self, group: str, entity: str, *, when: BitemporalPoint | None, limit: int, types: Sequence[str] = ()
    ) -> list[Edge]:
        """See `GraphBackend.edges`. One round trip."""
        query = falkordb_queries.EDGES_EVER
        if when is not None:
            query = falkordb_queries.EDGES_THEN if when.is_past_knowledge else falkordb_queries.EDGES_NOW
        parameters = {"entity": entity, "types": list(types), "attributes": _ATTRIBUTES in types, "most": limit}
        rows = await self._read(group, query, {**parameters, **_times(when)}, patient=False)
        return parse_edges(rows, when)[:limit]

    async def listed(
        self, group: str, kind: str, *, after: str = "", limit: int = 100, session: str | None = None
    ) -> tuple[list[str], str]:
        """See `GraphBackend.listed`. One round trip; for facts at least two."""
        if kind == "fact":
            return await self._listed_facts(group, after, limit)
        if kind not in falkordb_queries.LISTED:
            raise InvalidError("kind", kind, f"give one of {', '.join((*falkordb_queries.LISTED, 'fact'))}")
        parameters = {"within": None if session is None else session_property(session)}
        return await self._page(group, falkordb_queries.LISTED[kind], parameters, after, limit)

    async def lines_of(
        self, group: str, entities: Sequence[str], *, after: str = "", limit: int = 1000
    ) -> tuple[list[str], str]:
        """See `GraphBackend.lines_of`. One round trip."""
        return await self._page(group, falkordb_queries.LINES_OF, {"said": list(entities)}, after, limit)

    async def names_of(self, group: str, entity: str, *, after: str = "", limit: int = 1000) -> tuple[list[str], str]:
        """See `GraphBackend.names_of`. One round trip."""
        return await self._page(group, falkordb_queries.NAMES_OF, {"entity": entity}, after, limit)

    async def merges(self, group: str) -> list[bytes]:
        """See `GraphBackend.merges`. One round trip."""
        return [row.encode() for (row,) in await self._read(group, falkordb_queries.MERGES, {})]

    async def stats(self, group: str) -> GraphStats:
        """See `GraphBackend.stats`. One round trip."""
        count = await self._counted(group)
        return GraphStats(
            group_id=group,
            episodes=count["episodes"],
            summaries=count["summaries"],
            entities=count["entities"] - count["merged"],
            facts=count["facts"] - count["lapsed"],
            past_facts=count["past"] + count["lapsed"],
            merges=count["merges"],
        )

    async def strays(self, group: str) -> AsyncIterator[list[IndexDiscrepancy]]:  # noqa: ARG002  # the protocol's
        """Yield nothing: entries beside a record are relations of the graph, which the same query writes."""
        for page in list[list[IndexDiscrepancy]]():
            yield page

    async def mend(self, group: str, strays: Sequence[IndexDiscrepancy]) -> None:
        """Do nothing, as there are no strays."""

    async def groups(self) -> list[str]:
        """See `GraphBackend.groups`. Two round trips, each of which lists all graphs of the server.

        FalkorDB removes a deleted graph from its list later, in another thread, and moves the last graph to its place:
        a list that is read in that moment lacks the latter. The second list has it.
        """
        head = self._key("")
        listed = {*await self._asker.keys(head), *await self._asker.keys(head)}
        return sorted(key.removeprefix(head).decode() for key in listed if key.startswith(head))

    async def delete(self, group: str, *, progress: GraphProgress | None = None) -> int:
        """See `GraphBackend.delete`. Two round trips. A later commit based on an earlier read is `StaleGroup`."""
        counts = await self._counted(group)
        count = sum(counts[what] for what in ("episodes", "summaries", "statements", "entities", "facts", "past"))
        await self._asker.delete(self._key(group))
        if progress is not None:
            progress(count, count)
        return count

    async def close(self) -> None:
        """Do nothing: the connections are the hub's."""

    def _key(self, group: str) -> bytes:
        return self._beginning.key(group)

    async def _read(
        self, group: str, query: str, parameters: dict[str, Any], *, patient: bool = True
    ) -> list[list[Any]]:
        timeout_ms = None if patient else self._patience_ms
        return await self._asker.read(self._key(group), query, parameters, timeout_ms=timeout_ms)

    async def _counted(self, group: str) -> Counter[str]:
        now = to_stamp("now", self._clock.now())
        rows = await self._read(group, falkordb_queries.STATS, {"now": now})
        return Counter(
            {what: number or 0 for row in rows for what, number in zip(falkordb_queries.COUNTS, row, strict=True)}
        )

    async def _listed_facts(self, group: str, after: str, limit: int) -> tuple[list[str], str]:
        """Return a page of facts by their places; it reads about as many places as requested facts."""
        counts = await self._read(group, falkordb_queries.COUNTED_FACTS, {})
        count = sum(number or 0 for row in counts for number in row)
        low, last = _place_of(after)
        width = PLACE_LIMIT * (limit + 1) // max(1, count)
        found: list[list[Any]] = []
        while count and low < PLACE_LIMIT and len(found) <= limit:
            # One more: the first may be the last of the page before.
            parameters = {"low": low, "high": low + width, "most": limit + 2}
            rows = await self._read(group, falkordb_queries.LISTED_FACTS, parameters)
            found += [row for row in sorted(rows) if row > [low, last]]
            low, last, width = low + width, "", 2 * width
        place, id_ = found[limit - 1] if len(found) > limit else (0, "")
        return [id_ for _, id_ in found[:limit]], f"{place:0{_PLACE_DIGITS}d}{id_}" if id_ else ""

    async def _verdict(self, group: str, token: str, turns: list[Any]) -> CommitReceipt | StaleGroup:
        """Return why nothing was written: a repeated commit was written before, or something has changed."""
        rows = await self._read(group, falkordb_queries.VERDICT, {"token": token, "turns": turns})
        born, version, counted = rows[0] if rows else (None, None, [])
        if version is not None:
            return _commit_receipt(version, counted)
        if born is None:
            await self._beginning.clear(group)
        return StaleGroup()

    async def _page(
        self, group: str, query: str, parameters: dict[str, Any], after: str, limit: int
    ) -> tuple[list[str], str]:
        """Return a page of (id, place), and the place after which the next one begins."""
        rows = await self._read(group, query, {**parameters, "after": after, "most": limit + 1})
        return [id_ for id_, _ in rows[:limit]], rows[limit - 1][1] if len(rows) > limit else ""


def _commit_receipt(version: int, turns: list[list[Any]]) -> CommitReceipt:
    return CommitReceipt(version, tuple((session, count) for session, count in turns))


def _place_of(after: str) -> tuple[int, str]:
    """Return the place of the last fact of a page, and its id."""
    if not after:
        return 0, ""
    place = after[:_PLACE_DIGITS]
    if not place.isdecimal():
        raise InvalidError("after", after, "give the cursor of the page before")
    return int(place), after[_PLACE_DIGITS:]


def _times(when: BitemporalPoint | None) -> dict[str, int]:
    return {} if when is None else {"world": when.world, "known": when.known}


def _take_name(seen: LookupResult, id_: str, _number: int, row: str, more: list[str]) -> None:
    seen.owners[id_], seen.names[id_] = row, more[0]


def _take_line(seen: LookupResult, id_: str, _number: int, _row: str, more: list[str]) -> None:
    claims = map(parse_claim, more)
    seen.claims[id_] = tuple(sorted(claims, key=lambda claim: (claim.episode, claim.number)))


def _take_version(seen: LookupResult, _id: str, number: int, _row: str, _more: list[str]) -> None:
    seen.version = number


def _take_into(seen: LookupResult, id_: str, _number: int, row: str, _more: list[str]) -> None:
    seen.into[id_] = row


def _take_episode(seen: LookupResult, id_: str, number: int, row: str, more: list[str]) -> None:
    seen.episodes[id_] = parse_episode(id_, row, number, more)


def _take_entity(seen: LookupResult, id_: str, number: int, row: str, _more: list[str]) -> None:
    seen.entities[id_] = parse_entity(id_, row, number)


def _take_fact(seen: LookupResult, id_: str, number: int, row: str, _more: list[str]) -> None:
    seen.facts[id_] = parse_fact(id_, row, number)


_LOOKUP_FIELDS = ("names", "lines", "episodes", "entities", "facts")
_TAKE: dict[str, Callable[[LookupResult, str, int, str, list[str]], None]] = {
    "version": _take_version,
    "name": _take_name,
    "line": _take_line,
    "into": _take_into,
    "episode": _take_episode,
    "entity": _take_entity,
    "fact": _take_fact,
}
