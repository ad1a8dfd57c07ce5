"""A query without `await`: each call runs in the thread of a `sharedmem.sync.Hub`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sharedmem.om.query import Query
from sharedmem.sync.portal import Portal


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
