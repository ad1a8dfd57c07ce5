"""The outbox stream of a namespace: reading and acknowledging its entries; and its dead letters.

Workers claim the entries of an outbox in one consumer group, under one consumer name: one worker at a time has an
entry, and another one claims it after an idle time. This is only an optimisation: documents may be put twice and in any
order, since stamps decide which of them stay, and an entry is settled once, by the worker that deletes it.

Dead letters are changes that the durable store rejected for good, until they are replayed or discarded.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple, TypeVar, cast

from sharedmem.clock import from_microseconds
from sharedmem.durable.outbox_documents import parse_documents
from sharedmem.durable.protocol import DurableContext
from sharedmem.errors import InvalidError
from sharedmem.models import DeadLetter, DurableRecord
from sharedmem.redis.change_stream import as_list, text_of
from sharedmem.redis.replies import Reply, ServerError, public_error
from sharedmem.redis.scripts.durable import DeliveredEntry, DurableKey, RejectedField

T = TypeVar("T")
Recovery = Literal["complete", "running", "tier away", "not begun"]
_RECOVERY: dict[bytes, Recovery] = {b"joined": "complete", b"recovering": "running", b"provisional": "tier away"}
GROUP = "tier"
_CONSUMER = "hubs"
# A script blocks the server for all clients: a few hundred keys take a millisecond.
_MOST_KEYS = 250
# Entries of callers that wait: they are about as large as what these have just sent.
_FEW = 8


def entry_time_ms(entry_id: bytes) -> int:
    """Return when the entry with an id was written, in milliseconds since 1970, by the server's clock."""
    return int(entry_id.partition(b"-")[0])


# The fourth word of a field's name, as `lua/outbox_settle.lua` finds it.
_STAMP = re.compile(rb"\S+ \S+ \S+ (\d+)")
_NO_STAMP = b"-"


def _stamp_in(name: bytes) -> bytes:
    found = _STAMP.match(name)
    return found[1] if found else _NO_STAMP


class OutboxEntry(NamedTuple):
    """One entry of the outbox: the documents of one script call."""

    id: bytes
    fields: list[bytes]

    @property
    def stamp(self) -> bytes:
        """Stamp of its first document, or `-` if it has none.

        It is assigned once. The id may belong to another entry after a loss of data: it is only the time of the write.
        """
        return _stamp_in(self.fields[0] if self.fields else b"")

    @property
    def size(self) -> int:
        """Bytes of names and bodies."""
        return sum(map(len, self.fields))

    @property
    def at_ms(self) -> int:
        """When it was written, in milliseconds since 1970, by the server's clock."""
        return entry_time_ms(self.id)

    @property
    def at_s(self) -> float:
        """The same in seconds."""
        return self.at_ms / 1000


class SettledEntry(NamedTuple):
    """A delivered entry: the store has each document, or rejects it for good."""

    id: bytes
    stamp: bytes
    """As `OutboxEntry.stamp`; of a dead letter, the stamp of its document."""
    stored: list[DurableRecord]
    """Documents that the store has, in this version or a newer one."""
    refused: list[tuple[int, str]]
    """(index of the field, from 1; reason) of each rejected document."""


