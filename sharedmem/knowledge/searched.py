"""Which records are searched in one index, and which of them have vectors that do not fit into it."""

from __future__ import annotations

from collections.abc import AsyncIterator

from sharedmem.knowledge.minds import Minds
from sharedmem.models import IndexStatus
from sharedmem.search.protocol import Index

_PAGE = 200
_BYTES_A_NUMBER = 2


class Searched:
    """The records of one family that are searched in one index.

    Args:
        minds: what the hub lends.
        index: of the family.
        namespace: whose index; None for the one that small namespaces share.
    """

    def __init__(self, minds: Minds, index: Index, namespace: str | None) -> None:
        self._line = minds.line
        self._keyspace = minds.keyspace
        self._index = index
        self._family = index.family
        self._namespace = namespace

    async def begin(self) -> tuple[list[str], bool]:
        """(the namespaces that are searched there, whether all their vectors are those of another embedder)."""
        status = await self._status()
        namespaces = [namespace async for namespace in self._sharing(status)]
        return namespaces, status is not None and status.model != self._family.model

    async def pages(self, namespace: str) -> AsyncIterator[list[str]]:
        """The ids of a namespace's records, those that have just gone among them."""
        log, first = self._keyspace.record_log(self._family.name, namespace), 0
        while isinstance(page := await self._line.call("ZRANGE", log, first, first + _PAGE - 1), list) and page:
            yield [id_.decode() for id_ in page if isinstance(id_, bytes)]
            first += _PAGE

    async def misfits(self, namespace: str, ids: list[str], *, every: bool) -> list[tuple[str, bytes]]:
        """Those with a vector that does not fit, or with any at all: id and key."""
        keys = [self._keyspace.record(self._family.name, namespace, id_) for id_ in ids]
        lengths = await self._line.read_each([("HSTRLEN", key, "vector") for key in keys])
        fitting = {0, _BYTES_A_NUMBER * self._family.dimension}
        found = zip(ids, keys, lengths, strict=True)
        return [(id_, key) for id_, key, length in found if every or length not in fitting]

    async def _status(self) -> IndexStatus | None:
        found = await self._index.status()
        own = [one for one in found if self._namespace is not None and self._namespace in one.namespaces]
        shared = [one for one in found if not one.namespaces]
        return next(iter(own + shared), None)

    async def _sharing(self, status: IndexStatus | None) -> AsyncIterator[str]:
        if self._namespace is not None and (status is None or status.namespaces):
            yield self._namespace
            return
        # A star is a name that no namespace has, and here a glob for all of them.
        async for keys in self._line.scan(self._keyspace.record_log(self._family.name, "*"), near=None):
            for key in keys:
                namespace = key.decode().partition("}:$")[0].partition(":{")[2]
                place = self._keyspace.record_place(self._family.name, namespace)
                if await self._line.call("GET", place) is None:
                    yield namespace
