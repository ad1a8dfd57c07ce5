"""Columns that grow by doubling, one row a record."""

from __future__ import annotations

from array import array
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

Mask: TypeAlias = NDArray[np.bool_]
Slots: TypeAlias = NDArray[np.int64]

_FIRST_ROWS = 64
_Number = TypeVar("_Number", bound=np.generic)


class Column(Generic[_Number]):
    """Numbers of one kind, one or several a row.

    Args:
        kind: what a number is.
        width: numbers a row; 0 for a plain column.
    """

    def __init__(self, kind: type[_Number], width: int | None = None) -> None:
        self._shape = () if width is None else (width,)
        self._rows: NDArray[_Number] = np.zeros((_FIRST_ROWS, *self._shape), dtype=kind)
        self._count = 0

    @property
    def rows(self) -> NDArray[_Number]:
        """What it holds: a view, good until the next row is added."""
        return self._rows[: self._count]

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self._rows.nbytes

    def add(self, row: Any) -> None:
        """Put a row at the end."""
        if self._count == len(self._rows):
            grown = np.zeros((2 * self._count, *self._shape), dtype=self._rows.dtype)
            grown[: self._count] = self._rows
            self._rows = grown
        self._rows[self._count] = row
        self._count += 1

    def keep(self, slots: Slots) -> None:
        """Keep these rows alone, in this order."""
        self._rows = self._rows[slots] if len(slots) else np.zeros((_FIRST_ROWS, *self._shape), dtype=self._rows.dtype)
        self._count = len(slots)


class Postings:
    """Which rows hold a word or a value, and how often: each as one integer, row * 65536 + times."""

    _TIMES_BITS = 16
    _MOST_TIMES = 2**_TIMES_BITS - 1

    def __init__(self) -> None:
        self._lists: dict[bytes | str, array[int]] = {}

    def __iter__(self) -> Any:
        return iter(self._lists)

    @property
    def nbytes(self) -> int:
        """Bytes of memory, about."""
        return sum(8 * len(numbers) + 150 for numbers in self._lists.values())

    def add(self, name: bytes | str, slot: int, times: int = 1) -> None:
        """Say that a row, newer than all before, holds it that many times."""
        numbers = self._lists.get(name)
        if numbers is None:
            numbers = self._lists[name] = array("q")
        numbers.append((slot << self._TIMES_BITS) + min(times, self._MOST_TIMES))

    def of(self, name: bytes | str) -> tuple[Slots, Slots]:
        """(rows that hold it, how often each does)."""
        numbers = self._lists.get(name)
        if numbers is None:
            return _NONE, _NONE
        packed = np.frombuffer(numbers, dtype=np.int64)
        return packed >> self._TIMES_BITS, packed & self._MOST_TIMES

    def keep(self, moved: Slots) -> None:
        """Give each row its new place; those with a negative one are gone."""
        for name in list(self._lists):
            slots, times = self.of(name)
            places = moved[slots]
            stays = places >= 0
            packed = (places[stays] << self._TIMES_BITS) + times[stays]
            if len(packed):
                self._lists[name] = array("q", packed.tobytes())
            else:
                del self._lists[name]


_NONE: Slots = np.zeros(0, dtype=np.int64)