class OutboxStream:
    """The outbox of one namespace.

    Args:
        context: the server and the durable store.
        namespace: the namespace.
        cache_ms: milliseconds for which a copy of knowledge stays in Redis once the store has it.
        absent_ms: milliseconds for which Redis stores that the store lacks a key.
    """

    def __init__(self, context: DurableContext, namespace: str, *, cache_ms: int, absent_ms: int) -> None:
        self._client, self._keyspace, self._scripts = context.client, context.keyspace, context.scripts
        self._cache_ms, self._absent_ms = cache_ms, absent_ms
        self.namespace = namespace
        self.key = context.keyspace.outbox(namespace)
        self.dead = context.keyspace.dead_outbox(namespace)
        self._in_delivery: dict[bytes, asyncio.Event] = {}
        self._fetches = 0
        self._settled_meanwhile: set[tuple[bytes, bytes]] = set()

    @contextmanager
    def _fetching(self) -> Iterator[set[tuple[bytes, bytes]]]:
        """Yield (id, stamp) of the entries that are settled during the block: a reply that is late may still have them.

        Entries are read on another connection than they are settled on, so that replies come in no order.
        """
        self._fetches += 1
        try:
            yield self._settled_meanwhile
        finally:
            self._fetches -= 1
            if not self._fetches:
                self._settled_meanwhile = set()

    @contextmanager
    def delivering(self, entries: Sequence[OutboxEntry]) -> Iterator[None]:
        """Mark entries as being delivered by this hub during the block."""
        ended = asyncio.Event()
        mine = {entry.id: ended for entry in entries if entry.id not in self._in_delivery}
        self._in_delivery |= mine
        try:
            yield
        finally:
            for one in mine:
                del self._in_delivery[one]
            ended.set()

    async def oldest_free(
        self, count: int, *, after: bytes, upto: bytes
    ) -> tuple[list[OutboxEntry], list[OutboxEntry]]:
        """Return the oldest entries, and which of them this hub does not deliver now; wait if it delivers all of them.

        Delivering an entry twice is harmless, but costs two puts. One round trip; arguments and errors as `oldest`.
        """
        with self._fetching() as settled:
            page = await self.oldest(count, after=after, upto=upto)
            free = [one for one in page if one.id not in self._in_delivery and (one.id, one.stamp) not in settled]
        if not free and (busy := next((one.id for one in page if one.id in self._in_delivery), None)):
            await self._in_delivery[busy].wait()
        return page, free

    async def wait_until_unattended(self, entries: Sequence[OutboxEntry]) -> bool:
        """Wait until this hub delivers none of the entries elsewhere; return whether it did."""
        was_busy = False
        while ended := next((self._in_delivery[one.id] for one in entries if one.id in self._in_delivery), None):
            was_busy = True
            await ended.wait()
        return was_busy

    async def fresh(self, count: int) -> list[OutboxEntry]:
        """Claim entries that no worker has claimed yet. One round trip, rarely more.

        Raises:
            UnavailableError, AccessDeniedError: the server cannot be reached, or does not allow it.
        """
        with self._fetching() as settled:
            while entries := await self._claim_fresh(count):
                if left := [one for one in entries if (one.id, one.stamp) not in settled]:
                    return left
        return []

    async def _claim_fresh(self, count: int) -> list[OutboxEntry]:
        command = ("XREADGROUP", "GROUP", GROUP, _CONSUMER, "COUNT", count, "STREAMS", self.key, ">")
        try:
            # Repeated after a lost reply, it claims the next ones; `abandoned` finds the entries of the lost reply.
            reply = await self._client.call_aside(*command)
        except ServerError as error:
            if "NOGROUP" not in error.text:
                raise public_error(error, self._client.address) from error
            await self._make_group()
            reply = await self._client.call_aside(*command)
        streams = as_list(reply)
        return _parse_entries(as_list(streams[0])[1]) if streams else []

    async def claim_abandoned(self, count: int, *, idle_ms: int) -> list[OutboxEntry]:
        """Claim entries whose worker has been idle for so long. Two round trips; one if there is no such entry.

        Raises:
            UnavailableError, AccessDeniedError: as `fresh`.
        """
        try:
            rows = as_list(
                await self._client.call("XPENDING", self.key, GROUP, "IDLE", idle_ms, "-", "+", count),
            )
        except ServerError as error:
            if "NOGROUP" in error.text:
                return []
            raise public_error(error, self._client.address) from error
        ids = [text_of(as_list(row)[0]) for row in rows]
        if not ids:
            return []
        return _parse_entries(await self._client.call_aside("XCLAIM", self.key, GROUP, _CONSUMER, idle_ms, *ids))

    async def read(self, ids: Sequence[bytes]) -> list[OutboxEntry]:
        """Return the entries with these ids that still exist. One round trip.

        Raises:
            UnavailableError, AccessDeniedError: as `fresh`.
        """
        ranges = [("XRANGE", self.key, one, one) for one in ids]
        if len(ids) <= _FEW:
            pages = await asyncio.gather(*(self._translated(self._client.call(*one)) for one in ranges))
        else:
            pages = await self._translated(self._client.read_many(ranges, aside=True))
        return [entry for page in pages for entry in _parse_entries(page)]

    async def oldest(self, count: int, *, after: bytes = b"", upto: bytes = b"+") -> list[OutboxEntry]:
        """Return the oldest entries, claimed or not. One round trip.

        Args:
            count: most entries.
            after: only entries behind this id.
            upto: only entries up to this id.

        Raises:
            UnavailableError, AccessDeniedError: as `fresh`.
        """
        return _parse_entries(
            await self._translated(
                self._client.call_aside("XRANGE", self.key, b"(" + after if after else b"-", upto, "COUNT", count)
            )
        )

    async def newest(self) -> OutboxEntry | None:
        """Return the newest entry. One round trip.

        Raises:
            UnavailableError, AccessDeniedError: as `fresh`.
        """
        found = _parse_entries(
            await self._translated(self._client.call_aside("XREVRANGE", self.key, "+", "-", "COUNT", 1))
        )
        return found[0] if found else None

    async def length(self) -> int:
        """Return how many entries wait. One round trip.

        Raises:
            UnavailableError, AccessDeniedError: as `fresh`.
        """
        return cast("int", await self._translated(self._client.call("XLEN", self.key)))

    async def delivered(self) -> int:
        """Return how many entries are claimed and not acknowledged. One round trip.

        Raises:
            UnavailableError, AccessDeniedError: as `fresh`.
        """
        try:
            summary = as_list(await self._client.call("XPENDING", self.key, GROUP))
        except ServerError as error:
            if "NOGROUP" in error.text:
                return 0
            raise public_error(error, self._client.address) from error
        return summary[0] if summary and isinstance(summary[0], int) else 0

    async def recovery(self) -> Recovery:
        """Return whether Redis has all that the store has (see `lua/namespace_join.lua`). One round trip.

        Raises:
            UnavailableError, AccessDeniedError: as `fresh`.
        """
        mark = await self._translated(self._client.call("HGET", self._keyspace.kept(self.namespace), "$joined"))
        return _RECOVERY.get(mark.split(b" ")[0], "not begun") if isinstance(mark, bytes) else "not begun"

    async def dead_letters(self, count: int, *, after: str = "-") -> list[OutboxEntry]:
        """Return dead letters, oldest first, from an id on. One round trip.

        Raises:
            UnavailableError, AccessDeniedError: as `fresh`.
        """
        return _parse_entries(
            await self._translated(self._client.call_aside("XRANGE", self.dead, after, "+", "COUNT", count))
        )

    async def dead_length(self) -> int:
        """Return how many dead letters there are. One round trip.

        Raises:
            UnavailableError, AccessDeniedError: as `fresh`.
        """
        return cast("int", await self._translated(self._client.call("XLEN", self.dead)))

    async def drop_outlived(self, letters: Sequence[OutboxEntry]) -> list[OutboxEntry]:
        """Drop the dead letters whose keys were changed since, and then deleted or expired; return the others.

        Two round trips, and one more if there are any.

        Raises:
            UnavailableError, AccessDeniedError: as `fresh`.
        """
        read = [(letter, _letter_record(self.namespace, letter)) for letter in letters]
        asked = [
            ("GET", self._keyspace.state(self._keyspace.target(record.key))) for _, record in read if record is not None
        ]
        if not asked:
            return list(letters)
        states = iter(await self._translated(self._client.read_many(asked)))
        now_ms = await self._client.server_time_us() // 1000
        stay, over = list[OutboxEntry](), list[OutboxEntry]()
        for letter, record in read:
            (over if record is not None and _is_over(record, next(states), now_ms) else stay).append(letter)
        await self.settle_dead_letters([_discarded_entry(self.namespace, letter) for letter in over])
        return stay

    async def replay(self, ids: Sequence[str]) -> int:
        """Move dead letters back to the outbox, in this order; return how many existed. One round trip.

        Raises:
            UnavailableError, AccessDeniedError: as `fresh`.
        """
        return await self._translated(self._scripts.outbox_replay(self.dead, self.key, ids=ids))

    async def settle(self, done: Sequence[SettledEntry]) -> int:
        """Delete delivered entries, and update the states of their keys; return how many entries existed.

        One round trip for each 250 keys. If a deletion is among them, dead letters of its key are dropped.

        Raises:
            UnavailableError, AccessDeniedError: as `fresh`; the remaining entries are delivered again.
        """
        gone, ended = await self._settle(self.key, done)
        if self._fetches:
            self._settled_meanwhile.update((one.id, one.stamp) for one in done)
        if ended:
            async for page in _pages(self):
                await self.drop_outlived(page)
        return gone

    async def settle_dead_letters(self, done: Sequence[SettledEntry]) -> int:
        """Delete dead letters, and update the states of their keys; return how many existed.

        Raises:
            UnavailableError, AccessDeniedError: as `fresh`.
        """
        gone, _ = await self._settle(self.dead, done)
        return gone

    async def _settle(self, stream: bytes, done: Sequence[SettledEntry]) -> tuple[int, int]:
        """Return the number of entries, and of deleted keys that may have dead letters."""
        parts = await asyncio.gather(*(self._settle_some(stream, some) for some in _split_settled(done)))
        return sum(gone for gone, _ in parts), sum(ended for _, ended in parts)

    async def _settle_some(self, stream: bytes, done: Sequence[SettledEntry]) -> tuple[int, int]:
        numbers: dict[str, int] = {}
        settled = [DeliveredEntry(one.id, one.stamp, _counted(one.stored, numbers)) for one in done]
        call = self._scripts.outbox_settle(
            stream,
            self.dead,
            [self._settled_key(key) for key in numbers],
            group=GROUP,
            cache_ms=self._cache_ms,
            absent_ms=self._absent_ms,
            entries=settled,
            refused=[RejectedField(one.id, field, reason) for one in done for field, reason in one.refused],
        )
        return await self._translated(call)

    def _settled_key(self, key: str) -> DurableKey:
        target = self._keyspace.target(key)
        return DurableKey(self._keyspace.presence(target), self._keyspace.state(target))

    async def _translated(self, call: Awaitable[T]) -> T:
        """Return the call's reply; raise a refusal of the server as a public error."""
        try:
            return await call
        except ServerError as error:
            raise public_error(error, self._client.address) from error

    async def _make_group(self) -> None:
        try:
            await self._client.call("XGROUP", "CREATE", self.key, GROUP, "0", "MKSTREAM")
        except ServerError as error:
            if "BUSYGROUP" not in error.text:  # fakeredis says ERR before it
                raise public_error(error, self._client.address) from error


