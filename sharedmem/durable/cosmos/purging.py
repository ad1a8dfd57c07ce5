"""What of a key's documents no reader can see any more: decided without I/O, document by document.

`durable.living` says what a reader sees. Here the same is decided with only some columns of each document, in one
pass over a namespace that is sorted by key and element, and with care for a change of which only a part has arrived:
its elements may be there before its head.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import NamedTuple

from sharedmem.durable.cosmos.documents import Place

COLUMNS = "c.key, c.element, c.type, c.stamp, c.floor, c.size, c.expires, c.deleted, c._etag"


class Row(NamedTuple):
    """The columns of a document."""

    key: str
    element: str
    type: str
    stamp: int
    floor: int
    size: int
    expires: int
    deleted: bool
    etag: str
    place: Place = Place("", [])
    """Where it lies."""


class Sieve:
    """Holds back what is alive.

    Args:
        now_ms: milliseconds since 1970.
        tombstones_before: tombstones with a lower stamp have done their work.
    """

    def __init__(self, *, now_ms: int, tombstones_before: int) -> None:
        self._now_ms = now_ms
        self._tombstones_before = tombstones_before
        self._head: Row | None = None
        self._newest: deque[Row] = deque()

    def dead(self, row: Row) -> Row | None:
        """What the next document of the sorted namespace shows to be dead: it, one before it, or nothing."""
        if not row.element:
            self._head, self._newest = row, deque()
            return row if self._is_over(row) or self._is_old_tombstone(row) else None
        head = self._head
        if head is None or head.key != row.key:
            # The head may be on its way; a change that is older than any tombstone has arrived or never will.
            return row if row.stamp < self._tombstones_before else None
        if row.stamp < head.floor or (self._is_over(head) and row.stamp <= head.stamp):
            return row
        if row.deleted:
            return row if self._is_old_tombstone(row) else None
        return self._pushed_out(row, head)

    def keep(self, keys: Collection[str]) -> None:
        """Heads that could not be removed, as they have changed: what is to come of their elements stays."""
        if self._head is not None and self._head.key in keys:
            self._head = self._head._replace(type="", expires=0, floor=0)

    def _pushed_out(self, row: Row, head: Row) -> Row | None:
        """The oldest item of a list that holds more than its head says."""
        if head.type != "list" or row.stamp > head.stamp:
            return None
        self._newest.append(row)
        return self._newest.popleft() if len(self._newest) > head.size else None

    def _is_over(self, row: Row) -> bool:
        return not row.deleted and 0 < row.expires <= self._now_ms

    def _is_old_tombstone(self, row: Row) -> bool:
        return row.deleted and row.stamp < self._tombstones_before
