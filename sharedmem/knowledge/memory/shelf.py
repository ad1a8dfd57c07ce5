"""The shelf: memories taken by id, as far as a caller may see them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import NamedTuple

from sharedmem.knowledge.memory.base import MEMORY, MemoryBase
from sharedmem.knowledge.memory.documents import READ_FIELDS, item_if_readable
from sharedmem.knowledge.memory.narrowing import admits
from sharedmem.knowledge.memory.spoilt import spoilt_of
from sharedmem.knowledge.memory.uses import Uses
from sharedmem.models import MemoryFilter, MemoryItem
from sharedmem.wire.faults import explain
from sharedmem.wire.replies import Argument, Command, Reply, ServerError
from sharedmem.wire.vectors import Vector, from_half, sound_half

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

    @property
    def _uses(self) -> Uses:
        return self._minds.shared(Uses, self._namespace, self._no_uses)

    def _no_uses(self) -> Uses:
        return Uses(self._minds, self._namespace)

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
        replies = await self._minds.line.read_each(self._looks(ids, vectors=vectors or embedding))
        return self._taken(ids, replies, filters=filters, embedding=embedding, most=most)

    def _taken(
        self,
        ids: Iterable[str],
        replies: Iterable[Reply],
        *,
        filters: MemoryFilter = _ANY,
        embedding: bool = False,
        most: int | None = None,
    ) -> list[Kept]:
        """What such looks told of those that scope and filter let through; see `_take`."""
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
        body, version, turn, *rest = reply if isinstance(reply, list) else (b"", b"", b"")
        if body is None and version is None and turn is None:
            return None
        half = sound_half(rest[0], self._minds.memories.family.dimension) if rest else None
        item = None
        if isinstance(body, bytes) and isinstance(version, bytes) and isinstance(turn, bytes):
            item = item_if_readable(id_, self._namespace, body, version, turn, vector=half if embedding else None)
        if item is None:
            spoilt_of(self._minds, self._namespace).note(id_)
            return None
        return Kept(item, None if half is None else from_half(half))

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
        pairs = await self._members_of("ZRANGEBYSCORE", log, f"({after}", "+inf", "WITHSCORES", "LIMIT", 0, PAGE)
        return [Logged(id_.decode(), int(float(score))) for id_, score in zip(pairs[::2], pairs[1::2], strict=True)]

    async def _members_of(self, *command: Argument) -> list[bytes]:
        """What a command answers that reads a sorted set. One round trip.

        Raises:
            WrongTypeError: some other client has put something else there.
        """
        try:
            reply = await self._minds.line.call(*command)
        except ServerError as error:
            key = f"{self._namespace}:${MEMORY}"
            address = self._minds.line.address
            raise explain(error, address, key=key, held="foreign value", wanted="memory") from error
        return [part for part in reply if isinstance(part, bytes)] if isinstance(reply, list) else []

    def _turns_key(self, thread: str) -> bytes:
        return self._minds.keyspace.record_item(MEMORY, self._namespace, "turns", thread)

    def _authors_key(self) -> bytes:
        return self._minds.keyspace.record_part(MEMORY, self._namespace, "authors")
