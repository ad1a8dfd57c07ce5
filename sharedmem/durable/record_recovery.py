"""Restore whole namespaces from the durable store: all memories, graphs and notes, or all keys.

A search finds only records in Redis. A mark in Redis itself, which is lost together with the data, shows whether all of
them are there. While it is missing, no record is changed, and one process restores the records; if it dies, the next
one continues, and keeps the records that are restored already.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from itertools import count, groupby
from operator import attrgetter
from typing import Any, TypeVar

from sharedmem.clock import new_id
from sharedmem.durable.key_loader import DrainNamespace, JoinNamespace, KeyLoader, LoadedKey, LoadLease
from sharedmem.durable.protocol import Durable, DurableContext
from sharedmem.errors import CorruptionError, UnavailableError
from sharedmem.models import DurableRecord
from sharedmem.record_family import DocumentFormat, RecordFamily, RestoreRun
from sharedmem.redis.durability import LOG_MODE, RULE_MODES, RedisPart
from sharedmem.redis.keys import KeySpace, Target, is_lasting_record
from sharedmem.redis.replies import Argument, Command
from sharedmem.redis.scripts.durable import RecordRestoreScripts, RestoreLease
from sharedmem.runtime import get_logger
from sharedmem.runtime.concurrency import SingleFlight

RECOVERED_COUNTER = "durable_gathered"
"""Counter: records that were restored."""

RECOVERED_MARK = "$gathered"
"""Field of a namespace's `$kept`: Redis has all its records."""
GATHERING = "$gathering"
"""Further field there: the hub that restores the records now."""
_LEASE_MS = 15_000
_RECORDS_AT_ONCE = 64
_PAGES_AT_ONCE = 3
_MOST_JOINS = 5
_logger = get_logger("durable")
T = TypeVar("T")


class RecordKeyRestorer:
    """Compares and drops single records of one family; `RecordRecovery` restores them.

    Args:
        keyspace: builds the keys.
        family: family of the records.
    """

    def __init__(self, keyspace: KeySpace, family: RecordFamily) -> None:
        self._keyspace = keyspace
        self._documents = documents_of(family)

    def presence(self, target: Target) -> bytes:
        """Return the key of the record's hash."""
        return self._keyspace.presence(target)

    def parts(
        self,
        target: Target,
        records: Sequence[DurableRecord],
        *,
        now_ms: int = 0,  # noqa: ARG002  # no leases
    ) -> list[RedisPart]:
        """Return the fields of the record's hash, without fields that other writers change.

        Raises:
            ValueError, LookupError, TypeError: the document is unreadable.
        """
        record = self._documents.parse(records[0])
        fields = self._documents.hash_fields(record, records[0].namespace)
        rows: list[tuple[Argument, ...]] = list(zip(fields[::2], fields[1::2], strict=True))
        return [RedisPart(self.presence(target), "HSET", rows, has_more=True)] if rows else []

    def besides(self, target: Target, head: DurableRecord) -> list[Command]:  # noqa: ARG002  # the restore script does it
        """Return nothing."""
        return []


def documents_of(family: RecordFamily) -> DocumentFormat[Any]:
    """Return the document format of a family in the durable store."""
    assert family.documents is not None, f"the durable store keeps no records of {family.name}"
    return family.documents


