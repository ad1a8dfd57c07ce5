"""Hashes: facts about one thing, field by field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sharedmem.config import Kind
from sharedmem.data.key_access import KeyAccess, check_integer, check_member
from sharedmem.errors import InvalidError
from sharedmem.redis.change_stream import as_list
from sharedmem.redis.codec import decode_member, encode_member
from sharedmem.redis.replies import Argument

_HASH = "hash"
_PAGE = 1000
_UNSET: Any = object()


class Hashes:
    """Reads and writes fields of hashes."""

    def __init__(self, keys: KeyAccess) -> None:
        self._hash_keys = keys

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
        """Set one field, or those of a mapping, in one atomic step. One round trip.

        Args:
            key: plain or absolute.
            field, value: what to set; or
            mapping: values by field.
            ttl: seconds until the whole hash expires, counted anew; None goes by `kind` and the rules.
            kind: memory kind, which sets the default life.

        Returns:
            How many fields are new.

        Raises:
            WrongTypeError: the key holds something else.
            InvalidError, AccessDeniedError, UnavailableError: as `write`.
        """
        access = self._hash_keys
        target = access.scope.to_write(key)
        most = access.context.settings.blob_threshold_bytes
        pairs: list[Argument] = []
        for name, item in _merge_fields(field, value, mapping).items():
            pairs += (_check_field(name), check_member(f"field {name}", encode_member(item), most))
        ttl_ms = access.lifetimes.ttl_ms(target.key, ttl, kind)
        call = access.scripts.hash_set(
            target, access.actor, ttl_ms=ttl_ms, pairs=pairs, keep=access.durability(target, kind=kind)
        )
        _, added = await access.explained(target, _HASH, call)
        return int(added)

    async def hget(self, key: str, field: str, default: Any = None) -> Any:
        """The value of a field, or `default` when there is none. One round trip.

        Raises:
            WrongTypeError, InvalidError, AccessDeniedError, UnavailableError: as `read`.
        """
        access = self._hash_keys
        target = access.scope.to_read(key)
        member = await access.ask(target, _HASH, "HGET", target.physical, _check_field(field))
        return decode_member(member) if isinstance(member, bytes) else default

    async def hgetall(self, key: str) -> dict[str, Any]:
        """All fields and values; empty when there are none. One round trip a thousand fields.

        A hash that changes while a longer read goes on may show old and new fields together.

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
        """Remove fields; returns how many were there. One round trip.

        Raises:
            WrongTypeError, InvalidError, AccessDeniedError, UnavailableError: as `write`.
        """
        access = self._hash_keys
        target = access.scope.to_write(key)
        if not fields:
            raise InvalidError("fields", fields, "name at least one")
        names = [_check_field(field) for field in fields]
        call = access.scripts.hash_delete(target, access.actor, fields=names, keep=access.durability(target))
        _, removed = await access.explained(target, _HASH, call)
        return int(removed)

    async def hincrby(
        self, key: str, field: str, by: int = 1, *, ttl: float | None = None, kind: Kind | str | None = None
    ) -> int:
        """Add to the whole number in a field, which starts at 0; returns the new number. One round trip.

        Raises:
            InvalidError: the field holds no whole number, or the result would leave 64 bits.
            WrongTypeError, AccessDeniedError, UnavailableError: as `write`.
        """
        access = self._hash_keys
        target = access.scope.to_write(key)
        ttl_ms = access.lifetimes.ttl_ms(target.key, ttl, kind)
        call = access.scripts.hash_increment(
            target,
            access.actor,
            field=_check_field(field),
            by=check_integer("by", by),
            ttl_ms=ttl_ms,
            keep=access.durability(target, kind=kind),
        )
        _, number = await access.explained(target, _HASH, call)
        return int(number)


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
