"""Load a key that Redis lacks from the durable store, under a lease and never over newer data.

A loader needs the read lease of the key. Every writer ends that lease, so that data that was read before a change
cannot be written after it. The server's time, which comes with the lease, decides about the expiry of keys.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple, Protocol

from sharedmem.clock import new_id
from sharedmem.durable.json_codec import from_text, member_from_text
from sharedmem.durable.protocol import DurableContext, living_documents
from sharedmem.errors import CorruptionError, InvalidError, SharedMemoryError, UnavailableError
from sharedmem.models import DurableRecord
from sharedmem.redis.durability import KeyRestorer, RedisPart
from sharedmem.redis.keys import SHARED_SCOPE, Target
from sharedmem.redis.replies import Argument, Command
from sharedmem.redis.scripts.durable import DurableKey, FilledPart, KeyFill, KeyLook, ServiceKeys
from sharedmem.runtime.concurrency import SingleFlight

_Row = tuple[Argument, ...]


class SharedDataRestorer:
    """Values, counters, lists, hashes and sets: one Redis key each, under the key's own name."""

    def presence(self, target: Target) -> bytes:
        """Return the key itself."""
        return target.physical

    def parts(
        self,
        target: Target,
        records: Sequence[DurableRecord],
        *,
        now_ms: int = 0,  # noqa: ARG002  # no leases
    ) -> list[RedisPart]:
        """Return the Redis form of a key's living documents, its head first; nothing for a structure without elements.

        Raises:
            InvalidError: a body is not encoded as `json_codec` does, or the type is unknown.
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

    def besides(self, target: Target, head: DurableRecord) -> list[Command]:  # noqa: ARG002  # no other key holds shared data
        """Return nothing."""
        return []


class LogRestorer:
    """Restores logs: chooses a restorer by the scope of the key.

    Args:
        kinds: restorers by scope.
    """

    def __init__(self, kinds: Mapping[str, KeyRestorer]) -> None:
        self._kinds = kinds

    def presence(self, target: Target) -> bytes:
        """Return the Redis key that exists if and only if the log does."""
        return self._of(target).presence(target)

    def parts(self, target: Target, records: Sequence[DurableRecord], *, now_ms: int = 0) -> list[RedisPart]:
        """Return the Redis form of a log's living documents."""
        return self._of(target).parts(target, records, now_ms=now_ms)

    def besides(self, target: Target, head: DurableRecord) -> list[Command]:
        """Return further commands to send before the log is restored."""
        return self._of(target).besides(target, head)

    def _of(self, target: Target) -> KeyRestorer:
        scope = target.key.split(":", 2)[1]
        if scope not in self._kinds:
            raise InvalidError("key", target.key, f"logs have one of the scopes {', '.join(self._kinds)}")
        return self._kinds[scope]


def _encode_value(record: DurableRecord) -> bytes:
    """Encode a value as `redis.value_record` reads it: version, actor, time of creation if earlier, codec, body."""
    created = f" {record.created}" if 0 < record.created != record.version else ""
    # An archive written by hand may lack the actor, which a header needs.
    header = f"{record.version:016d} {record.actor or SHARED_SCOPE}{created} {record.codec}\n"
    return header.encode() + from_text(record.codec.encode(), record.body)


def _encode_member(record: DurableRecord) -> bytes:
    return member_from_text(record.codec, record.body)


def _structure_part(target: Target, command: str, rows: list[_Row]) -> list[RedisPart]:
    return [RedisPart(target.physical, command, rows)] if rows else []


LOADS, WAITS, OVERTAKEN, ABSENT = "durable_loads", "durable_load_waits", "durable_loads_overtaken", "durable_absent"
"""Counters: keys loaded from the store, waits for another loader, loads that lost a race, keys that the store lacks."""

_STAGED_MS = 60_000
_MOST_ARGUMENTS = 500
_MOST_KEYS, _MOST_BYTES = 250, 49_152
_MOST_JOINS = 3
_LIST, _RELEASE = "list", "release"
_WAIT_REASONS = {
    "pending": "Redis lost it before the durable tier had it, and the durable tier cannot store it now",
    "wait": "another client is restoring it from the durable tier, and has not finished yet",
    "load": "it changes as often as it is restored from the durable tier",
}


DrainNamespace = Callable[[str], Coroutine[Any, Any, None]]


class JoinNamespace(Protocol):
    """Joins a namespace: `DataLossGuard.join`."""

    def __call__(self, namespace: str, *, again: bool = False) -> Awaitable[None]:
        """Bring Redis up to date with the durable store."""


@dataclass(frozen=True, slots=True)
class LoadTimes:
    """Lifetimes and timeouts of a load."""

    cache_ms: int
    """Milliseconds for which a copy of a durable key stays in Redis."""
    absent_ms: int = 30_000
    """Milliseconds for which Redis stores that the store lacks a key."""
    lease_ms: int = 10_000
    """Milliseconds that a loader has for a key, before another one tries."""
    patience_s: float = 15.0
    """Seconds that a caller waits for another loader; longer than the lease of a dead loader."""