class RecordRecovery:
    """Restores the records of namespaces in Redis, for one hub (`redis.durability.RecordTier`).

    Args:
        context: the server and the durable store.
        scripts: the restore scripts.
        families: families of the records.
        drain: delivers a namespace's outbox to the durable store.
        join: brings Redis up to date with the durable store.
    """

    is_durable = True

    def __init__(
        self,
        context: DurableContext,
        scripts: RecordRestoreScripts,
        families: Collection[RecordFamily],
        *,
        drain: DrainNamespace,
        join: JoinNamespace,
    ) -> None:
        self._context = context
        self._client = context.client
        self._scripts = scripts
        self._families = families
        self._drain = drain
        self._join = join
        self._flights: SingleFlight[bool] = SingleFlight("gather records of", context.background)
        # By namespace: the connection count of the client when Redis held all records.
        self._complete: dict[str, int] = {}

    async def gather(self, namespace: str, *, again: bool = False) -> bool:
        """Ensure that Redis has all records of a namespace; return whether any hub had to restore some.

        No round trip if that is known; otherwise one; after a loss of Redis, a few for every 64 records. Callers of one
        process share the work; among several processes, one does the work and the others wait.

        Args:
            namespace: the namespace.
            again: ask Redis even if it is known to have them.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: records are missing, and the durable store is not
                available.
        """
        if not again and self._complete.get(namespace) == self._client.generation:
            return False
        return await self._flights.share(namespace, lambda: self._gather(namespace))

    async def retry_after_restore(
        self, namespace: str, look: Callable[[], Awaitable[T]], is_empty: Callable[[T], bool]
    ) -> T:
        """Return the result of a read; repeat the read if records were missing and have been restored.

        Redis may have been emptied since this hub last asked, and another hub may be restoring it: then a read finds
        nothing, or only a part. So the mark that all records are there is read in the same packet. No extra round trip.
        """
        found, has_all = await asyncio.gather(look(), self._has_all(namespace))
        if has_all and not is_empty(found):
            return found
        were_missing = await self.gather(namespace, again=True)
        return await look() if were_missing or not has_all else found

    async def _has_all(self, namespace: str) -> bool:
        return await self._client.call("HEXISTS", self._context.keyspace.kept(namespace), RECOVERED_MARK) == 1

    async def _gather(self, namespace: str) -> bool:
        # A connection that is lost from here on makes the next caller ask again.
        generation = self._client.generation
        await self._join(namespace)
        token, joins, were_missing = new_id(), 0, False
        for pause in self._client.pauses():
            reply, _, number = (await self._request_lease(namespace, token)).partition(" ")
            if reply == "whole":
                self._complete[namespace] = generation
                return were_missing
            were_missing = True
            if reply == "load":
                if not await self._restore(namespace, token):
                    await self._context.clock.sleep(pause)
                continue
            if reply == "lost":
                joins += 1
                if joins > _MOST_JOINS:
                    why = "Redis lacks records of the durable tier, which cannot be restored now; try again"
                    raise UnavailableError(f"namespace {namespace!r}", why)
                await self._join(namespace, again=True)
                continue
            # The holder of the lease renews it every few seconds.
            await self._context.clock.sleep(min(pause, int(number or 0) / 1000 or pause))
        raise AssertionError  # the pauses never end

    async def _request_lease(self, namespace: str, token: str, *, step: int = 0, done: int = 0) -> str:
        keyspace = self._context.keyspace
        recounted = [
            keyspace.record_part(family.name, namespace, part)
            for family in self._families
            for part in documents_of(family).recounted
        ]
        return await self._scripts.records_gather(
            keyspace.kept(namespace), anew=recounted, token=token, lease_ms=_LEASE_MS, step=step, done=done
        )

    async def _restore(self, namespace: str, token: str) -> bool:
        """Restore all records; return False when another hub has taken over, or Redis has lost some of them again."""
        # The outbox is newer than the durable store.
        await self._drain(namespace)
        run = RestoreRun(self._context, self._scripts, RestoreLease(token, _LEASE_MS), namespace)
        steps = count(1)
        for family in self._families:
            restored = await self._restore_family(run, family, steps)
            if restored is None:
                return False
            if restored:
                self._context.counters.add(RECOVERED_COUNTER, restored)
                _logger.info("namespace %r: %d records of $%s are restored", namespace, restored, family.name)
        return await self._request_lease(namespace, token, step=next(steps), done=1) == "whole"

    async def _restore_family(self, run: RestoreRun, family: RecordFamily, steps: Iterator[int]) -> int | None:
        documents = documents_of(family)
        prefix, restored = f"{run.namespace}:${family.name}:", 0
        async for page in self._context.durable.iterate(run.namespace, heads_only=True, after=(prefix, "")):
            own = [record for record in page if record.key.startswith(prefix)]
            number = await _restore_page(run, documents, own)
            # A server that crashed and lost its last second may have the lease, but not the last records.
            step = next(steps)
            if number is None or await self._request_lease(run.namespace, run.lease.token, step=step) != "noted":
                return None
            restored += number
            # Keys come in order: no page behind these has more of them.
            if len(own) < len(page) and page[-1].key > prefix:
                break
        return restored


async def _restore_page(run: RestoreRun, documents: DocumentFormat[Any], own: Sequence[DurableRecord]) -> int | None:
    """Restore the records of one page, and return how many were missing; None when another hub has taken over."""
    restored = 0
    for first in range(0, len(own), _RECORDS_AT_ONCE):
        some = [one for record in own[first : first + _RECORDS_AT_ONCE] for one in _parse_record(documents, record)]
        number = await documents.restore(run, some)
        if number is None:
            return None
        restored += number
    return restored


