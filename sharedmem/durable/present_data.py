"""Check whether the present data in Redis includes a change that was made before.

A flush, a rollback or a failover deletes changes, and later changes have higher stamps nevertheless. But the change
stream is part of the data: it is deleted, rolled back and replaced together with it, and lists the stamps.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from sharedmem.redis.change_stream import as_list, text_of
from sharedmem.redis.client import RedisClient
from sharedmem.redis.keys import KeySpace
from sharedmem.redis.replies import Command, Reply

_MARK_FIELD = "$joined"
_EPOCH = 2
"""Index of the word of the mark with the start of the present data in microseconds (see lua/namespace_join.lua)."""


class PresentData(NamedTuple):
    """The changes that the present data in Redis includes."""

    began_ms: int
    """When the present data began, in milliseconds since 1970; 0 if no hub has joined since."""
    missing: frozenset[int]
    """The stamps of changes that are not, or perhaps not, part of the present data."""


async def present_data(
    client: RedisClient, keyspace: KeySpace, namespace: str, stamps: Collection[int], *, left_ms: int
) -> PresentData:
    """Return which changes of a namespace are part of the present data. One round trip.

    Args:
        client, keyspace: of the server.
        namespace: namespace of the changes.
        stamps: their stamps. Unannounced changes, such as the beginning of an execution, count as missing.
        left_ms: when the oldest of them was made, in milliseconds since 1970 by the server's clock.

    Raises:
        UnavailableError, AccessDeniedError: the server cannot be reached, or does not allow it.
    """
    asked, changes = sorted(set(stamps)), keyspace.space(namespace).changes
    commands: list[Command] = [("HGET", keyspace.kept(namespace), _MARK_FIELD)]
    commands.append(("XRANGE", changes, "-", "+", "COUNT", 1))
    commands += [("XRANGE", changes, stamp, stamp) for stamp in asked]
    mark, first, *found = await client.read_many(commands)
    words = text_of(mark).split() if isinstance(mark, bytes) else []
    began_ms = int(words[_EPOCH]) // 1000 if len(words) > _EPOCH else 0
    # The stream is trimmed to its newest changes, and does not show older ones. Entries are dated in milliseconds, so a
    # change of the very millisecond in which the present data began may have been lost before.
    cut_at = _first_stamp(first) if began_ms and left_ms > began_ms else 0
    missing = [stamp for stamp, page in zip(asked, found, strict=True) if not page and stamp >= cut_at]
    return PresentData(began_ms, frozenset(missing))


def _first_stamp(page: Reply) -> int:
    for row in map(as_list, as_list(page)):
        return int(text_of(row[0]).partition("-")[0])
    return 0
