"""Statistics: how many memories there are, of what kind, and what they take."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import orjson

from sharedmem.knowledge.memory.base import MEMORY, check_filter
from sharedmem.knowledge.memory.narrowing import rendered
from sharedmem.knowledge.memory.shelf import PAGE, Shelf
from sharedmem.models import MemoryFilter, MemoryStats
from sharedmem.search.filters import Every

SAMPLE = 2000
"""Memories that are looked at one by one; of more, the newest so many stand for all."""
_SIZED = ("terms", "vector", "facts")


class Statistics(Shelf):
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
        matching = rendered(self._within, check_filter(filters))
        return await self._surely(lambda: self._counted(matching), lambda stats: not stats.count)

    async def _counted(self, matching: Every) -> MemoryStats:
        index = self._minds.memories
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
            page = await self._minds.memories.matching(
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
        keys = [self._minds.keyspace.record(MEMORY, self._namespace, id_) for id_ in ids]
        looks = [("HGET", key, "body") for key in keys]
        lengths = [("HSTRLEN", key, field) for key in keys for field in _SIZED]
        replies = await self._minds.line.read_each([*looks, *lengths])
        bodies, counted = replies[: len(keys)], replies[len(keys) :]
        sizes = []
        for number, body in enumerate(bodies):
            if isinstance(body, bytes):
                own = counted[number * len(_SIZED) : (number + 1) * len(_SIZED)]
                size = len(body) + sum(length for length in own if isinstance(length, int))
                sizes.append((size, _merged_into(body)))
        return sizes


def _merged_into(body: bytes) -> int:
    """How often another was merged into a memory; never into what cannot be read."""
    try:
        told = orjson.loads(body)
    except orjson.JSONDecodeError:
        return 0
    occurrences = told.get("occurrences", 1) if isinstance(told, dict) else 1
    return occurrences - 1 if isinstance(occurrences, int) else 0
