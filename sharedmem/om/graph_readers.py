"""Read the entities and facts of graphs by their ids in the index, within the rights of a store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

from sharedmem.errors import InvalidError, UnsupportedError
from sharedmem.graph.access import EntityLookup, GraphAccess
from sharedmem.graph.backends import open_backend
from sharedmem.graph.backends.redis.layout import decode_group, make_record_id, search_scope, stamp_ms
from sharedmem.graph.records import KindCode, LookupRequest, to_latest_fact, to_stamp
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.models.record import Record
from sharedmem.om.expressions import Scalar
from sharedmem.redis.scope import Scope
from sharedmem.search.protocol import Every, Index, Tagged

SCOPE_TAG = "shelf"
"""The tag with the group and the kind of a record."""
_MOST_GROUPS = 1000


def graph_moment(at: datetime) -> float:
    """The number of a time as the index of graphs has it."""
    return stamp_ms(to_stamp("time", at))


def group_scopes(value: Scalar, letters: tuple[KindCode, ...]) -> tuple[str, ...] | None:
    """Return the values of the tag for a group."""
    return tuple(search_scope(value, letter) for letter in letters) if isinstance(value, str) else None


class GraphRecords:
    """The entities or the facts of a namespace's graphs, as `RecordReader` describes it.

    Args:
        context: what the hub shares with its stores.
        scope: whose rights.
        kind: `n` for entities, `f` for facts.
    """

    def __init__(self, context: KnowledgeContext, scope: Scope, kind: KindCode) -> None:
        self._access = GraphAccess(context, scope)
        self._backend = open_backend(context, scope)
        self._lookup = EntityLookup(self._backend)
        self._kind = kind
        self.letters: tuple[KindCode, ...] = ("f", "p") if kind == "f" else (kind,)
        self.index: Index = context.graphs

    async def enter(self) -> None:
        """Check that the store may read graphs.

        Raises:
            AccessDeniedError: it may not.
            UnsupportedError: the graphs are in another database than Redis.
        """
        await self._access.enter_namespace()
        if self._backend.name != "redis":
            remedy = "use store.graph, which searches there; or the backend `redis`"
            raise UnsupportedError(f"read models of graphs in {self._backend.name}", remedy)

    async def narrowed(self, filters: Every) -> Every:
        """Return the filters with the groups of the namespace. One round trip unless they name groups themselves."""
        if any(isinstance(one, Tagged) and one.field == SCOPE_TAG for one in filters.conditions):
            return filters
        groups = await self._backend.groups()
        if len(groups) > _MOST_GROUPS:
            raise InvalidError("condition", "group_id", f"name the groups: there are more than {_MOST_GROUPS}")
        scopes = tuple(search_scope(group, letter) for group in sorted(groups) for letter in self.letters)
        return filters.also(Tagged(SCOPE_TAG, scopes))

    async def read(self, ids: Sequence[str]) -> list[tuple[str, Record]]:
        """Return entities with their attributes of now, or facts as they are known now. A few round trips a group."""
        by_group: defaultdict[str, list[str]] = defaultdict(list)
        for named in ids:
            group, kind, id_ = named.split("/", 2)
            if kind == self._kind:
                by_group[decode_group(group)].append(id_)
        found: dict[str, Record] = {}
        for group, some in by_group.items():
            records = await (self._facts(group, some) if self._kind == "f" else self._entities(group, some))
            found |= {make_record_id(group, self._kind, id_): record for id_, record in records.items()}
        return [(named, found[named]) for named in ids if named in found]

    async def ids_of(self, key: str) -> list[str]:
        """Return where a record of this id may be: in any group. One round trip."""
        return [make_record_id(group, self._kind, key) for group in sorted(await self._backend.groups())]

    async def _facts(self, group: str, ids: Sequence[str]) -> dict[str, Record]:
        seen = await self._backend.look(group, LookupRequest(facts=tuple(ids)))
        return {id_: to_latest_fact(row, group) for id_, row in seen.facts.items()}

    async def _entities(self, group: str, ids: Sequence[str]) -> dict[str, Record]:
        seen = await self._backend.look(group, LookupRequest(entities=tuple(ids)))
        now = self._access.point_in_time(None, None)
        entities = await self._lookup.entities(group, list(seen.entities.values()), now) if seen.entities else []
        return {entity.id: entity for entity in entities}
