"""Common parts of the calls on a graph: rights, the group, the point in time, named entities, and commits.

A commit has embeddings of texts, is repeated on a conflict, and is split into batches if it is large.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain, islice
from typing import Any, Generic, TypeVar

import orjson

from sharedmem.errors import ConflictError, InvalidError, NotFoundError, SharedMemoryError
from sharedmem.graph.entity_versions import entity_at
from sharedmem.graph.names import LONGEST_NAME, check_encodable, check_group, entity_id, normalize_name
from sharedmem.graph.protocol import Extractor, GraphBackend
from sharedmem.graph.records import (
    ATTRIBUTE_PREFIX,
    LATEST,
    BitemporalPoint,
    CommitRequest,
    Edge,
    EntityRow,
    EpisodeRow,
    FactRow,
    LookupRequest,
    Row,
    StaleGroup,
    attribute_values,
    to_fact,
    to_stamp,
)
from sharedmem.graph.relations import Vocabulary
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.models import Entity, Episode, Fact
from sharedmem.redis.keys import SHARED_SCOPE
from sharedmem.redis.scope import EVERYONE, Need, Scope
from sharedmem.redis.scripts.knowledge import GRAPH_FAMILY
from sharedmem.redis.vectors import Vector, to_half

T = TypeVar("T")
MOST_ATTRIBUTES = 1000
"""Most facts of one entity in a result."""


@dataclass(frozen=True)
class IngestRules:
    """How a graph ingests episodes: its relation types, and the extractor of entities and facts."""

    vocabulary: Vocabulary
    extractor: Extractor


class GraphAccess:
    """The rights of one actor on the graphs of one namespace.

    Args:
        context: dependencies that the hub shares with its stores.
        scope: scope of the actor.
    """

    def __init__(self, context: KnowledgeContext, scope: Scope) -> None:
        self.namespace = scope.identity.namespace
        self.actor_name = scope.identity.name
        """The actor, as logs and statements name it."""
        self.signature = scope.signature
        """The bytes with which the actor signs changes."""
        self._scope = scope
        self._tier = context.record_tier
        self._clock = context.clock

    async def enter(self, group_id: str, need: Need) -> str:
        """Check that this actor may read or write the group, and that Redis has all records of the namespace.

        If Redis was emptied, they are restored from the durable tier first.

        Raises:
            InvalidError: the group is invalid.
            AccessDeniedError: this actor lacks the right.
            UnavailableError: records are missing, and the durable tier cannot be reached.
        """
        self._scope.common(GRAPH_FAMILY, need)
        group = check_group(group_id)
        await self._tier.gather(self.namespace)
        return group

    async def enter_namespace(self) -> None:
        """Run the checks of `enter` for a read that covers all groups.

        Raises:
            AccessDeniedError, UnavailableError: as `enter`.
        """
        self._scope.common(GRAPH_FAMILY, "read")
        await self._tier.gather(self.namespace)

    def sign(self, episode: Episode) -> Episode:
        """Return an episode with its author; only the namespace's own actor may name another one."""
        actor = self._scope.identity.actor
        return episode.model_copy(update={"created_by": actor or episode.created_by or SHARED_SCOPE})

    def check_author(self, episode: Episode) -> None:
        """Reject an actor that may not change or undo an episode.

        Raises:
            AccessDeniedError: another actor is its author, and `memory_rights` is `owner`.
        """
        self._scope.check_author(episode.created_by, GRAPH_FAMILY, episode.id)

    def check_everyone(self, name: str) -> None:
        """Reject an actor that may not change what any actor has written.

        Raises:
            AccessDeniedError: `memory_rights` is `owner`, so this actor may change only its own episodes.
        """
        self._scope.check_author(EVERYONE, GRAPH_FAMILY, name)

    def may_change_everything(self) -> bool:
        """Return whether this actor may change what any actor has written."""
        return self._scope.identity.may_change(EVERYONE, GRAPH_FAMILY)

    def point_in_time(self, as_of: datetime | None, known_at: datetime | None) -> BitemporalPoint:
        """Return the point in both times of a call; by default now, as known now.

        Raises:
            InvalidError: a moment has no time zone.
        """
        world = to_stamp("as_of", as_of if as_of is not None else self._clock.now())
        known = LATEST if known_at is None else to_stamp("known_at", known_at)
        return BitemporalPoint(world, known, is_present=as_of is None and known_at is None)


def check_limit(limit: int, most: int) -> int:
    """Return a checked number of items.

    Raises:
        InvalidError: the limit is not a number from 1 to `most`.
    """
    if not isinstance(limit, int) or not 1 <= limit <= most:
        raise InvalidError("limit", limit, f"give a number from 1 to {most}")
    return limit


class Page(list[T], Generic[T]):
    """One page of a listing.

    Attributes:
        cursor: pass it as `after` to get the next page; empty after the last one.
    """

    def __init__(self, items: Iterable[T] = (), *, cursor: str) -> None:
        super().__init__(items)
        self.cursor = cursor

    def __repr__(self) -> str:
        return f"<{len(self)} of a page{', more follow' if self.cursor else ''}>"