class LoadLease(NamedTuple):
    """The right to load a key."""

    target: Target
    restorer: KeyRestorer
    place: DurableKey
    token: str
    now_ms: int
    """Milliseconds since 1970 at the server, when the lease was granted."""


class LoadedKey(NamedTuple):
    """A key as it is in the store, ready to be written to Redis."""

    lease: LoadLease
    head: DurableRecord | None
    """None: the key does not exist."""
    parts: Sequence[RedisPart]


class KeyLoader:
    """Loads keys from the durable store into Redis.

    Args:
        context: the server and the durable store.
        restorers: by durability mode (`redis.durability`); shared data for other modes.
        drain: delivers a namespace's outbox to the store.
        join: brings Redis up to date with the store.
        times: lifetimes and timeouts.
    """

    def __init__(
        self,
        context: DurableContext,
        *,
        restorers: Mapping[str, KeyRestorer],
        drain: DrainNamespace,
        join: JoinNamespace,
        times: LoadTimes,
    ) -> None:
        self._client, self._keyspace, self._scripts = context.client, context.keyspace, context.scripts
        self._durable, self._clock, self._counters = context.durable, context.clock, context.counters
        background = context.background
        self._restorers = restorers
        self._data: KeyRestorer = SharedDataRestorer()
        self._drain = drain
        self._join = join
        self._times = times
        self._flights: SingleFlight[bool] = SingleFlight("recall", background)
        self._drains: SingleFlight[None] = SingleFlight("drain", background)

    async def recall(self, target: Target, mode: str) -> bool:
        """Load a key that Redis lacks, and return whether Redis has it now.

        Callers of one process share the work; of several processes one does it, and the others wait. Two round trips
        to Redis and one to the store; for large structures one more for each 500 elements.

        Args:
            target: the key.
            mode: its durability mode (`redis.durability`).

        Raises:
            UnavailableError: Redis lacks it, and the store is unavailable, or another loader takes too long.
            LimitedError, AccessDeniedError: as `Durable.records`.
            CorruptionError: its documents are unreadable; they stay as they are.
        """
        return await self._flights.share(f"{mode} {target.key}", lambda: self._recall(target, mode))

    async def _recall(self, target: Target, mode: str) -> bool:
        deadline = self._clock.monotonic() + self._times.patience_s
        joins = 0
        for pause in self._client.pauses():
            ((lease, answer),) = await self.look([(target, mode)])
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

    async def look(self, wanted: Sequence[tuple[Target, str]]) -> list[tuple[LoadLease | None, str]]:
        """Return of each key the load lease, if granted, and the reply (see `lua/key_look.lua`); one round trip.

        Args:
            wanted: keys of one namespace, and their durability modes.
        """
        # A new token for each attempt: a late request of a lost connection must not match these leases.
        token = new_id()
        restorers = [self._restorers.get(mode, self._data) for _, mode in wanted]
        places = [
            DurableKey(restorer.presence(target), self._keyspace.state(target))
            for restorer, (target, _) in zip(restorers, wanted, strict=True)
        ]
        looks = [KeyLook(place, target.key, mode) for place, (target, mode) in zip(places, wanted, strict=True)]
        owner, lease_ms = self._owner(wanted[0][0]), self._times.lease_ms
        try:
            lines = await self._scripts.key_look(owner, looks, token=token, lease_ms=lease_ms)
        except asyncio.CancelledError:
            # The server may have granted them nevertheless. One that is out of reach is not asked again: they expire.
            asked = zip(wanted, restorers, places, strict=True)
            await self.release([LoadLease(target, restorer, place, token, 0) for (target, _), restorer, place in asked])
            raise
        found: list[tuple[LoadLease | None, str]] = []
        for line, (target, _), restorer, place in zip(lines, wanted, restorers, places, strict=True):
            answer, _, number = line.partition(" ")
            lease = LoadLease(target, restorer, place, token, int(number)) if answer == "load" else None
            found.append((lease, answer))
        return found

    async def _wait(self, target: Target, answer: str, pause: float, deadline: float) -> None:
        if answer == "lost":
            why = "it is not in Redis, which has lost data, and the durable tier is unreachable"
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
        """Drain the outbox: the worker that should deliver it may have died."""
        with suppress(SharedMemoryError, TimeoutError):
            async with asyncio.timeout(self._times.patience_s):
                await self._drains.share(namespace, lambda: self._drain(namespace))

    async def _load(self, lease: LoadLease) -> bool | None:
        """Return whether Redis has the key now; None if another writer was faster."""
        try:
            records = await self._durable.records(lease.target.key)
            self._counters.increment(LOADS)
            (outcome,) = await self.fill([self.prepare(lease, records)])
        except BaseException:
            await self.release([lease])
            raise
        return outcome

    async def release(self, leases: Sequence[LoadLease]) -> None:
        """Release leases of one `look`, so that other loaders need not wait for their expiry."""
        if not leases:
            return
        fills = [KeyFill(lease.place, _RELEASE) for lease in leases]
        with suppress(SharedMemoryError):
            await self._scripts.key_fill(self._owner(leases[0].target), fills, token=leases[0].token)

    def prepare(self, lease: LoadLease, records: Sequence[DurableRecord]) -> LoadedKey:
        """Return the Redis form of a key.

        Args:
            lease: lease for loading the key.
            records: all documents of the key, read after the lease was granted.

        Raises:
            CorruptionError: the documents are unreadable.
        """
        seen = living_documents(records, lease.now_ms)
        parts = _living_parts(lease, seen) if seen else []
        return LoadedKey(lease, seen[0] if parts else None, parts)

    async def fill(self, loaded: Sequence[LoadedKey]) -> list[bool | None]:
        """Write keys of one `look` to Redis; return of each whether Redis has it, None if another writer was faster.

        One round trip for some hundred keys; for large structures one more for each 500 elements.
        """
        if not loaded:
            return []
        fills = [await self._fill_of(one) for one in loaded]
        lease, times = loaded[0].lease, self._times
        parts = [
            self._scripts.key_fill(
                self._owner(lease.target), some, token=lease.token, cache_ms=times.cache_ms, absent_ms=times.absent_ms
            )
            for some in _split(fills)
        ]
        done = [is_done for part in await asyncio.gather(*parts) for is_done in part]
        outcomes: list[bool | None] = []
        for fill, is_done in zip(fills, done, strict=True):
            is_filled = is_done and fill.what != _RELEASE
            is_absent = is_filled and not fill.parts
            if is_absent or not is_filled:
                self._counters.increment(ABSENT if is_absent else OVERTAKEN)
            outcomes.append(None if not is_filled else not is_absent)
        return outcomes

    async def _fill_of(self, loaded: LoadedKey) -> KeyFill:
        lease, head, parts = loaded
        if head is None:
            return KeyFill(lease.place, "absent")
        # Before the key exists: if this process died in between, no other process would send them.
        for command in lease.restorer.besides(lease.target, head):
            await self._client.call(*command)
        filled: list[FilledPart] = []
        size = 0
        for number, part in enumerate(parts):
            if len(part.rows) * len(part.rows[0]) <= _MOST_ARGUMENTS:
                row = part.rows[0] if len(part.rows) == 1 else tuple(chain.from_iterable(part.rows))
                size += sum([len(word) for word in row if not isinstance(word, int)])
                filled.append(FilledPart(part.place, b"", part.command, row))
                continue
            staged = await self._staged(lease, f"{lease.token}.{number}", part)
            if staged is None:
                return KeyFill(lease.place, _RELEASE)
            filled.append(FilledPart(part.place, staged))
        is_copy = head.kind == "knowledge" and not head.expires and self._times.cache_ms
        list_key = head.key if head.type == _LIST else ""
        return KeyFill(lease.place, "cache" if is_copy else "restore", head.expires, head.stamp, list_key, filled, size)

    async def _staged(self, lease: LoadLease, name: str, part: RedisPart) -> bytes | None:
        """Return the key of a staged part; None if it has expired."""
        staged = self._keyspace.item(lease.target, "kept.staged", name)
        for before, row in _chunks(part):
            there = await self._scripts.key_stage(
                staged, command=part.command, before=before, ttl_ms=_STAGED_MS, row=row
            )
            if not there:
                return None
        return staged

    def _owner(self, target: Target) -> ServiceKeys:
        space = target.space
        return ServiceKeys(space.clock, self._keyspace.kept(space.namespace))


