"""A query on the objects of one model: its conditions, order and page, and the calls that run it.

Calls are awaited by the caller, or run in the thread of a `sharedmem.sync.Hub`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from sharedmem.errors import InvalidError, NotFoundError, UnsupportedError
from sharedmem.om.expressions import CompiledQuery, Expression, IndexedFields, Moment, compile_query, is_true, sort_key
from sharedmem.search.protocol import Every
from sharedmem.store import SharedMemoryStore, StoreParts, parts_of
from sharedmem.sync import SharedMemoryStore as BlockingStore
from sharedmem.sync.faces import portal_and_async
from sharedmem.sync.portal import Portal

M = TypeVar("M")
MOST_SORTED = 10_000
"""Objects that are sorted in this process at most."""
MOST_NEAREST = 1000
_PAGE = 500


class IndexOrder(NamedTuple):
    """The order of a number in the index."""

    number: str
    is_descending: bool


class NearestQuery(NamedTuple):
    """What the objects of a query are to be near to."""

    to: str | Sequence[float] | bytes
    """A text, a vector, or the bytes of a vector in single precision."""
    k: int
    vector: str = ""
    """The field to compare with, where a model may have several."""
    distance: str = ""
    """The field that receives the distance, where the model says which."""


class ObjectSource(Protocol[M]):
    """Where the objects of one model come from; each is checked against the rights of the store."""

    @property
    def name(self) -> str:
        """The name of the model."""

    @property
    def names(self) -> frozenset[str]:
        """The names of its fields."""

    @property
    def fields(self) -> IndexedFields:
        """What the index has."""

    @property
    def numbers(self) -> dict[str, str]:
        """By field, the number of the index by which it can sort."""

    @property
    def moment(self) -> Moment:
        """The number as which a time is compared."""

    async def enter(self) -> None:
        """Check that the store may read here."""

    async def count(self, filters: Every) -> int:
        """Return how many objects the index finds."""

    def walk(self, filters: Every, order: IndexOrder | None, *, offset: int, size: int) -> AsyncIterator[list[M]]:
        """Yield what the index finds from an offset on, page by page; objects that are gone are left out."""

    async def nearest(self, filters: Every, nearest: NearestQuery) -> list[M]:
        """Return the nearest objects, the nearest first."""

    def project(self, found: M, names: Sequence[str], *, as_dict: bool) -> Any:
        """Return some fields of an object, or with `as_dict` all where none is named."""

    def refuse(self, call: str) -> UnsupportedError:
        """Return the error for a call that changes objects, with the call to use instead."""


@dataclass(frozen=True)
class Query(Generic[M]):
    """A query on the objects of one model; each method that narrows it returns another query.

    Args:
        source: where the objects come from.
        expressions: conditions that must all be true.
        near: what the objects are to be near to; the nearest of the objects that meet the conditions are chosen.
        sort: names of fields, with `-` for descending order.
        projected: names of the fields to return; all where none is named.
        as_dict: whether dictionaries are returned.
    """

    source: ObjectSource[M]
    expressions: tuple[Expression, ...] = ()
    near: NearestQuery | None = None
    sort: tuple[str, ...] = ()
    projected: tuple[str, ...] = ()
    as_dict: bool = False

    # -- what is wanted

    def sort_by(self, *fields: str) -> Query[M]:
        """Return the query in an order: names of fields, each with `-` before it for the highest value first.

        Objects without a value come last. A number or time that the index has is sorted there; by anything else this
        process sorts, at most 10,000 objects.

        Raises:
            InvalidError: there is no such field.
        """
        self._check_names("sort_by", [field.removeprefix("-") for field in fields])
        return replace(self, sort=fields)

    def nearest(self, to: str | Sequence[float] | bytes, k: int = 10) -> Query[M]:
        """Return the query for the nearest of the objects that meet its conditions.

        Args:
            to: a text, which the store's embedder turns into a vector, or a vector.
            k: how many, 1 to 1,000.

        Raises:
            InvalidError: `k` is out of its bounds.
        """
        return self.nearest_by(NearestQuery(to, k))

    def nearest_by(self, near: NearestQuery) -> Query[M]:
        """As `nearest`, with all that a `KNNExpression` says.

        Raises:
            InvalidError: `k` is out of its bounds.
        """
        if isinstance(near.k, bool) or not isinstance(near.k, int) or not 1 <= near.k <= MOST_NEAREST:
            raise InvalidError("k", near.k, f"ask for 1 to {MOST_NEAREST}")
        return replace(self, near=near)

    def values(self, *fields: str) -> Query[M]:
        """Return the query with dictionaries as its results: of these fields, or of all.

        Raises:
            InvalidError: there is no such field.
        """
        self._check_names("values", fields)
        return replace(self, projected=fields, as_dict=True)

    def only(self, *fields: str) -> Query[M]:
        """Return the query with objects of only these fields as its results.

        Raises:
            InvalidError: there is no such field, or none is named.
        """
        if not fields:
            raise InvalidError("only", fields, "name at least one field")
        self._check_names("only", fields)
        return replace(self, projected=fields, as_dict=False)

    # -- results

    async def page(self, offset: int = 0, limit: int = 10) -> list[Any]:
        """Return some of the results. Two round trips, and more where the index cannot test every condition.

        Args:
            offset: how many to skip.
            limit: how many at most.

        Raises:
            InvalidError: an argument or a condition is invalid.
            AccessDeniedError: the store may not read these objects.
            UnsupportedError: the server or the store lacks what the query needs.
            UnavailableError: the server cannot be reached.
        """
        for name, number in (("offset", offset), ("limit", limit)):
            if isinstance(number, bool) or not isinstance(number, int) or number < 0:
                raise InvalidError(name, number, "give a whole number, 0 or more")
        found = await self._found(offset, limit)
        return [self._shown(one) for one in found]

    async def all(self) -> list[Any]:
        """Return all results. Two round trips for every 500 objects.

        Raises:
            InvalidError, AccessDeniedError, UnsupportedError, UnavailableError: as `page`.
        """
        return [self._shown(one) for one in await self._found(0, None)]

    async def first(self) -> Any:
        """Return the first result.

        Raises:
            NotFoundError: no object fits.
            InvalidError, AccessDeniedError, UnsupportedError, UnavailableError: as `page`.
        """
        return await self.get_item(0)

    async def get_item(self, item: int) -> Any:
        """Return the result at a place, 0 for the first.

        Raises:
            NotFoundError: there are fewer results.
            InvalidError, AccessDeniedError, UnsupportedError, UnavailableError: as `page`.
        """
        found = await self.page(item, 1)
        if not found:
            raise NotFoundError(f"a {self.source.name} that meets the query", f"at {item}", "widen its conditions")
        return found[0]

    async def count(self) -> int:
        """Return how many results there are. One round trip where the index tests every condition, else as `all`.

        Raises:
            InvalidError, AccessDeniedError, UnsupportedError, UnavailableError: as `page`.
        """
        compiled = await self._compiled()
        if self.near is not None or not compiled.is_exact:
            return len(await self._found(0, None))
        return await self.source.count(compiled.filters)

    async def __aiter__(self) -> AsyncIterator[Any]:
        """Yield the results, page by page."""
        for one in await self._found(0, None):
            yield self._shown(one)

    def __await__(self) -> Generator[Any, None, list[Any]]:
        return self.all().__await__()

    async def update(self, **values: object) -> None:
        """Raise: objects are not changed through a query.

        Raises:
            UnsupportedError: always; it names the call to use.
        """
        del values
        raise self.source.refuse("update")

    async def delete(self) -> None:
        """Raise: objects are not deleted through a query.

        Raises:
            UnsupportedError: always; it names the call to use.
        """
        raise self.source.refuse("delete")

    # -- how they are found

    async def _compiled(self) -> CompiledQuery:
        await self.source.enter()
        return compile_query(self.expressions, self.source.fields)

    async def _found(self, offset: int, limit: int | None) -> list[M]:
        compiled = await self._compiled()
        if self.near is not None:
            return await self._nearest(compiled, self.near, offset, limit)
        order = self._index_order()
        if order is None and self.sort:
            found = await self._matching(compiled, None, 0, MOST_SORTED + 1)
            if len(found) > MOST_SORTED:
                advice = f"more than {MOST_SORTED} objects would be sorted in this process; narrow the query"
                raise InvalidError("sort_by", ", ".join(self.sort), advice)
            return self._sliced(self._sorted(found), offset, limit)
        return await self._matching(compiled, order, offset, limit)

    async def _nearest(self, compiled: CompiledQuery, near: NearestQuery, offset: int, limit: int | None) -> list[M]:
        if not compiled.is_exact:
            advice = f"the nearest are chosen by the index, which has {self._indexed()} of {self.source.name}"
            raise InvalidError("condition", "of a query for the nearest", advice)
        found = await self.source.nearest(compiled.filters, near)
        found = [one for one in found if is_true(compiled.tested, one, self.source.moment)]
        return self._sliced(self._sorted(found), offset, limit)

    async def _matching(
        self, compiled: CompiledQuery, order: IndexOrder | None, offset: int, limit: int | None
    ) -> list[M]:
        found: list[M] = []
        # Where the index tests every condition, its pages are the pages of the query.
        start, skipped = (offset, 0) if compiled.is_exact else (0, offset)
        most = None if limit is None else skipped + limit
        if limit == 0:
            return found
        size = min(most, _PAGE) if most is not None and compiled.is_exact else _PAGE
        async for page in self.source.walk(compiled.filters, order, offset=start, size=size):
            found += [one for one in page if is_true(compiled.tested, one, self.source.moment)]
            if most is not None and len(found) >= most:
                break
        return self._sliced(found, skipped, limit)

    def _index_order(self) -> IndexOrder | None:
        if len(self.sort) != 1:
            return None
        name = self.sort[0].removeprefix("-")
        number = self.source.numbers.get(name)
        return None if number is None else IndexOrder(number, self.sort[0].startswith("-"))

    def _sorted(self, found: list[M]) -> list[M]:
        moment = self.source.moment
        for field in reversed(self.sort):
            name, is_descending = field.removeprefix("-"), field.startswith("-")
            there = [one for one in found if sort_key(one, name, moment)[0] < 2]
            absent = [one for one in found if sort_key(one, name, moment)[0] == 2]
            found = sorted(there, key=lambda one: sort_key(one, name, moment), reverse=is_descending) + absent
        return found

    @staticmethod
    def _sliced(found: list[M], offset: int, limit: int | None) -> list[M]:
        return found[offset:] if limit is None else found[offset : offset + limit]

    def _shown(self, found: M) -> Any:
        if not self.projected and not self.as_dict:
            return found
        return self.source.project(found, self.projected, as_dict=self.as_dict)

    def _indexed(self) -> str:
        return ", ".join(sorted({path[0] for path in self.source.fields})) or "none of the fields"

    def _check_names(self, call: str, names: Sequence[str]) -> None:
        for name in names:
            if name not in self.source.names:
                known = ", ".join(sorted(self.source.names))
                raise InvalidError(call, name, f"the fields of {self.source.name} are {known}")


# -- queries without await ------------------------------------------------------------------------


class BlockingQuery:
    """The same query as `Query`, whose calls return results instead of awaitables.

    Args:
        portal: runs the calls.
        query: what is called.
    """

    def __init__(self, portal: Portal, query: Query[Any]) -> None:
        self._portal = portal
        self._query = query

    def sort_by(self, *fields: str) -> BlockingQuery:
        """See `Query.sort_by`."""
        return BlockingQuery(self._portal, self._query.sort_by(*fields))

    def nearest(self, to: str | Sequence[float] | bytes, k: int = 10) -> BlockingQuery:
        """See `Query.nearest`."""
        return BlockingQuery(self._portal, self._query.nearest(to, k))

    def values(self, *fields: str) -> BlockingQuery:
        """See `Query.values`."""
        return BlockingQuery(self._portal, self._query.values(*fields))

    def only(self, *fields: str) -> BlockingQuery:
        """See `Query.only`."""
        return BlockingQuery(self._portal, self._query.only(*fields))

    def page(self, offset: int = 0, limit: int = 10) -> list[Any]:
        """See `Query.page`."""
        return self._portal.run(self._query.page(offset, limit))

    def all(self) -> list[Any]:
        """See `Query.all`."""
        return self._portal.run(self._query.all())

    def first(self) -> Any:
        """See `Query.first`."""
        return self._portal.run(self._query.first())

    def get_item(self, item: int) -> Any:
        """See `Query.get_item`."""
        return self._portal.run(self._query.get_item(item))

    def count(self) -> int:
        """See `Query.count`."""
        return self._portal.run(self._query.count())

    def update(self, **values: object) -> None:
        """See `Query.update`."""
        self._portal.run(self._query.update(**values))

    def delete(self) -> None:
        """See `Query.delete`."""
        self._portal.run(self._query.delete())

    def __iter__(self) -> Iterator[Any]:
        return iter(self.all())

    def __getitem__(self, item: int) -> Any:
        return self.get_item(item)

    def __repr__(self) -> str:
        return f"<BlockingQuery of {self._query.source.name}>"


# -- how calls run --------------------------------------------------------------------------------


class Caller(Protocol):
    """Runs the calls of models."""

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Return what the caller gets for a call: an awaitable, or its result."""

    def query(self, query: Query[Any]) -> Any:
        """Return a query whose calls run likewise."""


class AwaitingCaller:
    """The caller awaits each call."""

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Return the coroutine."""
        return work

    def query(self, query: Query[Any]) -> Query[Any]:
        """Return the query."""
        return query


class BlockingCaller:
    """Each call waits for its result.

    Args:
        portal: of the hub, whose thread runs the calls.
    """

    def __init__(self, portal: Portal) -> None:
        self._portal = portal

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Return the result."""
        return self._portal.run(work)

    def query(self, query: Query[Any]) -> BlockingQuery:
        """Return the query without `await`."""
        return BlockingQuery(self._portal, query)


class CalledStore(NamedTuple):
    """The parts of a store, and how calls on it run."""

    parts: StoreParts
    caller: Caller


def called_store(store: SharedMemoryStore | BlockingStore) -> CalledStore:
    """Return the parts of a store of either kind."""
    if isinstance(store, BlockingStore):
        portal, behind = portal_and_async(store)
        return CalledStore(parts_of(behind), BlockingCaller(portal))
    return CalledStore(parts_of(store), AwaitingCaller())
