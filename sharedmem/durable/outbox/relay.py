"""The outbox relay of one hub: it delivers the entries of outboxes in Redis to the durable store.

Redis holds each change until the store has it, so a dead hub, an outage of the store or a batch that is delivered twice
loses nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sharedmem.durable.outbox.dead_letters import DeadLetters
from sharedmem.durable.outbox.delivery import (
    DeliveryWorker,
    NamespaceRegistry,
    OutboxDelivery,
    Readmit,
    TierOutage,
    WriteThrough,
)
from sharedmem.durable.outbox.stream import OutboxStream, server_time_us
from sharedmem.durable.protocol import DurableContext
from sharedmem.durable.purge import TierPurger
from sharedmem.errors import SharedMemoryError, UnavailableError
from sharedmem.models import DeadLetter, DurableLag
from sharedmem.redis.keys import check_name
from sharedmem.runtime import get_logger

_PAGE = 200
_CLOSE_TIMEOUT_S = 5.0
_logger = get_logger("durable")


class RelayLimits(NamedTuple):
    """Batch sizes and timeouts of a relay."""

    absent_ms: int = 30_000
    """How long Redis remembers that a key is deleted, once the store has the tombstone."""
    batch: int = 500
    """Most entries of one batch."""
    idle_ms: int = 30_000
    """Idle time after which entries of another worker are claimed."""
    hurry: int = 10_000
    """Below this many waiting entries the worker yields to callers."""
    settle_s: float = 10.0
    """Seconds that a write-through caller waits for the store."""


_DEFAULT_LIMITS = RelayLimits()


class OutboxRelay:
    """Delivers the changes of namespaces to the durable store.

    Args:
        context: the server and the durable store.
        cache_ms: how long a copy of knowledge stays in Redis once the store has it.
        limits: batch sizes and timeouts.
        readmit: called with changes whose entries had gone from Redis when the store had them.
    """

    def __init__(
        self,
        context: DurableContext,
        *,
        cache_ms: int,
        limits: RelayLimits = _DEFAULT_LIMITS,
        readmit: Readmit,
    ) -> None:
        client, keyspace, durable = context.client, context.keyspace, context.durable
        clock, background, counters = context.clock, context.background, context.counters
        self._client = client
        self._clock = clock
        self._settle_s = limits.settle_s
        self._durable = durable
        self._context, self._cache_ms, self._absent_ms = context, cache_ms, limits.absent_ms
        self._streams: dict[str, OutboxStream] = {}
        self._noted: set[str] = set()
        self._outage = TierOutage(clock, counters, durable.url)
        self._delivery = OutboxDelivery(durable, self._outage, counters, readmit=readmit)
        self._registry = NamespaceRegistry(client, keyspace.outboxes, clock)
        self.enrolled_until: Mapping[str, float] = self._registry.enrolled_until
        """By namespace: until when `enrol` has nothing to do, on the monotonic clock."""
        self._write_through = WriteThrough(self._delivery, self._stream, background)
        self._dead_letters = DeadLetters(self._stream)
        self._purger = TierPurger(client, keyspace, durable, background, clock)
        self._worker = DeliveryWorker(
            self._delivery,
            self._stream,
            self._registry,
            background,
            clock,
            batch=limits.batch,
            idle_ms=limits.idle_ms,
            hurry=limits.hurry,
        )

    # -- the worker -------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the delivery worker and the hourly purge."""
        self._worker.start()
        self._purger.start()

    async def stop(self) -> None:
        """Stop the delivery worker and the hourly purge; `drain` and `settle` still deliver."""
        await self._purger.stop()
        await self._worker.stop()

    def note(self, namespace: str) -> None:
        """Wake the worker for a namespace that has a new entry. No round trip."""
        self._noted.add(namespace)
        self._worker.note(namespace)

    async def enrol(self, namespace: str, *, again: bool = False) -> None:
        """Register a namespace, so that other hubs deliver its entries if this one dies; one round trip a minute.

        Args:
            namespace: which is about to be changed.
            again: register at once, since Redis has lost its data.

        Raises:
            UnavailableError: Redis stayed away.
        """
        await self._registry.enrol(namespace, again=again)

    async def close(self, patience_s: float = _CLOSE_TIMEOUT_S) -> int:
        """Deliver this hub's entries for a few seconds at most, and stop; returns how many entries stay in Redis.

        Another hub delivers them, or the next one that opens.
        """
        await self.stop()
        try:
            await self._drain(sorted(self._noted), patience_s, retry=False)
            stay = 0
        except SharedMemoryError as error:
            stay = await self._count(self._noted)
            _logger.warning("%d changes wait in Redis for the durable tier: %s", stay, error)
        return stay

    # -- waiting -----------------------------------------------------------------------------------

    async def settle(self, namespace: str, entries: Sequence[bytes], changed: Mapping[str, int] | None = None) -> None:
        """Return when the store has these entries; concurrent callers share a put.

        Args:
            namespace: whose outbox.
            entries: ids of entries.
            changed: the stamps that keys got by them. An entry that is gone was settled by somebody else if the tier
                knows of these, else Redis has lost it.

        Raises:
            ChangeLostError: Redis has lost one.
            UnavailableError: the tier did not take them in time, or has refused one for good.
            LimitedError, AccessDeniedError: as `Durable.put`. In each case they stay, and are carried later.
        """
        try:
            async with asyncio.timeout(self._settle_s):
                await self._write_through.settle(namespace, entries, changed or {})
        except TimeoutError as error:
            self.note(namespace)
            raise UnavailableError(self._durable.url, f"it did not take this within {self._settle_s:g} s") from error
        except BaseException:
            self.note(namespace)
            raise

    async def drain(self, namespace: str | None = None, *, timeout: float = 60.0) -> None:  # noqa: ASYNC109  # as `drain` of queues
        """Return when the store has all entries that exist now, of every hub.

        Args:
            namespace: whose entries; None for all.
            timeout: seconds.

        Raises:
            UnavailableError: it took longer; the rest stays in Redis and is delivered later.
        """
        names = {*await self._registry.all(), *self._noted} if namespace is None else {namespace}
        await self._drain(sorted(names), timeout, retry=True)

    # -- inspection ------------------------------------------------------------------------------

    @property
    def failure_reason(self) -> str:
        """The last error of the store in an outage; empty when it is available."""
        return self._outage.why

    async def namespaces(self) -> list[str]:
        """Return the namespaces of all hubs whose outbox may hold entries. One round trip.

        Raises:
            UnavailableError: Redis stayed away.
        """
        return await self._registry.all()

    async def lag(self, namespace: str) -> DurableLag:
        """Return how far the store is behind in a namespace, and whether Redis is behind the store. Six round trips.

        Raises:
            UnavailableError, AccessDeniedError: Redis stayed away, or does not allow it.
        """
        stream = self._stream(namespace)
        oldest, now_s = await stream.oldest(1), await server_time_us(self._client) / 1_000_000
        return DurableLag(
            namespace=namespace,
            waiting=await stream.length(),
            oldest=round(max(0.0, now_s - oldest[0].at_s), 3) if oldest else 0.0,
            delivered=await stream.delivered(),
            dead=await stream.dead_length(),
            recovery=await stream.recovery(),
        )

    async def dead_letters(self, namespace: str, *, limit: int = 100) -> list[DeadLetter]:
        """Return the documents that the store refused for good, oldest first. One round trip.

        Raises:
            UnavailableError, AccessDeniedError: as `lag`.
        """
        return await self._dead_letters.list(namespace, limit=limit)

    async def replay(self, namespace: str) -> int:
        """Deliver all dead letters of a namespace once more, oldest first; returns how many.

        Raises:
            UnavailableError, AccessDeniedError: as `lag`.
        """
        moved = await self._dead_letters.replay(namespace)
        if moved:
            await self._registry.enrol(namespace)
            self.note(namespace)
        return moved

    async def discard(self, namespace: str, ids: Sequence[str] | None = None) -> int:
        """Delete dead letters; returns how many there were. The store keeps what it had before.

        Args:
            namespace: whose.
            ids: which; None for all.

        Raises:
            InvalidError: an id is invalid.
            UnavailableError, AccessDeniedError: as `lag`.
        """
        return await self._dead_letters.discard(namespace, ids)

    # -- inside -----------------------------------------------------------------------------------

    def _stream(self, namespace: str) -> OutboxStream:
        found = self._streams.get(namespace)
        if found is None:
            found = self._streams[namespace] = OutboxStream(
                self._context, check_name("namespace", namespace), cache_ms=self._cache_ms, absent_ms=self._absent_ms
            )
        return found

    async def _drain(self, names: Iterable[str], timeout_s: float, *, retry: bool) -> None:
        names = list(names)
        try:
            async with asyncio.timeout(timeout_s):
                for name in names:
                    await self._drain_one(self._stream(name), retry=retry)
        except TimeoutError as error:
            why = self._outage.why or f"{await self._count(names)} changes still wait after {timeout_s:g} s"
            raise UnavailableError(self._durable.url, why) from error

    async def _drain_one(self, stream: OutboxStream, *, retry: bool) -> None:
        """Deliver all present entries, also those that another worker has claimed: twice does no harm."""
        newest = await stream.newest()
        while newest is not None and (page := await stream.oldest(_PAGE, upto=newest.id)):
            try:
                await self._delivery.deliver(stream, page)
            except (SharedMemoryError, OSError):
                if not retry or not self._outage.why:
                    raise
                await self._clock.sleep(self._outage.remaining_s)

    async def _count(self, names: Iterable[str]) -> int:
        try:
            return sum([await self._stream(name).length() for name in names])
        except SharedMemoryError:
            return 0
