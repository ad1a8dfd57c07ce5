"""The way from Redis into the durable tier: what a hub's changes leave in the outboxes gets there.

Redis holds each change until the tier has it: nothing is lost by a hub that dies, a tier that is away, or a batch that
is carried twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sharedmem.durable.context import DurableContext
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
from sharedmem.durable.purge import TierPurger
from sharedmem.errors import SharedMemoryError, UnavailableError
from sharedmem.models import DeadLetter, DurableLag
from sharedmem.redis.keys import check_name
from sharedmem.runtime import get_logger

_PAGE = 200
_CLOSE_TIMEOUT_S = 5.0
_logger = get_logger("durable")


class RelayLimits(NamedTuple):
    """How changes are carried."""

    absent_ms: int = 30_000
    """How long a deleted key is known to be nowhere, once the tier knows it."""
    batch: int = 500
    """Entries carried at once, at most."""
    idle_ms: int = 30_000
    """Entries that another worker has held for so long are taken over."""
    hurry: int = 10_000
    """While fewer entries wait, callers that change something go first."""
    settle_s: float = 10.0
    """Seconds that a caller waits for the tier."""


_DEFAULT_LIMITS = RelayLimits()


class OutboxRelay:
    """Carries the changes of namespaces into the durable tier.

    Args:
        context: the server and the durable store.
        cache_ms: how long a copy of knowledge stays in Redis once the tier has it.
        pace: how it goes about it.
        readmit: called with keys whose entries were gone from Redis when the tier had them.
    """

    def __init__(
        self,
        context: DurableContext,
        *,
        cache_ms: int,
        pace: RelayLimits = _DEFAULT_LIMITS,
        readmit: Readmit,
    ) -> None:
        line, keyspace, durable = context.client, context.keyspace, context.durable
        clock, background, counters = context.clock, context.background, context.counters
        self._client = line
        self._clock = clock
        self._settle_s = pace.settle_s
        self._durable = durable
        self._context, self._cache_ms, self._absent_ms = context, cache_ms, pace.absent_ms
        self._streams: dict[str, OutboxStream] = {}
        self._noted: set[str] = set()
        self._outage = TierOutage(clock, counters, durable.url)
        self._carrier = OutboxDelivery(durable, self._outage, counters, readmit=readmit)
        self._enrolment = NamespaceRegistry(line, keyspace.outboxes, clock)
        self.enrolled_until: Mapping[str, float] = self._enrolment.enrolled_until
        """By namespace: until when `enrol` has nothing to do, on the monotonic clock."""
        self._urgent = WriteThrough(self._carrier, self._stream, background)
        self._letters = DeadLetters(self._stream)
        self._purger = TierPurger(line, keyspace, durable, background, clock)
        self._worker = DeliveryWorker(
            self._carrier,
            self._stream,
            self._enrolment,
            background,
            clock,
            batch=pace.batch,
            idle_ms=pace.idle_ms,
            hurry=pace.hurry,
        )

    # -- the worker -------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to carry, and to purge now and then."""
        self._worker.start()
        self._purger.start()

    def note(self, namespace: str) -> None:
        """A change was kept in a namespace: it is carried soon. No round trip."""
        self._noted.add(namespace)
        self._worker.note(namespace)

    async def enrol(self, namespace: str, *, again: bool = False) -> None:
        """Make sure that other hubs carry what this one leaves, should it die; once a minute a round trip.

        Args:
            namespace: where it is about to change something.
            again: at once, since Redis has lost what it held.

        Raises:
            UnavailableError: Redis stayed away.
        """
        await self._enrolment.enrol(namespace, again=again)

    async def close(self, patience_s: float = _CLOSE_TIMEOUT_S) -> int:
        """Carry what this hub has left, for a few seconds at most, and end; returns how many changes stay in Redis.

        They are carried by another hub, or by the next one that is opened.
        """
        await self._purger.stop()
        await self._worker.stop()
        try:
            await self._drain(sorted(self._noted), patience_s, retry=False)
            stay = 0
        except SharedMemoryError as error:
            stay = await self._count(self._noted)
            _logger.warning("%d changes wait in Redis for the durable tier: %s", stay, error)
        return stay

    # -- for those who wait -----------------------------------------------------------------------

    async def settle(self, namespace: str, entries: Sequence[bytes], changed: Mapping[str, int] | None = None) -> None:
        """Return when the tier has what these entries hold; callers of the same moment share a put.

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
                await self._urgent.settle(namespace, entries, changed or {})
        except TimeoutError as error:
            self.note(namespace)
            raise UnavailableError(self._durable.url, f"it did not take this within {self._settle_s:g} s") from error
        except BaseException:
            self.note(namespace)
            raise

    async def drain(self, namespace: str | None = None, *, timeout: float = 60.0) -> None:  # noqa: ASYNC109  # as `drain` of queues
        """Return when all that has been left by now is in the tier, whoever left it.

        Args:
            namespace: whose changes; None for those of all.
            timeout: seconds.

        Raises:
            UnavailableError: it could not be done in that time; the rest stays in Redis and is carried later.
        """
        names = {*await self._enrolment.all(), *self._noted} if namespace is None else {namespace}
        await self._drain(sorted(names), timeout, retry=True)

    # -- looking at it ----------------------------------------------------------------------------

    @property
    def failure_reason(self) -> str:
        """Why the tier takes nothing just now, as far as this hub knows; empty when it does."""
        return self._outage.why

    async def namespaces(self) -> list[str]:
        """The namespaces in which something may wait, of all hubs. One round trip.

        Raises:
            UnavailableError: Redis stayed away.
        """
        return await self._enrolment.all()

    async def lag(self, namespace: str) -> DurableLag:
        """How far the tier is behind in a namespace, and whether Redis is behind the tier. Six round trips.

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
        """What the tier has refused for good, oldest first. One round trip.

        Raises:
            UnavailableError, AccessDeniedError: as `lag`.
        """
        return await self._letters.list(namespace, limit=limit)

    async def replay(self, namespace: str) -> int:
        """Try all dead letters of a namespace again, oldest first, each once; returns how many.

        Raises:
            UnavailableError, AccessDeniedError: as `lag`.
        """
        moved = await self._letters.replay(namespace)
        if moved:
            await self._enrolment.enrol(namespace)
            self.note(namespace)
        return moved

    async def discard(self, namespace: str, ids: Sequence[str] | None = None) -> int:
        """Give dead letters up for good; returns how many were there. The tier keeps what it had before.

        Args:
            namespace: whose.
            ids: which; None for all.

        Raises:
            InvalidError: an id that is none.
            UnavailableError, AccessDeniedError: as `lag`.
        """
        return await self._letters.discard(namespace, ids)

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
        """Carry all that is there now; who has been given it does not matter, since twice does no harm."""
        newest = await stream.newest()
        while newest is not None and (page := await stream.oldest(_PAGE, upto=newest.id)):
            try:
                await self._carrier.carry(stream, page)
            except (SharedMemoryError, OSError):
                if not retry or not self._outage.why:
                    raise
                await self._clock.sleep(self._outage.remaining_s)

    async def _count(self, names: Iterable[str]) -> int:
        try:
            return sum([await self._stream(name).length() for name in names])
        except SharedMemoryError:
            return 0