def _parse_record(documents: DocumentFormat[Any], record: DurableRecord) -> list[Any]:
    """Return the parsed record; empty if it is unreadable."""
    try:
        return [documents.parse(record)]
    except (ValueError, LookupError, TypeError):
        _logger.exception("record %r stays in the durable tier: it cannot be read", record.key)
        return []


RestoreProgress = Callable[[int, int | None], object]
"""Called with (number of keys read, number of all keys or None)."""

# Sorts after every element of a key.
_AFTER_ALL_KEYS = "\U0010ffff"


class NamespaceRecovery:
    """Restores the keys of namespaces in Redis, many at a time.

    Args:
        durable: the durable store.
        keyspace: builds the keys.
        loader: restores single keys.
        records: restores memories, graphs and notes.
    """

    def __init__(self, durable: Durable, keyspace: KeySpace, loader: KeyLoader, records: RecordRecovery) -> None:
        self._records = records
        self._durable = durable
        self._keyspace = keyspace
        self._loader = loader

    async def warm(self, namespace: str, progress: RestoreProgress | None = None) -> int:
        """Restore all keys of a joined namespace, and return how many of them Redis has afterwards.

        A few requests to the durable store and two round trips to Redis for some hundred keys. Unreadable documents are
        logged and stay in the store.

        Args:
            namespace: the namespace.
            progress: called after each page.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: as `KeyLoader.recall`; restored keys stay.
        """
        await self._records.gather(namespace, again=True)
        warm = seen = 0
        before: tuple[str, str] | None = None
        # The store reads one page while the server writes another.
        running: deque[tuple[asyncio.Task[int], int]] = deque()

        async def end_oldest() -> None:
            nonlocal warm, seen
            work, number = running[0]
            warm += await work
            running.popleft()
            seen += number
            if progress is not None:
                progress(seen, None)

        try:
            async for heads in self._durable.iterate(namespace, heads_only=True):
                alive = [head for head in heads if not head.deleted]
                # Few have expired in the meantime.
                others = [head for head in alive if not is_lasting_record(head.key)]
                warm += len(alive) - len(others)
                running.append((asyncio.create_task(self._restore(namespace, others, before)), len(heads)))
                before = heads[-1].key, _AFTER_ALL_KEYS
                if len(running) == _PAGES_AT_ONCE:
                    await end_oldest()
            while running:
                await end_oldest()
        finally:
            for work, _ in running:
                work.cancel()
            await asyncio.gather(*(work for work, _ in running), return_exceptions=True)
        return warm

    async def _restore(self, namespace: str, heads: Sequence[DurableRecord], before: tuple[str, str] | None) -> int:
        """Restore keys that are adjacent in the durable store; their documents are read under their leases."""
        if not heads:
            return 0
        wanted = [(self._keyspace.target(head.key), RULE_MODES.get(head.kind, LOG_MODE)) for head in heads]
        looks = await self._loader.look(wanted)
        leases = {lease.target.key: lease for lease, _ in looks if lease is not None}
        warm = sum(answer == "hot" for _, answer in looks)
        # Keys that another caller loads or drains are awaited one by one.
        slow = {target.key for (target, _), (_, why) in zip(wanted, looks, strict=True) if why in {"pending", "wait"}}
        try:
            async for batch in _batches(self._durable.iterate(namespace, after=before), set(leases)):
                loaded = [one for key, records in batch if (one := self._prepared(leases[key], records)) is not None]
                for one, outcome in zip(loaded, await self._loader.fill(loaded), strict=True):
                    key = one.lease.target.key
                    del leases[key]
                    warm += outcome is True
                    slow |= {key} if outcome is None else set()
        finally:
            await self._loader.release(list(leases.values()))
        for target, mode in wanted:
            if target.key in slow:
                warm += await self._loader.recall(target, mode)
        return warm

    def _prepared(self, lease: LoadLease, records: Sequence[DurableRecord]) -> LoadedKey | None:
        """Return the Redis form of a key; None if its documents are unreadable: it stays in the store."""
        try:
            return self._loader.prepare(lease, records)
        except CorruptionError:
            _logger.exception("key %r stays in the durable tier", lease.target.key)
            return None


async def _batches(
    pages: AsyncIterator[list[DurableRecord]], wanted: Collection[str]
) -> AsyncIterator[list[tuple[str, list[DurableRecord]]]]:
    """Yield the wanted keys with all their documents, as many at a time as a page holds."""
    last = max(wanted, default="")
    key, held = "", list[DurableRecord]()
    async for page in pages:
        done = []
        for other, records in groupby(page, key=attrgetter("key")):
            # The documents of the last key may continue on the next page.
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
