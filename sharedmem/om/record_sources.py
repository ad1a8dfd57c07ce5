"""Objects made of records that have a search index: memories, cached answers, notes, entities and facts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Protocol

import numpy as np

from sharedmem.errors import InvalidError, UnavailableError, UnsupportedError
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.models.record import Record
from sharedmem.om.compiler import IndexedFields
from sharedmem.om.expressions import Moment
from sharedmem.om.model_spec import DISTANCE, EMBEDDING, ModelSpec
from sharedmem.om.query import IndexOrder, NearestQuery
from sharedmem.providers.embedding import embed_query
from sharedmem.redis.vectors import Vector, check_vector
from sharedmem.search.protocol import Every, Index, RecordPage

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

        return await self._context.retry_after_restore(self._namespace, look, lambda page: not page.total)

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
