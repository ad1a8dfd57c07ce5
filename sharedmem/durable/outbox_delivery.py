"""Deliver outbox entries to the durable store, for the relay's worker or at once while callers wait.

The order in which entries of one key arrive does not matter, even from several hubs: a document is replaced only by one
with a higher stamp. So hubs share the work without coordination.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, Protocol

from sharedmem.clock import Clock
from sharedmem.durable.outbox_documents import OutboxBatch, OutboxDocument, newest_of_each
from sharedmem.durable.outbox_stream import (
    OutboxEntry,
    OutboxStream,
    SettledEntry,
    entry_time_ms,
)
from sharedmem.durable.protocol import Durable
from sharedmem.errors import (
    InternalError,
    InvalidError,
    SharedMemoryError,
    UnavailableError,
    UsageError,
)
from sharedmem.models import DurableRecord, Outcome, Put
from sharedmem.redis.durability import ChangeLostError
from sharedmem.runtime import Counters, get_logger
from sharedmem.runtime.concurrency import Background, backoff_pause

OUTAGES = "durable_outages"
"""Counter of outages of the tier."""

_FIRST_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 15.0
_logger = get_logger("durable")


class TierOutage:
    """Tracks an outage of the durable store; all tasks of a hub share it.

    Args:
        clock: measures the pauses.
        counters: count each outage.
        url: of the durable store.
    """

    def __init__(self, clock: Clock, counters: Counters, url: str) -> None:
        self._clock = clock
        self._counters = counters
        self._url = url
        self._since: float | None = None
        self._attempts = 0
        self._until = 0.0
        self.why = ""
        """Its last error; empty while it is available."""

    @property
    def remaining_s(self) -> float:
        """Seconds until the next attempt."""
        return max(0.0, self._until - self._clock.monotonic()) if self._since is not None else 0.0

    def failed(self, error: Exception) -> None:
        """Record a failure: every task pauses, longer each time."""
        now = self._clock.monotonic()
        self.why = str(error)
        if self._since is None:
            self._since = now
            self._counters.increment(OUTAGES)
            _logger.warning("the durable tier is unavailable; changes wait in Redis: %s", error)
        if now < self._until:
            return  # another task has just recorded it
        spread = backoff_pause(self._attempts, _FIRST_PAUSE_S, _LONGEST_PAUSE_S, least=0.5)
        wished = getattr(error, "retry_after", 0.0)
        self._until = now + max(spread, min(wished, _LONGEST_PAUSE_S))
        self._attempts += 1

    def over(self) -> None:
        """Record a success: the outage is over."""
        if self._since is not None:
            _logger.warning("%s is available again, after %.1f s", self._url, self._clock.monotonic() - self._since)
            self._since, self.why = None, ""
            self._attempts = 0


REFUSED = "durable_refused"
"""Counter of documents that became dead letters."""
ENTRIES = "durable_entries"
"""Counter of outbox entries that the tier has stored."""

_MOST_DOCUMENTS = 500
_PARTS_AT_ONCE = 4
_REASON_LENGTH = 500

Refusals = Mapping[tuple[str, str], str]
"""Reasons for rejected documents, by key and element."""


class Readmit(Protocol):
    """Updates Redis with changes that the store has, but whose entries Redis lost: `DataLossGuard.readmit`."""

    async def __call__(self, namespace: str, changed: Mapping[str, int], *, left_ms: int) -> set[str]:
        """Take stamps by key, written at that time (milliseconds since 1970); return keys whose change may be lost."""


class Delivered(NamedTuple):
    """The outcome of a delivery."""

    refused: Mapping[bytes, str] = MappingProxyType({})
    """Reasons by the id of each entry with a document that the store rejects for good."""
    lost: Container[str] = frozenset()
    """Keys whose changes Redis lost before the delivery; later changes may be based on older data."""


class OutboxDelivery:
    """Delivers entries of outboxes to the durable store.

    Args:
        durable: the store.
        outage: records failures and successes.
        counters: count entries and refusals.
        readmit: called with changes whose entries Redis had lost when the store had them.
        put_s: timeout of one put of a few hundred documents.
    """

    def __init__(
        self, durable: Durable, outage: TierOutage, counters: Counters, *, readmit: Readmit, put_s: float = 60.0
    ) -> None:
        self._durable = durable
        self._counters = counters
        self._put_s = put_s
        self.readmit = readmit
        self.outage = outage

    async def deliver(self, stream: OutboxStream, entries: Sequence[OutboxEntry]) -> Delivered:
        """Put the documents of entries, then acknowledge the entries; rejected documents become dead letters.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: the store or Redis is unavailable; nothing is lost.
        """
        with stream.delivering(entries):
            return await self._deliver(stream, entries)

    async def _deliver(self, stream: OutboxStream, entries: Sequence[OutboxEntry]) -> Delivered:
        batch = OutboxBatch((entry.fields for entry in entries), stream.namespace)
        for _ in batch.parse():
            # Each step may take milliseconds: let other tasks run between them.
            await asyncio.sleep(0)
        held = list(batch.documents())
        await asyncio.sleep(0)
        records = newest_of_each(
            left.record for lefts in held for left in lefts if left.record and not left.is_superseded
        )
        refusals = await self.put(records)
        last = {(record.key, record.element): record.stamp for record in records}
        done = [_settled_entry(entry, lefts, refusals, last) for entry, lefts in zip(entries, held, strict=True)]
        lost: Container[str] = frozenset()
        if await stream.settle(done) < len(done):
            # Another worker settled them, or Redis lost them, and the hub that restored it may have missed them.
            changed: dict[str, int] = {}
            for record in records:
                changed[record.key] = max(record.stamp, changed.get(record.key, 0))
            lost = await self.readmit(stream.namespace, changed, left_ms=min(entry.at_ms for entry in entries))
        self._log_refusals(stream.namespace, done)
        return Delivered({one.id: one.refused[0][1] for one in done if one.refused}, lost)

    async def has(self, key: str, stamp: int) -> bool:
        """Return whether the store has a change of a key, or a later one.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: the store is unavailable.
        """
        head = await self._durable.get(key) if stamp else None
        return not stamp or (head is not None and head.stamp >= stamp)

    async def put(self, records: Sequence[DurableRecord]) -> Refusals:
        """Put documents, and return the ones that the store rejects for good.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: the store is unavailable.
        """
        refusals: dict[tuple[str, str], str] = {}
        parts = [records[first : first + _MOST_DOCUMENTS] for first in range(0, len(records), _MOST_DOCUMENTS)]
        for first in range(0, len(parts), _PARTS_AT_ONCE):
            some = parts[first : first + _PARTS_AT_ONCE]
            patience_s = self._put_s * len(some)
            # Several at once may share a commit of the store.
            answers = await asyncio.gather(*(self._put(part, patience_s) for part in some), return_exceptions=True)
            for part, answer in zip(some, answers, strict=True):
                self._counters.observe_batch("durable.put", len(part))
                if isinstance(answer, BaseException):
                    if isinstance(answer, Exception):
                        self.outage.failed(answer)
                    raise answer
                for record, put in zip(part, answer, strict=True):
                    if put.outcome == Outcome.REFUSED:
                        refusals[record.key, record.element] = put.reason[:_REASON_LENGTH]
            self.outage.over()
        return refusals

    async def _put(self, records: Sequence[DurableRecord], patience_s: float) -> list[Put]:
        """Return one outcome a document; documents that make the whole put fail are found by bisection."""
        try:
            async with asyncio.timeout(patience_s):
                return await self._durable.put(records)
        except TimeoutError as error:
            why = f"it does not store {len(records)} documents within {patience_s:g} s"
            raise UnavailableError(self._durable.url, why) from error
        except Exception as error:
            if _is_store_failure(error):
                raise
            _logger.exception("a put of %d documents failed", len(records))
            if len(records) == 1:
                return [Put(outcome=Outcome.REFUSED, reason=f"{type(error).__name__}: {error}")]
        middle = len(records) // 2
        return [*await self._put(records[:middle], patience_s), *await self._put(records[middle:], patience_s)]

    def _log_refusals(self, namespace: str, done: Sequence[SettledEntry]) -> None:
        self._counters.add(ENTRIES, len(done))
        for one in done:
            for _, reason in one.refused:
                self._counters.increment(REFUSED)
                _logger.error("namespace %s has a dead letter: %s; see `sharedmem durable dead`", namespace, reason)


def _is_store_failure(error: Exception) -> bool:
    """Return whether the store failed, rather than rejected a document."""
    if isinstance(error, InvalidError | InternalError):
        return False
    return isinstance(error, SharedMemoryError | OSError)


def _settled_entry(
    entry: OutboxEntry, lefts: Sequence[OutboxDocument], refusals: Refusals, last: Mapping[tuple[str, str], int]
) -> SettledEntry:
    stored: list[DurableRecord] = []
    refused: list[tuple[int, str]] = []
    for field, left in enumerate(lefts, 1):
        record = left.record
        if record is None:
            refused.append((field, left.problem[:_REASON_LENGTH]))
            continue
        place = record.key, record.element
        # A document that a newer one superseded counts as stored, whatever the outcome of the newer one.
        if place in refusals and record.stamp == last[place] and not left.is_superseded:
            refused.append((field, refusals[place]))
        else:
            stored.append(record)
    return SettledEntry(entry.id, entry.stamp, stored, refused)


_MOST_ENTRIES = 500
# While the store writes for some callers, Redis is asked for the others.
_PUTS_AT_ONCE = 2


@dataclass(frozen=True, eq=False)
class WriteThroughWaiter:
    """One caller that waits for entries to be settled."""

    entries: Sequence[bytes]
    changed: Mapping[str, int]
    future: asyncio.Future[None]

    def owns(self, stamp: bytes) -> bool:
        """Return whether an entry under one of the ids is of this caller's change.

        After a loss of data another entry may have the same id, but it has a higher stamp.

        Args:
            stamp: as `OutboxEntry.stamp`; empty: there is no entry.
        """
        return stamp.isdigit() and int(stamp) <= max(self.changed.values(), default=0)


_Waiters = list[WriteThroughWaiter]


class WriteThrough:
    """Settles the entries of waiting callers at once, many with one put.

    Args:
        delivery: delivers them.
        stream_of: the outbox of a namespace.
        background: runs the shared put, which no caller's cancellation ends.
    """

    def __init__(
        self, delivery: OutboxDelivery, stream_of: Callable[[str], OutboxStream], background: Background
    ) -> None:
        self._delivery = delivery
        self._stream_of = stream_of
        self._background = background
        self._waiting: dict[str, _Waiters] = {}
        self._running: Counter[str] = Counter()

    async def settle(self, namespace: str, entries: Sequence[bytes], changed: Mapping[str, int]) -> None:
        """Wait until the store has the entries; missing ones were settled by another worker, or are lost.

        Two round trips and a put, shared with the callers that arrived during the previous put.

        Raises:
            ChangeLostError: an entry is missing, and the store lacks its stamps; or Redis has lost that change, and
                keys were changed since, perhaps without it.
            UnavailableError: the store is unavailable, or rejects a document for good.
            LimitedError, AccessDeniedError: as `Durable.put`.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(namespace, []).append(WriteThroughWaiter(entries, changed, future))
        if self._running[namespace] < _PUTS_AT_ONCE:
            self._begin(namespace)
        await future

    def _begin(self, namespace: str) -> None:
        try:
            work = self._background.start(f"settle {namespace}", self._deliver(namespace))
        except UsageError as error:
            _fail_waiters(self._waiting.pop(namespace, []), error)
            return
        self._running[namespace] += 1
        work.when_done(lambda: self._ended(namespace))

    def _ended(self, namespace: str) -> None:
        self._running[namespace] -= 1
        if not self._running[namespace]:
            del self._running[namespace]
        if namespace in self._waiting:
            # They arrived after the task's last check, or the task was stopped before its first.
            self._begin(namespace)

    async def _deliver(self, namespace: str) -> None:
        while waiting := self._next(namespace):
            await self._deliver_to_waiters(self._stream_of(namespace), waiting)

    def _next(self, namespace: str) -> _Waiters:
        """Take the next waiters that share a put."""
        waiting = self._waiting.pop(namespace, [])
        count = size = 0
        for waiter in waiting:
            size += len(waiter.entries)
            if count and size > _MOST_ENTRIES:
                self._waiting[namespace] = waiting[count:]
                break
            count += 1
        return waiting[:count]

    async def _deliver_to_waiters(self, stream: OutboxStream, waiting: _Waiters) -> None:
        try:
            found = await stream.read([one for waiter in waiting for one in waiter.entries])
            delivered = await self._delivery.deliver(stream, found) if found else Delivered()
            lost = await self._lost(stream.namespace, waiting, {entry.id: entry.stamp for entry in found}, delivered)
        except asyncio.CancelledError:
            _fail_waiters(waiting, UsageError("a change on its way to the durable tier", "its hub was closed"))
            raise
        except Exception as error:  # noqa: BLE001  # any exception belongs to the waiting callers
            _fail_waiters(waiting, error)
            return
        for waiter in waiting:
            why = next((delivered.refused[one] for one in waiter.entries if one in delivered.refused), None)
            if waiter.future.done():
                continue
            if why is not None:
                refusal = UnavailableError("the durable tier", f"it rejects this for good: {why}")
                waiter.future.set_exception(refusal)
            elif (loss := lost.get(waiter)) is not None:
                waiter.future.set_exception(loss)
            else:
                waiter.future.set_result(None)

    async def _lost(
        self, namespace: str, waiting: _Waiters, found: Mapping[bytes, bytes], delivered: Delivered
    ) -> dict[WriteThroughWaiter, ChangeLostError]:
        """Return the error of each waiter whose change Redis has lost, or may have lost: flushed or rolled back.

        Args:
            namespace: the namespace.
            waiting: the waiters.
            found: by id, the first stamp of each entry that was in the outbox.
            delivered: what became of these.
        """
        lost = {}
        for waiter in waiting:
            keys = [key for key, stamp in waiter.changed.items() if stamp]
            gone = [entry_time_ms(one) for one in waiter.entries if not waiter.owns(found.get(one, b""))]
            if gone and (key := await self._missing(waiter)):
                lost[waiter] = ChangeLostError(key)
                continue
            if gone:
                changed = {key: waiter.changed[key] for key in keys}
                doubtful: Container[str] = await self._delivery.readmit(namespace, changed, left_ms=min(gone))
            else:
                doubtful = delivered.lost
            if key := next((key for key in keys if key in doubtful), ""):
                lost[waiter] = ChangeLostError(key, perhaps=True)
        return lost

    async def _missing(self, waiter: WriteThroughWaiter) -> str:
        """Return a key of which the store has neither that change nor a later one; empty if it has all."""
        for key, stamp in waiter.changed.items():
            if not await self._delivery.has(key, stamp):
                return key
        return ""


def _fail_waiters(waiting: _Waiters, error: Exception) -> None:
    for waiter in waiting:
        if not waiter.future.done():
            waiter.future.set_exception(error)
            # Its caller may have been cancelled just now.
            waiter.future.exception()
