"""Count hits, misses and savings of a namespace's cache, and flush the counts to Redis in the background."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress

from sharedmem.cache.entries import CACHE
from sharedmem.errors import AccessDeniedError, SharedMemoryError
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.redis.keys import SHARED_SCOPE
from sharedmem.redis.replies import ServerError
from sharedmem.redis.scripts.cache import CacheScripts
from sharedmem.runtime import get_logger
from sharedmem.runtime.background import BackgroundTask

FLUSH_AFTER_S = 0.5
# Stores of several actors share the counts, so that the namespace itself signs them.
_SIGNATURE = SHARED_SCOPE.encode()
_logger = get_logger("cache")


class CacheCounter:
    """Counts of one namespace; all stores of a hub share it.

    Counting takes no round trip. What is counted is sent together after half a second, and when the hub closes.

    Args:
        context: what the hub shares with its stores.
        namespace: whose cache it is.
    """

    def __init__(self, context: KnowledgeContext, namespace: str) -> None:
        self._context = context
        self._space = context.keyspace.space(namespace)
        self._key = context.keyspace.record_part(CACHE, namespace, "stats")
        self._caching = CacheScripts(context.executor)
        self._waiting: Counter[str] = Counter()
        self._saved_cost = 0.0
        self._work: BackgroundTask | None = None

    def count(self, *fields: str, saved_cost: float = 0.0, saved_tokens: int = 0) -> None:
        """Count one more of each field, and what a hit has saved."""
        for field in fields:
            self._waiting[field] += 1
        if saved_tokens:
            self._waiting["saved_tokens"] += saved_tokens
        self._saved_cost += saved_cost
        if self._work is None or self._work.done:
            with suppress(SharedMemoryError):  # the hub closes
                self._work = self._context.background.start("count cache", self._flush_later())

    async def flush(self) -> None:
        """Add up what is counted so far. One round trip, none when there is nothing.

        Raises:
            UnavailableError: the server cannot be reached; the counts wait for the next time.
        """
        counted, cost = self._waiting, self._saved_cost
        if not counted and not cost:
            return
        self._waiting, self._saved_cost = Counter(), 0.0
        pairs = [text for field, amount in counted.items() for text in (field, str(amount))]
        if cost:
            pairs += ["saved_cost", repr(cost)]
        try:
            # Who is cancelled here has sent them: to send them again would count twice.
            await self._caching.cache_count(self._space, self._key, _SIGNATURE, pairs=pairs)
        except (ServerError, AccessDeniedError) as refused:
            # The namespace is being cleared, or this user may only read: nobody would ever take these counts.
            _logger.info("counts of the cache of %s are left out: %s", self._space.namespace, refused)
        except SharedMemoryError:
            self._waiting.update(counted)
            self._saved_cost += cost
            raise

    async def _flush_later(self) -> None:
        try:
            while self._waiting or self._saved_cost:
                await self._context.clock.sleep(FLUSH_AFTER_S)
                await self._flush_quietly()
        except asyncio.CancelledError:
            await self._flush_quietly()  # the hub closes: its line is still open
            raise

    async def _flush_quietly(self) -> None:
        try:
            await self.flush()
        except SharedMemoryError as error:
            _logger.warning("counts of the cache of %s wait: %s", self._space.namespace, error)