def _split_settled(done: Sequence[SettledEntry]) -> Iterator[Sequence[SettledEntry]]:
    """Yield entries with a few hundred keys at a time; an entry is not divided."""
    first, keys = 0, set[str]()
    for end, one in enumerate(done, 1):
        keys.update(record.key for record in one.stored)
        if max(len(keys), end - first) >= _MOST_KEYS:
            yield done[first:end]
            first, keys = end, set()
    if first < len(done):
        yield done[first:]


def _counted(stored: Sequence[DurableRecord], numbers: dict[str, int]) -> dict[int, int]:
    """Count the documents of each key, by the index of the key, which `numbers` assigns."""
    counts: dict[int, int] = {}
    for record in stored:
        number = numbers.setdefault(record.key, len(numbers) + 1)
        counts[number] = counts.get(number, 0) + 1
    return counts


def _parse_entries(reply: Reply) -> list[OutboxEntry]:
    found = []
    for row in filter(as_list, as_list(reply)):
        id_, fields = as_list(row)
        # A deleted entry may still be listed, without fields.
        if isinstance(id_, bytes) and isinstance(fields, list):
            found.append(OutboxEntry(id_, cast("list[bytes]", fields)))
    return found


# -- dead letters --------------------------------------------------------------------------------


_PAGE = 200
_ID = re.compile(r"\d+-\d+")
# Another client may have written an entry with any id.
_LATEST_US = 253_402_300_799_000_000


