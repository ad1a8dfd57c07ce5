"""Looking at the durable tier: how it is, and whether it and Redis say the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import NamedTuple

from sharedmem.durable.comparing import Comparer
from sharedmem.durable.images import DataImager
from sharedmem.durable.living import living
from sharedmem.durable.outbox.drainer import Drainer
from sharedmem.durable.outbox.stream import server_microseconds
from sharedmem.durable.shores import Shores
from sharedmem.errors import SharedMemoryError
from sharedmem.models import Difference, DurableRecord, DurableStatus, Verification
from sharedmem.wire.changes import as_list, text_of
from sharedmem.wire.keys import LASTING_FAMILIES, Target
from sharedmem.wire.replies import Reply
from sharedmem.wire.tier import BY_RULE, LOG, Imager

_AT_ONCE = 32
_PATIENCE_S = 10.0
_PAGE = 500
_SHOWN = 200
_MOST_TRIES = 5
_UNSETTLED = (b"pending", b"deleted")
_LOG_KIND = "log"
# A session of decisions is kept as the key of its plans.
_SESSION = "$plan:"

Progress = Callable[[int], None]


class Looked(NamedTuple):
    """What looking at one key has shown."""

    waits: bool
    """Whether a change of it waits for the tier, so that the two may differ."""
    differences: list[Difference]


class Inspector:
    """Looks at both sides, for one hub.

    Args:
        shores: Redis and the tier.
        id_: which database it is.
        drainer: knows what waits.
        kind_of: the kind that the rules give an absolute key, or None.
        imagers: how the documents of keys lie in Redis, by the letter of their mode; data without.
        remembers: whether memories and graphs last.
    """

    def __init__(
        self,
        shores: Shores,
        id_: str,
        drainer: Drainer,
        *,
        kind_of: Callable[[str], str | None],
        imagers: Mapping[str, Imager],
        remembers: bool = True,
    ) -> None:
        self._line, self._keyspace, self._durable = shores.line, shores.keyspace, shores.durable
        self._remembers = remembers
        self._id = id_
        self._drainer = drainer
        self._kind_of = kind_of
        self._data: Imager = DataImager()
        self._log = imagers.get(LOG, self._data)
        self._comparer = Comparer(shores.line)

    async def status(self) -> DurableStatus:
        """How the tier is, and how far it is behind. Two round trips to it, and five to Redis for each namespace.

        Raises:
            UnavailableError, AccessDeniedError: Redis stayed away, or does not allow it.
        """
        why, problems = "", []
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self._durable.namespaces()
                problems = await self._durable.check()
        except TimeoutError:
            why = f"it does not answer within {_PATIENCE_S:g} s"
        except (SharedMemoryError, OSError) as error:
            why = str(error)
        return DurableStatus(
            url=self._durable.url,
            id=self._id,
            reachable=not why,
            why=why,
            namespaces=[await self._drainer.lag(name) for name in await self._drainer.namespaces()],
            charges=self._durable.charges(),
            problems=problems,
        )

    async def verify(self, namespace: str, progress: Progress | None = None) -> Verification:
        """Compare what Redis holds of the keys that last with what the tier holds of them.

        What is in the tier alone is as it should be; what still waits for it is counted, and not compared. Memory
        grows by a few bytes a key, and by what the largest key holds.

        Args:
            namespace: which.
            progress: called with the number of keys looked at so far.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: either side cannot be had.
        """
        seen: set[int] = set()
        waiting, differences = 0, []
        async for found in self._looks(namespace, seen):
            waiting += sum(one.waits for one in found)
            differences += [difference for one in found for difference in one.differences]
            if progress is not None:
                progress(len(seen))
        return Verification(namespace=namespace, keys=len(seen), waiting=waiting, differences=differences)

    # -- the keys to look at

    async def _looks(self, namespace: str, seen: set[int]) -> AsyncIterator[list[Looked]]:
        """What each key has shown: those of the tier, then those that should be in it."""
        batch: list[list[DurableRecord]] = []
        async for records in self._in_the_tier(namespace):
            seen.add(hash(records[0].key))
            batch.append(records)
            if len(batch) == _AT_ONCE:
                yield list(await asyncio.gather(*map(self._look, batch)))
                batch = []
        yield list(await asyncio.gather(*map(self._look, batch)))
        async for keys in self._lasting(namespace):
            missed = [key for key in keys if hash(key) not in seen]
            seen.update(map(hash, missed))
            for first in range(0, len(missed), _AT_ONCE):
                yield list(await asyncio.gather(*map(self._confirm, missed[first : first + _AT_ONCE])))

    async def _in_the_tier(self, namespace: str) -> AsyncIterator[list[DurableRecord]]:
        """The documents of each key."""
        records: list[DurableRecord] = []
        async for page in self._durable.iterate(namespace):
            for record in page:
                if records and records[0].key != record.key:
                    yield records
                    records = []
                records.append(record)
        if records:
            yield records

    async def _lasting(self, namespace: str) -> AsyncIterator[list[str]]:
        """Pages of the keys in Redis that should last: by argument, then by rule, then sessions of decisions."""
        cursor = b"0"
        while True:
            kept = self._keyspace.kept(namespace)
            reply = as_list(await self._line.call("HSCAN", kept, cursor, "COUNT", _PAGE))
            cursor = text_of(reply[0]).encode()
            # What begins otherwise is no key, but a mark about them.
            yield [key for key in map(_decoded, as_list(reply[1])[::2]) if key.startswith(f"{namespace}:")]
            if cursor == b"0":
                break
        near = self._keyspace.space(namespace).clock
        async for page in self._line.scan(self._keyspace.pattern(namespace), near=near):
            yield [key for key in map(self._keyspace.logical, page) if self._should_last(key)]
        for family in LASTING_FAMILIES if self._remembers else ():
            head = self._keyspace.records(family, namespace).encode()
            async for page in self._line.scan(self._keyspace.records_glob(family, namespace), near=near):
                ids = [key.removeprefix(head).decode(errors="replace") for key in page]
                yield [f"{namespace}:${family}:{id_}" for id_ in ids]

    def _should_last(self, key: str) -> bool:
        scope = key.partition(":")[2]
        return scope.startswith(_SESSION) or (not scope.startswith("$") and self._kind_of(key) in BY_RULE)

    # -- one key

    async def _look(self, records: list[DurableRecord]) -> Looked:
        """Compare a key by documents that are at hand; where it differs, again by those of this moment."""
        target = self._keyspace.target(records[0].key)
        if not await self._compared(target, records):
            return Looked(waits=False, differences=[])
        return await self._confirm(target.key)

    async def _confirm(self, key: str) -> Looked:
        """Compare a key while nothing changes it."""
        target = self._keyspace.target(key)
        differences: list[Difference] = []
        for _ in range(_MOST_TRIES):
            records = await self._durable.records(key)
            differences = await self._compared(target, records)
            if await self._waits(target):
                return Looked(waits=True, differences=[])
            if not differences or records == await self._durable.records(key):
                break
        return Looked(waits=False, differences=differences)

    async def _waits(self, target: Target) -> bool:
        state = await self._line.call("GET", self._keyspace.state(target))
        return isinstance(state, bytes) and state.startswith(_UNSETTLED)

    async def _compared(self, target: Target, records: Sequence[DurableRecord]) -> list[Difference]:
        head = next((one for one in records if one.is_head), None)
        imager = self._log if head is not None and head.kind == _LOG_KIND else self._data
        here = imager.presence(target)
        if await self._line.call("EXISTS", here) != 1:
            return []
        now_ms = await server_microseconds(self._line) // 1000
        alive = living(records, now_ms)
        if alive:
            try:
                parts = imager.parts(target, alive)
            except (ValueError, LookupError, TypeError) as error:
                told = f"cannot be read: {error}"[:_SHOWN]
                return [Difference(key=target.key, what="form", redis="present", tier=told)]
            found = await self._comparer.parts(target.key, parts)
            return found + await self._comparer.expiry(alive[0], here, self._keyspace.state(target), now_ms)
        if head is not None and await self._may_be_left(target, head):
            return []
        gone = "nothing" if head is None else "deleted" if head.deleted else "expired"
        return [Difference(key=target.key, what="missing", redis="present", tier=gone)]

    async def _may_be_left(self, target: Target, head: DurableRecord) -> bool:
        """Whether a key may be in Redis although it has ended in the tier: it was written as ephemeral since."""
        kept = await self._line.call("HEXISTS", self._keyspace.kept(target.space.namespace), target.key)
        return kept == 0 and (head.deleted or not self._should_last(target.key))


def _decoded(reply: Reply) -> str:
    """A field's name; bytes that are no text name no key of ours."""
    return reply.decode(errors="replace") if isinstance(reply, bytes) else str(reply)
