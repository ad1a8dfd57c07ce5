"""Sets: unique things, and the simplest fair way to hand out work."""

from __future__ import annotations

from typing import Any

from sharedmem.config import Kind
from sharedmem.data.key_access import KeyAccess, check_member, durability_pending_error
from sharedmem.errors import InvalidError
from sharedmem.redis.change_stream import as_list
from sharedmem.redis.codec import decode_member, encode_set_member
from sharedmem.redis.durability import UnsettledError
from sharedmem.redis.replies import ServerError

_SET = "set"
_PAGE = 1000
_HASHABLE = frozenset({str, int, float, bool, bytes, type(None)})


class Sets:
    """Adds to, takes from and reads sets. Members are hashable, as in Python; lists come back as tuples."""

    def __init__(self, keys: KeyAccess) -> None:
        self._set_keys = keys

    async def sadd(self, key: str, *values: object, ttl: float | None = None, kind: Kind | str | None = None) -> int:
        """Add members; returns how many are new. One round trip.

        Args:
            key: plain or absolute.
            values: text, numbers, bytes, datetimes, UUIDs, tuples of these.
            ttl: seconds until the whole set expires, counted anew; None goes by `kind` and the rules.
            kind: memory kind, which sets the default life.

        Raises:
            InvalidError: a member that cannot be coded or hashed, or none at all.
            WrongTypeError, AccessDeniedError, UnavailableError: as `write`.
        """
        access = self._set_keys
        target = access.scope.to_write(key)
        ttl_ms = access.lifetimes.ttl_ms(target.key, ttl, kind)
        members, keep = self._coded(values), access.durability(target, kind=kind)
        call = access.scripts.set_add(target, access.actor, ttl_ms=ttl_ms, members=members, keep=keep)
        _, added = await access.explained(target, _SET, call)
        return int(added)

    async def srem(self, key: str, *values: object) -> int:
        """Remove members; returns how many were there. One round trip.

        Raises:
            InvalidError, WrongTypeError, AccessDeniedError, UnavailableError: as `sadd`.
        """
        access = self._set_keys
        target = access.scope.to_write(key)
        call = access.scripts.set_remove(
            target, access.actor, members=self._coded(values), keep=access.durability(target)
        )
        _, removed = await access.explained(target, _SET, call)
        return int(removed)

    async def smembers(self, key: str) -> set[Any]:
        """All members; empty when there are none. One round trip a thousand members.

        A set that changes while a longer read goes on may show old and new members together.

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
        """Whether a value is a member. One round trip.

        Raises:
            WrongTypeError, InvalidError, AccessDeniedError, UnavailableError: as `read`.
        """
        access = self._set_keys
        target = access.scope.to_read(key)
        return await access.ask(target, _SET, "SISMEMBER", target.physical, *self._coded((value,))) == 1

    async def scard(self, key: str) -> int:
        """How many members a set has; 0 when there is none. One round trip.

        Raises:
            WrongTypeError, InvalidError, AccessDeniedError, UnavailableError: as `read`.
        """
        access = self._set_keys
        target = access.scope.to_read(key)
        count = await access.ask(target, _SET, "SCARD", target.physical)
        return count if isinstance(count, int) else 0

    async def spop(self, key: str) -> Any:
        """Take a random member out, or None when the set is empty; of racing takers exactly one gets it.

        One round trip; a repeat after a lost reply brings the same member.

        Raises:
            WrongTypeError, InvalidError, AccessDeniedError, UnavailableError: as `write`.
        """
        access = self._set_keys
        target = access.scope.to_write(key)
        call = access.scripts.set_pop(target, access.actor, keep=access.durability(target))
        version, member = await access.explained(target, _SET, call)
        return _decode_member(member) if version else None

    async def smove(self, source: str, destination: str, value: object) -> bool:
        """Move a member to another set of the same namespace; False when it was not there. One round trip.

        Raises:
            InvalidError: the sets are of different namespaces, or the value cannot be a member.
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
    # What it comes back as counts: a frozen dataclass can be hashed, the dict that is read cannot.
    if type(value) not in _HASHABLE and not _is_hashable(_to_hashable(decode_member(member))):
        raise InvalidError("member", value, "members of a set must be hashable; keep it in a hash or a list")
    return member


def _decode_member(member: bytes) -> Any:
    value = _to_hashable(decode_member(member))
    # A foreign client may have put there what is no member to us: its text will do.
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
