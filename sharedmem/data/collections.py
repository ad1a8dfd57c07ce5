"""Lists, hashes, sets and counters of a store."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

from sharedmem.config import Kind
from sharedmem.data.keys import (
    MOST_TRIES,
    KeyAccess,
    check_integer,
    check_member,
    durability_pending_error,
    restored_in_vain_error,
)
from sharedmem.errors import InvalidError
from sharedmem.redis.change_stream import as_list
from sharedmem.redis.codec import decode_member, encode_member, encode_set_member
from sharedmem.redis.durability import UnsettledError
from sharedmem.redis.keys import Space, Target
from sharedmem.redis.replies import Argument, ServerError
from sharedmem.redis.scripts.data import CollectionChange, WriteBatcher

_REFUSED = b"E "


class CollectionWriter:
    """Changes lists, hashes, sets and counters for one store; concurrent changes of a namespace share one call."""

    def __init__(self, keys: KeyAccess) -> None:
        self._keys = keys
        self._batcher = WriteBatcher[Space, CollectionChange](self._send, keys.context.background)

    async def change(
        self,
        target: Target,
        wanted: str,
        operation: str,
        arguments: Sequence[Argument],
        *,
        size: int = 0,
        ttl: float | None = None,
        kind: Kind | str | None = None,
        max_length: int = 0,
    ) -> bytes:
        """Change one key; return the result (see `lua/collection_change.lua`).

        Args:
            target: the key.
            wanted: its type in words, for errors.
            operation, arguments, size, max_length: as `CollectionChange`.
            ttl, kind: as `Values.write`.

        Raises:
            WrongTypeError, InvalidError, AccessDeniedError, UnavailableError: as `KeyAccess.explained`.
        """
        access, was_unknown = self._keys, False
        ttl_ms = access.lifetimes.ttl_ms(target.key, ttl, kind)
        mode = "" if access.tier is None else access.mode(target, kind)
        change = CollectionChange(target, operation, arguments, ttl_ms, max_length, mode, size)
        for _ in range(MOST_TRIES):
            try:
                reply = await self._batcher.put(target.space, change)
            except ServerError as error:
                raise await access.key_error(error, target, wanted) from error
            except UnsettledError as error:
                raise durability_pending_error(target, error) from error.cause
            if reply[:1].isdigit():
                return reply.partition(b" ")[2]
            if reply[:2] == _REFUSED:
                raise await access.key_error(ServerError(reply[2:].decode(errors="replace")), target, wanted)
            was_unknown = await access.prepare_repeat(target, mode, reply, was_unknown=was_unknown)
        raise restored_in_vain_error(target)

    def _send(self, space: Space, changes: Sequence[CollectionChange]) -> Awaitable[bytes]:
        return self._keys.scripts.collection_change(space, self._keys.actor, changes)


_LIST = "list"
_PAGE = 1000


class Lists:
    """Appends to lists and reads them."""

    def __init__(self, keys: KeyAccess, writer: CollectionWriter) -> None:
        self._list_keys = keys
        self._list_writer = writer

    async def append(
        self,
        key: str,
        value: object,
        *,
        max_length: int | None = None,
        ttl: float | None = None,
        kind: Kind | str | None = None,
    ) -> int:
        """Append a value to a list. One round trip, shared with concurrent changes of collections.

        Args:
            key: plain or absolute.
            value: as in `write`, up to the blob threshold.
            max_length: keep only so many of the newest values; trimmed in the same atomic step.
            ttl: seconds until the whole list expires, counted anew; None: `kind` and the key rules decide.
            kind: kind of the key, which sets its default lifetime.

        Returns:
            The length of the list.

        Raises:
            WrongTypeError: the key holds another type.
            InvalidError, AccessDeniedError, UnavailableError: as `write`.
        """
        access = self._list_keys
        target = access.scope.to_write(key)
        if max_length is not None and check_integer("max_length", max_length) < 1:
            raise InvalidError("max_length", max_length, "keep at least one; leave it out to keep all")
        member = check_member("value", encode_member(value), access.context.settings.blob_threshold_bytes)
        result = await self._list_writer.change(
            target, _LIST, "append", (member,), size=len(member), ttl=ttl, kind=kind, max_length=max_length or 0
        )
        return int(result)

    async def read_list(self, key: str, start: int = 0, end: int = -1) -> list[Any]:
        """Return the values from `start` to `end`, both included; negative ones count from the end (-10: the last ten).

        One round trip a thousand values. Appends and trims during a longer read may shift its pages.

        Raises:
            WrongTypeError: the key holds another type.
            InvalidError, AccessDeniedError, UnavailableError: as `read`.
        """
        access = self._list_keys
        target = access.scope.to_read(key)
        check_integer("start", start)
        check_integer("end", end)
        if start < 0 or end < 0 or end - start >= _PAGE:
            length = await self.list_length(key)
            start = max(start + length, 0) if start < 0 else start
            end = end + length if end < 0 else min(end, length - 1)
            if end < start:
                return []
        values: list[Any] = []
        # At least one page, even of an empty range: so the server reports a key of another type.
        for first in range(start, max(start, end) + 1, _PAGE):
            last = min(first + _PAGE - 1, end)
            members = as_list(await access.ask(target, _LIST, "LRANGE", target.physical, first, last))
            values += [decode_member(member) for member in members if isinstance(member, bytes)]
        return values

    async def list_length(self, key: str) -> int:
        """Return how many values a list holds; 0 if it does not exist. One round trip.

        Raises:
            WrongTypeError: the key holds another type.
            InvalidError, AccessDeniedError, UnavailableError: as `read`.
        """
        access = self._list_keys
        target = access.scope.to_read(key)
        length = await access.ask(target, _LIST, "LLEN", target.physical)
        return length if isinstance(length, int) else 0


_HASH = "hash"
_UNSET: Any = object()


class Hashes:
    """Reads and writes fields of hashes."""

    def __init__(self, keys: KeyAccess, writer: CollectionWriter) -> None:
        self._hash_keys = keys
        self._hash_writer = writer

    async def hset(
        self,
        key: str,
        field: str | None = None,
        value: object = _UNSET,
        *,
        mapping: Mapping[str, object] | None = None,
        ttl: float | None = None,
        kind: Kind | str | None = None,
    ) -> int:
        """Set one field, or all fields of a mapping, in one atomic step. One round trip.

        Args:
            key: plain or absolute.
            field, value: one field and its value; or
            mapping: values by field.
            ttl: seconds until the whole hash expires, counted anew; None: `kind` and the key rules decide.
            kind: kind of the key, which sets its default lifetime.

        Returns:
            How many fields are new.

        Raises:
            WrongTypeError: the key holds another type.
            InvalidError, AccessDeniedError, UnavailableError: as `write`.
        """
        access = self._hash_keys
        target = access.scope.to_write(key)
        most = access.context.settings.blob_threshold_bytes
        pairs: list[str | bytes] = []
        for name, item in _merge_fields(field, value, mapping).items():
            pairs += (_check_field(name), check_member(f"field {name}", encode_member(item), most))
        size = sum(map(len, pairs))
        return int(await self._hash_writer.change(target, _HASH, "hset", pairs, size=size, ttl=ttl, kind=kind))

    async def hget(self, key: str, field: str, default: Any = None) -> Any:
        """Return the value of a field, or `default` if it does not exist. One round trip.

        Raises:
            WrongTypeError, InvalidError, AccessDeniedError, UnavailableError: as `read`.
        """
        access = self._hash_keys
        target = access.scope.to_read(key)
        member = await access.ask(target, _HASH, "HGET", target.physical, _check_field(field))
        return decode_member(member) if isinstance(member, bytes) else default

    async def hgetall(self, key: str) -> dict[str, Any]:
        """Return all fields and values; empty if the hash does not exist. One round trip a thousand fields.

        If the hash changes during a longer read, the result may contain both old and new fields.

        Raises:
            WrongTypeError, InvalidError, AccessDeniedError, UnavailableError: as `read`.
        """
        access = self._hash_keys
        target = access.scope.to_read(key)
        cursor: Any = b"0"
        found: dict[str, Any] = {}
        while True:
            reply = await access.ask(target, _HASH, "HSCAN", target.physical, cursor, "COUNT", _PAGE)
            cursor, page = as_list(reply)
            members = as_list(page)
            for name, member in zip(members[::2], members[1::2], strict=True):
                if isinstance(name, bytes) and isinstance(member, bytes):
                    found[name.decode(errors="backslashreplace")] = decode_member(member)
            if cursor in {b"0", 0}:
                return found

    async def hdel(self, key: str, *fields: str) -> int:
        """Delete fields; return how many existed. One round trip.

        Raises:
            WrongTypeError, InvalidError, AccessDeniedError, UnavailableError: as `write`.
        """
        target = self._hash_keys.scope.to_write(key)
        if not fields:
            raise InvalidError("fields", fields, "name at least one")
        names = [_check_field(field) for field in fields]
        return int(await self._hash_writer.change(target, _HASH, "hdel", names, size=sum(map(len, names))))

    async def hincrby(
        self, key: str, field: str, by: int = 1, *, ttl: float | None = None, kind: Kind | str | None = None
    ) -> int:
        """Add to the whole number in a field, which starts at 0; return the new number. One round trip.

        Raises:
            InvalidError: the field holds no whole number, or the result would exceed 64 bits.
            WrongTypeError, AccessDeniedError, UnavailableError: as `write`.
        """
        target = self._hash_keys.scope.to_write(key)
        arguments = (_check_field(field), check_integer("by", by))
        return int(await self._hash_writer.change(target, _HASH, "hincrby", arguments, ttl=ttl, kind=kind))


def _merge_fields(field: str | None, value: object, mapping: Mapping[str, object] | None) -> dict[str, object]:
    fields = dict(mapping or {})
    if (field is None) != (value is _UNSET):
        raise InvalidError("field", field, "give a field and its value together")
    if field is not None:
        fields[field] = value
    if not fields:
        raise InvalidError("mapping", mapping, "give a field and a value, or a mapping that holds some")
    return fields


def _check_field(field: str) -> str:
    if not isinstance(field, str) or not field:
        raise InvalidError("field", field, "give a non-empty text")
    try:
        field.encode()
    except UnicodeEncodeError as error:
        raise InvalidError("field", field, "it has lone surrogates, which UTF-8 cannot hold") from error
    return field


_SET = "set"
_HASHABLE = frozenset({str, int, float, bool, bytes, type(None)})


class Sets:
    """Changes and reads sets. Members are hashable, as in Python; lists are read back as tuples."""

    def __init__(self, keys: KeyAccess, writer: CollectionWriter) -> None:
        self._set_keys = keys
        self._set_writer = writer

    async def sadd(self, key: str, *values: object, ttl: float | None = None, kind: Kind | str | None = None) -> int:
        """Add members; return how many are new. One round trip.

        Args:
            key: plain or absolute.
            values: text, numbers, bytes, datetimes, UUIDs, tuples of these.
            ttl: seconds until the whole set expires, counted anew; None: `kind` and the key rules decide.
            kind: kind of the key, which sets its default lifetime.

        Raises:
            InvalidError: a member cannot be encoded or hashed, or no member was given.
            WrongTypeError, AccessDeniedError, UnavailableError: as `write`.
        """
        target = self._set_keys.scope.to_write(key)
        members = self._coded(values)
        size = sum(map(len, members))
        return int(await self._set_writer.change(target, _SET, "sadd", members, size=size, ttl=ttl, kind=kind))

    async def srem(self, key: str, *values: object) -> int:
        """Remove members; return how many existed. One round trip.

        Raises:
            InvalidError, WrongTypeError, AccessDeniedError, UnavailableError: as `sadd`.
        """
        target = self._set_keys.scope.to_write(key)
        members = self._coded(values)
        return int(await self._set_writer.change(target, _SET, "srem", members, size=sum(map(len, members))))

    async def smembers(self, key: str) -> set[Any]:
        """Return all members; empty if the set does not exist. One round trip a thousand members.

        If the set changes during a longer read, the result may contain both old and new members.

        Raises:
            WrongTypeError, InvalidError, AccessDeniedError, UnavailableError: as `read`.
        """
        access = self._set_keys
        target = access.scope.to_read(key)
        cursor: Any = b"0"
        found: set[Any] = set()
        while True:
            reply = await access.ask(target, _SET, "SSCAN", target.physical, cursor, "COUNT", _PAGE)
            cursor, page = as_list(reply)
            found |= {_decode_member(member) for member in as_list(page) if isinstance(member, bytes)}
            if cursor in {b"0", 0}:
                return found

    async def sismember(self, key: str, value: object) -> bool:
        """Return whether a value is a member. One round trip.

        Raises:
            WrongTypeError, InvalidError, AccessDeniedError, UnavailableError: as `read`.
        """
        access = self._set_keys
        target = access.scope.to_read(key)
        return await access.ask(target, _SET, "SISMEMBER", target.physical, *self._coded((value,))) == 1

    async def scard(self, key: str) -> int:
        """Return how many members a set has; 0 if it does not exist. One round trip.

        Raises:
            WrongTypeError, InvalidError, AccessDeniedError, UnavailableError: as `read`.
        """
        access = self._set_keys
        target = access.scope.to_read(key)
        count = await access.ask(target, _SET, "SCARD", target.physical)
        return count if isinstance(count, int) else 0

    async def spop(self, key: str) -> Any:
        """Remove and return a random member, or None if the set is empty; one of several racing callers gets it.

        One round trip; a repeat after a lost reply returns the same member.

        Raises:
            WrongTypeError, InvalidError, AccessDeniedError, UnavailableError: as `write`.
        """
        access = self._set_keys
        target = access.scope.to_write(key)
        call = access.scripts.set_pop(target, access.actor, keep=access.durability(target))
        version, member = await access.explained(target, _SET, call)
        return _decode_member(member) if version else None

    async def smove(self, source: str, destination: str, value: object) -> bool:
        """Move a member to another set of the same namespace; False if it was not there. One round trip.

        Raises:
            InvalidError: the sets are in different namespaces, or the value cannot be a member.
            WrongTypeError, AccessDeniedError, UnavailableError: as `write`.
        """
        access = self._set_keys
        here, there = access.scope.to_write(source), access.scope.to_write(destination)
        if here.space != there.space:
            raise InvalidError("destination", destination, f"a move stays within the namespace of {source!r}")
        member = self._coded((value,))[0]
        try:
            keep = access.durability(here, there)
            version, _ = await access.scripts.set_move(here, there, access.actor, member=member, keep=keep)
        except ServerError as error:
            source_is_fine = await access.client.call("TYPE", here.physical) in {b"set", b"none"}
            raise await access.key_error(error, there if source_is_fine else here, _SET) from error
        except UnsettledError as error:
            raise durability_pending_error(here, error) from error.cause
        return version > 0

    def _coded(self, values: tuple[object, ...]) -> list[bytes]:
        if not values:
            raise InvalidError("values", values, "give at least one member")
        most = self._set_keys.context.settings.blob_threshold_bytes
        return [check_member("member", _encode_member(value), most) for value in values]


def _encode_member(value: object) -> bytes:
    member = encode_set_member(value)
    # The decoded form must be hashable: a frozen dataclass is, but the dict that is read back is not.
    if type(value) not in _HASHABLE and not _is_hashable(_to_hashable(decode_member(member))):
        raise InvalidError("member", value, "members of a set must be hashable; keep it in a hash or a list")
    return member


def _decode_member(member: bytes) -> Any:
    value = _to_hashable(decode_member(member))
    # Another client may have added a member that sharedmem cannot decode: return its text.
    return value if _is_hashable(value) else member.decode(errors="replace")


def _to_hashable(value: object) -> object:
    if isinstance(value, set):
        return frozenset(value)
    return tuple(_to_hashable(item) for item in value) if isinstance(value, list) else value


def _is_hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


class IntegerCounters:
    """Increments and decrements counters. A counter is a plain number in Redis; `read` reads it too."""

    def __init__(self, keys: KeyAccess, writer: CollectionWriter) -> None:
        self._counter_keys = keys
        self._counter_writer = writer

    async def incr(self, key: str, by: int = 1, *, ttl: float | None = None, kind: Kind | str | None = None) -> int:
        """Add to a counter, which starts at 0. One round trip; a repeat after a lost reply counts once.

        Args:
            key: plain or absolute.
            by: the amount, a whole number of 64 bits.
            ttl: seconds until the counter expires, counted anew; None: `kind` and the key rules decide.
            kind: kind of the key, which sets its default lifetime.

        Returns:
            The new number.

        Raises:
            InvalidError: the key holds no whole number, or the result would exceed 64 bits.
            WrongTypeError, AccessDeniedError, UnavailableError: as `write`.
        """
        target = self._counter_keys.scope.to_write(key)
        by = check_integer("by", by)
        return int(await self._counter_writer.change(target, "counter", "incr", (by,), ttl=ttl, kind=kind))

    async def decr(self, key: str, by: int = 1, *, ttl: float | None = None, kind: Kind | str | None = None) -> int:
        """Subtract from a counter; as `incr` with the opposite sign."""
        return await self.incr(key, -check_integer("by", by), ttl=ttl, kind=kind)