class DeadLetters:
    """The dead letters of each namespace.

    Args:
        stream_of: the outbox of a namespace.
    """

    def __init__(self, stream_of: Callable[[str], OutboxStream]) -> None:
        self._stream_of = stream_of

    async def list(self, namespace: str, *, limit: int = 100) -> list[DeadLetter]:
        """Return the oldest dead letters. One round trip.

        Args:
            namespace: the namespace.
            limit: most results.

        Raises:
            UnavailableError, AccessDeniedError: Redis cannot be reached, or does not allow it.
        """
        return [_parse_letter(namespace, entry) for entry in await self._stream_of(namespace).dead_letters(limit)]

    async def replay(self, namespace: str) -> int:
        """Move all of them back to the outbox, oldest first, each at most once; return their number.

        Letters of keys that were deleted or have expired since are dropped: the store may have purged what overrules
        them.

        Raises:
            UnavailableError, AccessDeniedError: as `list`; letters that were not moved stay.
        """
        stream = self._stream_of(namespace)
        done = 0
        async for page in _pages(stream):
            stay = await stream.drop_outlived(page)
            done += len(page) - len(stay) + await stream.replay([entry.id.decode() for entry in stay])
        return done

    async def discard(self, namespace: str, ids: Sequence[str] | None = None) -> int:
        """Delete dead letters, so that the store never gets them; return their number.

        Args:
            namespace: the namespace.
            ids: ids of dead letters; None: all.

        Raises:
            InvalidError: an id is invalid.
            UnavailableError, AccessDeniedError: as `list`.
        """
        stream = self._stream_of(namespace)
        wanted = None if ids is None else set(map(_check_id, ids))
        gone = 0
        async for page in _pages(stream):
            chosen = [entry for entry in page if wanted is None or entry.id.decode() in wanted]
            gone += await stream.settle_dead_letters([_discarded_entry(namespace, entry) for entry in chosen])
        return gone


