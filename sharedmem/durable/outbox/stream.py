"""One namespace's outbox at the server: how its entries are fetched, and how they go when the durable tier has them.

Whoever works on an outbox has its entries from one consumer group, under one name: an entry is given to one worker at
a time, and to another one when that has been silent too long. Nothing depends on it: documents may be put twice and in
any order, since stamps decide which of them stay, and an entry counts as settled once, by whoever removes it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Literal, NamedTuple, TypeVar, cast

from sharedmem.models import DurableRecord
from sharedmem.wire.changes import as_list, text_of
from sharedmem.wire.faults import translate
from sharedmem.wire.keeping import Keeping, KeptKey, Refusal, Settled
from sharedmem.wire.keys import KeySpace
from sharedmem.wire.line import Line
from sharedmem.wire.replies import Reply, ServerError

T = TypeVar("T")
Recovery = Literal["complete", "running", "tier away", "not begun"]
_RECOVERY: dict[bytes, Recovery] = {b"joined": "complete", b"recovering": "running", b"provisional": "tier away"}
GROUP = "tier"
_CONSUMER = "hubs"
# One call of a script holds the server up for all: some hundred keys take it a millisecond.
_MOST_KEYS = 250


def left_at_ms(entry_id: bytes) -> int:
    """When the entry of that id was left, in milliseconds since 1970, by the server's clock."""
    return int(entry_id.partition(b"-")[0])


class Entry(NamedTuple):
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
        return left_at_ms(self.id)

    @property
    def at_s(self) -> float:
        """The same in seconds."""
        return self.at_ms / 1000


class Done(NamedTuple):
    """An entry of which the tier has all that it will ever take."""

    id: bytes
    stored: list[DurableRecord]
    """What it has, or something newer."""
    refused: list[tuple[int, str]]
    """(which field, from 1 on; why) of what it will not take."""


class Means(NamedTuple):
    """What the streams of all namespaces are reached by."""

    line: Line
    keyspace: KeySpace
    keeping: Keeping
    cache_ms: int
    absent_ms: int


async def server_microseconds(line: Line) -> int:
    """The server's time since 1970. One round trip.

    Raises:
        UnavailableError: the server stayed away.
    """
    seconds, rest = map(text_of, as_list(await line.call("TIME")))
    return int(seconds) * 1_000_000 + int(rest)


