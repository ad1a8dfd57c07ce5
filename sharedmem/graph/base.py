"""Shared base of the graph facade: rights, backend, point in time, and lookup of entities by name or id."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from sharedmem.errors import InvalidError, NotFoundError
from sharedmem.graph.bitemporal.relations import Vocabulary
from sharedmem.graph.extraction.protocol import Extractor
from sharedmem.graph.protocol import GraphBackend
from sharedmem.graph.records import (
    ATTRIBUTE_PREFIX,
    GRAPH,
    LATEST,
    BitemporalPoint,
    Edge,
    EntityRow,
    FactRow,
    LookupRequest,
    attribute_values,
    to_entity,
    to_fact,
    to_stamp,
)
from sharedmem.graph.resolution.names import LONGEST_NAME, check_encodable, check_group, normalize_name
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.models import Entity, Episode, Fact
from sharedmem.redis.keys import SHARED_SCOPE
from sharedmem.redis.scope import EVERYONE, Need, Scope
from sharedmem.runtime import Counters
from sharedmem.runtime.process_bound import ProcessBound


@dataclass(frozen=True)
class IngestRules:
    """By what rules a graph takes in what it is told."""

    vocabulary: Vocabulary
    extractor: Extractor


class GraphBase(ProcessBound):
    """The graphs of one namespace, seen with the rights of one actor.

    Args:
        context: what the hub shares with its stores.
        scope: hands out keys within the actor's rights.
        backend: keeps the graphs.
        ways: vocabulary and extractor.
    """

    def __init__(
        self,
        context: KnowledgeContext,
        scope: Scope,
        backend: GraphBackend,
        ways: IngestRules,
    ) -> None:
        self._context = context
        self._scope = scope
        self._backend = backend
        self._ways = ways
        self._namespace = scope.identity.namespace
        self._actor = scope.signature

    @property
    def _counters(self) -> Counters:
        return self._context.counters

    def _signed(self, episode: Episode) -> Episode:
        """An episode with its author; only the namespace itself may say that it was another one."""
        actor = self._scope.identity.actor
        return episode.model_copy(update={"created_by": actor or episode.created_by or SHARED_SCOPE})

    def _check_author(self, episode: Episode) -> None:
        """Refuse who may not change or take back what an episode says.

        Raises:
            AccessDeniedError: another actor has told it, and `memory_rights` is `owner`.
        """
        self._scope.check_author(episode.created_by, GRAPH, episode.id)

    def _check_everyone(self, name: str) -> None:
        """Refuse who may not change what anybody has told.

        Raises:
            AccessDeniedError: `memory_rights` is `owner`, and this actor owns its own alone.
        """
        self._scope.check_author(EVERYONE, GRAPH, name)

    async def _enter(self, group_id: str, need: Need) -> str:
        """The group, if it is one and this actor may read or write the namespace's graphs.

        Then Redis has all graphs: where it was lost they come back from the durable tier first.

        Raises:
            InvalidError: it is no group.
            AccessDeniedError: this actor.
            UnavailableError: they are not all in Redis, and the tier cannot be asked.
        """
        self._scope.common(GRAPH, need)
        group = check_group(group_id)
        await self._gather()
        return group

    async def _gather(self) -> None:
        """Let all graphs be in Redis.

        Raises:
            UnavailableError: they are not, and the tier cannot be asked.
        """
        if self._context.memory_tier is not None:
            await self._context.memory_tier.gather(self._namespace)

    def _when(self, as_of: datetime | None, known_at: datetime | None) -> BitemporalPoint:
        """Of which time is asked; now where nothing is said."""
        world = to_stamp("as_of", as_of if as_of is not None else self._context.clock.now())
        return BitemporalPoint(world, LATEST if known_at is None else to_stamp("known_at", known_at))


def check_limit(limit: int, most: int) -> int:
    """How many are wanted.

    Raises:
        InvalidError: none, or too many for one answer.
    """
    if not isinstance(limit, int) or not 1 <= limit <= most:
        raise InvalidError("limit", limit, f"ask for 1 to {most}")
    return limit


T = TypeVar("T")
MOST_ATTRIBUTES = 1000
"""Of one entity that are answered."""


class Page(list[T], Generic[T]):
    """One page of a listing.

    Attributes:
        cursor: pass it as `after` to get the next page; empty after the last one.
    """

    def __init__(self, items: Iterable[T] = (), *, cursor: str) -> None:
        super().__init__(items)
        self.cursor = cursor

    def __repr__(self) -> str:
        return f"<{len(self)} of a page{', more behind it' if self.cursor else ''}>"


class EntityLookup(GraphBase):
    """Finds out what is meant, and fetches it."""

    async def _find_entity_ids(self, group: str, named: Sequence[str]) -> list[str]:
        """The ids of the entities that are meant by names or ids, followed to what they were merged into.

        One round trip.

        Raises:
            InvalidError: it can be no name.
            NotFoundError: the group knows nobody of that name or id.
        """
        names = [_check_reference(name) for name in named]
        normals = [normalize_name(name) for name in names]
        seen = await self._backend.look(group, LookupRequest(names=tuple(filter(None, normals)), entities=tuple(names)))
        found = []
        for name, normal in zip(names, normals, strict=True):
            # An id comes first: a name could be spelled like one.
            id_ = seen.into.get(name, name) if name in seen.entities else seen.names.get(normal)
            if id_ is None:
                raise NotFoundError("entity", name, f"no episode of group {group!r} has named it")
            found.append(id_)
        return found

    async def _fact_rows(self, group: str, edges: Iterable[Edge]) -> dict[str, FactRow]:
        """The facts of some edges. One round trip; none where there are no edges."""
        ids = tuple(dict.fromkeys(edge.fact for edge in edges))
        return (await self._backend.look(group, LookupRequest(facts=ids))).facts if ids else {}

    async def _entities(self, group: str, rows: Sequence[EntityRow], when: BitemporalPoint) -> list[Entity]:
        """Entities with their attributes at a time. Two round trips for all of them together."""
        attributes = await asyncio.gather(*(self._attribute_edges(group, row.id, when) for row in rows))
        facts = await self._fact_rows(group, [edge for edges in attributes for edge in edges])
        return [
            to_entity(row, group, attribute_values([facts[edge.fact] for edge in edges if edge.fact in facts], when))
            for row, edges in zip(rows, attributes, strict=True)
        ]

    async def _attribute_edges(self, group: str, entity: str, when: BitemporalPoint) -> list[Edge]:
        return await self._backend.edges(group, entity, when=when, limit=MOST_ATTRIBUTES, types=(ATTRIBUTE_PREFIX,))


def facts_of_edges(edges: Iterable[Edge], rows: dict[str, FactRow], group: str) -> list[Fact]:
    """The facts of some edges, each version once, in their order; those are left out that have gone meanwhile."""
    distinct = dict.fromkeys((edge.fact, edge.version) for edge in edges)
    return [to_fact(rows[id_], version, group) for id_, version in distinct if id_ in rows]


def _check_reference(name: Any) -> str:
    if not isinstance(name, str) or not name.strip() or len(name) > LONGEST_NAME:
        raise InvalidError("entity", name, f"give its name or its id, within {LONGEST_NAME} characters")
    return check_encodable("entity", " ".join(name.split()))
