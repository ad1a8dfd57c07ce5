"""The objects of a user's model as the source of queries, by a search index of their own."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Sequence
from typing import Any

from sharedmem.errors import AccessDeniedError, InvalidError, UnavailableError, UnsupportedError
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.om.compiler import IndexedFields
from sharedmem.om.expressions import Moment, seconds
from sharedmem.om.library import UserModel, partial
from sharedmem.om.object_repository import ObjectRepository
from sharedmem.om.object_schema import ObjectSchema, SchemaField
from sharedmem.om.query import IndexOrder, NearestQuery
from sharedmem.providers.embedding import embed_query
from sharedmem.redis.replies import Argument, Reply, ServerError, public_error
from sharedmem.search.protocol import Every
from sharedmem.search.redisearch.layout import parse_index_info
from sharedmem.search.redisearch.queries import (
    named_distances,
    named_documents,
    named_hits,
    render_filter,
    search_by_filter,
    search_by_vector_field,
    search_documents,
)
from sharedmem.search.redisearch.server import is_missing

_PAUSE_S = 0.02
_LONGEST_BUILD_S = 30.0


class ObjectSearch:
    """The search index of one model in one scope; it is made when it is first searched.

    Args:
        context: what the hub shares with its stores.
        objects: what is indexed.
        schema: of the index.
    """

    def __init__(self, context: KnowledgeContext, objects: ObjectRepository, schema: ObjectSchema) -> None:
        self._context = context
        self._objects = objects
        self._schema = schema
        head = context.keyspace.object_index(objects.namespace)
        rest = objects.home.decode().partition("}:$om:")[2]
        self._name = f"{head}{rest}{schema.digest}"
        self._is_built = False

    async def search(self, query: Sequence[Argument]) -> Reply:
        """Return the reply to a search. One round trip once the index is known to exist.

        Raises:
            UnsupportedError: the server has no query engine.
            AccessDeniedError: this Redis user may not make the index.
            UnavailableError: the server cannot be reached, or the index is only partly built.
        """
        if not self._context.powers.search:
            remedy = self._context.powers.missing.get("search", "use a server with the query engine, such as Redis 8")
            raise UnsupportedError(f"a query for {self._schema.model}", remedy)
        if not self._is_built:
            await self._build()
        try:
            return await self._context.client.call("FT.SEARCH", self._name, *query)
        except ServerError as error:
            if not is_missing(error):
                raise public_error(error, self._context.client.address) from error
        await self._build()
        try:
            return await self._context.client.call("FT.SEARCH", self._name, *query)
        except ServerError as error:
            raise public_error(error, self._context.client.address) from error

    async def _build(self) -> None:
        client = self._context.client
        if not await self._exists():
            await self._make()
        clock = asyncio.get_running_loop()
        deadline = clock.time() + _LONGEST_BUILD_S
        while (facts := parse_index_info(await client.call("FT.INFO", self._name))).indexing:
            if clock.time() > deadline:
                raise UnavailableError(
                    f"search index {self._name}", f"it is partly built ({facts.percent:.0%}); try again"
                )
            await asyncio.sleep(_PAUSE_S)
        self._is_built = True

    async def _exists(self) -> bool:
        try:
            await self._context.client.call("FT.INFO", self._name)
        except ServerError as error:
            if is_missing(error):
                return False
            raise public_error(error, self._context.client.address) from error
        return True

    async def _make(self) -> None:
        client = self._context.client
        try:
            await client.call(*self._schema.creation(self._name, self._objects.home.decode()))
        except AccessDeniedError as error:
            advice = "have a store make it whose Redis user may: one query there is enough"
            raise AccessDeniedError("the Redis user", self._name, "create", advice) from error
        except ServerError as error:
            if "already exists" not in error.text:
                raise public_error(error, client.address) from error


class BoundSource:
    """The objects of a bound model, as `ObjectSource` describes it.

    Args:
        context: what the hub shares with its stores.
        model: what there is to know of the model.
        objects: where its objects are.
        of_class: the bound class.
    """

    def __init__(self, context: KnowledgeContext, model: UserModel, objects: ObjectRepository, of_class: Any) -> None:
        self._context = context
        self._model = model
        self._objects = objects
        self._class = of_class
        self._schema = ObjectSchema(model.name, model.form, model.schema, model.booleans)
        self._search = ObjectSearch(context, objects, self._schema)
        self.fields: IndexedFields = self._schema.indexed(model.paths)
        self.numbers: dict[str, str] = self._schema.numbers
        self.moment: Moment = seconds

    @property
    def name(self) -> str:
        """The name of the model."""
        return self._model.name

    @property
    def names(self) -> frozenset[str]:
        """The names of its fields."""
        return self._model.fields

    async def enter(self) -> None:
        """Check that the store may read these objects."""
        self._objects.enter()

    async def count(self, filters: Every) -> int:
        """Return how many objects the index finds. One round trip."""
        rendered = render_filter(filters, self._schema.family)
        reply = await self._search.search(search_by_filter(rendered, newest=None, offset=0, limit=0))
        return named_hits(reply, self._objects.home).total

    async def walk(
        self, filters: Every, order: IndexOrder | None, *, offset: int, size: int
    ) -> AsyncIterator[list[Any]]:
        """Yield what the index finds. One round trip a page."""
        rendered = render_filter(filters, self._schema.family)
        newest = order.number if order is not None and order.is_descending else None
        oldest = order.number if order is not None and not order.is_descending else None
        seen: set[str] = set()
        while True:
            query = search_documents(rendered, newest=newest, oldest=oldest, offset=offset, limit=size)
            page, total = named_documents(await self._search.search(query), self._objects.home)
            # An object that changes meanwhile may move behind the page that has shown it.
            yield [self._objects.decoded(self._class, key, fields) for key, fields in page if key not in seen]
            seen.update(key for key, _ in page)
            offset += size
            if offset >= total:
                return

    async def nearest(self, filters: Every, nearest: NearestQuery) -> list[Any]:
        """Return the nearest objects. Two round trips, and what the embedder takes for a text."""
        field = self._schema.vector(nearest.vector)
        vector = await self._packed(field, nearest.to)
        rendered = render_filter(filters, self._schema.family)
        query = search_by_vector_field(field.name, vector, rendered, k=nearest.k)
        distances = named_distances(await self._search.search(query), self._objects.home)
        found = await self._objects.read(self._class, list(distances))
        for one in found if nearest.distance else ():
            setattr(one, nearest.distance, distances[getattr(one, self._model.key)])
        return found

    def project(self, found: Any, names: Sequence[str], *, as_dict: bool) -> Any:
        """Return some fields of an object."""
        values = {name: getattr(found, name) for name in names or self._model.fields}
        return values if as_dict else partial(type(found), values)

    def refuse(self, call: str) -> UnsupportedError:
        """Return the error for a call that would change many objects at once."""
        instead = "delete_many(objects)" if call == "delete" else "update(...) of each object"
        return UnsupportedError(f"{call}() of a query for {self._model.name}", f"use {self._model.name}.{instead}")

    async def _packed(self, field: SchemaField, to: str | Sequence[float] | bytes) -> bytes:
        letter, width = ("d", 8) if "FLOAT64" in field.options else ("f", 4)
        dimension = int(field.options[field.options.index("DIM") + 1])
        if isinstance(to, str):
            embedded = await embed_query(self._context.embedder_of(self._objects.namespace), to)
            if embedded.vector is None:
                raise UnavailableError("the embedder", embedded.missing or "it gave no vector")
            packed = _pack(embedded.vector.tolist(), letter)
        else:
            packed = to if isinstance(to, bytes) else _pack(to, letter)
        if len(packed) != width * dimension:
            advice = f"{self._model.name}.{field.name} has {dimension} numbers"
            raise InvalidError("vector", f"{len(packed) // width} numbers", advice)
        return packed


def _pack(numbers: Sequence[float], letter: str) -> bytes:
    try:
        return struct.pack(f"<{len(numbers)}{letter}", *numbers)
    except (struct.error, TypeError, OverflowError):
        raise InvalidError("vector", "...", "give a list of numbers") from None