class OutboxStream:
    """The outbox of one namespace.

    Args:
        means: the way to the server.
        namespace: whose.
    """

    def __init__(self, means: Means, namespace: str) -> None:
        self._means = means
        self._line = means.line
        self.namespace = namespace
        self.key = means.keyspace.outbox(namespace)
        self.dead = means.keyspace.dead_outbox(namespace)

    async def fresh(self, count: int) -> list[Entry]:
        """Entries that nobody was given so far, now ours. One round trip.

        Raises:
            UnavailableError, AccessDeniedError: the server stayed away, or does not allow it.
        """
        command = ("XREADGROUP", "GROUP", GROUP, _CONSUMER, "COUNT", count, "STREAMS", self.key, ">")
        try:
            # Repeated after a lost reply, it gives the next ones: those that were lost on the way come as abandoned.
            reply = await self._line.call_aside(*command)
        except ServerError as error:
            if "NOGROUP" not in error.text:
                raise translate(error, self._line.address) from error
            await self._make_group()
            reply = await self._line.call_aside(*command)
        streams = as_list(reply)
        return _entries(as_list(streams[0])[1]) if streams else []

    async def abandoned(self, count: int, *, idle_ms: int) -> list[Entry]:
        """Entries whose worker has been silent for so long, now ours. Two round trips, one where there are none.

        Raises:
            UnavailableError, AccessDeniedError: as `fresh`.
        """
        try:
            rows = as_list(
                await self._line.call("XPENDING", self.key, GROUP, "IDLE", idle_ms, "-", "+", count),
            )
        except ServerError as error:
            if "NOGROUP" in error.text:
                return []
            raise translate(error, self._line.address) from error
        ids = [text_of(as_list(row)[0]) for row in rows]
        if not ids:
            return []
        return _entries(await self._line.call_aside("XCLAIM", self.key, GROUP, _CONSUMER, idle_ms, *ids))

    async def read(self, ids: Sequence[bytes]) -> list[Entry]:
        """The entries of these ids that are still there. One round trip.

        Raises:
            UnavailableError, AccessDeniedError: as `fresh`.
        """
        if len(ids) == 1:
            return _entries(await self._told(self._line.call("XRANGE", self.key, ids[0], ids[0])))
        ranges = [("XRANGE", self.key, one, one) for one in ids]
        pages = await self._told(self._line.read_many(ranges, aside=True))
        return [entry for page in pages for entry in _entries(page)]

    async def oldest(self, count: int, *, upto: bytes = b"+") -> list[Entry]:
        """The first entries, whoever was given them. One round trip.

        Raises:
            UnavailableError, AccessDeniedError: as `fresh`.
        """
        return _entries(await self._told(self._line.call_aside("XRANGE", self.key, "-", upto, "COUNT", count)))

    async def newest(self) -> Entry | None:
        """The last entry. One round trip.

        Raises:
            UnavailableError, AccessDeniedError: as `fresh`.
        """
        found = _entries(await self._told(self._line.call_aside("XREVRANGE", self.key, "+", "-", "COUNT", 1)))
        return found[0] if found else None

    async def length(self) -> int:
        """How many entries wait. One round trip.

        Raises:
            UnavailableError, AccessDeniedError: as `fresh`.
        """
        return cast("int", await self._told(self._line.call("XLEN", self.key)))

    async def delivered(self) -> int:
        """How many entries were given to a worker and are not settled. One round trip.

        Raises:
            UnavailableError, AccessDeniedError: as `fresh`.
        """
        try:
            summary = as_list(await self._line.call("XPENDING", self.key, GROUP))
        except ServerError as error:
            if "NOGROUP" in error.text:
                return 0
            raise translate(error, self._line.address) from error
        return summary[0] if summary and isinstance(summary[0], int) else 0

    async def recovery(self) -> Recovery:
        """Whether Redis has all that the tier has (see `lua/namespace_join.lua`). One round trip.

        Raises:
            UnavailableError, AccessDeniedError: as `fresh`.
        """
        mark = await self._told(self._line.call("HGET", self._means.keyspace.kept(self.namespace), "$joined"))
        return _RECOVERY.get(mark.split(b" ")[0], "not begun") if isinstance(mark, bytes) else "not begun"

    async def letters(self, count: int, *, after: str = "-") -> list[Entry]:
        """Dead letters, oldest first, from an id on. One round trip.

        Raises:
            UnavailableError, AccessDeniedError: as `fresh`.
        """
        return _entries(await self._told(self._line.call_aside("XRANGE", self.dead, after, "+", "COUNT", count)))

    async def dead_length(self) -> int:
        """How many dead letters there are. One round trip.

        Raises:
            UnavailableError, AccessDeniedError: as `fresh`.
        """
        return cast("int", await self._told(self._line.call("XLEN", self.dead)))

    async def replay(self, ids: Sequence[str]) -> int:
        """Put dead letters back, in this order; returns how many were there. One round trip.

        Raises:
            UnavailableError, AccessDeniedError: as `fresh`.
        """
        return await self._told(self._means.keeping.outbox_replay(self.dead, self.key, ids=ids))

    async def settle(self, done: Sequence[Done]) -> int:
        """Remove entries that the tier has, and let the states of their keys move on; returns how many were there.

        One round trip for each 250 keys.

        Raises:
            UnavailableError, AccessDeniedError: as `fresh`; what is not removed yet comes again.
        """
        return await self._settle(self.key, done)

    async def settle_letters(self, done: Sequence[Done]) -> int:
        """Remove dead letters whose documents are not missed any more; returns how many were there.

        Raises:
            UnavailableError, AccessDeniedError: as `fresh`.
        """
        return await self._settle(self.dead, done)

    async def _settle(self, stream: bytes, done: Sequence[Done]) -> int:
        gone = 0
        first = 0
        while first < len(done):
            numbers: dict[KeptKey, int] = {}
            settled: list[Settled] = []
            refused: list[Refusal] = []
            while first < len(done) and len(numbers) < _MOST_KEYS and len(settled) < _MOST_KEYS:
                one = done[first]
                settled.append(Settled(one.id, self._counted(one.stored, numbers)))
                refused += [Refusal(one.id, field, reason) for field, reason in one.refused]
                first += 1
            means = self._means
            call = means.keeping.outbox_settle(
                stream,
                self.dead,
                list(numbers),
                group=GROUP,
                cache_ms=means.cache_ms,
                absent_ms=means.absent_ms,
                entries=settled,
                refused=refused,
            )
            gone += await self._told(call)
        return gone

    def _counted(self, stored: Sequence[DurableRecord], numbers: dict[KeptKey, int]) -> dict[int, int]:
        """How many documents of each key there are, by the number the key gets."""
        counts: dict[int, int] = {}
        for record in stored:
            target = self._means.keyspace.target(record.key)
            place = KeptKey(self._means.keyspace.presence(target), self._means.keyspace.state(target))
            number = numbers.setdefault(place, len(numbers) + 1)
            counts[number] = counts.get(number, 0) + 1
        return counts

    async def _told(self, call: Awaitable[T]) -> T:
        """The call's result; what the server refuses is told as people read it."""
        try:
            return await call
        except ServerError as error:
            raise translate(error, self._line.address) from error

    async def _make_group(self) -> None:
        try:
            await self._line.call("XGROUP", "CREATE", self.key, GROUP, "0", "MKSTREAM")
        except ServerError as error:
            if "BUSYGROUP" not in error.text:  # fakeredis says ERR before it
                raise translate(error, self._line.address) from error


def _entries(reply: Reply) -> list[Entry]:
    found = []
    for row in filter(as_list, as_list(reply)):
        id_, fields = as_list(row)
        # An entry that is gone may still be named, without fields.
        if isinstance(id_, bytes) and isinstance(fields, list):
            found.append(Entry(id_, cast("list[bytes]", fields)))
    return found
