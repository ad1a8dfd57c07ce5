"""Lists: conversations and logs that grow at the end."""

from __future__ import annotations

from typing import Any

from sharedmem.config import Kind
from sharedmem.data.key_access import KeyAccess, check_integer, check_member
from sharedmem.errors import InvalidError
from sharedmem.redis.change_stream import as_list
from sharedmem.redis.codec import decode_member, encode_member

_LIST = "list"
_PAGE = 1000


class Lists:
    """Appends to lists and reads them."""

    def __init__(self, keys: KeyAccess) -> None:
        self._list_keys = keys

    async def append(
        self,
        key: str,
        value: object,
        *,
        max_length: int | None = None,
        ttl: float | None = None,
        kind: Kind | str | None = None,
    ) -> int:
        """Put a value at the end of a list. One round trip.

        Args:
            key: plain or absolute.
            value: as `write` takes it, up to the blob threshold.
            max_length: keep only that many of the newest, cut in the same atomic step.
            ttl: seconds until the whole list expires, counted anew; None goes by `kind` and the rules.
            kind: memory kind, which sets the default life.

        Returns:
            The length of the list.

        Raises:
            WrongTypeError: the key holds something else.
            InvalidError, AccessDeniedError, UnavailableError: as `write`.
        """
        access = self._list_keys
        target = access.scope.to_write(key)
        if max_length is not None and check_integer("max_length", max_length) < 1:
            raise InvalidError("max_length", max_length, "keep at least one; leave it out to keep all")
        member = check_member("value", encode_member(value), access.context.settings.blob_threshold_bytes)
        ttl_ms = access.lifetimes.ttl_ms(target.key, ttl, kind)
        call = access.scripts.list_append(
            target,
            access.actor,
            member=member,
            max_length=max_length or 0,
            ttl_ms=ttl_ms,
            keep=access.durability(target, kind=kind),
        )
        _, length = await access.explained(target, _LIST, call)
        return int(length)

    async def read_list(self, key: str, start: int = 0, end: int = -1) -> list[Any]:
        """The values from `start` to `end`, both included; negative ones count from the end (-10: the last ten).

        One round trip a thousand values. What is appended or cut while a longer read goes on may move it.

        Raises:
            WrongTypeError: the key holds something else.
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
        # At least one page, even of an empty range: the server tells when the key holds something else.
        for first in range(start, max(start, end) + 1, _PAGE):
            last = min(first + _PAGE - 1, end)
            members = as_list(await access.ask(target, _LIST, "LRANGE", target.physical, first, last))
            values += [decode_member(member) for member in members if isinstance(member, bytes)]
        return values

    async def list_length(self, key: str) -> int:
        """How many values a list holds; 0 when there is none. One round trip.

        Raises:
            WrongTypeError: the key holds something else.
            InvalidError, AccessDeniedError, UnavailableError: as `read`.
        """
        access = self._list_keys
        target = access.scope.to_read(key)
        length = await access.ask(target, _LIST, "LLEN", target.physical)
        return length if isinstance(length, int) else 0
