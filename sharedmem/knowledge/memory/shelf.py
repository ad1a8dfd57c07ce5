"""The shelf: memories taken by id, as far as a caller may see them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import NamedTuple

from sharedmem.knowledge.memory.base import MEMORY, MemoryBase
from sharedmem.knowledge.memory.documents import READ_FIELDS, item_of
from sharedmem.knowledge.memory.narrowing import admits
from sharedmem.models import MemoryFilter, MemoryItem
from sharedmem.wire.replies import Command, Reply
from sharedmem.wire.vectors import Vector, from_half

PAGE = 500
"""Memories that one round trip looks at where there may be many."""
_ANY = MemoryFilter()


class Kept(NamedTuple):
    """A memory, and its vector if that was asked for."""

    item: MemoryItem
    vector: Vector | None


class Logged(NamedTuple):
    """A memory in the log of changes."""

    id: str
    version: int
    """Of its last change; by then it may have been deleted."""


class Shelf(MemoryBase):
    """Fetches what others have found."""

    async def _take(
        self,
        ids: Sequence[str],
        *,
        filters: MemoryFilter = _ANY,
        vectors: bool = False,
        embedding: bool = False,
        most: int | None = None,
    ) -> list[Kept]:
        """Those of some memories that are there and that scope and filter let through, in their order.

        One round trip.

        Args:
            ids: which.
            filters: what must hold besides the scope.
            vectors: whether to fetch their vectors too.
            embedding: whether to put these into the items.
            most: the first so many are enough.
        """
        replies = await self._minds.line.read_many(self._looks(ids, vectors=vectors or embedding))
        taken: list[Kept] = []
        for id_, reply in zip(ids, replies, strict=True):
            if len(taken) == most:
                break
            kept = self._kept(id_, reply, embedding=embedding)
            if kept is not None and self._admits(filters, kept.item):
                taken.append(kept)
        return taken

    def _looks(self, ids: Iterable[str], *, vectors: bool) -> list[Command]:
        fields = (*READ_FIELDS, "vector") if vectors else READ_FIELDS
        record = self._minds.keyspace.record
        return [("HMGET", record(MEMORY, self._namespace, id_), *fields) for id_ in ids]

    def _kept(self, id_: str, reply: Reply, *, embedding: bool = False) -> Kept | None:
        """What the reply to such a look tells; None when nothing is there."""
        assert isinstance(reply, list)
        body, version, facts, *rest = reply
        if not (isinstance(body, bytes) and isinstance(version, bytes) and isinstance(facts, bytes)):
            return None
        half = rest[0] if rest and isinstance(rest[0], bytes) else None
        item = item_of(id_, self._namespace, body, version, facts, vector=half if embedding else None)
        return Kept(item, from_half(half) if half else None)

    def _admits(self, filters: MemoryFilter, item: MemoryItem) -> bool:
        return admits(self._within, item) and admits(filters, item)

    async def _logged(self, *, after: int) -> AsyncIterator[list[Logged]]:
        """The namespace's memories by their last change, page by page; those deleted of late are among them.

        What changes meanwhile comes again. One round trip a page.

        Args:
            after: only what has changed after this version.
        """
        while page := await self._log_page(after):
            yield page
            after = page[-1].version

    async def _log_page(self, after: int) -> list[Logged]:
        log = self._minds.keyspace.record_log(MEMORY, self._namespace)
        reply = await self._minds.line.call("ZRANGEBYSCORE", log, f"({after}", "+inf", "WITHSCORES", "LIMIT", 0, PAGE)
        assert isinstance(reply, list)
        pairs = [part for part in reply if isinstance(part, bytes)]
        return [Logged(id_.decode(), int(float(score))) for id_, score in zip(pairs[::2], pairs[1::2], strict=True)]

    def _turns_key(self, thread: str) -> bytes:
        return self._minds.keyspace.record_item(MEMORY, self._namespace, "turns", thread)

    def _authors_key(self) -> bytes:
        return self._minds.keyspace.record_part(MEMORY, self._namespace, "authors")
