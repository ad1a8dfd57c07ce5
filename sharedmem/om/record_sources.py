"""The objects of read models: of records with a search index, and of plans and events, which have none.

Memories, cached answers, notes, entities and facts have an index. Plans and events of episodes are listed by the calls
of the store: every condition is tested in this process, on all of them in the sessions that the query names, else in
all sessions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Optional, Protocol

import numpy as np
from pydantic.fields import FieldInfo

from sharedmem.context import HubContext
from sharedmem.decisions.decisions import Decisions
from sharedmem.episodes import Episodes
from sharedmem.errors import InvalidError, UnavailableError, UnsupportedError
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.models.record import Record
from sharedmem.om import library
from sharedmem.om.expressions import IndexedFields, Moment, milliseconds
from sharedmem.om.library import ModelField
from sharedmem.om.query import IndexOrder, NearestQuery
from sharedmem.providers.embedding import embed_query
from sharedmem.redis.scope import Scope
from sharedmem.redis.vectors import Vector, check_vector
from sharedmem.search.protocol import Condition, Either, Every, Index, Inverse, RecordPage, Tagged

EMBEDDING = "embedding"
DISTANCE = "distance"


def _nothing_indexed(_namespace: str) -> IndexedFields:
    return {}


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """One read model."""

    name: str
    doc: str
    fields: Mapping[str, ModelField]
    instead: Mapping[str, str]
    """By call of redis-om (`save`, `update`, `delete`), the call of the store to use."""
    indexed: Callable[[str], IndexedFields] = _nothing_indexed
    """Return what the index has, in a namespace."""
    numbers: Mapping[str, str] = field(default_factory=dict)
    """By field, the number of the index by which it can sort."""
    moment: Moment = milliseconds
    """The number as which the index has a time."""

    def project(self, found: Any, names: Sequence[str], *, as_dict: bool) -> Any:
        """Return some fields of an object, all where none is named: as a dictionary, or as an object of these."""
        values = {name: getattr(found, name) for name in names or self.fields}
        return values if as_dict else library.partial(type(found), values)

    def refuse(self, call: str) -> UnsupportedError:
        """Return the error for a call that would change records."""
        known = self.instead.get(call, self.instead["update"])
        return UnsupportedError(f"{call}() of the read model {self.name}", f"use {known}")


def record_fields(record: type[Record], *, key: str = "id", has_vector: bool = False) -> dict[str, ModelField]:
    """Return the fields of a model for a record, all of them optional but the key.

    Args:
        record: its class.
        key: the field that names the record.
        has_vector: whether a query may ask for the nearest; the model then has `embedding` and `distance`.
    """
    found = {name: _optional(one) for name, one in record.model_fields.items()}
    found[key] = ModelField(str, ..., True)
    if has_vector:
        found[EMBEDDING] = ModelField(tuple[float, ...] | None, None)
        found[DISTANCE] = ModelField(float | None, None)
    return found


def _optional(one: FieldInfo) -> ModelField:
    """Return a field that may be missing in an object of which only some fields were asked for."""
    if one.is_required():
        return ModelField(Optional[one.annotation], None)  # noqa: UP045  # the annotation is a value here
    return ModelField(one.annotation, one.get_default(call_default_factory=True, validated_data={}))


# -- records with an index ------------------------------------------------------------------------


Build = Callable[[Record, float | None], Any]
"""Makes an object of a record, and of its distance in a query for the nearest."""


class RecordReader(Protocol):
    """Reads the records of one family within the rights of a store."""

    @property
    def index(self) -> Index:
        """Finds them."""

    async def enter(self) -> None:
        """Check that the store may read them; restore the records that Redis has lost."""

    async def narrowed(self, filters: Every) -> Every:
        """Return the filters with what tells these records from others of the index."""

    async def read(self, ids: Sequence[str]) -> list[tuple[str, Record]]:
        """Return the records that exist, each with its id in the index, in the order of the ids."""

    async def ids_of(self, key: str) -> list[str]:
        """Return the ids in the index that the record of a key may have."""


class IndexedSource:
    """The objects of one kind of record, as `ObjectSource` describes it.

    Args:
        context: what the hub shares with its stores.
        namespace: whose records; the index is asked for no other's.
        spec: of the model.
        reader: reads the records.
        build: makes objects of them.
    """

    def __init__(
        self, context: KnowledgeContext, namespace: str, spec: ModelSpec, reader: RecordReader, build: Build
    ) -> None:
        self._context = context
        self._namespace = namespace
        self._spec = spec
        self._reader = reader
        self._build = build
        self._index = reader.index

    @property
    def name(self) -> str:
        """The name of the model."""
        return self._spec.name

    @property
    def names(self) -> frozenset[str]:
        """The names of its fields."""
        return frozenset(self._spec.fields)

    @property
    def fields(self) -> IndexedFields:
        """What the index has."""
        return self._spec.indexed(self._namespace)

    @property
    def numbers(self) -> dict[str, str]:
        """By field, the number of the index by which it can sort."""
        return dict(self._spec.numbers)

    @property
    def moment(self) -> Moment:
        """The number as which the index has a time."""
        return self._spec.moment

    async def enter(self) -> None:
        """Check that the store may read these records."""
        await self._reader.enter()

    async def count(self, filters: Every) -> int:
        """Return how many records the index finds. One round trip."""
        narrowed = await self._reader.narrowed(filters)
        return (await self._page(narrowed, None, 0, 0)).total

    async def walk(
        self, filters: Every, order: IndexOrder | None, *, offset: int, size: int
    ) -> AsyncIterator[list[Any]]:
        """Yield what the index finds. Two round trips a page."""
        narrowed = await self._reader.narrowed(filters)
        seen: set[str] = set()
        while True:
            page = await self._page(narrowed, order, offset, size)
            # A record that changes meanwhile may move behind the page that has shown it.
            fresh = [id_ for id_ in page.ids if id_ not in seen]
            seen.update(fresh)
            yield [self._build(record, None) for _, record in await self._reader.read(fresh)] if fresh else []
            offset += size
            if not page.ids or offset >= page.total:
                return

    async def get(self, key: str) -> Any:
        """Return the object of a key; None if it does not exist. One round trip, or two."""
        ids = await self._reader.ids_of(key)
        found = await self._reader.read(ids) if ids else []
        return self._build(found[0][1], None) if found else None

    async def nearest(self, filters: Every, nearest: NearestQuery) -> list[Any]:
        """Return the nearest objects. Two round trips, and what the embedder takes."""
        if {nearest.vector, nearest.distance} - {"", EMBEDDING, DISTANCE}:
            raise InvalidError("knn", (nearest.vector, nearest.distance), f"give its fields {EMBEDDING} and {DISTANCE}")
        vector = await self._vector(nearest.to)
        if vector is None:
            return []
        await self._index.ensure(self._namespace)
        narrowed = await self._reader.narrowed(filters)
        found = await self._index.nearest(self._namespace, vector, filters=narrowed, k=nearest.k)
        distances = {hit.id: 1.0 - hit.score for hit in found.vector}
        records = await self._reader.read(list(distances)) if distances else []
        return [self._build(record, distances[id_]) for id_, record in records]

    def project(self, found: Any, names: Sequence[str], *, as_dict: bool) -> Any:
        """Return some fields of an object."""
        return self._spec.project(found, names, as_dict=as_dict)

    def refuse(self, call: str) -> UnsupportedError:
        """Return the error for a call that would change records."""
        return self._spec.refuse(call)

    async def _page(self, filters: Every, order: IndexOrder | None, offset: int, size: int) -> RecordPage:
        await self._index.ensure(self._namespace)
        newest = order.number if order is not None and order.is_descending else None
        oldest = order.number if order is not None and not order.is_descending else None

        async def look() -> RecordPage:
            return await self._index.matching(
                self._namespace, filters, newest=newest, oldest=oldest, offset=offset, limit=size
            )

        return await self._context.record_tier.retry_after_restore(self._namespace, look, lambda page: not page.total)

    async def _vector(self, to: str | Sequence[float] | bytes) -> Vector | None:
        """Return the vector of a text, or a vector at unit length.

        Raises:
            UnsupportedError: there is no embedder, or these records have no vectors.
            InvalidError: the vector has another dimension, or what is given is not a vector.
            UnavailableError: the embedder does not answer.
        """
        dimension = self._index.family.dimension
        if not dimension:
            raise UnsupportedError("a query for the nearest", "set an embedder, or install the extra `local`")
        if not isinstance(to, str):
            return check_vector("vector", _numbers(to, dimension), dimension)
        embedded = await embed_query(self._context.embedder_of(self._namespace), to)
        if embedded.vector is None and embedded.reason != "zero":
            raise UnavailableError("the embedder", embedded.missing or "it gave no vector")
        return embedded.vector


def _numbers(to: Sequence[float] | bytes, dimension: int) -> Sequence[float] | Vector:
    if not isinstance(to, bytes):
        return to
    if len(to) != 4 * dimension:
        raise InvalidError("vector", f"{len(to)} bytes", f"give {dimension} numbers of float32, {4 * dimension} bytes")
    vector: Vector = np.frombuffer(to, dtype="<f4").astype(np.float32)
    return vector


# -- records without an index ---------------------------------------------------------------------


_MOST_PLANS = 1000
_PAGE = 500


class SessionRecords(Protocol):
    """Lists records by session."""

    async def sessions(self) -> list[str]:
        """Return the sessions that have records."""

    def of_session(self, session: str) -> AsyncIterator[Sequence[Record]]:
        """Yield the records of a session, page by page."""


class WalkedSource:
    """The objects of one kind of record that is listed by session, as `ObjectSource` describes it.

    Args:
        spec: of the model.
        records: lists the records.
        build: makes objects of them.
    """

    def __init__(self, spec: ModelSpec, records: SessionRecords, build: Build) -> None:
        self._spec = spec
        self._records = records
        self._build = build

    @property
    def name(self) -> str:
        """The name of the model."""
        return self._spec.name

    @property
    def names(self) -> frozenset[str]:
        """The names of its fields."""
        return frozenset(self._spec.fields)

    @property
    def fields(self) -> IndexedFields:
        """The session alone: it decides which records are listed."""
        return self._spec.indexed("")

    @property
    def numbers(self) -> dict[str, str]:
        """None: this process sorts."""
        return {}

    @property
    def moment(self) -> Moment:
        """The number as which a time is compared."""
        return self._spec.moment

    async def enter(self) -> None:
        """Nothing to do: each call of the store checks its rights."""

    async def count(self, filters: Every) -> int:
        """Return how many records the sessions have."""
        return sum([len(page) async for page in self.walk(filters, None, offset=0, size=_PAGE)])

    async def walk(
        self, filters: Every, order: IndexOrder | None, *, offset: int, size: int
    ) -> AsyncIterator[list[Any]]:
        """Yield the objects of the sessions that the filters name, or of all; there is no order but the store's."""
        del order, size
        for session in await self._named(filters):
            async for page in self._records.of_session(session):
                skipped = min(offset, len(page))
                offset -= skipped
                yield [self._build(record, None) for record in page[skipped:]]

    async def get(self, key: str) -> Any:
        """Return the object of a key; None if it does not exist. All sessions are looked through."""
        async for page in self.walk(Every(), None, offset=0, size=_PAGE):
            for found in page:
                if found.pk == key:
                    return found
        return None

    async def nearest(self, filters: Every, nearest: NearestQuery) -> list[Any]:
        """Raise: these records have no vectors."""
        del filters, nearest
        remedy = "query a model whose records have vectors: Memory, CachedAnswer, Note, Entity or Fact"
        raise UnsupportedError(f"a query for the nearest {self._spec.name}", remedy)

    def project(self, found: Any, names: Sequence[str], *, as_dict: bool) -> Any:
        """Return some fields of an object."""
        return self._spec.project(found, names, as_dict=as_dict)

    def refuse(self, call: str) -> UnsupportedError:
        """Return the error for a call that would change records."""
        return self._spec.refuse(call)

    async def _named(self, filters: Every) -> Sequence[str]:
        chosen = [set(one.values) for one in filters.conditions if isinstance(one, Tagged)]
        names = sorted(set.intersection(*chosen)) if chosen else await self._records.sessions()
        return [name for name in names if _admits(filters, name)]


