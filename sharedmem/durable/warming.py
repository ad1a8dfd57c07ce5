"""Warming: after a loss of Redis, whole namespaces come back from the durable tier before anybody asks for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from itertools import groupby
from operator import attrgetter

from sharedmem.durable.gathering import Gatherer
from sharedmem.durable.loading import Lease, Loader
from sharedmem.durable.protocol import Durable
from sharedmem.errors import CorruptionError
from sharedmem.models import DurableRecord
from sharedmem.telemetry import get_logger
from sharedmem.wire.keys import KeySpace, is_lasting_record
from sharedmem.wire.tier import BY_RULE, LOG

Progress = Callable[[int, int | None], object]
"""Told how many keys have been looked at, and of how many if that is known."""

# Behind every element of a key.
_LAST = "\U0010ffff"
_logger = get_logger("durable")


class Warmer:
    """Brings the keys of namespaces back into Redis, many at a time.

    Args:
        durable: the tier.
        keyspace: how keys are spelled.
        loader: brings back single keys.
        gatherer: brings back memories and graphs.
    """

    def __init__(self, durable: Durable, keyspace: KeySpace, loader: Loader, gatherer: Gatherer) -> None:
        self._gatherer = gatherer
        self._durable = durable
        self._keyspace = keyspace
        self._loader = loader

    async def warm(self, namespace: str, progress: Progress | None = None) -> int:
        """Bring back all keys of a namespace that is joined; returns how many of them are in Redis then.

        A few requests to the tier for some hundred keys, and three round trips to Redis, which share their way. What
        cannot be read is logged and left where it is.

        Args:
            namespace: whose.
            progress: told after each page.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: as `Loader.recall`; what is back stays.
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
            before = heads[-1].key, _LAST
            seen += len(heads)
            if progress is not None:
                progress(seen, None)
        return warm

    async def _bring_back(self, namespace: str, heads: Sequence[DurableRecord], before: tuple[str, str] | None) -> int:
        """Bring back keys that follow each other in the tier; their documents are read under their leases."""
        modes = {head.key: BY_RULE.get(head.kind, LOG) for head in heads}
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

    async def _fill(self, lease: Lease, records: Sequence[DurableRecord]) -> bool | None:
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