class EntityLookup:
    """Finds entities by name or id, and reads them with their attributes.

    Args:
        backend: stores the graphs.
    """

    def __init__(self, backend: GraphBackend) -> None:
        self._backend = backend

    async def find_ids(self, group: str, named: Sequence[str]) -> list[str]:
        """Return the ids of entities by names or ids, after merges.

        One round trip.

        Raises:
            InvalidError: a name or id is invalid.
            NotFoundError: the group has no entity with that name or id.
        """
        names = [_check_reference(name) for name in named]
        normals = [normalize_name(name) for name in names]
        seen = await self._backend.look(group, LookupRequest(names=tuple(filter(None, normals)), entities=tuple(names)))
        found = []
        for name, normal in zip(names, normals, strict=True):
            # An id comes first: a name could look like one.
            id_ = seen.into.get(name, name) if name in seen.entities else seen.names.get(normal)
            if id_ is None:
                raise NotFoundError("entity", name, f"no episode of group {group!r} names it")
            found.append(id_)
        return found

    async def own_row(self, group: str, named: str) -> EntityRow:
        """Return the entity of a name or id itself, also if it was merged. One round trip; two for an alias.

        Raises:
            InvalidError: the name or id is invalid.
            NotFoundError: the group has no entity with that name or id.
        """
        name = _check_reference(named)
        normal = normalize_name(name)
        own = entity_id(normal) if normal else name
        wanted = LookupRequest(names=(normal,) if normal else (), entities=tuple(dict.fromkeys((name, own))))
        seen = await self._backend.look(group, wanted)
        id_ = name if name in seen.entities else seen.owners.get(normal, "")
        if id_ and id_ not in seen.entities:
            seen = await self._backend.look(group, LookupRequest(entities=(id_,)))
        if id_ not in seen.entities:
            raise NotFoundError("entity", name, f"no episode of group {group!r} names it")
        return seen.entities[id_]

    async def fact_rows(self, group: str, edges: Iterable[Edge]) -> dict[str, FactRow]:
        """Return the facts of some edges. One round trip; none without edges."""
        ids = tuple(dict.fromkeys(edge.fact for edge in edges))
        return (await self._backend.look(group, LookupRequest(facts=ids))).facts if ids else {}

    async def entities(self, group: str, rows: Sequence[EntityRow], when: BitemporalPoint) -> list[Entity]:
        """Return entities with their attributes at a time. Two round trips for all of them together."""
        attributes = await asyncio.gather(*(self._attribute_edges(group, row.id, when) for row in rows))
        facts = await self.fact_rows(group, [edge for edges in attributes for edge in edges])
        return [
            entity_at(
                row, group, when, attribute_values([facts[edge.fact] for edge in edges if edge.fact in facts], when)
            )
            for row, edges in zip(rows, attributes, strict=True)
        ]

    async def _attribute_edges(self, group: str, entity: str, when: BitemporalPoint) -> list[Edge]:
        return await self._backend.edges(group, entity, when=when, limit=MOST_ATTRIBUTES, types=(ATTRIBUTE_PREFIX,))


def facts_of_edges(edges: Iterable[Edge], rows: dict[str, FactRow], group: str) -> list[Fact]:
    """Return the facts of some edges, each version once, in their order; facts deleted meanwhile are left out."""
    distinct = dict.fromkeys((edge.fact, edge.version) for edge in edges)
    return [to_fact(rows[id_], version, group) for id_, version in distinct if id_ in rows]


def _check_reference(name: Any) -> str:
    if not isinstance(name, str) or not name.strip() or len(name) > LONGEST_NAME:
        raise InvalidError("entity", name, f"give its name or its id, within {LONGEST_NAME} characters")
    return check_encodable("entity", " ".join(name.split()))


# -- commits -------------------------------------------------------------------------------------


class TextEmbeddings:
    """Embeddings of texts, as far as an embedder is available.

    Args:
        context: dependencies that the hub shares with its stores.
        namespace: namespace of the texts.
    """

    def __init__(self, context: KnowledgeContext, namespace: str) -> None:
        self._counters = context.counters
        self._embedder = context.embedder_of(namespace)

    async def of(self, texts: Iterable[str]) -> dict[str, Vector]:
        """Return unit vectors of some texts; texts without a meaning for the embedder are left out.

        Never fails: a text without a vector is found by its words. Failures are counted as `graph_unembedded`.
        """
        wanted = [text for text in dict.fromkeys(texts) if text.strip()]
        if self._embedder is None or not wanted:
            return {}
        try:
            embeddings = await self._embedder.embed(wanted)
        except SharedMemoryError:
            self._counters.add("graph_unembedded", len(wanted))
            return {}
        pairs = zip(wanted, embeddings.vectors, strict=True)
        return {text: vector for text, vector in pairs if vector.any()}

    async def halves(self, texts: Iterable[str]) -> dict[str, bytes]:
        """Return vectors as `of` does, in half precision, as Redis stores them."""
        return {text: to_half(vector) for text, vector in (await self.of(texts)).items()}


