"""Snapshots: keys in Redis as the documents that the durable tier would have.

Redis has no versions of structures and their elements: their documents have version and stamp 0 unless a change of them
waits for the tier, and the items of a list are numbered by position. A structure of up to 1,000 members is read
atomically; a larger one page by page, so concurrent changes may be included or not.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import NamedTuple, cast

from sharedmem.durable.json_codec import member_to_text, to_text
from sharedmem.models import DurableRecord
from sharedmem.redis.change_stream import as_list
from sharedmem.redis.client import RedisClient
from sharedmem.redis.codec import BLOB, JSON, MSGPACK
from sharedmem.redis.keys import KeySpace, Target
from sharedmem.redis.replies import Command, Reply, ServerError
from sharedmem.redis.scripts.executor import POOLED_ABOVE_BYTES

EPHEMERAL = "ephemeral"
"""The kind of a key that is not durable."""

_KINDS = {b"s": "session", b"k": "knowledge", b"l": "log"}
_SIZES = {"string": "STRLEN", "list": "LLEN", "hash": "HLEN", "set": "SCARD"}
_CODECS = (JSON, MSGPACK, BLOB)
_HEADER = re.compile(rb"(\d{16}) (\S+) ?(\d*) (\w+)")
_COUNTER = re.compile(rb"-?\d+")
_MOST_MEMBERS = 1000
_MOST_BYTES = 4 << 20
_MOST_TRIES = 10
_INVALID_FIELD_NAME = "another client has set a field whose name is empty or not a text"

KindOf = Callable[[str], str]
LeaveOut = Callable[[str, str], None]
Rows = list[tuple[bytes, bytes]]


class _SizedKey(NamedTuple):
    """A key with its type and size."""

    target: Target
    held: str
    size: int


class _KeyMetadata(NamedTuple):
    """The fields that all documents of a key share."""

    key: str
    kind: str
    stamp: int
    expires: int

    def head(self, held: str, size: int) -> DurableRecord:
        return self.document(type=held, floor=self.stamp, size=size, expires=self.expires)

    def elements(self, held: str, rows: Rows, first: int = 0) -> list[DurableRecord]:
        if held == "list":
            return [self._element(held, f"{first + n:016d}", row[1]) for n, row in enumerate(rows, 1)]
        if held == "set":
            return [self._element(held, hashlib.sha256(row[1]).hexdigest(), row[1]) for row in rows]
        if rows and not rows[0][0]:
            raise ValueError(held)
        return [self._element(held, field.decode(), value) for field, value in rows]

    def document(self, *, version: int = 0, **fields: str | int) -> DurableRecord:
        common = {"key": self.key, "kind": self.kind, "stamp": self.stamp or version, "version": version or self.stamp}
        return DurableRecord.model_validate(common | fields)

    def _element(self, held: str, element: str, member: bytes) -> DurableRecord:
        codec, body = member_to_text(member)
        return self.document(type=held, element=element, codec=codec, body=body)


class SnapshotReader:
    """Reads keys as documents.

    Args:
        line: the client of the server.
        keyspace: builds the keys.
        kind_of: returns the kind of an absolute key for which Redis has no durability state.
        leave_out: called with (key, why) for data that cannot become a document, such as another client's streams.
    """

    def __init__(
        self, line: RedisClient, keyspace: KeySpace, *, kind_of: KindOf | None = None, leave_out: LeaveOut | None = None
    ) -> None:
        self._client = line
        self._keyspace = keyspace
        self._kind_of = kind_of or (lambda _: EPHEMERAL)
        self._leave_out = leave_out or (lambda _key, _why: None)

    async def documents(self, targets: Sequence[Target]) -> AsyncIterator[list[DurableRecord]]:
        """Yield the documents of keys of one namespace, a few thousand or a few MiB at a time.

        The documents of a key are consecutive, its head first; absent keys have none. Three round trips, and one for
        each 4 MiB of values or 1,000 members.

        Raises:
            UnavailableError, AccessDeniedError: the server cannot be reached, or does not allow it.
        """
        seen = await self._look(targets)
        for batch in _batches([one for one in seen if one.held == "string" or one.size <= _MOST_MEMBERS]):
            yield await self._small(batch)
        for large in (one for one in seen if one.held != "string" and one.size > _MOST_MEMBERS):
            async for page in self._large(large):
                yield page

    async def _look(self, targets: Sequence[Target]) -> list[_SizedKey]:
        held = await self._read([("TYPE", target.physical) for target in targets])
        known = []
        for target, reply in zip(targets, held, strict=True):
            name = cast("bytes", reply).decode()
            if name in _SIZES:
                known.append((target, name))
            elif name != "none":
                self._leave_out(target.key, f"it has type {name}, which sharedmem does not use")
        sizes = await self._read([(_SIZES[name], target.physical) for target, name in known])
        return [
            _SizedKey(target, name, size if isinstance(size, int) else 0)
            for (target, name), size in zip(known, sizes, strict=True)
        ]

    async def _read(self, commands: Sequence[Command], *, aside: bool = False) -> list[Reply]:
        """Return the replies; None for a key that has another type by now."""
        try:
            return await self._client.read_many(commands, aside=aside) if commands else []
        except ServerError as error:
            if error.code != "WRONGTYPE":
                raise
        if len(commands) == 1:
            return [None]
        return [reply for command in commands for reply in await self._read([command], aside=aside)]

    async def _small(self, batch: Sequence[_SizedKey], tries: int = _MOST_TRIES) -> list[DurableRecord]:
        if not batch:
            return []
        strings = [one for one in batch if one.held == "string"]
        structures = [one for one in batch if one.held != "string"]
        standing = self._standing_of([one.target for one in batch])
        values: list[Command] = [("MGET", *(one.target.physical for one in strings))] if strings else []
        # Large replies must not delay the other callers of this hub.
        aside = bool(structures) or sum(one.size for one in strings) > POOLED_ABOVE_BYTES
        try:
            replies = await self._client.read_many(
                [*standing, *values, *map(_members_command, structures)], aside=aside
            )
        except ServerError as error:
            if error.code != "WRONGTYPE" or not tries:
                raise
            # Another client has changed the type of one of the keys since it was checked.
            again = [await self._small(await self._look([one.target]), tries - 1) for one in batch]
            return [record for records in again for record in records]
        standings = self._standings(batch, replies[: len(standing)])
        contents = [*as_list(replies[len(standing)] if strings else None), *replies[len(standing) + len(values) :]]
        pages = [
            self._documents(one, standings[one.target.key], content)
            for one, content in zip([*strings, *structures], contents, strict=True)
        ]
        return [record for records in pages for record in records]

    def _documents(self, one: _SizedKey, standing: _KeyMetadata, content: Reply) -> list[DurableRecord]:
        if one.held == "string":
            return [_decode_string(standing, content)] if isinstance(content, bytes) else []
        rows = _member_rows(one.held, content)
        try:
            return [standing.head(one.held, len(rows)), *standing.elements(one.held, rows)] if rows else []
        except ValueError:
            self._leave_out(one.target.key, _INVALID_FIELD_NAME)
            return []

    async def _large(self, one: _SizedKey) -> AsyncIterator[list[DurableRecord]]:
        facts = await self._client.read_many(self._standing_of([one.target]))
        standing = self._standings([one], facts)[one.target.key]
        yield [standing.head(one.held, one.size)]
        pages = self._list_pages(one) if one.held == "list" else self._scan_pages(one)
        first = 0
        async for rows in pages:
            try:
                yield standing.elements(one.held, rows, first)
            except ValueError:
                self._leave_out(one.target.key, _INVALID_FIELD_NAME)
                return
            first += len(rows)

    async def _list_pages(self, one: _SizedKey) -> AsyncIterator[Rows]:
        for first in range(0, one.size, _MOST_MEMBERS):
            last = min(first + _MOST_MEMBERS, one.size) - 1
            (page,) = await self._read([("LRANGE", one.target.physical, first, last)], aside=True)
            yield _member_rows(one.held, page)

    async def _scan_pages(self, one: _SizedKey) -> AsyncIterator[Rows]:
        scan = "HSCAN" if one.held == "hash" else "SSCAN"
        cursor: Reply = b"0"
        while True:
            place = cast("bytes", cursor)
            (reply,) = await self._read([(scan, one.target.physical, place, "COUNT", _MOST_MEMBERS)], aside=True)
            if not isinstance(reply, list):
                return
            cursor, page = reply
            yield _member_rows(one.held, page)
            if cursor in {b"0", 0}:
                return

    def _standing_of(self, targets: Sequence[Target]) -> list[Command]:
        states = [self._keyspace.state(target) for target in targets]
        kept = self._keyspace.kept(targets[0].space.namespace)
        ends: list[Command] = [("PEXPIRETIME", target.physical) for target in targets]
        return [("MGET", *states), ("HMGET", kept, *(target.key for target in targets)), *ends]

    def _standings(self, batch: Sequence[_SizedKey], replies: Sequence[Reply]) -> dict[str, _KeyMetadata]:
        states, kept, *ends = replies
        facts = zip(batch, as_list(states), as_list(kept), ends, strict=True)
        return {one.target.key: self._standing(one.target.key, fact) for one, *fact in facts}

    def _standing(self, key: str, facts: Sequence[Reply]) -> _KeyMetadata:
        state, kept, expires = facts
        words = state.split(b" ") if isinstance(state, bytes) else [b""]
        is_pending = words[0] == b"pending" and len(words) == 5
        letter = words[3] if is_pending else kept
        kind = _KINDS.get(letter) if isinstance(letter, bytes) else None
        # The expiry of a copy that the tier can restore is not the key's expiry.
        ends = expires if isinstance(expires, int) and expires > 0 and words[0] != b"cached" else 0
        return _KeyMetadata(key, kind or self._kind_of(key), int(words[1]) if is_pending else 0, ends)


async def snapshot(
    client: RedisClient, keyspace: KeySpace, target: Target, *, kind_of: KindOf | None = None
) -> list[DurableRecord]:
    """Return the documents of one key in Redis, its head first; empty if it is absent. Three round trips.

    Raises:
        UnavailableError, AccessDeniedError: the server cannot be reached, or does not allow it.
    """
    pages = SnapshotReader(client, keyspace, kind_of=kind_of).documents([target])
    return [record async for page in pages for record in page]


def _batches(seen: Sequence[_SizedKey]) -> Iterator[list[_SizedKey]]:
    batch: list[_SizedKey] = []
    size = members = 0
    for one in seen:
        size += one.size if one.held == "string" else 0
        members += 1 if one.held == "string" else one.size
        if batch and (size > _MOST_BYTES or members > _MOST_MEMBERS):
            yield batch
            batch, size, members = [], one.size if one.held == "string" else 0, one.size if one.held != "string" else 1
        batch.append(one)
    if batch:
        yield batch


def _members_command(one: _SizedKey) -> Command:
    key = one.target.physical
    return {"list": ("LRANGE", key, 0, -1), "hash": ("HGETALL", key), "set": ("SMEMBERS", key)}[one.held]


def _member_rows(held: str, reply: Reply) -> Rows:
    """Return pairs of a name (of a hash's field, else empty) and a member, in a stable order."""
    members = cast("list[bytes]", reply or [])
    if held == "hash":
        return sorted(zip(members[::2], members[1::2], strict=True))
    return [(b"", member) for member in (members if held == "list" else sorted(members))]


def _decode_string(standing: _KeyMetadata, raw: bytes) -> DurableRecord:
    header, separator, body = raw.partition(b"\n")
    words = _HEADER.fullmatch(header)
    if words is None or not separator or words[4] not in _CODECS:
        return _decode_headerless(standing, raw)
    version = int(words[1])
    return standing.document(
        type="value",
        version=version,
        floor=version,
        created=int(words[3] or version),
        expires=standing.expires,
        actor=words[2].decode(errors="replace"),
        codec=words[4].decode(),
        body=to_text(words[4], body),
    )


def _decode_headerless(standing: _KeyMetadata, raw: bytes) -> DurableRecord:
    """Return a string without a header: a counter's, or another client's."""
    codec, body = member_to_text(raw)
    held = "counter" if _COUNTER.fullmatch(raw) else "text"
    return standing.document(type=held, expires=standing.expires, floor=standing.stamp, codec=codec, body=body)
