"""Gathering: all memories and graphs of a namespace come back into Redis before one is looked for.

A search finds only what is there. Whether they are all there says a mark that lies in Redis itself and goes where the
data goes. While it is missing, nobody changes one of them, and one of all processes brings them back; who dies on the
way is followed by the next one, which leaves what is back.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol, TypeVar

from sharedmem.clock import new_id
from sharedmem.durable.flights import Flights
from sharedmem.durable.loading import Drain, Join
from sharedmem.durable.shores import Shores
from sharedmem.errors import UnavailableError
from sharedmem.models import DurableRecord
from sharedmem.telemetry import get_logger
from sharedmem.wire.bringing import Bringing, Turn

GATHERED = "durable_gathered"
"""Counter: records that were brought back."""

MARK = "$gathered"
"""Field of a namespace's `$kept`: its memories and graphs are all in Redis."""
T = TypeVar("T")
_LEASE_MS = 15_000
_AT_ONCE = 64
_MOST_JOINS = 5
_logger = get_logger("durable")


class RecordReader(Protocol[T]):
    """Knows how the documents of one kind of records lie in Redis."""

    @property
    def scope(self) -> str:
        """Of their keys, such as `$memory`."""

    def anew(self, namespace: str) -> list[bytes]:
        """What is counted anew while they come back."""

    def remembered(self, record: DurableRecord) -> T:
        """What a document says, ready to be brought back.

        Raises:
            ValueError, LookupError, TypeError: it cannot be read.
        """

    async def restore(self, bringing: Bringing, turn: Turn, namespace: str, records: Sequence[T]) -> int | None:
        """Bring some back, in the order of their keys; how many were missing, None when somebody has taken over."""


class Gatherer:
    """Brings memories and graphs back into Redis, for one hub.

    Args:
        shores: Redis and the tier.
        bringing: the scripts.
        readers: how the records of each kind lie in Redis.
        drain: carries what waits in a namespace's outbox into the tier.
        join: makes sure that Redis is not behind the tier.
    """

    def __init__(
        self, shores: Shores, bringing: Bringing, readers: Collection[RecordReader[Any]], *, drain: Drain, join: Join
    ) -> None:
        self._line, self._keyspace, _, self._durable, self._clock, background, self._counters = shores
        self._bringing = bringing
        self._readers = readers
        self._drain = drain
        self._join = join
        self._flights: Flights[bool] = Flights("gather records of", background)
        # By namespace: how often the line had been connected when they were all there.
        self._whole: dict[str, int] = {}

    async def gather(self, namespace: str, *, again: bool = False) -> bool:
        """Make sure that Redis has all records of a namespace; whether some had to be brought back, by whomever.

        At once when that is known; else one round trip; when Redis was lost, a few for every 64 records. Callers of
        one process share the work; of several processes one does it, and the others wait.

        Args:
            namespace: whose.
            again: whatever was known of it.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: they are not all here, and the tier cannot be asked.
        """
        if not again and self._whole.get(namespace) == self._line.generation:
            return False
        return await self._flights.share(namespace, lambda: self._gather(namespace))

    async def _gather(self, namespace: str) -> bool:
        # A connection that is lost from here on makes the next caller ask anew.
        generation = self._line.generation
        await self._join(namespace)
        token, joins, were_missing = new_id(), 0, False
        for pause in self._line.pauses():
            answer, _, number = (await self._ask(namespace, token)).partition(" ")
            if answer == "whole":
                self._whole[namespace] = generation
                return were_missing
            were_missing = True
            if answer == "load":
                if not await self._load(namespace, token):
                    await self._clock.sleep(pause)
                continue
            if answer == "lost":
                joins += 1
                if joins > _MOST_JOINS:
                    why = "Redis lacks what the durable tier has of it, which cannot be restored now; try again"
                    raise UnavailableError(f"namespace {namespace!r}", why)
                await self._join(namespace, again=True)
                continue
            # Whoever brings them back says every few seconds that it is alive.
            await self._clock.sleep(min(pause, int(number or 0) / 1000 or pause))
        raise AssertionError  # the pauses never end

    async def _ask(self, namespace: str, token: str, *, done: int = 0) -> str:
        anew = [key for reader in self._readers for key in reader.anew(namespace)]
        kept = self._keyspace.kept(namespace)
        return await self._bringing.records_gather(kept, anew=anew, token=token, lease_ms=_LEASE_MS, done=done)

    async def _load(self, namespace: str, token: str) -> bool:
        """Bring them back; False when somebody else has taken over."""
        # What still waits is newer than what the tier has.
        await self._drain(namespace)
        for reader in self._readers:
            brought = await self._load_all(namespace, token, reader)
            if brought is None:
                return False
            if brought:
                self._counters.add(GATHERED, brought)
                _logger.info("namespace %r: %d records of %s are back", namespace, brought, reader.scope)
        return await self._ask(namespace, token, done=1) == "whole"

    async def _load_all(self, namespace: str, token: str, reader: RecordReader[Any]) -> int | None:
        prefix, brought = f"{namespace}:{reader.scope}:", 0
        async for page in self._durable.iterate(namespace, heads_only=True, after=(prefix, "")):
            own = [record for record in page if record.key.startswith(prefix)]
            for first in range(0, len(own), _AT_ONCE):
                some = [one for record in own[first : first + _AT_ONCE] for one in _read(reader, record)]
                count = await reader.restore(self._bringing, Turn(token, _LEASE_MS), namespace, some)
                if count is None:
                    return None
                brought += count
            # Keys come in order: what is behind these has no more of them.
            if len(own) < len(page) and page[-1].key > prefix:
                break
        return brought


def _read(reader: RecordReader[T], record: DurableRecord) -> list[T]:
    """What a document says; nothing when it cannot be read."""
    try:
        return [reader.remembered(record)]
    except (ValueError, LookupError, TypeError):
        _logger.exception("record %r stays in the durable tier: it cannot be read", record.key)
        return []
