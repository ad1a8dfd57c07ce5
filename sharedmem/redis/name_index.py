"""The index of the names in use: which locks, rate limits, barriers and queues a namespace has, without SCAN.

The script that creates one adds its name in the same step (`lua/include/names.lua`). A name may stay in the index for a
while after that: callers look at what they list, and drop the names that they find free.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple, cast

from sharedmem.errors import AccessDeniedError
from sharedmem.redis.change_stream import as_list
from sharedmem.redis.client import RedisClient
from sharedmem.redis.keys import KeySpace, Space
from sharedmem.redis.replies import Command, ServerError
from sharedmem.redis.service_keys import corruption_error

_COMPLETE = b"$complete"
"""A member of the index: no name is missing."""
_WRONG_TYPE = "WRONGTYPE"
_SCANNED_AT_ONCE = 10_000
_ADDED_AT_ONCE = 1_000


class IndexedName(NamedTuple):
    """A name in the index; they are ordered by kind, then by name."""

    kind: str
    name: str
    """Without its namespace: `<scope>:<identifier>`."""


class NameIndex:
    """The names in use in one namespace.

    Args:
        client: sends commands.
        keyspace: builds the keys.
        space: the namespace.
    """

    def __init__(self, client: RedisClient, keyspace: KeySpace, space: Space) -> None:
        self._client = client
        self._keyspace = keyspace
        self._space = space
        self._filling = asyncio.Lock()
        self.key = keyspace.names(space.namespace)

    async def page(self, kinds: Iterable[str], *, after: IndexedName | None = None, limit: int) -> list[IndexedName]:
        """Return the first names of some kinds, in order; some may be free meanwhile. One round trip.

        In data that only earlier versions of sharedmem have written, names are looked for once with SCAN.

        Args:
            kinds: of `NAME_KINDS`.
            after: the name after which to begin; None: at the first.
            limit: most names to return.

        Raises:
            AccessDeniedError: names were never looked for, and this Redis user may not list keys.
            UnavailableError: the server cannot be reached.
            CorruptionError: another client has written to the index.
        """
        wanted = sorted(kinds)
        ranges = [_range(self.key, kind, after, limit) for kind in wanted]
        commands: list[Command] = [("ZSCORE", self.key, _COMPLETE), *(one for one in ranges if one is not None)]
        try:
            complete, *replies = await self._client.read_many(commands)
        except ServerError as error:
            if error.code != _WRONG_TYPE:
                raise
            raise corruption_error(self.key, "it is not a sorted set") from error
        if complete is not None:
            return [_parse(member) for reply in replies for member in as_list(reply)][:limit]
        async with self._filling:
            if await self._client.call("ZSCORE", self.key, _COMPLETE) is None:
                found = await self._fill()
                return [one for one in found if one.kind in wanted and (after is None or one > after)][:limit]
        return await self.page(wanted, after=after, limit=limit)

    async def _fill(self) -> list[IndexedName]:
        """Add the names of what versions of sharedmem without this index have created; return all names."""
        found: set[IndexedName] = set()
        glob = self._keyspace.pattern(self._space.namespace, "$*")
        async for page in self._client.scan(glob, near=self._space.clock, count=_SCANNED_AT_ONCE):
            found.update(IndexedName(*name) for key in page if (name := self._keyspace.name_of(key)) is not None)
        names = sorted(found)
        with suppress(AccessDeniedError):  # a user who may only read looks for them each time
            for first in range(0, len(names), _ADDED_AT_ONCE):
                members = [":".join(name) for name in names[first : first + _ADDED_AT_ONCE]]
                await self._client.call("ZADD", self.key, *(part for member in members for part in (0, member)))
            await self._client.call("ZADD", self.key, 0, _COMPLETE)
        return names


def _range(key: bytes, kind: str, after: IndexedName | None, limit: int) -> Command | None:
    """Return the command that reads the names of one kind; None if all of them come before `after`."""
    if after is not None and kind < after.kind:
        return None
    first = f"({':'.join(after)}" if after is not None and kind == after.kind else f"[{kind}:"
    # `;` follows `:`.
    return "ZRANGEBYLEX", key, first, f"({kind};", "LIMIT", 0, limit


def _parse(member: object) -> IndexedName:
    kind, _, name = cast("bytes", member).decode(errors="replace").partition(":")
    return IndexedName(kind, name)