def _admits(condition: Condition, session: str) -> bool:
    """Whether a condition, which can only be on the session, matches it."""
    match condition:
        case Tagged(values=values):
            return session in values
        case Inverse(inner):
            return not _admits(inner, session)
        case Either(conditions):
            return any(_admits(one, session) for one in conditions)
        case Every(conditions):
            return all(_admits(one, session) for one in conditions)
        case _:
            return True


class PlanRecords:
    """The plans of a namespace's sessions, as `SessionRecords` describes it."""

    def __init__(self, context: HubContext, scope: Scope) -> None:
        self._decisions = Decisions(context, scope)

    async def sessions(self) -> list[str]:
        """Return the sessions that have plans."""
        return await self._decisions.sessions()

    async def of_session(self, session: str) -> AsyncIterator[Sequence[Record]]:
        """Yield the plans of a session, newest first. One round trip."""
        yield await self._decisions.get_recent_plans(session, limit=_MOST_PLANS)


class SessionEvent(Record):
    """One event of an episode with the session in which it happened."""

    id: str
    """The session and the cursor."""
    session: str
    at: datetime
    """Server time."""
    actor: str
    event: Any = None
    cursor: str


class EventRecords:
    """The events of a namespace's sessions, as `SessionRecords` describes it."""

    def __init__(self, context: HubContext, scope: Scope) -> None:
        self._episodes = Episodes(context, scope)

    async def sessions(self) -> list[str]:
        """Return the sessions that have events, the newest first."""
        return await self._episodes.sessions()

    async def of_session(self, session: str) -> AsyncIterator[Sequence[Record]]:
        """Yield the events of a session, oldest first. One round trip a hundred events."""
        after: str | None = None
        while events := await self._episodes.events(session, since=after, limit=_PAGE):
            after = events[-1].cursor
            yield [
                SessionEvent(
                    id=f"{session}/{one.cursor}",
                    session=session,
                    at=one.at,
                    actor=one.actor,
                    event=one.event,
                    cursor=one.cursor,
                )
                for one in events
            ]
