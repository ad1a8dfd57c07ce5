"""Bring back whole namespaces from the durable store: all memories and graphs, or all keys."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, Protocol, TypeVar

from sharedmem.clock import new_id
from sharedmem.durable.context import DurableContext
from sharedmem.durable.key_loader import DrainNamespace, JoinNamespace, KeyLoader, LoadLease
from sharedmem.durable.protocol import Durable
from sharedmem.errors import CorruptionError, UnavailableError
from sharedmem.models import DurableRecord
from sharedmem.redis.durability import LOG_MODE, RULE_MODES
from sharedmem.redis.keys import KeySpace, is_lasting_record
from sharedmem.redis.scripts.durable import RecordRestoreScripts, RestoreLease
from sharedmem.runtime import get_logger
from sharedmem.runtime.single_flight import SingleFlight

RECOVERED_COUNTER = "durable_gathered"
"""Counter: records that were brought back."""

RECOVERED_MARK = "$gathered"
"""Field of a namespace's `$kept`: its memories and graphs are all in Redis."""
T = TypeVar("T")
_LEASE_MS = 15_000
_RECORDS_AT_ONCE = 64
_MOST_JOINS = 5
_logger = get_logger("durable")


class RecordFamilyRestorer(Protocol[T]):
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

    async def restore(
        self, bringing: RecordRestoreScripts, turn: RestoreLease, namespace: str, records: Sequence[T]
    ) -> int | None:
        """Bring some back, in the order of their keys; how many were missing, None when somebody has taken over."""


class RecordRecovery:
    """Brings memories and graphs back into Redis, for one hub.

    Args:
        context: the server and the durable store.
        bringing: the scripts.
        readers: how the records of each kind lie in Redis.
        drain: carries what waits in a namespace's outbox into the tier.
        join: makes sure that Redis is not behind the tier.
    """

    def __init__(
        self,
        context: DurableContext,
        bringing: RecordRestoreScripts,
        readers: Collection[RecordFamilyRestorer[Any]],
        *,
        drain: DrainNamespace,
        join: JoinNamespace,
    ) -> None:
        self._client, self._keyspace = context.client, context.keyspace
        self._durable, self._clock, self._counters = context.durable, context.clock, context.counters
        background = context.background
        self._bringing = bringing
        self._readers = readers
        self._drain = drain
        self._join = join
        self._flights: SingleFlight[bool] = SingleFlight("gather records of", background)
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
        if not again and self._whole.get(namespace) == self._client.generation:
            return False
        return await self._flights.share(namespace, lambda: self._gather(namespace))

    async def _gather(self, namespace: str) -> bool:
        # A connection that is lost from here on makes the next caller ask anew.
        generation = self._client.generation
        await self._join(namespace)
        token, joins, were_missing = new_id(), 0, False
        for pause in self._client.pauses():
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
                self._counters.add(RECOVERED_COUNTER, brought)
                _logger.info("namespace %r: %d records of %s are back", namespace, brought, reader.scope)
        return await self._ask(namespace, token, done=1) == "whole"

    async def _load_all(self, namespace: str, token: str, reader: RecordFamilyRestorer[Any]) -> int | None:
        prefix, brought = f"{namespace}:{reader.scope}:", 0
        async for page in self._durable.iterate(namespace, heads_only=True, after=(prefix, "")):
            own = [record for record in page if record.key.startswith(prefix)]
            for first in range(0, len(own), _RECORDS_AT_ONCE):
                some = [
                    one for record in own[first : first + _RECORDS_AT_ONCE] for one in _parse_record(reader, record)
                ]
                count = await reader.restore(self._bringing, RestoreLease(token, _LEASE_MS), namespace, some)
                if count is None:
                    return None
                brought += count
            # Keys come in order: what is behind these has no more of them.
            if len(own) < len(page) and page[-1].key > prefix:
                break
        return brought


def _parse_record(reader: RecordFamilyRestorer[T], record: DurableRecord) -> list[T]:
    """What a document says; nothing when it cannot be read."""
    try:
        return [reader.remembered(record)]
    except (ValueError, LookupError, TypeError):
        _logger.exception("record %r stays in the durable tier: it cannot be read", record.key)
        return []


