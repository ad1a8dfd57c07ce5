"""Statistics of memories: counts by kind, sizes, and which memories are used most."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from sharedmem.clock import from_microseconds
from sharedmem.memory.base import MEMORY, check_filter
from sharedmem.memory.filters import to_index_filter
from sharedmem.memory.reader import PAGE, MemoryFetcher
from sharedmem.memory.search_types import check_limit
from sharedmem.memory.validation import check_id
from sharedmem.models import MemoryFilter, MemoryStats, MemoryUse
from sharedmem.redis.replies import Reply
from sharedmem.redis.service_keys import decoding
from sharedmem.search.filters import Every

MOST_LISTED_USES = 1000


class MemoryUsageStats(MemoryFetcher):
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
        check_limit(limit, most=MOST_LISTED_USES)
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
        replies = await self._context.client.read_each(
            [*self._looks(ids, vectors=False), ("ZMSCORE", uses.used, *ids), ("ZMSCORE", uses.touched, *ids)]
        )
        times, last = (_parse_scores(reply, len(ids)) for reply in replies[-2:])
        there = {kept.item.id for kept in self._taken(ids, replies[:-2])}
        return [
            MemoryUse(id=id_, times=often or 0, last=None if at is None else from_microseconds(at * 1000))
            for id_, often, at in zip(ids, times, last, strict=True)
            if id_ in there
        ]


def _parse_scores(reply: Reply, count: int) -> list[int | None]:
    """Scores as whole numbers; none where some other client has put something else there."""
    scores = reply if isinstance(reply, list) else [None] * count
    return [int(float(score)) if isinstance(score, bytes) else None for score in scores]


SAMPLE = 2000
"""Memories that are looked at one by one; of more, the newest so many stand for all."""
_SIZED = ("terms", "vector", "facts")


class MemoryStatistics(MemoryFetcher):
    """Counts memories."""

    async def stats(self, filters: MemoryFilter | Mapping[str, Any] | None = None) -> MemoryStats:
        """What the memories of this scope are. Three round trips, and two for each five hundred up to 2,000.

        Args:
            filters: which are meant; None for all in this scope.

        Returns:
            Counts are exact, but for memories that have expired in this moment. `bytes` (of text, words and vectors)
            and `duplicates_merged` are exact up to 2,000 memories; beyond, the newest 2,000 stand for all.

        Raises:
            InvalidError: a filter is none.
            AccessDeniedError, UnavailableError: as `get`.
        """
        await self._enter("read")
        matching = to_index_filter(self._within, check_filter(filters))
        return await self._retry_after_restore(lambda: self._counted(matching), lambda stats: not stats.count)

    async def _counted(self, matching: Every) -> MemoryStats:
        index = self._context.memories
        await index.ensure(self._namespace)
        by_type, by_category = await asyncio.gather(
            index.counts(self._namespace, matching, "type"), index.counts(self._namespace, matching, "category")
        )
        count = sum(by_type.values())
        looked_at, size, merged = await self._sampled(matching)
        share = count / looked_at if looked_at else 0.0
        return MemoryStats(
            count=count,
            bytes=round(size * share),
            by_type=dict(sorted(by_type.items())),
            by_tenant={self._namespace: count} if count else {},
            by_category=dict(sorted(by_category.items())),
            duplicates_merged=round(merged * share),
        )

    async def _sampled(self, matching: Every) -> tuple[int, int, int]:
        """(memories looked at, their bytes, how often others were merged into them)."""
        looked_at = size = merged = 0
        while looked_at < SAMPLE:
            page = await self._context.memories.matching(
                self._namespace, matching, newest="at", offset=looked_at, limit=PAGE
            )
            for own_size, own_merged in await self._sizes(page.ids):
                size, merged = size + own_size, merged + own_merged
            looked_at += len(page.ids)
            if len(page.ids) < PAGE:
                break
        return looked_at, size, merged

    async def _sizes(self, ids: list[str]) -> list[tuple[int, int]]:
        """Of each memory that is still there: its bytes, and how often another was merged into it."""
        if not ids:
            return []
        keys = [self._context.keyspace.record(MEMORY, self._namespace, id_) for id_ in ids]
        looks = [("HGET", key, "body") for key in keys]
        lengths = [("HSTRLEN", key, field) for key in keys for field in _SIZED]
        replies = await self._context.client.read_each([*looks, *lengths])
        bodies, counted = replies[: len(keys)], replies[len(keys) :]
        sizes = []
        for number, body in enumerate(bodies):
            if isinstance(body, bytes):
                own = counted[number * len(_SIZED) : (number + 1) * len(_SIZED)]
                size = len(body) + sum(length for length in own if isinstance(length, int))
                sizes.append((size, _merge_count(body)))
        return sizes


def _merge_count(body: bytes) -> int:
    """How often another was merged into a memory; never into what cannot be read."""
    try:
        told = orjson.loads(body)
    except orjson.JSONDecodeError:
        return 0
    occurrences = told.get("occurrences", 1) if isinstance(told, dict) else 1
    return occurrences - 1 if isinstance(occurrences, int) else 0