def _split(fills: Sequence[KeyFill]) -> Iterator[Sequence[KeyFill]]:
    """Yield as many keys at a time as one script writes quickly, and one connection sends without delaying others."""
    first = size = 0
    for end, fill in enumerate(fills):
        larger = size + fill.size
        if end > first and (end - first >= _MOST_KEYS or larger > _MOST_BYTES):
            yield fills[first:end]
            first, larger = end, fill.size
        size = larger
    yield fills[first:]


def _living_parts(lease: LoadLease, seen: Sequence[DurableRecord]) -> list[RedisPart]:
    try:
        parts = lease.restorer.parts(lease.target, seen, now_ms=lease.now_ms)
        return [part for part in parts if part.rows]
    except (ValueError, LookupError, TypeError) as error:
        problem = f"the durable tier has it in a form that cannot be read ({error}), and does not change it"
        raise CorruptionError(lease.target.key, problem, "write the key again, or delete it") from error


def _chunks(part: RedisPart) -> Iterator[tuple[int, list[Argument]]]:
    """Yield (rows before, arguments) of commands that the server completes quickly."""
    rows = max(1, _MOST_ARGUMENTS // len(part.rows[0]))
    for first in range(0, len(part.rows), rows):
        yield first, [argument for row in part.rows[first : first + rows] for argument in row]
