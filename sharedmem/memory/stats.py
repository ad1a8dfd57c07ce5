"""Statistics of memories: counts by kind, sizes, and how often each is used."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import orjson

from sharedmem.clock import from_microseconds
from sharedmem.memory.access import MEMORY, MemoryAccess
from sharedmem.memory.reader import PAGE, MemoryReader, UsageCounter
from sharedmem.models import MemoryFilter, MemoryStats, MemoryUse
from sharedmem.redis.replies import Reply
from sharedmem.redis.service_keys import decoding
from sharedmem.search.protocol import Every

SAMPLE = 2000
"""Memories that are read one by one for statistics; if there are more, this many of the newest are the sample."""
_SIZED = ("terms", "vector", "facts")


class MemoryStatistics:
    """Counts the memories of one scope, and how often they are used.

    Args:
        access: rights and scope of the caller.
        reader: reads memories of this scope.
    """

    def __init__(self, access: MemoryAccess, reader: MemoryReader) -> None:
        self._access = access
        self._reader = reader
        self._context = access.context
        self._namespace = access.namespace

    async def uses_of(self, ids: Sequence[str]) -> list[MemoryUse]:
        """Return how often some memories of this scope were returned, in their order."""
        await self._counter.flush()
        found: list[MemoryUse] = []
        for first in range(0, len(ids), PAGE):
            found += await self._page_of_uses(ids[first : first + PAGE])
        return found

    async def most_used(self, limit: int) -> list[MemoryUse]:
        """Return the memories of this scope that were returned most, most used first."""
        await self._counter.flush()
        found: list[MemoryUse] = []
        at, used = 0, self._counter.used
        while len(found) < limit:
            ids = await self._reader.sorted_set("ZRANGE", used, at, at + PAGE - 1, "REV")
            with decoding(used):
                named = [id_.decode() for id_ in ids]
            found += await self._page_of_uses(named)
            if len(ids) < PAGE:
                break
            at += PAGE
        return found[:limit]

    @property
    def _counter(self) -> UsageCounter:
        return UsageCounter.of(self._context, self._namespace)

    async def _page_of_uses(self, ids: Sequence[str]) -> list[MemoryUse]:
        """Return the uses of the memories that exist in this scope. One round trip; none without ids."""
        if not ids:
            return []
        counter = self._counter
        replies = await self._context.client.read_each(
            [*self._reader.commands(ids), ("ZMSCORE", counter.used, *ids), ("ZMSCORE", counter.touched, *ids)]
        )
        times, last = (_parse_scores(reply, len(ids)) for reply in replies[-2:])
        there = {fetched.item.id for fetched in self._reader.parse(ids, replies[:-2])}
        return [
            MemoryUse(id=id_, times=often or 0, last=None if at is None else from_microseconds(at * 1000))
            for id_, often, at in zip(ids, times, last, strict=True)
            if id_ in there
        ]

    async def stats(self, filters: MemoryFilter) -> MemoryStats:
        """Count the memories of this scope that match a filter. Two round trips, and some for each sample."""
        index, matching = self._context.memories, self._access.index_filter(filters)
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
        """Return (memories in the sample, their bytes, how often others were merged into them)."""
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
        """Return for each memory that still exists its bytes, and how often another was merged into it."""
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


def _parse_scores(reply: Reply, count: int) -> list[int | None]:
    """Return scores as whole numbers; None where another client has written something else."""
    scores = reply if isinstance(reply, list) else [None] * count
    return [int(float(score)) if isinstance(score, bytes) else None for score in scores]


def _merge_count(body: bytes) -> int:
    """Return how often another was merged into a memory; 0 for a body that cannot be read."""
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:
        return 0
    occurrences = fields.get("occurrences", 1) if isinstance(fields, dict) else 1
    return occurrences - 1 if isinstance(occurrences, int) else 0
