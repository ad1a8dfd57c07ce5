"""Slots for work that takes long, such as streams: so many in this process, and so many for each caller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from sharedmem.errors import LimitedError


class CallerSlots:
    """Slots for work that takes long, such as streams.

    Args:
        what: is done, for the errors of rejected callers.
        most: in this process.
        most_each: for one caller.
        retry_after: seconds after which a refused caller may try again.
    """

    def __init__(self, what: str, *, most: int, most_each: int, retry_after: float) -> None:
        self._what, self._most, self._most_each, self._retry_after = what, most, most_each, retry_after
        self._taken: Counter[str] = Counter()

    def check(self, caller: str) -> None:
        """Refuse a caller for whom no slot is free.

        Raises:
            LimitedError: none is.
        """
        if self._taken[caller] >= self._most_each:
            raise LimitedError(f"too many {self._what} of this token are under way", self._retry_after)
        if self._taken.total() >= self._most:
            raise LimitedError(f"too many {self._what} are under way in this service", self._retry_after)

    @contextmanager
    def taken(self, caller: str) -> Iterator[None]:
        """Take a slot for the length of the block."""
        self._taken[caller] += 1
        try:
            yield
        finally:
            self._taken[caller] -= 1
            if not self._taken[caller]:
                del self._taken[caller]