RestoreProgress = Callable[[int, int | None], object]
"""Told how many keys have been looked at, and of how many if that is known."""

# Behind every element of a key.
_AFTER_ALL_KEYS = "\U0010ffff"


class NamespaceRecovery:
    """Brings the keys of namespaces back into Redis, many at a time.

    Args:
        durable: the tier.
        keyspace: how keys are spelled.
        loader: brings back single keys.
        gatherer: brings back memories and graphs.
    """

    def __init__(self, durable: Durable, keyspace: KeySpace, loader: KeyLoader, gatherer: RecordRecovery) -> None:
        self._gatherer = gatherer
        self._durable = durable
        self._keyspace = keyspace
        self._loader = loader

    async def warm(self, namespace: str, progress: RestoreProgress | None = None) -> int:
        """Bring back all keys of a namespace that is joined; returns how many of them are in Redis then.

        A few requests to the tier for some hundred keys, and three round trips to Redis, which share their way. What
        cannot be read is logged and left where it is.

        Args:
            namespace: whose.
            progress: told after each page.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: as `KeyLoader.recall`; what is back stays.
        """
        await self._gatherer.gather(namespace, again=True)
        seen = warm = 0
        before: tuple[str, str] | None = None
        async for heads in self._durable.iterate(namespace, heads_only=True):
            alive = [head for head in heads if not head.deleted]
            # Those that have expired in the meantime are few.
            others = [head for head in alive if not is_lasting_record(head.key)]
            warm += len(alive) - len(others)
            warm += await self._bring_back(namespace, others, before)
            before = heads[-1].key, _AFTER_ALL_KEYS
            seen += len(heads)
            if progress is not None:
                progress(seen, None)
        return warm

    async def _bring_back(self, namespace: str, heads: Sequence[DurableRecord], before: tuple[str, str] | None) -> int:
        """Bring back keys that follow each other in the tier; their documents are read under their leases."""
        modes = {head.key: RULE_MODES.get(head.kind, LOG_MODE) for head in heads}
        targets = [self._keyspace.target(key) for key in modes]
        looks = await asyncio.gather(*(self._loader.look(target, modes[target.key]) for target in targets))
        leases = {lease.target.key: lease for lease, _ in looks if lease is not None}
        warm = sum(answer == "hot" for _, answer in looks)
        # Whatever is to be waited for is waited for one by one.
        slow = [target for target, (_, answer) in zip(targets, looks, strict=True) if answer in {"pending", "wait"}]
        try:
            async for batch in _batches(self._durable.iterate(namespace, after=before), list(leases)):
                outcomes = await asyncio.gather(*(self._fill(leases[key], records) for key, records in batch))
                for (key, _), outcome in zip(batch, outcomes, strict=True):
                    target = leases.pop(key).target
                    warm += outcome is True
                    slow += [target] if outcome is None else []
        finally:
            await asyncio.gather(*map(self._loader.give_back, leases.values()))
        for target in slow:
            warm += await self._loader.recall(target, modes[target.key])
        return warm

    async def _fill(self, lease: LoadLease, records: Sequence[DurableRecord]) -> bool | None:
        try:
            return await self._loader.fill(lease, records)
        except CorruptionError:
            _logger.exception("key %r stays in the durable tier", lease.target.key)
            await self._loader.give_back(lease)
            return False


async def _batches(
    pages: AsyncIterator[list[DurableRecord]], wanted: Collection[str]
) -> AsyncIterator[list[tuple[str, list[DurableRecord]]]]:
    """Those of the keys that are wanted with all their documents, as many at a time as came in a page."""
    last = max(wanted, default="")
    key, held = "", list[DurableRecord]()
    async for page in pages:
        done = []
        for other, records in groupby(page, key=attrgetter("key")):
            # The last key of a page may go on in the next one.
            if other != key:
                done.append((key, held))
                key, held = other, []
            held += records
        if batch := [one for one in done if one[0] in wanted]:
            yield batch
        if key > last:
            return
    if key in wanted:
        yield [(key, held)]
