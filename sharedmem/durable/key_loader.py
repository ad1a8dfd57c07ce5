"""Load a key that Redis does not hold from the durable store, under a lease and never over newer data."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from sharedmem.clock import new_id
from sharedmem.durable.context import DurableContext
from sharedmem.durable.json_codec import from_text, member_from_text
from sharedmem.durable.liveness import living_documents
from sharedmem.errors import CorruptionError, InvalidError, SharedMemoryError, UnavailableError
from sharedmem.models import DurableRecord
from sharedmem.redis.durability import KeyRestorer, RedisPart
from sharedmem.redis.keys import SHARED_SCOPE, Target
from sharedmem.redis.replies import Argument, Command
from sharedmem.redis.scripts.durable import KeyFillKeys, KeyLookKeys
from sharedmem.runtime.single_flight import SingleFlight

_Row = tuple[Argument, ...]


class SharedDataRestorer:
    """Values, counters, lists, hashes and sets: one Redis key each, under the key's own name."""

    def presence(self, target: Target) -> bytes:
        """The key itself."""
        return target.physical

    def parts(self, target: Target, records: Sequence[DurableRecord]) -> list[RedisPart]:
        """What the living documents of a key, its head first, are in Redis; nothing for a structure without elements.

        Raises:
            InvalidError: a body is not spelled as `durable.texts` says, or the type is none of these.
        """
        head, *elements = records
        if head.type == "value":
            return [RedisPart(target.physical, "SET", [(_encode_value(head),)])]
        if head.type in {"counter", "text"}:
            return [RedisPart(target.physical, "SET", [(_encode_member(head),)])]
        if head.type == "list":
            return _structure_part(target, "RPUSH", [(_encode_member(one),) for one in elements])
        if head.type == "hash":
            return _structure_part(target, "HSET", [(one.element.encode(), _encode_member(one)) for one in elements])
        if head.type == "set":
            return _structure_part(target, "SADD", [(_encode_member(one),) for one in elements])
        raise InvalidError("type", head.type, "it is value, counter, text, list, hash or set")

    def besides(self, target: Target) -> list[Command]:  # noqa: ARG002  # data lies nowhere else
        """Nothing."""
        return []


class LogRestorer:
    """Logs of several kinds, told apart by the scope of their keys (`wire.tier.Imager`).

    Args:
        kinds: how those of each scope lie in Redis.
    """

    def __init__(self, kinds: Mapping[str, KeyRestorer]) -> None:
        self._kinds = kinds

    def presence(self, target: Target) -> bytes:
        """The Redis key that is there if and only if the log is."""
        return self._of(target).presence(target)

    def parts(self, target: Target, records: Sequence[DurableRecord]) -> list[RedisPart]:
        """What the living documents of a log are in Redis."""
        return self._of(target).parts(target, records)

    def besides(self, target: Target) -> list[Command]:
        """What else is to be done when it is back."""
        return self._of(target).besides(target)

    def _of(self, target: Target) -> KeyRestorer:
        scope = target.key.split(":", 2)[1]
        if scope not in self._kinds:
            raise InvalidError("key", target.key, f"logs lie under {', '.join(self._kinds)}")
        return self._kinds[scope]


def _encode_value(record: DurableRecord) -> bytes:
    """The record as `data.records` reads it: version, actor, when it was first written if earlier, codec, body."""
    created = f" {record.created}" if 0 < record.created != record.version else ""
    # Who wrote an archive by hand may have named nobody; a header needs a name.
    header = f"{record.version:016d} {record.actor or SHARED_SCOPE}{created} {record.codec}\n"
    return header.encode() + from_text(record.codec.encode(), record.body)


def _encode_member(record: DurableRecord) -> bytes:
    return member_from_text(record.codec, record.body)


def _structure_part(target: Target, command: str, rows: list[_Row]) -> list[RedisPart]:
    return [RedisPart(target.physical, command, rows)] if rows else []


LOADS, WAITS, OVERTAKEN, ABSENT = "durable_loads", "durable_load_waits", "durable_loads_overtaken", "durable_absent"
"""Counters: keys that were read from the tier, waits for others who do so, loads in vain, keys it does not have."""

_STAGED_MS = 60_000
_MOST_ARGUMENTS = 500
_MOST_JOINS = 3
_WAIT_REASONS = {
    "pending": "it went from Redis before the durable tier had it, which does not take it now",
    "wait": "somebody brings it back from the durable tier, and has not done so yet",
    "load": "it changes as often as it is brought back from the durable tier",
}


DrainNamespace = Callable[[str], Coroutine[Any, Any, None]]


class JoinNamespace(Protocol):
    """How a namespace is joined: `Joiner.join`."""

    def __call__(self, namespace: str, *, again: bool = False) -> Awaitable[None]:
        """Make sure that Redis is not behind the tier."""


@dataclass(frozen=True, slots=True)
class LoadTimes:
    """How long what takes."""

    cache_ms: int
    """A copy of what is known to last stays in Redis."""
    absent_ms: int = 30_000
    """A key that the tier does not have is known to be nowhere."""
    lease_ms: int = 10_000
    """Whoever brings a key back has for it, before another one tries."""
    patience_s: float = 15.0
    """A caller waits for others before it is told that it cannot be had now: longer than a lease whose holder died."""


class LoadLease(NamedTuple):
    """The right to bring a key back."""

    target: Target
    imager: KeyRestorer
    token: str
    now_ms: int
    """Milliseconds since 1970 at the server, when it was given."""


