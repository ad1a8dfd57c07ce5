"""Delete documents that no reader can see any more from the durable store, once an hour."""

from __future__ import annotations

from contextlib import suppress

from sharedmem.clock import Clock
from sharedmem.durable.protocol import Durable
from sharedmem.errors import AccessDeniedError, SharedMemoryError
from sharedmem.redis.change_stream import as_list, text_of
from sharedmem.redis.client import RedisClient
from sharedmem.redis.keys import KeySpace
from sharedmem.runtime import get_logger
from sharedmem.runtime.concurrency import Background, BackgroundTask

_EVERY_S = 3600.0
# A short-lived hub, such as a command's, need not purge.
_FIRST_AFTER_S = 300.0
TOMBSTONE_LIFE_US = 7 * 86_400 * 1_000_000
"""How long a tombstone rejects a late older write."""
# Another server's clock may be ahead of this one's.
_MARGIN_MS = 60_000
_logger = get_logger("durable")


class TierPurger:
    """Purges each namespace of the durable store once an hour, however many hubs there are.

    Args:
        client: client of the server, whose clock is used.
        keyspace: builds the keys.
        durable: the store.
        background: runs the task.
        clock: measures the hour.
    """

    def __init__(
        self, client: RedisClient, keyspace: KeySpace, durable: Durable, background: Background, clock: Clock
    ) -> None:
        self._client = client
        self._keyspace = keyspace
        self._durable = durable
        self._background = background
        self._clock = clock
        self._work: BackgroundTask | None = None

    def start(self) -> None:
        """Start the task, unless it runs."""
        if self._work is None or self._work.done:
            self._work = self._background.start("purge durable", self._regularly())

    async def stop(self) -> None:
        """Stop the task."""
        if self._work is not None:
            await self._work.stop()

    async def purge(self) -> int:
        """Purge the namespaces that were not purged for an hour; return the number of deleted documents.

        Raises:
            UnavailableError, LimitedError: Redis or the store is unavailable.
        """
        return sum([await self._purge(namespace) for namespace in await self._durable.namespaces()])

    async def _regularly(self) -> None:
        await self._clock.sleep(_FIRST_AFTER_S)
        while True:
            try:
                await self.purge()
            except SharedMemoryError as error:
                _logger.info("the durable tier is not purged this time: %s", error)
            await self._clock.sleep(_EVERY_S)

    async def _purge(self, namespace: str) -> int:
        turn = self._keyspace.service(namespace, "kept.purged")
        taken = None
        with suppress(AccessDeniedError):
            taken = await self._client.call("SET", turn, "1", "NX", "PX", round(_EVERY_S * 1000))
        if taken is None:
            return 0
        now_us = await self._client.server_time_us()
        known_ms = await self._known_ms(namespace, now_us // 1000 - _MARGIN_MS)
        before = max(0, min(now_us - TOMBSTONE_LIFE_US, known_ms * 1000))
        gone = await self._durable.purge(namespace, now_ms=known_ms, tombstones_before=before)
        if gone:
            _logger.info("%d documents of %s were purged", gone, namespace)
        return gone

    async def _known_ms(self, namespace: str, now_ms: int) -> int:
        """Return until when the store is complete: a key that expired later may have been extended in time."""
        waiting = as_list(await self._client.call("XRANGE", self._keyspace.outbox(namespace), "-", "+", "COUNT", 1))
        return min([now_ms, *(int(text_of(as_list(entry)[0]).partition("-")[0]) for entry in waiting)])
