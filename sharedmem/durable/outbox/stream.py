"""The outbox stream of a namespace: its entries and their documents, reading and acknowledging."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
from hashlib import sha256
from typing import Literal, NamedTuple, TypeVar, cast

from sharedmem.durable.context import DurableContext
from sharedmem.durable.json_codec import member_to_text, to_text
from sharedmem.errors import InvalidError
from sharedmem.models import DurableRecord
from sharedmem.redis.change_stream import as_list, text_of
from sharedmem.redis.client import RedisClient
from sharedmem.redis.codec import JSON
from sharedmem.redis.errors import public_error
from sharedmem.redis.keys import check_durable_key
from sharedmem.redis.replies import Reply, ServerError
from sharedmem.redis.scripts.durable import DeliveredEntry, DurableKey, RejectedField

_KINDS = {b"s": "session", b"k": "knowledge", b"l": "log"}
_NAME_WORDS = 11
_VALUE = b"value"
_GONE, _MEMBER = b"gone", b"member"
# Another client's string without a header.
_TEXT = b"text"


class OutboxDocument(NamedTuple):
    """One field of an entry: a document, or why it is none."""

    record: DurableRecord | None
    problem: str = ""


def parse_documents(fields: Sequence[bytes], namespace: str) -> list[OutboxDocument]:
    """What an entry holds, field by field; what cannot be understood says why instead of failing.

    Args:
        fields: names and bodies in turn.
        namespace: whose outbox it is: nothing in it speaks for another.
    """
    return [_parse_field(fields[i], fields[i + 1], namespace) for i in range(0, len(fields) - 1, 2)]


def parse_records(fields: Sequence[bytes], namespace: str) -> list[DurableRecord]:
    """The documents of an entry that can be understood; arguments as `parse_documents`."""
    return [left.record for left in parse_documents(fields, namespace) if left.record is not None]


def parse_record(name: bytes, body: bytes) -> DurableRecord:
    """The document of one field.

    Raises:
        InvalidError, ValueError: it is spelled otherwise.
    """
    head, newline, element = name.partition(b"\n")
    words = head.split(b" ", _NAME_WORDS - 1)
    if len(words) != _NAME_WORDS or words[1] not in _KINDS or (newline and not element):
        raise InvalidError("entry of the outbox", name[:80], "lua/include/kept.lua says how it is spelled")
    type_, kind, version, stamp, floor, size, expires, created, codec, actor, key = words
    # A member of a set has no name but itself, which may be long and need not be text.
    is_member = type_ == b"set" and newline
    spelled, text = _body_text(type_, codec, element if is_member else body)
    return DurableRecord(
        key=check_durable_key(key.decode()),
        element=sha256(element).hexdigest() if is_member else element.decode(),
        type=type_.decode(),
        kind=_KINDS[kind],
        version=int(version),
        stamp=int(stamp),
        floor=int(floor),
        size=int(size),
        expires=int(expires),
        created=int(created),
        actor=actor.decode(),
        codec=spelled,
        deleted=codec == _GONE,
        body=text,
    )


def newest_of_each(records: Iterable[DurableRecord]) -> list[DurableRecord]:
    """Of each document only what was left last; what lay under a key before a head stays forgotten (`floor`)."""
    found: dict[tuple[str, str], DurableRecord] = {}
    for record in records:
        place = record.key, record.element
        other = found.get(place)
        found[place] = record if other is None else _merge(other, record)
    return list(found.values())


def _parse_field(name: bytes, body: bytes, namespace: str) -> OutboxDocument:
    try:
        record = parse_record(name, body)
    except (InvalidError, ValueError) as error:
        return OutboxDocument(None, f"it cannot be understood: {error}")
    if record.namespace != namespace:
        return OutboxDocument(None, f"it is of namespace {record.namespace!r}, and lay in the outbox of {namespace!r}")
    return OutboxDocument(record)


def _body_text(type_: bytes, codec: bytes, body: bytes) -> tuple[str, str]:
    """(codec, text) of the document's body."""
    if codec == _GONE:
        return JSON.decode(), ""
    if codec in {_MEMBER, _TEXT}:
        return member_to_text(body)
    return codec.decode(), to_text(codec, body) if body or type_ == _VALUE else ""


def _merge(one: DurableRecord, other: DurableRecord) -> DurableRecord:
    first, last = (one, other) if one.stamp <= other.stamp else (other, one)
    floor = max(first.floor, last.floor)
    return last if last.floor == floor else last.model_copy(update={"floor": floor})


