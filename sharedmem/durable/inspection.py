"""The tier's status, and the comparison of keys in Redis with the durable store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple, TypeAlias

from sharedmem.durable.key_loader import SharedDataRestorer
from sharedmem.durable.outbox_relay import OutboxRelay
from sharedmem.durable.protocol import DurableContext, living_documents
from sharedmem.errors import SharedMemoryError, UnavailableError
from sharedmem.models import Difference, DurableRecord, DurableStatus, Verification
from sharedmem.redis.change_stream import as_list, text_of
from sharedmem.redis.client import RedisClient
from sharedmem.redis.durability import CACHED_STATE, LOG_MODE, RULE_MODES, KeyRestorer, RedisPart
from sharedmem.redis.keys import LASTING_FAMILIES, Target
from sharedmem.redis.replies import Argument, Reply, ServerError

_ROWS_PAGE = 500
_EXCERPT_CHARS = 200
_SLACK_MS = 2_000
_SIZES = {"RPUSH": "LLEN", "HSET": "HLEN", "SADD": "SCARD"}
_ABSENT = "nothing"
_IS_GONE = -2
_LATEST_MS = 253_402_300_800_000
"""The year 10000, beyond Python's dates; another client may have set such an expiry."""
_KNOWLEDGE = "knowledge"
_EXPIRES = b"expires"

Row: TypeAlias = "tuple[Argument, ...]"


class KeyComparer:
    """Compares keys in Redis with their expected content.

    Args:
        client: client of the server.
    """

    def __init__(self, client: RedisClient) -> None:
        self._client = client

    async def parts(self, key: str, parts: Sequence[RedisPart]) -> list[Difference]:
        """Return the differences of Redis from a restored key. Two round trips a part, and one for each 500 rows.

        Raises:
            UnavailableError, AccessDeniedError: Redis cannot be reached, or does not allow it.
        """
        found: list[Difference] = []
        for part in parts:
            try:
                found += await self._part(key, part)
            except ServerError as error:
                if error.code != "WRONGTYPE":
                    raise
                held = await self._client.call("TYPE", part.place)
                found.append(Difference(key=key, what="type", redis=_excerpt(held), tier=part.command))
        return found

    async def expiry(self, head: DurableRecord, place: bytes, state: bytes, now_ms: int) -> list[Difference]:
        """Return whether the expiry of a key differs from the store's by more than two seconds. One round trip.

        Raises:
            UnavailableError, AccessDeniedError: as `parts`.
        """
        held, left = await self._client.read_many([("GET", state), ("PTTL", place)])
        # A cached copy has an expiry of its own.
        is_copy = held == CACHED_STATE or (head.kind == _KNOWLEDGE and held != _EXPIRES)
        if is_copy or not isinstance(left, int) or left == _IS_GONE:
            return []
        here = 0 if left < 0 else now_ms + left
        if abs(here - head.expires) <= _SLACK_MS:
            return []
        return [Difference(key=head.key, what="expiry", redis=_format_time(here), tier=_format_time(head.expires))]

    async def _part(self, key: str, part: RedisPart) -> list[Difference]:
        if part.compared is not None:
            part = part._replace(rows=[row for row in part.rows if _to_bytes(row[0]) in part.compared])
            if not part.rows:
                return []
        if part.command == "SET":
            held = await self._client.call("GET", part.place)
            return _compare_cell(key, "", held, part.rows[0][0])
        if part.command not in _SIZES:
            return []  # an index of the other parts
        size = await self._client.call(_SIZES[part.command], part.place)
        rows = part.rows if part.command == "RPUSH" else list({row[0]: row for row in part.rows}.values())
        found = [] if size == len(rows) or part.has_more else [_size_difference(key, size, len(rows))]
        for first in range(0, len(rows), _ROWS_PAGE):
            found += await self._rows(key, part, first, rows[first : first + _ROWS_PAGE])
        return found

    async def _rows(self, key: str, part: RedisPart, first: int, rows: Sequence[Row]) -> list[Difference]:
        place = part.place
        if part.command == "RPUSH":
            held = as_list(await self._client.call("LRANGE", place, first, first + len(rows) - 1))
            # Different sizes are reported already.
            pairs = enumerate(zip(held, rows, strict=False), first)
            return [one for n, (here, row) in pairs for one in _compare_cell(key, str(n), here, row[0])]
        if part.command == "HSET":
            held = as_list(await self._client.call("HMGET", place, *(row[0] for row in rows)))
            fields = zip(held, rows, strict=True)
            settled = part.settled or _all_of
            return [one for here, row in fields for one in _compare_cell(key, _excerpt(row[0]), here, row[1], settled)]
        there = as_list(await self._client.call("SMISMEMBER", place, *(row[0] for row in rows)))
        missing = [row[0] for here, row in zip(there, rows, strict=True) if here != 1]
        return [
            Difference(key=key, element=_excerpt(one), what="element", redis=_ABSENT, tier=_excerpt(one))
            for one in missing
        ]


def _all_of(cell: bytes) -> bytes:
    return cell


