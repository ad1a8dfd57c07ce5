"""Gathering: all memories of a namespace come back into Redis before one is looked for: a search finds what is there.

Whether they are all there says a mark that lies in Redis itself and goes where the data goes. While it is missing,
nobody changes a memory, and one of all processes brings them back; who dies on the way is followed by the next one,
which leaves what is back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sharedmem.clock import new_id
from sharedmem.durable.flights import Flights
from sharedmem.durable.loading import Drain, Join
from sharedmem.durable.shores import Shores
from sharedmem.errors import UnavailableError
from sharedmem.models import DurableRecord
from sharedmem.telemetry import get_logger
from sharedmem.wire.bringing import Bringing, RestoreKeys, restore_keys
from sharedmem.wire.tier import Remembered

GATHERED = "durable_memories"
"""Counter: memories that were brought back."""

SCOPE = "$memory"
_LEASE_MS = 15_000
_AT_ONCE = 64
_MOST_JOINS = 5
_logger = get_logger("durable")


class MemoryReader(Protocol):
    """Knows how the document of a memory lies in Redis."""

    def remembered(self, record: DurableRecord) -> Remembered:
        """What the script takes that brings it back; without fields when it was deleted.

        Raises:
            ValueError, LookupError, TypeError: it cannot be read.
        """

    def places(self, namespace: str, memories: Sequence[Remembered]) -> list[bytes]:
        """The records of memories, then the turns of the thread of each."""


class Gatherer:
    """Brings memories back into Redis, for one hub.

    Args:
        shores: Redis and the tier.
        bringing: the scripts.
        reader: how memories lie in Redis.
        drain: carries what waits in a namespace's outbox into the tier.
        join: makes sure that Redis is not behind the tier.
    """

    def __init__(self, shores: Shores, bringing: Bringing, reader: MemoryReader, *, drain: Drain, join: Join) -> None:
        self._line, self._keyspace, _, self._durable, self._clock, background, self._counters = shores
        self._bringing = bringing
        self._reader = reader
        self._drain = drain
        self._join = join
        self._flights: Flights[bool] = Flights("gather memories of", background)
        # By namespace: how often the line had been connected when they were all there.
        self._whole: dict[str, int] = {}

    async def gather(self, namespace: str, *, again: bool = False) -> bool:
        """Make sure that Redis has all memories of a namespace; whether some had to be brought back, by whomever.

        At once when that is known; else one round trip; when Redis was lost, two for every 64 memories. Callers of
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
                    raise UnavailableError(f"namespace {namespace!r}", "Redis loses data as often as it is looked at")
                await self._join(namespace, again=True)
                continue
            # Whoever brings them back says every few seconds that it is alive.
            await self._clock.sleep(min(pause, int(number or 0) / 1000 or pause))
        raise AssertionError  # the pauses never end

    async def _ask(self, namespace: str, token: str, *, done: int = 0) -> str:
        kept, authors = self._keyspace.kept(namespace), self._keyspace.record_part("memory", namespace, "authors")
        return await self._bringing.memory_gather(kept, authors, token=token, lease_ms=_LEASE_MS, done=done)

    async def _load(self, namespace: str, token: str) -> bool:
        """Bring them back; False when somebody else has taken over."""
        # What still waits is newer than what the tier has.
        await self._drain(namespace)
        prefix, brought = f"{namespace}:{SCOPE}:", 0
        keys = restore_keys(self._keyspace, namespace)
        async for page in self._durable.iterate(namespace, heads_only=True, after=(prefix, "")):
            own = [record for record in page if record.key.startswith(prefix)]
            for first in range(0, len(own), _AT_ONCE):
                count = await self._restore(namespace, keys, token, own[first : first + _AT_ONCE])
                if count is None:
                    return False
                brought += count
            # Keys come in order: what is behind memories has no more of them.
            if len(own) < len(page) and page[-1].key > prefix:
                break
        if brought:
            self._counters.add(GATHERED, brought)
            _logger.info("namespace %r: %d memories are back from the durable tier", namespace, brought)
        return await self._ask(namespace, token, done=1) == "whole"

    async def _restore(
        self, namespace: str, keys: RestoreKeys, token: str, records: Sequence[DurableRecord]
    ) -> int | None:
        memories = [one for record in records if (one := self._read(record)) is not None]
        places = self._reader.places(namespace, memories)
        return await self._bringing.memory_restore(
            keys, keys_=places, token=token, lease_ms=_LEASE_MS, restores=memories
        )

    def _read(self, record: DurableRecord) -> Remembered | None:
        try:
            return self._reader.remembered(record)
        except (ValueError, LookupError, TypeError):
            _logger.exception("memory %r stays in the durable tier: it cannot be read", record.key)
            return None