_MOST_TRIES = 200


class CommitRetries:
    """Turns of the tasks of one hub that change the same group: without turns they would only collide."""

    def __init__(self, context: KnowledgeContext) -> None:
        self._context = context
        self._locks: dict[str, asyncio.Lock] = {}
        self._users: dict[str, int] = {}

    @classmethod
    def of(cls, context: KnowledgeContext, namespace: str) -> CommitRetries:
        """Return the instance that all stores of a namespace share in this hub."""
        return context.shared(cls, namespace, lambda: cls(context))

    async def until_written(self, group: str, attempt: Callable[[], Awaitable[T | StaleGroup]]) -> T:
        """Repeat an attempt until no other writer was faster; return its result.

        Args:
            group: the group that is changed.
            attempt: reads, decides and commits; returns `StaleGroup` if it must read again.

        Raises:
            ConflictError: other writers were faster too often.
        """
        async with self._turn(group):
            outcome = await attempt()
            return await self._retry(group, attempt) if isinstance(outcome, StaleGroup) else outcome

    async def _retry(self, group: str, attempt: Callable[[], Awaitable[T | StaleGroup]]) -> T:
        # The first retry at once: the faster writer is done by now.
        for pause in chain((0.0,), islice(self._context.client.pauses(), _MOST_TRIES - 1)):
            self._context.counters.increment("graph_conflicts")
            await self._context.clock.sleep(pause)
            outcome = await attempt()
            if not isinstance(outcome, StaleGroup):
                return outcome
        advice = f"other writers keep changing the same entities of group {group!r}; try again later"
        raise ConflictError(advice)

    @asynccontextmanager
    async def _turn(self, group: str) -> AsyncIterator[None]:
        lock = self._locks.setdefault(group, asyncio.Lock())
        self._users[group] = self._users.get(group, 0) + 1
        try:
            async with lock:
                yield
        finally:
            self._users[group] -= 1
            if not self._users[group]:
                del self._locks[group], self._users[group]


RECORDS_AT_ONCE = 400
"""Records that one commit of a larger step writes."""


def with_stored_vector(row: FactRow, held: FactRow | None) -> FactRow:
    """Return a new state of a fact with the version and the vector of the stored one."""
    return row if held is None else replace(row, version=held.version, vector=held.vector)


def body_with_facts(row: EpisodeRow, *, ended: set[str], come: Iterable[str]) -> bytes:
    """Return the body of an episode with the ids of the facts that follow from it now."""
    body = orjson.loads(row.body)
    before = body.get("fact_ids", [])
    fresh = [id_ for id_ in come if id_ not in before]
    if ended.isdisjoint(before) and not fresh:
        return row.body
    body["fact_ids"] = [*(id_ for id_ in before if id_ not in ended), *fresh]
    return orjson.dumps(body)


def split_commit(changes: CommitRequest) -> list[CommitRequest]:
    """Return the changes in parts that one commit may write: the episodes first, then the facts."""
    former = {(type(row), row.id): row for row in changes.former}
    left: list[Row] = [*changes.episodes, *changes.facts]
    taken = {(type(row), row.id) for row in left}
    removed = [row for key, row in former.items() if key not in taken]
    every = [*left, *removed]
    return [
        replace(
            changes,
            episodes=tuple(row for row in some if isinstance(row, EpisodeRow)),
            facts=tuple(row for row in some if isinstance(row, FactRow) and (FactRow, row.id) in taken),
            former=tuple(former[type(row), row.id] for row in some if (type(row), row.id) in former),
        )
        for some in (every[first : first + RECORDS_AT_ONCE] for first in range(0, len(every), RECORDS_AT_ONCE))
    ]


class BatchedCommits:
    """Writes steps of any size.

    Args:
        backend: stores the graph.
        meanings: vectors for new facts.
    """

    def __init__(self, backend: GraphBackend, meanings: TextEmbeddings) -> None:
        self._backend = backend
        self._meanings = meanings

    async def write(
        self, group: str, changes: CommitRequest, former: Mapping[str, FactRow], *, seen: int
    ) -> bool | StaleGroup:
        """Write a step. After an interruption between two commits, a repeated step finds what is left to do.

        Args:
            group: group of the graph.
            changes: the episodes and facts.
            former: the stored facts by id, so that vectors are made only for new ones.
            seen: a version that includes everything that was read.

        Raises:
            UnavailableError: the server cannot be reached.
        """
        embedded = await self._embedded(changes, former)
        for piece in split_commit(embedded):
            outcome = await self._backend.commit(group, piece, seen=seen)
            if isinstance(outcome, StaleGroup):
                return outcome
            # No other writer was in between: otherwise this part would have found its lines changed.
            seen = outcome.version
        return True

    async def _embedded(self, changes: CommitRequest, former: Mapping[str, FactRow]) -> CommitRequest:
        fresh = [row.text for row in changes.facts if row.id not in former]
        halves = await self._meanings.halves(fresh)
        facts = tuple(row if row.id in former else replace(row, vector=halves.get(row.text)) for row in changes.facts)
        return replace(changes, facts=facts)
