"""The outbox relay of one hub: it delivers the entries of outboxes in Redis to the durable store.

Redis keeps each change until the store has it. So a dead hub, an outage of the store or a batch that is delivered twice
loses nothing.

Changes of its own hub wake the worker; from time to time it also looks for namespaces whose hubs have died. It delivers
one batch of a namespace at a time, for a few namespaces concurrently.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import NamedTuple

from sharedmem.clock import Clock, from_microseconds
from sharedmem.durable.outbox_delivery import (
    OutboxDelivery,
    Readmit,
    TierOutage,
    WriteThrough,
)
from sharedmem.durable.outbox_stream import DeadLetters, OutboxEntry, OutboxStream
from sharedmem.durable.protocol import Durable, DurableContext
from sharedmem.durable.purge import TOMBSTONE_LIFE_US, TierPurger
from sharedmem.errors import AccessDeniedError, SharedMemoryError, UnavailableError
from sharedmem.models import DeadLetter, DurableLag, Spending
from sharedmem.redis.change_stream import as_list, text_of
from sharedmem.redis.client import RedisClient
from sharedmem.redis.keys import check_name
from sharedmem.redis.replies import ServerError, public_error
from sharedmem.runtime import get_logger
from sharedmem.runtime.concurrency import Background, BackgroundTask

_LANES = 2
_CLOSE_TIMEOUT_S = 5.0
_AT_ONCE = 4
_FIRST_COUNT = 32
_MOST_FIELDS = 4_000
_MOST_BYTES = 4 << 20
# While changes arrive, callers have priority: batches grow, and many changes of a key become one document.
_SHORTEST_GATHER_S, _LONGEST_GATHER_S = 0.05, 0.9
_GATHER_PER_WORK = 8
_REST_S = 1.0
_DISCOVER_EVERY_S = 5.0
_REGISTER_AGAIN_S = 60.0
# Much longer than the interval in which a writing hub enrols again.
_FORGET_AFTER_S = 600.0
_FRESH_FOR = timedelta(microseconds=TOMBSTONE_LIFE_US) - timedelta(days=1)
_NAMESPACES_AT_ONCE = 100
# Failures of the store or of Redis, including a foreign key under the name of an outbox.
_TRANSIENT_ERRORS = (SharedMemoryError, OSError)
_logger = get_logger("durable")


class BatchSizer:
    """Chooses how many entries to read next, so that a batch is neither slow nor inefficiently small.

    Args:
        most: upper limit.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.count = min(_FIRST_COUNT, most)

    def adapt(self, entries: list[OutboxEntry]) -> None:
        """Adapt the count to the size of a batch."""
        fields = sum(len(entry.fields) for entry in entries) // 2
        size = sum(entry.size for entry in entries)
        if fields > _MOST_FIELDS or size > _MOST_BYTES:
            self.count = max(1, self.count // 2)
        elif len(entries) >= self.count and fields <= _MOST_FIELDS // 2 and size <= _MOST_BYTES // 2:
            self.count = min(self._most, self.count * 2)


class NamespaceRegistry:
    """The set of namespaces whose outbox may hold entries, so that other hubs take over when one dies.

    Args:
        client: of the server.
        outboxes: key of the set.
        clock: shows when to enrol again.
    """

    def __init__(self, client: RedisClient, outboxes: bytes, clock: Clock) -> None:
        self._client = client
        self._outboxes = outboxes
        self._clock = clock
        self.enrolled_until: dict[str, float] = {}
        """By namespace: until when `enrol` has nothing to do, on the monotonic clock."""
        self._empty_since: dict[str, float] = {}

    async def enrol(self, namespace: str, *, again: bool = False) -> None:
        """Add a namespace to the set; at most one round trip a minute, unless `again`.

        If the user's ACL forbids it, only its own hubs deliver the namespace.

        Raises:
            UnavailableError: the server cannot be reached.
        """
        now = self._clock.monotonic()
        if now < self.enrolled_until.get(namespace, float("-inf")) and not again:
            return
        self.enrolled_until[namespace] = now + _REGISTER_AGAIN_S
        try:
            with suppress(AccessDeniedError):
                await self._client.call("SADD", self._outboxes, namespace)
        except SharedMemoryError:
            del self.enrolled_until[namespace]
            raise

    async def all(self) -> list[str]:
        """Return the namespaces of all hubs, or of this hub if an ACL forbids reading the set. One round trip.

        Raises:
            UnavailableError: the server cannot be reached.
        """
        try:
            found = {text_of(name) for name in as_list(await self._client.call("SMEMBERS", self._outboxes))}
        except AccessDeniedError:
            found = set()
        except ServerError as error:
            raise public_error(error, self._client.address) from error
        return sorted(found | set(self.enrolled_until))

    async def note_visit(self, namespace: str, *, empty: bool) -> None:
        """Remove a namespace from the set if its outbox has been empty for long. Rarely a round trip.

        Raises:
            UnavailableError: the server cannot be reached.
        """
        now = self._clock.monotonic()
        if not empty:
            self._empty_since.pop(namespace, None)
        elif now > self._empty_since.setdefault(namespace, now) + _FORGET_AFTER_S:
            self._empty_since.pop(namespace)
            self.enrolled_until.pop(namespace, None)
            with suppress(AccessDeniedError):
                await self._client.call("SREM", self._outboxes, namespace)


class DeliveryWorker:
    """Delivers batches while a hub is open.

    Args:
        delivery: delivers them.
        stream_of: the outbox of a namespace.
        registry: the namespaces of all hubs.
        spending: what the store charges this hub; reported with each discovery.
        background: runs the work.
        clock: paces it.
        batch: most entries of one batch.
        idle_ms: idle time after which entries of another worker are taken over.
        hurry: from this many waiting entries on, callers no longer have priority.
    """

    def __init__(
        self,
        delivery: OutboxDelivery,
        stream_of: Callable[[str], OutboxStream],
        registry: NamespaceRegistry,
        spending: TierSpending,
        background: Background,
        clock: Clock,
        *,
        batch: int,
        idle_ms: int,
        hurry: int,
    ) -> None:
        self._delivery = delivery
        self._stream_of = stream_of
        self._registry = registry
        self._spending = spending
        self._background = background
        self._clock = clock
        self._batch = batch
        self._idle_ms = idle_ms
        self._hurry = hurry
        self._due: set[str] = set()
        self._serving: dict[str, BackgroundTask] = {}
        self._woken = asyncio.Event()
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._work: BackgroundTask | None = None
        self._looked_at = float("-inf")

    def note(self, namespace: str) -> None:
        """Wake the worker for a namespace with a new entry."""
        if namespace not in self._due:
            self._due.add(namespace)
            self._woken.set()

    def start(self) -> None:
        """Start the worker, unless it runs."""
        if self._work is None or self._work.done:
            self._work = self._background.start("drain outboxes", self._run())

    async def stop(self) -> None:
        """Stop the worker; unfinished entries stay in the outbox until a worker delivers them again."""
        works = [self._work, *self._serving.values()]
        self._work = None
        await asyncio.gather(*(work.stop() for work in works if work is not None))

    async def _run(self) -> None:
        while True:
            if self._clock.monotonic() >= self._looked_at + _DISCOVER_EVERY_S:
                await self._look_around()
            self._woken.clear()
            for namespace in self._due - self._serving.keys():
                self._due.discard(namespace)
                self._serving[namespace] = self._background.start(f"drain {namespace}", self._serve(namespace))
            await self._rest()

    async def _rest(self) -> None:
        """Sleep until there are new entries, or until the next discovery."""
        # With jitter, so that the hubs of a server do not all look at once.
        pause_s = _DISCOVER_EVERY_S * random.uniform(1.0, 1.3)  # noqa: S311  # guards no secret
        waits = [asyncio.ensure_future(self._woken.wait()), asyncio.ensure_future(self._clock.sleep(pause_s))]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _look_around(self) -> None:
        """Find the namespaces with entries, from any hub."""
        self._looked_at = self._clock.monotonic()
        await self._spending.report()
        try:
            names = await self._registry.all()
        except SharedMemoryError as error:
            _logger.info("the namespaces with changes cannot be listed: %s", error)
            return
        for first in range(0, len(names), _NAMESPACES_AT_ONCE):
            await asyncio.gather(*map(self._look, names[first : first + _NAMESPACES_AT_ONCE]))

    async def _look(self, namespace: str) -> None:
        try:
            waiting = await self._stream_of(namespace).length()
            await self._registry.note_visit(namespace, empty=not waiting)
        except _TRANSIENT_ERRORS as error:
            _logger.info("the outbox of %s cannot be checked: %s", namespace, error)
            return
        if waiting:
            self._due.add(namespace)

    async def _serve(self, namespace: str) -> None:
        """Deliver batches of a namespace until no entry is left that may be delivered now."""
        stream = self._stream_of(namespace)
        batches = BatchSizer(self._batch)
        try:
            while (worked_s := await self._deliver_next(stream, batches)) is not None:
                await self._yield_to_writers(stream, worked_s)
        finally:
            del self._serving[namespace]
            self._woken.set()

    async def _deliver_next(self, stream: OutboxStream, batches: BatchSizer) -> float | None:
        """Deliver one batch, in turn with other namespaces; return its seconds, or None without entries."""
        async with self._places:
            began = self._clock.monotonic()
            try:
                entries = await self._fetched(stream, batches.count)
            except _TRANSIENT_ERRORS as error:
                # It is tried again at the next discovery.
                _logger.info("the outbox of %s cannot be read: %s", stream.namespace, error)
                return None
            if not entries:
                return None
            await self._deliver(stream, entries)
            batches.adapt(entries)
            return self._clock.monotonic() - began

    async def _fetched(self, stream: OutboxStream, count: int) -> list[OutboxEntry]:
        await self._registry.enrol(stream.namespace)
        return await stream.fresh(count) or await stream.claim_abandoned(count, idle_ms=self._idle_ms)

    async def _yield_to_writers(self, stream: OutboxStream, worked_s: float) -> None:
        """Pause while callers of this hub make changes, unless too many entries wait."""
        if stream.namespace not in self._due:
            return
        self._due.discard(stream.namespace)
        with suppress(*_TRANSIENT_ERRORS):
            if await stream.length() < self._hurry:
                pause_s = max(_SHORTEST_GATHER_S, min(worked_s * _GATHER_PER_WORK, _LONGEST_GATHER_S))
                await self._clock.sleep(pause_s)

    async def _deliver(self, stream: OutboxStream, entries: list[OutboxEntry]) -> None:
        """Deliver a batch, without a time limit."""
        fetched = self._clock.now()
        while True:
            pause_s = self._delivery.outage.remaining_s
            await self._clock.sleep(pause_s)
            try:
                was_away = pause_s > 0 or self._clock.now() - fetched > _FRESH_FOR
                if await stream.wait_until_unattended(entries) or was_away:
                    # A drain has delivered them, or may have during an outage. Or this machine has slept for long:
                    # another worker may have delivered them, and the tombstone of a later deletion may be purged.
                    entries, fetched = await stream.read([entry.id for entry in entries]), self._clock.now()
                await self._delivery.deliver(stream, entries)
            except _TRANSIENT_ERRORS as error:
                # The outage object reports the problem of the tier.
                _logger.info("%d changes of %s stay in Redis for now: %s", len(entries), stream.namespace, error)
                await self._clock.sleep(0.0 if self._delivery.outage.remaining_s else _REST_S)
            else:
                return


class _Drain:
    """Hands the entries that are present now to the lanes of a drain, each to one lane at a time.

    Args:
        stream: the outbox.
        newest: id of the newest entry of the drain.
        sizer: chooses the sizes of batches.
    """

    def __init__(self, stream: OutboxStream, newest: bytes, sizer: BatchSizer) -> None:
        self.stream = stream
        self.sizer = sizer
        self._newest = newest
        self._after = b""
        self._turn = asyncio.Lock()

    async def next(self) -> list[OutboxEntry]:
        """Return the next entries that this hub does not deliver yet; empty when none is left."""
        async with self._turn:
            while True:
                page, free = await self.stream.oldest_free(self.sizer.count, after=self._after, upto=self._newest)
                if not page and not self._after:
                    return []
                # After the last page it begins anew: entries may have failed, or be in delivery elsewhere.
                self._after = page[-1].id if page else b""
                if free:
                    return free


class RelayLimits(NamedTuple):
    """Batch sizes and timeouts of a relay."""

    absent_ms: int = 30_000
    """Milliseconds for which Redis stores that a key is deleted, once the store has the tombstone."""
    batch: int = 500
    """Most entries of one batch."""
    idle_ms: int = 30_000
    """Idle milliseconds after which entries of another worker are claimed."""
    hurry: int = 10_000
    """Below this many waiting entries the worker yields to callers."""
    settle_s: float = 10.0
    """Seconds that a write-through caller waits for the store."""


_DEFAULT_LIMITS = RelayLimits()


class OutboxRelay:
    """Delivers the changes of namespaces to the durable store.

    Args:
        context: the server and the durable store.
        cache_ms: milliseconds for which a copy of knowledge stays in Redis once the store has it.
        limits: batch sizes and timeouts.
        readmit: called with changes whose entries Redis had lost when the store had them.
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
        self._settle_s, self._batch = limits.settle_s, limits.batch
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
        self.spending = TierSpending(client, keyspace.spending, durable, clock)
        """What this hub and all hubs have spent on the store."""
        self._worker = DeliveryWorker(
            self._delivery,
            self._stream,
            self._registry,
            self.spending,
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
            namespace: namespace that will be changed.
            again: register at once, since Redis has lost its data.

        Raises:
            UnavailableError: Redis cannot be reached.
        """
        await self._registry.enrol(namespace, again=again)

    async def close(self, patience_s: float = _CLOSE_TIMEOUT_S) -> int:
        """Deliver this hub's entries for a few seconds at most, and stop; return how many entries stay in Redis.

        Another hub delivers these, or the next hub that opens.
        """
        await self.stop()
        try:
            await self._drain(sorted(self._noted), patience_s, retry=False)
            stay = 0
        except SharedMemoryError as error:
            stay = await self._count(self._noted)
            _logger.warning("%d changes wait in Redis for the durable tier: %s", stay, error)
        await self.spending.report()
        return stay

    # -- waiting -----------------------------------------------------------------------------------

    async def settle(self, namespace: str, entries: Sequence[bytes], changed: Mapping[str, int] | None = None) -> None:
        """Wait until the store has these entries; concurrent callers share a put.

        Args:
            namespace: namespace of the outbox.
            entries: ids of entries.
            changed: the stamps of the changed keys. If an entry is missing and the tier has these stamps, another
                worker has delivered it; otherwise Redis has lost it.

        Raises:
            ChangeLostError: Redis has lost an entry.
            UnavailableError: the tier did not store them in time, or has rejected one for good.
            LimitedError, AccessDeniedError: as `Durable.put`. In each case the entries stay, and are delivered later.
        """
        try:
            async with asyncio.timeout(self._settle_s):
                await self._write_through.settle(namespace, entries, changed or {})
        except TimeoutError as error:
            self.note(namespace)
            raise UnavailableError(self._durable.url, f"it did not store this within {self._settle_s:g} s") from error
        except BaseException:
            self.note(namespace)
            raise

    async def drain(self, namespace: str | None = None, *, timeout: float = 60.0) -> None:  # noqa: ASYNC109  # as `drain` of queues
        """Wait until the store has all present entries of all hubs.

        Args:
            namespace: the namespace of the entries; None: all.
            timeout: longest wait in seconds.

        Raises:
            UnavailableError: the wait was longer; the rest stays in Redis and is delivered later.
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
            UnavailableError: Redis cannot be reached.
        """
        return await self._registry.all()

    async def lag(self, namespace: str) -> DurableLag:
        """Return how far the store is behind in a namespace, and whether Redis is behind the store. Six round trips.

        Raises:
            UnavailableError, AccessDeniedError: Redis cannot be reached, or does not allow it.
        """
        stream = self._stream(namespace)
        oldest, now_s = await stream.oldest(1), await self._client.server_time_us() / 1_000_000
        return DurableLag(
            namespace=namespace,
            waiting=await stream.length(),
            oldest=round(max(0.0, now_s - oldest[0].at_s), 3) if oldest else 0.0,
            delivered=await stream.delivered(),
            dead=await stream.dead_length(),
            recovery=await stream.recovery(),
        )

    async def dead_letters(self, namespace: str, *, limit: int = 100) -> list[DeadLetter]:
        """Return the documents that the store rejected for good, oldest first. One round trip.

        Raises:
            UnavailableError, AccessDeniedError: as `lag`.
        """
        return await self._dead_letters.list(namespace, limit=limit)

    async def replay(self, namespace: str) -> int:
        """Deliver all dead letters of a namespace once more, oldest first; return their number.

        Raises:
            UnavailableError, AccessDeniedError: as `lag`.
        """
        moved = await self._dead_letters.replay(namespace)
        if moved:
            await self._registry.enrol(namespace)
            self.note(namespace)
        return moved

    async def discard(self, namespace: str, ids: Sequence[str] | None = None) -> int:
        """Delete dead letters; return their number. The store keeps its earlier documents.

        Args:
            namespace: the namespace.
            ids: ids of dead letters; None: all.

        Raises:
            InvalidError: an id is invalid.
            UnavailableError, AccessDeniedError: as `lag`.
        """
        return await self._dead_letters.discard(namespace, ids)

    # -- internals -----------------------------------------------------------------------------------

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
        """Deliver all present entries, also entries that another hub has claimed: delivery is idempotent."""
        newest = await stream.newest()
        if newest is None:
            return
        drain = _Drain(stream, newest.id, BatchSizer(self._batch))
        # One lane reads and settles while the store writes the batch of the other.
        lanes = (self._drain_lane(drain, retry=retry) for _ in range(_LANES))
        for outcome in await asyncio.gather(*lanes, return_exceptions=True):
            if outcome is not None:
                raise outcome

    async def _drain_lane(self, drain: _Drain, *, retry: bool) -> None:
        while entries := await drain.next():
            try:
                await self._delivery.deliver(drain.stream, entries)
            except (SharedMemoryError, OSError):
                if not retry or not self._outage.why:
                    raise
                await self._clock.sleep(self._outage.remaining_s)
            else:
                drain.sizer.adapt(entries)

    async def _count(self, names: Iterable[str]) -> int:
        try:
            return sum([await self._stream(name).length() for name in names])
        except SharedMemoryError:
            return 0


# -- what the tier costs -------------------------------------------------------------------------


_UNITS, _SINCE = "request_units", "since_ms"


class TierSpending:
    """The request units of one hub, and the total of all hubs.

    The total is approximate: what a hub spends in the seconds before it is killed is missing, and a report whose reply
    was lost may count twice.

    Args:
        client: client of the server.
        key: key of the hash with the total.
        durable: the store that charges this hub.
        clock: gives the time of the first report.
    """

    def __init__(self, client: RedisClient, key: bytes, durable: Durable, clock: Clock) -> None:
        self._client = client
        self._key = key
        self._durable = durable
        self._clock = clock
        self._reported = 0.0
        self._is_allowed = True
        self._turn = asyncio.Lock()

    async def report(self) -> None:
        """Add what this hub spent since its last report. Two round trips; none if it spent nothing."""
        async with self._turn:
            spent = self._durable.charges().request_units
            units = round(spent - self._reported, 2)
            if units > 0 and self._is_allowed and await self._add(units):
                self._reported = spent

    async def _add(self, units: float) -> bool:
        """Add units to the total; return whether that succeeded."""
        since_ms = round(self._clock.now().timestamp() * 1000)
        try:
            await self._client.call("HSETNX", self._key, _SINCE, since_ms)
            await self._client.call("HINCRBYFLOAT", self._key, _UNITS, repr(units))
        except (AccessDeniedError, ServerError) as refused:
            # A user limited by an older ACL, or a foreign value under the key: no later report can succeed either.
            self._is_allowed = False
            _logger.warning("request units of this hub are missing in the total of the server: %s", refused)
        except SharedMemoryError as error:
            _logger.info("request units are not reported yet: %s", error)
        else:
            return True
        return False

    async def total(self) -> Spending:
        """Return the total of all hubs. One round trip, after that of a report.

        Raises:
            UnavailableError, AccessDeniedError: Redis cannot be reached, or does not allow it.
        """
        await self.report()
        try:
            reply = await self._client.call("HMGET", self._key, _UNITS, _SINCE)
        except ServerError:  # a foreign value, of which `report` has warned
            reply = None
        units, since = reply if isinstance(reply, list) else (None, None)
        return Spending(
            request_units=round(float(units), 2) if isinstance(units, bytes) else 0.0,
            since=from_microseconds(int(since) * 1000) if isinstance(since, bytes) else None,
        )
