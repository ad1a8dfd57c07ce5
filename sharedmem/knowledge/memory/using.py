"""Using: which memories are answered, how often, and when last."""

from __future__ import annotations

from collections.abc import Iterable

from sharedmem.clock import from_microseconds
from sharedmem.knowledge.memory.asking import check_limit
from sharedmem.knowledge.memory.drafts import check_id
from sharedmem.knowledge.memory.shelf import PAGE, Shelf
from sharedmem.models import MemoryUse
from sharedmem.wire.replies import Reply
from sharedmem.wire.service_keys import decoding

MOST_TOLD = 1000


class Using(Shelf):
    """Tells how memories are used."""

    async def use(self, ids: Iterable[str] | None = None, *, limit: int = 100) -> list[MemoryUse]:
        """How often memories were answered by searches and `get`, and when last.

        What other hubs have answered within the last half second may be missing. Two round trips a page of 500
        memories, and one before them to add up what this hub has answered.

        Args:
            ids: of which memories, told in this order; None for those of this scope that were used most.
            limit: at most so many of the latter, 1 to 1,000.

        Returns:
            Most used first, or of the given ids those that are in this scope; `times` is 0 for what was never answered.

        Raises:
            InvalidError: an id cannot be one, or the limit is none.
            AccessDeniedError: this actor may not read the namespace.
            UnavailableError: the server stayed away.
        """
        check_limit(limit, most=MOST_TOLD)
        wanted = None if ids is None else list(dict.fromkeys(ids))
        for id_ in wanted or ():
            check_id(id_)
        await self._enter("read")
        await self._uses.flush()
        if wanted is None:
            return await self._most_used(limit)
        told: list[MemoryUse] = []
        for first in range(0, len(wanted), PAGE):
            told += await self._uses_of(wanted[first : first + PAGE])
        return told

    async def _most_used(self, limit: int) -> list[MemoryUse]:
        told: list[MemoryUse] = []
        at = 0
        while len(told) < limit:
            ids = await self._members_of("ZRANGE", self._uses.used, at, at + PAGE - 1, "REV")
            with decoding(self._uses.used):
                named = [id_.decode() for id_ in ids]
            told += await self._uses_of(named)
            if len(ids) < PAGE:
                break
            at += PAGE
        return told[:limit]

    async def _uses_of(self, ids: list[str]) -> list[MemoryUse]:
        """Of those memories that are there and in this scope. One round trip; none for none."""
        if not ids:
            return []
        uses = self._uses
        replies = await self._minds.line.read_each(
            [*self._looks(ids, vectors=False), ("ZMSCORE", uses.used, *ids), ("ZMSCORE", uses.touched, *ids)]
        )
        times, last = (_numbers(reply, len(ids)) for reply in replies[-2:])
        there = {kept.item.id for kept in self._taken(ids, replies[:-2])}
        return [
            MemoryUse(id=id_, times=often or 0, last=None if at is None else from_microseconds(at * 1000))
            for id_, often, at in zip(ids, times, last, strict=True)
            if id_ in there
        ]


def _numbers(reply: Reply, count: int) -> list[int | None]:
    """Scores as whole numbers; none where some other client has put something else there."""
    scores = reply if isinstance(reply, list) else [None] * count
    return [int(float(score)) if isinstance(score, bytes) else None for score in scores]
