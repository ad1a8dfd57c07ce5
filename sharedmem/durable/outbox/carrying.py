"""Carrying: what entries of an outbox hold is put into the durable tier, and only then do the entries go.

The order in which entries of one key arrive does not matter, be they of one hub or of many: a document gives way only
to a higher stamp. So hubs share the work without asking each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol

from sharedmem.durable.outbox.entries import Left, documents_of, newest
from sharedmem.durable.outbox.outage import Outage
from sharedmem.durable.outbox.stream import Done, Entry, OutboxStream
from sharedmem.durable.protocol import Durable
from sharedmem.errors import InternalError, InvalidError, SharedMemoryError, UnavailableError
from sharedmem.models import DurableRecord, Outcome, Put
from sharedmem.telemetry import Counters, get_logger

REFUSED = "durable_refused"
"""Counter of documents that became dead letters."""
ENTRIES = "durable_entries"
"""Counter of entries of outboxes that the tier has."""

_MOST_DOCUMENTS = 500
_REASON_LENGTH = 500
_logger = get_logger("durable")

Refusals = Mapping[tuple[str, str], str]
"""Why the tier refused a document, by its key and element."""


class Readmit(Protocol):
    """Lets Redis hear of keys that the tier has although Redis lost the entries: `Joiner.readmit`."""

    async def __call__(self, namespace: str, keys: Collection[str], *, left_ms: int) -> None:
        """Where entries that were left at that time, in milliseconds since 1970, are older than the present data."""


class Carrier:
    """Carries entries from outboxes to the durable tier.

    Args:
        durable: the tier.
        outage: told when the tier cannot take something, and when it can again.
        counters: told of what was refused.
        readmit: called with keys whose entries were gone from Redis when the tier had them.
        put_s: seconds that the tier gets for a few hundred documents.
    """

    def __init__(
        self, durable: Durable, outage: Outage, counters: Counters, *, readmit: Readmit, put_s: float = 60.0
    ) -> None:
        self._durable = durable
        self._counters = counters
        self._put_s = put_s
        self.readmit = readmit
        self.outage = outage

    async def carry(self, stream: OutboxStream, entries: Sequence[Entry]) -> dict[bytes, str]:
        """Put what entries hold, then remove them; what the tier refuses for good becomes a dead letter.

        Returns why, by the id of each entry of which something was refused.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: the tier, or Redis, cannot be had; nothing is lost.
        """
        held = [documents_of(entry.fields, stream.namespace) for entry in entries]
        # Other tasks go on between the steps, of which each may take milliseconds.
        await asyncio.sleep(0)
        records = newest(left.record for lefts in held for left in lefts if left.record is not None)
        refusals = await self.put(records)
        last = {(record.key, record.element): record.stamp for record in records}
        done = [_done(entry, lefts, refusals, last) for entry, lefts in zip(entries, held, strict=True)]
        if await stream.settle(done) < len(done):
            # Others have settled them, or Redis has lost them, and whoever restored it may have missed them.
            keys = {record.key for record in records}
            await self.readmit(stream.namespace, keys, left_ms=min(entry.at_ms for entry in entries))
        self._tell(stream.namespace, done)
        return {one.id: one.refused[0][1] for one in done if one.refused}

    async def has(self, key: str, stamp: int) -> bool:
        """Whether the tier has a change of a key, or a later one.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: it cannot be asked.
        """
        head = await self._durable.get(key) if stamp else None
        return not stamp or (head is not None and head.stamp >= stamp)

    async def put(self, records: Sequence[DurableRecord]) -> Refusals:
        """Put documents; returns what the tier will never take.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: it cannot take them now.
        """
        refusals: dict[tuple[str, str], str] = {}
        for part in _parts(records):
            try:
                puts = await self._put(part)
            except Exception as error:
                self.outage.failed(error)
                raise
            self.outage.over()
            for record, put in zip(part, puts, strict=True):
                if put.outcome == Outcome.REFUSED:
                    refusals[record.key, record.element] = put.reason[:_REASON_LENGTH]
        return refusals

    async def _put(self, records: Sequence[DurableRecord]) -> list[Put]:
        """One answer a document, also where some of them make the tier fail: these are found by halving."""
        try:
            async with asyncio.timeout(self._put_s):
                return await self._durable.put(records)
        except TimeoutError as error:
            why = f"it does not take {len(records)} documents within {self._put_s:g} s"
            raise UnavailableError(self._durable.url, why) from error
        except Exception as error:
            if _passes(error):
                raise
            _logger.exception("a put of %d documents failed", len(records))
            if len(records) == 1:
                return [Put(outcome=Outcome.REFUSED, reason=f"{type(error).__name__}: {error}")]
        middle = len(records) // 2
        return [*await self._put(records[:middle]), *await self._put(records[middle:])]

    def _tell(self, namespace: str, done: Sequence[Done]) -> None:
        for one in done:
            self._counters.increment(ENTRIES)
            for _, reason in one.refused:
                self._counters.increment(REFUSED)
                _logger.error("namespace %s has a dead letter: %s; see `sharedmem durable dead`", namespace, reason)


def _passes(error: Exception) -> bool:
    """Whether it says something of the tier, and nothing of the documents."""
    if isinstance(error, InvalidError | InternalError):
        return False
    return isinstance(error, SharedMemoryError | OSError)


def _parts(records: Sequence[DurableRecord]) -> Iterator[Sequence[DurableRecord]]:
    for first in range(0, len(records), _MOST_DOCUMENTS):
        yield records[first : first + _MOST_DOCUMENTS]


def _done(entry: Entry, lefts: Sequence[Left], refusals: Refusals, last: Mapping[tuple[str, str], int]) -> Done:
    stored: list[DurableRecord] = []
    refused: list[tuple[int, str]] = []
    for field, left in enumerate(lefts, 1):
        record = left.record
        if record is None:
            refused.append((field, left.problem[:_REASON_LENGTH]))
            continue
        place = record.key, record.element
        # What something newer has overtaken is not missed, whatever became of that.
        if place in refusals and record.stamp == last[place]:
            refused.append((field, refusals[place]))
        else:
            stored.append(record)
    return Done(entry.id, stored, refused)