def _compare_cell(
    key: str, element: str, here: Reply, there: Argument, settled: Callable[[bytes], bytes] = _all_of
) -> list[Difference]:
    if isinstance(here, bytes) and settled(here) == settled(_to_bytes(there)):
        return []
    what = "element" if element else "value"
    return [Difference(key=key, element=element, what=what, redis=_excerpt(here), tier=_excerpt(there))]


def _size_difference(key: str, here: Reply, there: int) -> Difference:
    return Difference(key=key, what="size", redis=_excerpt(here), tier=str(there))


def _to_bytes(argument: Argument) -> bytes:
    return argument if isinstance(argument, bytes) else str(argument).encode()


def _excerpt(held: Reply | Argument) -> str:
    """Return the beginning of a value as text."""
    if held is None:
        return _ABSENT
    text = held.decode(errors="replace") if isinstance(held, bytes) else str(held)
    return text if len(text) <= _EXCERPT_CHARS else f"{text[:_EXCERPT_CHARS]}..."


def _format_time(at_ms: int) -> str:
    if not 0 <= at_ms < _LATEST_MS:
        return f"{at_ms} ms after 1970"
    return "never" if not at_ms else datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")


_CONCURRENT_KEYS = 32
_SETTLE_TIMEOUT_S = 10.0
_PAGE = 500
_MOST_DIFFERENCES = 200
_MOST_TRIES = 5
_UNSETTLED = (b"pending", b"deleted")
_LOG_KIND = "log"
# The durable key of a session of decisions is that of its plans; that of a conversation is its head.
_LOGS = ("$plan:", "$conversation:")

VerifyProgress = Callable[[int], None]


class KeyInspection(NamedTuple):
    """The result for one key."""

    waits: bool
    """Whether a change waits in the outbox, so that the two may differ."""
    differences: list[Difference]


class StoreCheck(NamedTuple):
    """Whether the store is reachable."""

    code: str = ""
    """Code of the error if it is not; it names no address."""
    why: str = ""
    problems: Sequence[str] = ()
    """Problems of the store itself, in sentences."""


