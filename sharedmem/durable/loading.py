"""Loading: what is not in Redis any more comes back from the durable tier, once, and never in place of what is newer.

Who brings a key back holds its read lease. Every writer takes that away, so that nothing which was read before a
change can be put in place after it. The expiry of keys is judged by the server's time, which the lease comes with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from sharedmem.clock import new_id
from sharedmem.durable.flights import Flights
from sharedmem.durable.images import DataImager
from sharedmem.durable.living import living
from sharedmem.durable.shores import Shores
from sharedmem.errors import CorruptionError, SharedMemoryError, UnavailableError
from sharedmem.models import DurableRecord
from sharedmem.wire.keeping import FillKeys, LookKeys
from sharedmem.wire.keys import Target
from sharedmem.wire.replies import Argument
from sharedmem.wire.tier import Imager, Part

LOADS, WAITS, OVERTAKEN, ABSENT = "durable_loads", "durable_load_waits", "durable_loads_overtaken", "durable_absent"
"""Counters: keys that were read from the tier, waits for others who do so, loads in vain, keys it does not have."""

_STAGED_MS = 60_000
_MOST_ARGUMENTS = 500
_MOST_JOINS = 3
_WAITING = {
    "pending": "it went from Redis before the durable tier had it, which does not take it now",
    "wait": "somebody brings it back from the durable tier, and has not done so yet",
    "load": "it changes as often as it is brought back from the durable tier",
}


Drain = Callable[[str], Coroutine[Any, Any, None]]


class Join(Protocol):
    """How a namespace is joined: `Joiner.join`."""

    def __call__(self, namespace: str, *, again: bool = False) -> Awaitable[None]:
        """Make sure that Redis is not behind the tier."""


@dataclass(frozen=True, slots=True)
class Times:
    """How long what takes."""

    cache_ms: int
    """A copy of what is known to last stays in Redis."""
    absent_ms: int = 30_000
    """A key that the tier does not have is known to be nowhere."""
    lease_ms: int = 10_000
    """Whoever brings a key back has for it, before another one tries."""
    patience_s: float = 15.0
    """A caller waits for others before it is told that it cannot be had now: longer than a lease whose holder died."""


class Lease(NamedTuple):
    """The right to bring a key back."""

    target: Target
    imager: Imager
    token: str
    now_ms: int
    """Milliseconds since 1970 at the server, when it was given."""


class Loader:
    """Brings keys back into Redis.

    Args:
        shores: Redis and the tier.
        imagers: how the documents of keys lie in Redis, by the letter of their mode (`wire.tier`); data without.
        drain: carries what waits in a namespace's outbox into the tier.
        join: makes sure that Redis is not behind the tier.
        times: how long what takes.
    """

    def __init__(
        self, shores: Shores, *, imagers: Mapping[str, Imager], drain: Drain, join: Join, times: Times
    ) -> None:
        self._line, self._keyspace, self._keeping, self._durable, self._clock, background, self._counters = shores
        self._imagers = imagers
        self._data: Imager = DataImager()
        self._drain = drain
        self._join = join
        self._times = times
        self._flights: Flights[bool] = Flights("recall", background)
        self._drains: Flights[None] = Flights("drain", background)

    async def recall(self, target: Target, mode: str) -> bool:
        """Bring back a key that is not in Redis; whether it is there now.

        Callers of one process share the work; of several processes one does it, and the others wait. Three round
        trips to Redis and one to the tier; for large structures one more for each 500 elements.

        Args:
            target: the key.
            mode: the letter for how it is kept (`wire.tier`).

        Raises:
            UnavailableError: it is neither here, nor can the tier be asked, nor does it come within the patience.
            LimitedError, AccessDeniedError: as the tier's.
            CorruptionError: the tier has it in a form that cannot be read; it is left as it is.
        """
        return await self._flights.share(f"{mode} {target.key}", lambda: self._recall(target, mode))

    async def _recall(self, target: Target, mode: str) -> bool:
        deadline = self._clock.monotonic() + self._times.patience_s
        joins = 0
        for pause in self._line.pauses():
            lease, answer = await self.look(target, mode)
            if answer in {"hot", "none"}:
                return answer == "hot"
            if answer == "lost" and joins < _MOST_JOINS:
                joins += 1
                await self._join(target.space.namespace, again=True)
                continue
            if lease is not None and (outcome := await self._load(lease)) is not None:
                return outcome
            await self._wait(target, answer, pause, deadline)
        raise AssertionError  # the pauses never end

    async def look(self, target: Target, mode: str) -> tuple[Lease | None, str]:
        """The read lease, if it is ours, and what the server says of the key (see `lua/key_look.lua`)."""
        imager = self._imagers.get(mode, self._data)
        # A new one for each try: what a lost connection still delivers of an earlier one must not fit this one.
        token = new_id()
        keys = LookKeys(
            imager.presence(target),
            target.space.clock,
            self._keyspace.kept(target.space.namespace),
            self._keyspace.state(target),
        )
        said = await self._keeping.key_look(
            keys, logical=target.key, mode=mode, token=token, lease_ms=self._times.lease_ms
        )
        answer, _, number = said.partition(" ")
        return Lease(target, imager, token, int(number)) if answer == "load" else None, answer

    async def _wait(self, target: Target, answer: str, pause: float, deadline: float) -> None:
        if answer == "lost":
            why = "it is not in Redis, which has lost data, and the durable tier cannot be asked what it had"
            raise UnavailableError(f"key {target.key!r}", why)
        if self._clock.monotonic() + pause > deadline:
            raise UnavailableError(f"key {target.key!r}", f"{_WAITING[answer]}; try again")
        if answer == "load":
            return
        self._counters.increment(WAITS, reason=answer)
        if answer == "pending":
            await self._drained(target.space.namespace)
        await self._clock.sleep(pause)

    async def _drained(self, namespace: str) -> None:
        """Carry what the key waits for: whoever was to do so may have died."""
        with suppress(SharedMemoryError, TimeoutError):
            async with asyncio.timeout(self._times.patience_s):
                await self._drains.share(namespace, lambda: self._drain(namespace))

    async def _load(self, lease: Lease) -> bool | None:
        """Whether the key is there now; None when somebody was faster."""
        try:
            records = await self._durable.records(lease.target.key)
            self._counters.increment(LOADS)
            return await self.fill(lease, records)
        except BaseException:
            await self.give_back(lease)
            raise

    async def give_back(self, lease: Lease) -> None:
        """End a lease, so that others need not wait for its end."""
        with suppress(SharedMemoryError):
            await self._keeping.key_fill(self._fill_keys(lease), token=lease.token)

    async def fill(self, lease: Lease, records: Sequence[DurableRecord]) -> bool | None:
        """Put a key in its place; whether it is there now, None when somebody was faster.

        Args:
            lease: the right to do so.
            records: all its documents, read after the lease was given.

        Raises:
            CorruptionError: they cannot be read.
        """
        seen = living(records, lease.now_ms)
        parts = _parts(lease, seen) if seen else []
        keys, token = self._fill_keys(lease), lease.token
        if not parts:
            known = await self._keeping.key_fill(keys, token=token, absent_ms=self._times.absent_ms)
            self._counters.increment(ABSENT if known else OVERTAKEN)
            return False if known else None
        # Before the key is there: nobody would do it afterwards if this process ended in between.
        for command in lease.imager.besides(lease.target):
            await self._line.call(*command)
        pairs = await self._staged(lease, parts)
        if pairs is None:
            await self._keeping.key_fill(keys, token=token)
            filled = False
        else:
            head = seen[0]
            cache_ms = self._times.cache_ms if head.kind == "knowledge" and not head.expires else 0
            filled = await self._keeping.key_fill(keys, pairs, token=token, expires=head.expires, cache_ms=cache_ms)
        if not filled:
            self._counters.increment(OVERTAKEN)
        return True if filled else None

    async def _staged(self, lease: Lease, parts: Sequence[Part]) -> list[bytes] | None:
        """Pairs of keys: where each part was made ready, and where it belongs; None when one has gone again."""
        pairs: list[bytes] = []
        for number, part in enumerate(parts):
            staged = self._keyspace.item(lease.target, "kept.staged", f"{lease.token}.{number}")
            for before, row in _chunks(part):
                there = await self._keeping.key_stage(
                    staged, command=part.command, before=before, ttl_ms=_STAGED_MS, row=row
                )
                if not there:
                    return None
            pairs += (staged, part.place)
        return pairs

    def _fill_keys(self, lease: Lease) -> FillKeys:
        target = lease.target
        return FillKeys(lease.imager.presence(target), target.space.clock, self._keyspace.state(target))


def _parts(lease: Lease, seen: Sequence[DurableRecord]) -> list[Part]:
    try:
        return [part for part in lease.imager.parts(lease.target, seen) if part.rows]
    except (ValueError, LookupError, TypeError) as error:
        problem = f"the durable tier has it in a form that cannot be read ({error}), and keeps it so"
        raise CorruptionError(lease.target.key, problem, "write the key anew, or delete it") from error


def _chunks(part: Part) -> Iterator[tuple[int, list[Argument]]]:
    """(rows before, arguments) of commands that the server is done with at once."""
    rows = max(1, _MOST_ARGUMENTS // len(part.rows[0]))
    for first in range(0, len(part.rows), rows):
        yield first, [argument for row in part.rows[first : first + rows] for argument in row]