async def _pages(stream: OutboxStream) -> AsyncIterator[list[OutboxEntry]]:
    """Yield the present dead letters page by page, without documents that are rejected during the iteration."""
    left = await stream.dead_length()
    after = "-"
    while left > 0 and (page := await stream.dead_letters(min(_PAGE, left), after=after)):
        left -= len(page)
        after = f"({page[-1].id.decode()}"
        yield page


def _fields_of(entry: OutboxEntry) -> dict[bytes, bytes]:
    return dict(zip(entry.fields[::2], entry.fields[1::2], strict=False))


def _letter_record(namespace: str, entry: OutboxEntry) -> DurableRecord | None:
    """Return the document of a dead letter; None if it is invalid."""
    named = _fields_of(entry)
    return parse_documents([named.get(b"name", b""), named.get(b"body", b"")], namespace)[0].record


# See `lua/include/kept.lua`.
_ENDED_STATE = re.compile(rb"(deleted|pending) (\d+) (\d+) ")


def _is_over(record: DurableRecord, state: Reply, now_ms: int) -> bool:
    """Return whether a later change than this document has ended its key."""
    found = _ENDED_STATE.match(state) if isinstance(state, bytes) else None
    if found is None or int(found[2]) <= record.stamp:
        return False
    return found[1] == b"deleted" or 0 < int(found[3]) <= now_ms


def _parse_letter(namespace: str, entry: OutboxEntry) -> DeadLetter:
    named = _fields_of(entry)
    name, body = named.get(b"name", b""), named.get(b"body", b"")
    record = _letter_record(namespace, entry)
    return DeadLetter(
        id=entry.id.decode(),
        namespace=namespace,
        key=record.key if record else "",
        element=record.element if record else "",
        type=record.type if record else "",
        stamp=record.stamp if record else 0,
        reason=named.get(b"reason", b"").decode(errors="replace"),
        at=from_microseconds(min(entry.at_ms * 1000, _LATEST_US)),
        name=name.decode(errors="replace"),
        size=len(body),
    )


def _discarded_entry(namespace: str, entry: OutboxEntry) -> SettledEntry:
    """Return a dead letter as settled, so that its key no longer waits for it."""
    record = _letter_record(namespace, entry)
    # The script looks at the first value, whatever another client has called it.
    name = entry.fields[1] if len(entry.fields) > 1 else b""
    return SettledEntry(entry.id, _stamp_in(name), [record] if record else [], [])


def _check_id(id_: str) -> str:
    if not isinstance(id_, str) or not _ID.fullmatch(id_):
        raise InvalidError("id", id_, "give the id of a dead letter, such as 1795245066123-0")
    return id_
