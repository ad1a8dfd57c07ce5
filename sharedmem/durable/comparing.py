"""Comparing: whether Redis holds what the documents of a key say it should."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypeAlias

from sharedmem.models import Difference, DurableRecord
from sharedmem.wire.changes import as_list
from sharedmem.wire.line import Line
from sharedmem.wire.replies import Argument, Reply, ServerError
from sharedmem.wire.tier import CACHED, Part

_PAGE = 500
_SHOWN = 200
_SLACK_MS = 2_000
_SIZES = {"RPUSH": "LLEN", "HSET": "HLEN", "SADD": "SCARD"}
_ABSENT = "nothing"
_IS_GONE = -2
_LATEST_MS = 253_402_300_800_000
"""The year 10000, which no date of Python reaches; another client may have set it."""
_KNOWLEDGE = "knowledge"
_EXPIRES = b"expires"

Row: TypeAlias = "tuple[Argument, ...]"


class Comparer:
    """Compares keys with what they should hold.

    Args:
        line: the way to Redis.
    """

    def __init__(self, line: Line) -> None:
        self._line = line

    async def parts(self, key: str, parts: Sequence[Part]) -> list[Difference]:
        """Where Redis differs from what it would be given. Two round trips a part, and one for each 500 rows.

        Raises:
            UnavailableError, AccessDeniedError: Redis stayed away, or does not allow it.
        """
        found: list[Difference] = []
        for part in parts:
            try:
                found += await self._part(key, part)
            except ServerError as error:
                if error.code != "WRONGTYPE":
                    raise
                held = await self._line.call("TYPE", part.place)
                found.append(Difference(key=key, what="type", redis=_shown(held), tier=part.command))
        return found

    async def expiry(self, head: DurableRecord, place: bytes, state: bytes, now_ms: int) -> list[Difference]:
        """Whether a key ends at another time than the tier says, by more than two seconds. One round trip.

        Raises:
            UnavailableError, AccessDeniedError: as `parts`.
        """
        held, left = await self._line.read_many([("GET", state), ("PTTL", place)])
        # The expiry of a mere copy says nothing.
        is_copy = held == CACHED or (head.kind == _KNOWLEDGE and held != _EXPIRES)
        if is_copy or not isinstance(left, int) or left == _IS_GONE:
            return []
        here = 0 if left < 0 else now_ms + left
        if abs(here - head.expires) <= _SLACK_MS:
            return []
        return [Difference(key=head.key, what="expiry", redis=_time(here), tier=_time(head.expires))]

    async def _part(self, key: str, part: Part) -> list[Difference]:
        if part.command == "SET":
            held = await self._line.call("GET", part.place)
            return _differing(key, "", held, part.rows[0][0])
        if part.command not in _SIZES:
            return []  # an index of what the other parts hold
        size = await self._line.call(_SIZES[part.command], part.place)
        rows = part.rows if part.command == "RPUSH" else list({row[0]: row for row in part.rows}.values())
        found = [] if size == len(rows) or part.has_more else [_sizes(key, size, len(rows))]
        for first in range(0, len(rows), _PAGE):
            found += await self._rows(key, part, first, rows[first : first + _PAGE])
        return found

    async def _rows(self, key: str, part: Part, first: int, rows: Sequence[Row]) -> list[Difference]:
        place = part.place
        if part.command == "RPUSH":
            held = as_list(await self._line.call("LRANGE", place, first, first + len(rows) - 1))
            # Where one is shorter, the sizes have told it.
            pairs = enumerate(zip(held, rows, strict=False), first)
            return [one for n, (here, row) in pairs for one in _differing(key, str(n), here, row[0])]
        if part.command == "HSET":
            held = as_list(await self._line.call("HMGET", place, *(row[0] for row in rows)))
            fields = zip(held, rows, strict=True)
            return [one for here, row in fields for one in _differing(key, _shown(row[0]), here, row[1])]
        there = as_list(await self._line.call("SMISMEMBER", place, *(row[0] for row in rows)))
        missing = [row[0] for here, row in zip(there, rows, strict=True) if here != 1]
        return [
            Difference(key=key, element=_shown(one), what="element", redis=_ABSENT, tier=_shown(one)) for one in missing
        ]


def _differing(key: str, element: str, here: Reply, there: Argument) -> list[Difference]:
    if here == _raw(there):
        return []
    what = "element" if element else "value"
    return [Difference(key=key, element=element, what=what, redis=_shown(here), tier=_shown(there))]


def _sizes(key: str, here: Reply, there: int) -> Difference:
    return Difference(key=key, what="size", redis=_shown(here), tier=str(there))


def _raw(argument: Argument) -> bytes:
    return argument if isinstance(argument, bytes) else str(argument).encode()


def _shown(held: Reply | Argument) -> str:
    """A part of it, as text."""
    if held is None:
        return _ABSENT
    text = held.decode(errors="replace") if isinstance(held, bytes) else str(held)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _time(at_ms: int) -> str:
    if not 0 <= at_ms < _LATEST_MS:
        return f"{at_ms} ms after 1970"
    return "never" if not at_ms else datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