T = TypeVar("T")
Recovery = Literal["complete", "running", "tier away", "not begun"]
_RECOVERY: dict[bytes, Recovery] = {b"joined": "complete", b"recovering": "running", b"provisional": "tier away"}
GROUP = "tier"
_CONSUMER = "hubs"
# One call of a script holds the server up for all: some hundred keys take it a millisecond.
_MOST_KEYS = 250


def entry_time_ms(entry_id: bytes) -> int:
    """When the entry of that id was left, in milliseconds since 1970, by the server's clock."""
    return int(entry_id.partition(b"-")[0])


class OutboxEntry(NamedTuple):
    """One entry of the outbox: what one step has left."""

    id: bytes
    fields: list[bytes]

    @property
    def size(self) -> int:
        """Bytes of names and bodies."""
        return sum(map(len, self.fields))

    @property
    def at_ms(self) -> int:
        """When it was left, in milliseconds since 1970, by the server's clock."""
        return entry_time_ms(self.id)

    @property
    def at_s(self) -> float:
        """The same in seconds."""
        return self.at_ms / 1000


class SettledEntry(NamedTuple):
    """An entry of which the tier has all that it will ever take."""

    id: bytes
    stored: list[DurableRecord]
    """What it has, or something newer."""
    refused: list[tuple[int, str]]
    """(which field, from 1 on; why) of what it will not take."""


async def server_time_us(line: RedisClient) -> int:
    """The server's time since 1970. One round trip.

    Raises:
        UnavailableError: the server stayed away.
    """
    seconds, rest = map(text_of, as_list(await line.call("TIME")))
    return int(seconds) * 1_000_000 + int(rest)