class Inspector:
    """Reads the tier's status, and compares Redis with the store, for one hub.

    Args:
        context: the server and the durable store.
        id_: id of the database.
        relay: reads the outboxes.
        kind_of: returns the kind of an absolute key by the rules, or None.
        restorers: restorers by durability mode; shared data for other modes.
        remembers: whether memories and graphs are durable.
    """

    def __init__(
        self,
        context: DurableContext,
        id_: str,
        relay: OutboxRelay,
        *,
        kind_of: Callable[[str], str | None],
        restorers: Mapping[str, KeyRestorer],
        remembers: bool = True,
    ) -> None:
        self._client, self._keyspace, self._durable = context.client, context.keyspace, context.durable
        self._remembers = remembers
        self._id = id_
        self._relay = relay
        self._kind_of = kind_of
        self._data: KeyRestorer = SharedDataRestorer()
        self._log = restorers.get(LOG_MODE, self._data)
        self._comparer = KeyComparer(context.client)

    async def status(self) -> DurableStatus:
        """Return the state of the store and its lag. Two requests to the store; five round trips to Redis a namespace.

        Raises:
            UnavailableError, AccessDeniedError: Redis cannot be reached, or does not allow it.
        """
        check = await self.check()
        return DurableStatus(
            url=self._durable.url,
            id=self._id,
            reachable=not check.code,
            why=check.why,
            namespaces=[await self._relay.lag(name) for name in await self._relay.namespaces()],
            charges=self._durable.charges(),
            spent=await self._relay.spending.total(),
            problems=list(check.problems),
        )

    async def check(self) -> StoreCheck:
        """Return whether the store is reachable. Two requests to the store."""
        try:
            async with asyncio.timeout(_SETTLE_TIMEOUT_S):
                await self._durable.namespaces()
                return StoreCheck(problems=await self._durable.check())
        except TimeoutError:
            return StoreCheck(UnavailableError.codes.code, f"it does not reply within {_SETTLE_TIMEOUT_S:g} s")
        except SharedMemoryError as error:
            return StoreCheck(error.code, str(error))
        except OSError as error:
            return StoreCheck(UnavailableError.codes.code, str(error))

    async def verify(self, namespace: str, progress: VerifyProgress | None = None) -> Verification:
        """Compare the durable keys in Redis with the store.

        Keys only in the tier are no difference; keys with waiting changes are counted, but not compared. Memory use
        grows by a few bytes for each key, and by the size of the largest key.

        Args:
            namespace: the namespace.
            progress: called with the number of keys compared so far.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: Redis or the store is unavailable.
        """
        seen: set[int] = set()
        waiting, differences = 0, []
        async for found in self._looks(namespace, seen):
            waiting += sum(one.waits for one in found)
            differences += [difference for one in found for difference in one.differences]
            if progress is not None:
                progress(len(seen))
        return Verification(namespace=namespace, keys=len(seen), waiting=waiting, differences=differences)

    # -- the keys to compare

    async def _looks(self, namespace: str, seen: set[int]) -> AsyncIterator[list[KeyInspection]]:
        """Yield the result of each key: first the keys of the store, then the keys that should be in it."""
        batch: list[list[DurableRecord]] = []
        async for records in self._in_the_tier(namespace):
            seen.add(hash(records[0].key))
            batch.append(records)
            if len(batch) == _CONCURRENT_KEYS:
                yield list(await asyncio.gather(*map(self._look, batch)))
                batch = []
        yield list(await asyncio.gather(*map(self._look, batch)))
        async for keys in self._lasting(namespace):
            missed = [key for key in keys if hash(key) not in seen]
            seen.update(map(hash, missed))
            for first in range(0, len(missed), _CONCURRENT_KEYS):
                yield list(await asyncio.gather(*map(self._confirm, missed[first : first + _CONCURRENT_KEYS])))

    async def _in_the_tier(self, namespace: str) -> AsyncIterator[list[DurableRecord]]:
        """Yield the documents of each key."""
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
        """Yield pages of the durable keys in Redis: by argument, then by rule, then sessions of decisions."""
        cursor = b"0"
        while True:
            kept = self._keyspace.kept(namespace)
            reply = as_list(await self._client.call("HSCAN", kept, cursor, "COUNT", _PAGE))
            cursor = text_of(reply[0]).encode()
            # A field with another beginning is not a key but a mark.
            yield [key for key in map(_decode_name, as_list(reply[1])[::2]) if key.startswith(f"{namespace}:")]
            if cursor == b"0":
                break
        near = self._keyspace.space(namespace).clock
        async for page in self._client.scan(self._keyspace.pattern(namespace), near=near):
            yield [key for key in map(self._keyspace.logical, page) if self._should_last(key)]
        for family in LASTING_FAMILIES if self._remembers else ():
            head = self._keyspace.records(family, namespace).encode()
            async for page in self._client.scan(self._keyspace.records_glob(family, namespace), near=near):
                ids = [key.removeprefix(head).decode(errors="replace") for key in page]
                yield [f"{namespace}:${family}:{id_}" for id_ in ids]

    def _should_last(self, key: str) -> bool:
        scope = key.partition(":")[2]
        return scope.startswith(_LOGS) or (not scope.startswith("$") and self._kind_of(key) in RULE_MODES)

    # -- one key

    async def _look(self, records: list[DurableRecord]) -> KeyInspection:
        """Compare a key with the given documents; where it differs, compare again with fresh ones."""
        target = self._keyspace.target(records[0].key)
        if not await self._compared(target, records):
            return KeyInspection(waits=False, differences=[])
        return await self._confirm(target.key)

    async def _confirm(self, key: str) -> KeyInspection:
        """Compare a key, and repeat that if it changes during the comparison."""
        target = self._keyspace.target(key)
        differences: list[Difference] = []
        for _ in range(_MOST_TRIES):
            records = await self._durable.records(key)
            differences = await self._compared(target, records)
            if await self._waits(target):
                return KeyInspection(waits=True, differences=[])
            if not differences or records == await self._durable.records(key):
                break
        return KeyInspection(waits=False, differences=differences)

    async def _waits(self, target: Target) -> bool:
        state = await self._client.call("GET", self._keyspace.state(target))
        return isinstance(state, bytes) and state.startswith(_UNSETTLED)

    async def _compared(self, target: Target, records: Sequence[DurableRecord]) -> list[Difference]:
        head = next((one for one in records if one.is_head), None)
        restorer = self._log if head is not None and head.kind == _LOG_KIND else self._data
        here = restorer.presence(target)
        if await self._client.call("EXISTS", here) != 1:
            return []
        now_ms = await self._client.server_time_us() // 1000
        alive = living_documents(records, now_ms)
        if alive:
            try:
                parts = restorer.parts(target, alive, now_ms=now_ms)
            except (ValueError, LookupError, TypeError) as error:
                problem = f"cannot be read: {error}"[:_MOST_DIFFERENCES]
                return [Difference(key=target.key, what="form", redis="present", tier=problem)]
            found = await self._comparer.parts(target.key, parts)
            return found + await self._comparer.expiry(alive[0], here, self._keyspace.state(target), now_ms)
        if head is not None and await self._may_be_left(target, head):
            return []
        state = "nothing" if head is None else "deleted" if head.deleted else "expired"
        return [Difference(key=target.key, what="missing", redis="present", tier=state)]

    async def _may_be_left(self, target: Target, head: DurableRecord) -> bool:
        """Return whether a key that is deleted in the store may be in Redis: it was written as ephemeral since."""
        kept = await self._client.call("HEXISTS", self._keyspace.kept(target.space.namespace), target.key)
        return kept == 0 and (head.deleted or not self._should_last(target.key))


def _decode_name(reply: Reply) -> str:
    """Decode a field's name; bytes that are not text are not a key of sharedmem."""
    return reply.decode(errors="replace") if isinstance(reply, bytes) else str(reply)
