"""Rerank a search by the reranker of the settings; a search never fails because of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sharedmem.errors import SharedMemoryError
from sharedmem.memory.serialization import searchable_texts
from sharedmem.models import MemoryItem
from sharedmem.providers.embedding import QUERY_TIMEOUT_S
from sharedmem.providers.protocol import Reranker
from sharedmem.runtime import Counters, get_logger

_log = get_logger("memory")


class ServiceReranker:
    """The reranker of a hub, for its searches.

    Args:
        reranker: scores the texts of memories.
        counters: count `memory_not_reranked` by reason: `slow` or `failed`.
    """

    def __init__(self, reranker: Reranker, counters: Counters) -> None:
        self._reranker = reranker
        self._counters = counters
        self._is_failing = False

    async def scores(self, query: str, items: Sequence[MemoryItem]) -> Sequence[float] | None:
        """Return a score for each memory; None if the service fails or is slow, so that the first order stays.

        Args:
            query: the query of the search.
            items: the best memories by the first order.
        """
        try:
            async with asyncio.timeout(QUERY_TIMEOUT_S):
                scores = await self._reranker.score(query, ["\n".join(searchable_texts(item)) for item in items])
        except TimeoutError:
            self._report("slow", f"it did not answer within {QUERY_TIMEOUT_S:g} s")
            return None
        except (SharedMemoryError, OSError) as error:
            self._report("failed", str(error))
            return None
        self._is_failing = False
        return scores

    def _report(self, reason: str, why: str) -> None:
        """Count a failure, and log it unless the failure before was logged and no success came between."""
        self._counters.increment("memory_not_reranked", reason=reason)
        if not self._is_failing:
            _log.warning("searches are not reranked: %s: %s", self._reranker.name, why)
        self._is_failing = True