class OutboxStream:
    """The outbox of one namespace.

    Args:
        context: the server and the durable store.
        namespace: whose.
        cache_ms: how long a copy of knowledge stays in Redis once the tier has it.
        absent_ms: how long Redis remembers that the tier does not have a key.
    """

    def __init__(self, context: DurableContext, namespace: str, *, cache_ms: int, absent_ms: int) -> None:
        self._client, self._keyspace, self._scripts = context.client, context.keyspace, context.scripts
        self._cache_ms, self._absent_ms = cache_ms, absent_ms
        self.namespace = namespace
        self.key = context.keyspace.outbox(namespace)
        self.dead = context.keyspace.dead_outbox(namespace)

    async def fresh(self, count: int) -> list[OutboxEntry]:
        """Entries that nobody was given so far, now ours. One round trip.

        Raises:
            UnavailableError, AccessDeniedError: the server stayed away, or does not allow it.
        """
        command = ("XREADGROUP", "GROUP", GROUP, _CONSUMER, "COUNT", count, "STREAMS", self.key, ">")
        try:
            # Repeated after a lost reply, it gives the next ones: those that were lost on the way come as abandoned.
            reply = await self._client.call_aside(*command)
        except ServerError as error:
            if "NOGROUP" not in error.text:
                raise public_error(error, self._client.address) from error
            await self._make_group()
            reply = await self._client.call_aside(*command)
        streams = as_list(reply)
        return _parse_entries(as_list(streams[0])[1]) if streams else []

    async def claim_abandoned(self, count: int, *, idle_ms: int) -> list[OutboxEntry]:
        """Entries whose worker has been silent for so long, now ours. Two round trips, one where there are none.

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
        """The entries of these ids that are still there. One round trip.

        Raises:
            UnavailableError, AccessDeniedError: as `fresh`.
        """
        if len(ids) == 1:
            return _parse_entries(await self._told(self._client.call("XRANGE", self.key, ids[0], ids[0])))
        ranges = [("XRANGE", self.key, one, one) for one in ids]
        pages = await self._told(self._client.read_many(ranges, aside=True))
        return [entry for page in pages for entry in _parse_entries(page)]

    async def oldest(self, count: int, *, upto: bytes = b"+") -> list[OutboxEntry]:
        """The first entries, whoever was given them. One round trip.

        Raises:
            UnavailableError, AccessDeniedError: as `fresh`.
        """
        return _parse_entries(await self._told(self._client.call_aside("XRANGE", self.key, "-", upto, "COUNT", count)))

    async def newest(self) -> OutboxEntry | None:
        """The last entry. One round trip.

        Raises:
            UnavailableError, AccessDeniedError: as `fresh`.
        """
        found = _parse_entries(await self._told(self._client.call_aside("XREVRANGE", self.key, "+", "-", "COUNT", 1)))
        return found[0] if found else None

    async def length(self) -> int:
        """How many entries wait. One round trip.

        Raises:
            UnavailableError, AccessDeniedError: as `fresh`.
        """
        return cast("int", await self._told(self._client.call("XLEN", self.key)))

    async def delivered(self) -> int:
        """How many entries were given to a worker and are not settled. One round trip.

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
        """Whether Redis has all that the tier has (see `lua/namespace_join.lua`). One round trip.

        Raises:
            UnavailableError, AccessDeniedError: as `fresh`.
        """
        mark = await self._told(self._client.call("HGET", self._keyspace.kept(self.namespace), "$joined"))
        return _RECOVERY.get(mark.split(b" ")[0], "not begun") if isinstance(mark, bytes) else "not begun"

    async def letters(self, count: int, *, after: str = "-") -> list[OutboxEntry]:
        """Dead letters, oldest first, from an id on. One round trip.

        Raises:
            UnavailableError, AccessDeniedError: as `fresh`.
        """
        return _parse_entries(
            await self._told(self._client.call_aside("XRANGE", self.dead, after, "+", "COUNT", count))
        )

    async def dead_length(self) -> int:
        """How many dead letters there are. One round trip.

        Raises:
            UnavailableError, AccessDeniedError: as `fresh`.
        """
        return cast("int", await self._told(self._client.call("XLEN", self.dead)))

    async def replay(self, ids: Sequence[str]) -> int:
        """Put dead letters back, in this order; returns how many were there. One round trip.

        Raises:
            UnavailableError, AccessDeniedError: as `fresh`.
        """
        return await self._told(self._scripts.outbox_replay(self.dead, self.key, ids=ids))

    async def settle(self, done: Sequence[SettledEntry]) -> int:
        """Remove entries that the tier has, and let the states of their keys move on; returns how many were there.

        One round trip for each 250 keys.

        Raises:
            UnavailableError, AccessDeniedError: as `fresh`; what is not removed yet comes again.
        """
        return await self._settle(self.key, done)

    async def settle_letters(self, done: Sequence[SettledEntry]) -> int:
        """Remove dead letters whose documents are not missed any more; returns how many were there.

        Raises:
            UnavailableError, AccessDeniedError: as `fresh`.
        """
        return await self._settle(self.dead, done)

    async def _settle(self, stream: bytes, done: Sequence[SettledEntry]) -> int:
        gone = 0
        first = 0
        while first < len(done):
            numbers: dict[DurableKey, int] = {}
            settled: list[DeliveredEntry] = []
            refused: list[RejectedField] = []
            while first < len(done) and len(numbers) < _MOST_KEYS and len(settled) < _MOST_KEYS:
                one = done[first]
                settled.append(DeliveredEntry(one.id, self._counted(one.stored, numbers)))
                refused += [RejectedField(one.id, field, reason) for field, reason in one.refused]
                first += 1
            call = self._scripts.outbox_settle(
                stream,
                self.dead,
                list(numbers),
                group=GROUP,
                cache_ms=self._cache_ms,
                absent_ms=self._absent_ms,
                entries=settled,
                refused=refused,
            )
            gone += await self._told(call)
        return gone

    def _counted(self, stored: Sequence[DurableRecord], numbers: dict[DurableKey, int]) -> dict[int, int]:
        """How many documents of each key there are, by the number the key gets."""
        counts: dict[int, int] = {}
        for record in stored:
            target = self._keyspace.target(record.key)
            place = DurableKey(self._keyspace.presence(target), self._keyspace.state(target))
            number = numbers.setdefault(place, len(numbers) + 1)
            counts[number] = counts.get(number, 0) + 1
        return counts

    async def _told(self, call: Awaitable[T]) -> T:
        """The call's result; what the server refuses is told as people read it."""
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


def _parse_entries(reply: Reply) -> list[OutboxEntry]:
    found = []
    for row in filter(as_list, as_list(reply)):
        id_, fields = as_list(row)
        # An entry that is gone may still be named, without fields.
        if isinstance(id_, bytes) and isinstance(fields, list):
            found.append(OutboxEntry(id_, cast("list[bytes]", fields)))
    return found
