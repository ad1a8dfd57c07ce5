"""Count how often memories are returned, and flush the counts to Redis in the background."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress

from sharedmem.errors import AccessDeniedError, SharedMemoryError
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.memory.base import MEMORY
from sharedmem.redis.keys import SHARED_SCOPE
from sharedmem.redis.replies import ServerError
from sharedmem.redis.scripts.memories import MemoryScripts
from sharedmem.runtime import get_logger
from sharedmem.runtime.background import BackgroundTask

FLUSH_AFTER_S = 0.5
MOST_AT_ONCE = 250
"""Memories that one call of the script counts: it holds up everybody for that long."""
LOOKED_AT = 8
"""Memories that each call looks at, to leave out those that are gone."""
# Stores of several actors share the counts, so that the namespace itself signs them.
_SIGNATURE = SHARED_SCOPE.encode()
_logger = get_logger("memory")


class UsageCounter:
    """How often memories of one namespace were answered; all stores of a hub share it.

    Counting takes no round trip. What is counted is sent together after half a second, and when the hub closes.

    Args:
        context: what the hub shares with its stores.
        namespace: whose memories.
    """

    def __init__(self, context: KnowledgeContext, namespace: str) -> None:
        keyspace = context.keyspace
        self.used = keyspace.record_part(MEMORY, namespace, "used")
        self.touched = keyspace.record_part(MEMORY, namespace, "touched")
        self._context = context
        self._space = keyspace.space(namespace)
        self._records = keyspace.records(MEMORY, namespace).encode()
        self._remembering = MemoryScripts(context.executor)
        self._waiting: Counter[str] = Counter()
        self._suspects: list[str] = []
        self._place = 0
        self._work: BackgroundTask | None = None

    def count(self, ids: Iterable[str]) -> None:
        """These were answered once more."""
        waiting = self._waiting
        for id_ in ids:
            waiting[id_] += 1
        if waiting and (self._work is None or self._work.done):
            with suppress(SharedMemoryError):  # the hub closes
                self._work = self._context.background.start("count uses of memories", self._flush_later())

    async def flush(self) -> None:
        """Add up what is counted so far. One round trip for each 250 memories, none when there is nothing.

        Raises:
            UnavailableError: the server cannot be reached; the counts wait for the next time.
        """
        while self._waiting:
            counted = Counter(dict(self._waiting.most_common(MOST_AT_ONCE)))
            for id_ in counted:
                del self._waiting[id_]
            try:
                # Who is cancelled here has sent them: to send them again would count twice.
                await self._send(counted)
            except (ServerError, AccessDeniedError) as refused:
                # The namespace is being cleared, or this user may only read: nobody would ever take these counts.
                _logger.info("uses of memories of %s are left out: %s", self._space.namespace, refused)
            except SharedMemoryError:
                self._waiting.update(counted)
                raise

    async def _send(self, counted: Mapping[str, int]) -> None:
        terms = dict.fromkeys(self._suspects, 0) | dict(counted)
        there, self._suspects = await self._remembering.memory_use(
            self._space,
            _SIGNATURE,
            used=self.used,
            touched=self.touched,
            records=[self._records + id_.encode() for id_ in terms],
            start=self._place,
            most=LOOKED_AT,
            terms=[part for term in terms.items() for part in term],
        )
        # Those that are there are passed over, until the end; then it begins again with the oldest.
        self._place = self._place + there if self._suspects else 0

    async def _flush_later(self) -> None:
        try:
            while self._waiting:
                await self._context.clock.sleep(FLUSH_AFTER_S)
                await self._flush_quietly()
        except asyncio.CancelledError:
            await self._flush_quietly()  # the hub closes: its line is still open
            raise

    async def _flush_quietly(self) -> None:
        try:
            await self.flush()
        except SharedMemoryError as error:
            _logger.warning("uses of memories of %s wait: %s", self._space.namespace, error)