class KeyLoader:
    """Brings keys back into Redis.

    Args:
        context: the server and the durable store.
        imagers: how the documents of keys lie in Redis, by the letter of their mode (`wire.tier`); data without.
        drain: carries what waits in a namespace's outbox into the tier.
        join: makes sure that Redis is not behind the tier.
        times: how long what takes.
    """

    def __init__(
        self,
        context: DurableContext,
        *,
        imagers: Mapping[str, KeyRestorer],
        drain: DrainNamespace,
        join: JoinNamespace,
        times: LoadTimes,
    ) -> None:
        self._client, self._keyspace, self._scripts = context.client, context.keyspace, context.scripts
        self._durable, self._clock, self._counters = context.durable, context.clock, context.counters
        background = context.background
        self._imagers = imagers
        self._data: KeyRestorer = SharedDataRestorer()
        self._drain = drain
        self._join = join
        self._times = times
        self._flights: SingleFlight[bool] = SingleFlight("recall", background)
        self._drains: SingleFlight[None] = SingleFlight("drain", background)

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
        for pause in self._client.pauses():
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

    async def look(self, target: Target, mode: str) -> tuple[LoadLease | None, str]:
        """The read lease, if it is ours, and what the server says of the key (see `lua/key_look.lua`)."""
        imager = self._imagers.get(mode, self._data)
        # A new one for each try: what a lost connection still delivers of an earlier one must not fit this one.
        token = new_id()
        keys = KeyLookKeys(
            imager.presence(target),
            target.space.clock,
            self._keyspace.kept(target.space.namespace),
            self._keyspace.state(target),
        )
        said = await self._scripts.key_look(
            keys, logical=target.key, mode=mode, token=token, lease_ms=self._times.lease_ms
        )
        answer, _, number = said.partition(" ")
        return LoadLease(target, imager, token, int(number)) if answer == "load" else None, answer

    async def _wait(self, target: Target, answer: str, pause: float, deadline: float) -> None:
        if answer == "lost":
            why = "it is not in Redis, which has lost data, and the durable tier cannot be asked what it had"
            raise UnavailableError(f"key {target.key!r}", why)
        if self._clock.monotonic() + pause > deadline:
            raise UnavailableError(f"key {target.key!r}", f"{_WAIT_REASONS[answer]}; try again")
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

    async def _load(self, lease: LoadLease) -> bool | None:
        """Whether the key is there now; None when somebody was faster."""
        try:
            records = await self._durable.records(lease.target.key)
            self._counters.increment(LOADS)
            return await self.fill(lease, records)
        except BaseException:
            await self.give_back(lease)
            raise

    async def give_back(self, lease: LoadLease) -> None:
        """End a lease, so that others need not wait for its end."""
        with suppress(SharedMemoryError):
            await self._scripts.key_fill(self._fill_keys(lease), token=lease.token)

    async def fill(self, lease: LoadLease, records: Sequence[DurableRecord]) -> bool | None:
        """Put a key in its place; whether it is there now, None when somebody was faster.

        Args:
            lease: the right to do so.
            records: all its documents, read after the lease was given.

        Raises:
            CorruptionError: they cannot be read.
        """
        seen = living_documents(records, lease.now_ms)
        parts = _living_parts(lease, seen) if seen else []
        keys, token = self._fill_keys(lease), lease.token
        if not parts:
            known = await self._scripts.key_fill(keys, token=token, absent_ms=self._times.absent_ms)
            self._counters.increment(ABSENT if known else OVERTAKEN)
            return False if known else None
        # Before the key is there: nobody would do it afterwards if this process ended in between.
        for command in lease.imager.besides(lease.target):
            await self._client.call(*command)
        pairs = await self._staged(lease, parts)
        if pairs is None:
            await self._scripts.key_fill(keys, token=token)
            filled = False
        else:
            head = seen[0]
            cache_ms = self._times.cache_ms if head.kind == "knowledge" and not head.expires else 0
            filled = await self._scripts.key_fill(keys, pairs, token=token, expires=head.expires, cache_ms=cache_ms)
        if not filled:
            self._counters.increment(OVERTAKEN)
        return True if filled else None

    async def _staged(self, lease: LoadLease, parts: Sequence[RedisPart]) -> list[bytes] | None:
        """Pairs of keys: where each part was made ready, and where it belongs; None when one has gone again."""
        pairs: list[bytes] = []
        for number, part in enumerate(parts):
            staged = self._keyspace.item(lease.target, "kept.staged", f"{lease.token}.{number}")
            for before, row in _chunks(part):
                there = await self._scripts.key_stage(
                    staged, command=part.command, before=before, ttl_ms=_STAGED_MS, row=row
                )
                if not there:
                    return None
            pairs += (staged, part.place)
        return pairs

    def _fill_keys(self, lease: LoadLease) -> KeyFillKeys:
        target = lease.target
        return KeyFillKeys(lease.imager.presence(target), target.space.clock, self._keyspace.state(target))


def _living_parts(lease: LoadLease, seen: Sequence[DurableRecord]) -> list[RedisPart]:
    try:
        return [part for part in lease.imager.parts(lease.target, seen) if part.rows]
    except (ValueError, LookupError, TypeError) as error:
        problem = f"the durable tier has it in a form that cannot be read ({error}), and keeps it so"
        raise CorruptionError(lease.target.key, problem, "write the key anew, or delete it") from error


def _chunks(part: RedisPart) -> Iterator[tuple[int, list[Argument]]]:
    """(rows before, arguments) of commands that the server is done with at once."""
    rows = max(1, _MOST_ARGUMENTS // len(part.rows[0]))
    for first in range(0, len(part.rows), rows):
        yield first, [argument for row in part.rows[first : first + rows] for argument in row]
