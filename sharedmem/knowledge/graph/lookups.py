"""Looking things up: who is meant by a name or an id, and the rows of what others have found."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar

from sharedmem.errors import InvalidError, NotFoundError
from sharedmem.knowledge.graph.base import GraphBase
from sharedmem.knowledge.graph.naming import LONGEST_NAME, check_whole, normalised
from sharedmem.knowledge.graph.records import Edge, EntityRow, FactRow, Wanted, When
from sharedmem.knowledge.graph.views import ATTRIBUTE, attributes_of, entity_of, fact_of
from sharedmem.models import Entity, Fact

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


class Lookups(GraphBase):
    """Finds out what is meant, and fetches it."""

    async def _met(self, group: str, named: Sequence[str]) -> list[str]:
        """The ids of the entities that are meant by names or ids, followed to what they were merged into.

        One round trip.

        Raises:
            InvalidError: it can be no name.
            NotFoundError: the group knows nobody of that name or id.
        """
        names = [_checked(name) for name in named]
        normals = [normalised(name) for name in names]
        seen = await self._backend.look(group, Wanted(names=tuple(filter(None, normals)), entities=tuple(names)))
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
        return (await self._backend.look(group, Wanted(facts=ids))).facts if ids else {}

    async def _entities(self, group: str, rows: Sequence[EntityRow], when: When) -> list[Entity]:
        """Entities with their attributes at a time. Two round trips for all of them together."""
        attributes = await asyncio.gather(*(self._attribute_edges(group, row.id, when) for row in rows))
        facts = await self._fact_rows(group, [edge for edges in attributes for edge in edges])
        return [
            entity_of(row, group, attributes_of([facts[edge.fact] for edge in edges if edge.fact in facts], when))
            for row, edges in zip(rows, attributes, strict=True)
        ]

    async def _attribute_edges(self, group: str, entity: str, when: When) -> list[Edge]:
        return await self._backend.edges(group, entity, when=when, limit=MOST_ATTRIBUTES, types=(ATTRIBUTE,))


def facts_along(edges: Iterable[Edge], rows: dict[str, FactRow], group: str) -> list[Fact]:
    """The facts of some edges, each version once, in their order; those are left out that have gone meanwhile."""
    distinct = dict.fromkeys((edge.fact, edge.version) for edge in edges)
    return [fact_of(rows[id_], version, group) for id_, version in distinct if id_ in rows]


def _checked(name: Any) -> str:
    if not isinstance(name, str) or not name.strip() or len(name) > LONGEST_NAME:
        raise InvalidError("entity", name, f"give its name or its id, within {LONGEST_NAME} characters")
    return check_whole("entity", " ".join(name.split()))
