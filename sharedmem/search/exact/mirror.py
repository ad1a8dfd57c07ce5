"""The records of one namespace, mirrored in memory as growing columns."""

from __future__ import annotations

import math
import threading
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from sharedmem.record_family import RecordFamily
from sharedmem.redis.keys import KeySpace
from sharedmem.redis.replies import Command, Reply
from sharedmem.redis.vectors import Vector, from_half, normalize
from sharedmem.search.filters import split_tags

COMMANDS_EACH = 2
"""Commands that reading one record takes."""
_NO_SUCH_KEY = -2


class MirroredRecord(NamedTuple):
    """What is indexed of one record."""

    id: str
    terms: list[bytes]
    vector: Vector | None
    """Of unit length; None while there is none, or one of zeros, to which nothing is near."""
    facts: bytes
    tags: list[list[str]]
    """The distinct values of each tag, in the family's order."""
    numbers: list[float]
    """The family's numbers in its order; not a number (NaN) where there is none."""
    lives_ms: int | None
    """Milliseconds until it expires; None for never."""
    is_damaged: bool
    """Whether its vector could not be read."""


def read_commands(keyspace: KeySpace, family: RecordFamily, namespace: str, id_: str) -> tuple[Command, Command]:
    """The commands that read one record."""
    key = keyspace.record(family.name, namespace, id_)
    return ("HMGET", key, "terms", "vector", "facts", *family.tags, *family.numbers), ("PTTL", key)


def parse_record(family: RecordFamily, id_: str, fields: Reply, lives_ms: Reply) -> MirroredRecord | None:
    """A record from the replies to `read_commands`; None when there is none, or the key holds no hash."""
    assert isinstance(lives_ms, int)
    if not isinstance(fields, list):
        return None
    texts = [field if isinstance(field, bytes) else None for field in fields]
    if lives_ms == _NO_SUCH_KEY:
        return None
    terms, packed, facts = texts[:3]
    vector = _parse_vector(packed, family.dimension) if packed else None
    return MirroredRecord(
        id=id_,
        terms=(terms or b"").split(),
        vector=vector if vector is not None and vector.any() else None,
        facts=facts or b"",
        tags=[_parse_tags(tag) for tag in texts[3 : 3 + len(family.tags)]],
        numbers=[_parse_number(number) for number in texts[3 + len(family.tags) :]],
        lives_ms=lives_ms if lives_ms >= 0 else None,
        is_damaged=bool(packed) and vector is None,
    )


def _parse_vector(packed: bytes, dimension: int) -> Vector | None:
    if len(packed) != 2 * dimension:
        return None
    vector = from_half(packed)
    return normalize(vector) if np.isfinite(vector).all() else None


def _parse_tags(tag: bytes | None) -> list[str]:
    return list(dict.fromkeys(split_tags((tag or b"").decode(errors="replace"))))


def _parse_number(text: bytes | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return math.nan


def reply_pairs(replies: Sequence[Reply]) -> list[tuple[Reply, Reply]]:
    """Replies two by two."""
    return list(zip(replies[::2], replies[1::2], strict=True))


Mask: TypeAlias = NDArray[np.bool_]
RowNumbers: TypeAlias = NDArray[np.int64]

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

    def keep(self, slots: RowNumbers) -> None:
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

    def of(self, name: bytes | str) -> tuple[RowNumbers, RowNumbers]:
        """(rows that hold it, how often each does)."""
        numbers = self._lists.get(name)
        if numbers is None:
            return _NO_POSTINGS, _NO_POSTINGS
        packed = np.frombuffer(numbers, dtype=np.int64)
        return packed >> self._TIMES_BITS, packed & self._MOST_TIMES

    def keep(self, moved: RowNumbers) -> None:
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


_NO_POSTINGS: RowNumbers = np.zeros(0, dtype=np.int64)


_MOST_DEAD = 256
_ABOUT_BYTES_OF_A_RECORD = 250


class Mirror:
    """Columns of what lives and what has died since they were last made compact: a row never changes.

    A record that changes gets a new row and its old one dies, so that no list of rows must be searched for it.
    Whoever reads or changes it holds `guard`, since searches of large mirrors run in threads.

    Args:
        family: what the records are.
    """

    def __init__(self, family: RecordFamily) -> None:
        self.family = family
        self.guard = threading.Lock()
        self.ids: list[str] = []
        self.facts: list[bytes] = []
        self.words = Postings()
        self.tags = {name: Postings() for name in family.tags}
        self.numbers = {name: Column(np.float64) for name in family.numbers}
        self._vectors = Column(np.float32, family.dimension)
        self._has_vector = Column(np.bool_)
        self._lengths = Column(np.float64)
        self._ends = Column(np.float64)
        self._lives = Column(np.bool_)
        self._damaged = Column(np.bool_)
        self._slots: dict[str, int] = {}
        self._total_length = 0.0

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, id_: str) -> bool:
        return id_ in self._slots

    @property
    def living(self) -> Mask:
        """Which rows are records; the others have died."""
        return self._lives.rows

    @property
    def vectors(self) -> NDArray[np.float32]:
        """A vector a row, zeros where there is none."""
        return self._vectors.rows

    @property
    def has_vector(self) -> Mask:
        """Which rows have a vector."""
        return self._has_vector.rows

    @property
    def lengths(self) -> NDArray[np.float64]:
        """Words of each row."""
        return self._lengths.rows

    @property
    def average_length(self) -> float:
        """Words of a record on average; never zero."""
        return self._total_length / len(self) if self._total_length else 1.0

    @property
    def damaged(self) -> int:
        """Records whose vector could not be read."""
        return int(np.count_nonzero(self._damaged.rows & self.living))

    @property
    def nbytes(self) -> int:
        """Bytes of memory, about."""
        columns = sum(column.nbytes for column in (self._lengths, self._ends, *self.numbers.values()))
        lists = sum(postings.nbytes for postings in (self.words, *self.tags.values()))
        return self._vectors.nbytes + columns + lists + _ABOUT_BYTES_OF_A_RECORD * len(self.ids)

    def put(self, record: MirroredRecord, now_s: float) -> None:
        """Take a record in; one with the same id gives way.

        Args:
            record: what is indexed.
            now_s: the time on a clock that never goes back, by which `expire` goes.
        """
        self.drop(record.id)
        slot = len(self.ids)
        self._slots[record.id] = slot
        self.ids.append(record.id)
        self.facts.append(record.facts)
        self._total_length += len(record.terms)
        self._vectors.add(0.0 if record.vector is None else record.vector)
        self._has_vector.add(record.vector is not None)
        self._lengths.add(len(record.terms))
        self._ends.add(math.inf if record.lives_ms is None else now_s + record.lives_ms / 1000)
        self._damaged.add(record.is_damaged)
        self._lives.add(True)
        for word, times in Counter(record.terms).items():
            self.words.add(word, slot, times)
        for postings, values in zip(self.tags.values(), record.tags, strict=True):
            for value in values:
                postings.add(value, slot)
        for column, number in zip(self.numbers.values(), record.numbers, strict=True):
            column.add(number)

    def drop(self, id_: str) -> None:
        """Take a record out, if it is there."""
        slot = self._slots.pop(id_, None)
        if slot is None:
            return
        self._lives.rows[slot] = False
        self._total_length -= float(self.lengths[slot])

    def expire(self, now_s: float) -> list[str]:
        """Take out what has ended, and answer the ids."""
        over = np.flatnonzero(self.living & (self._ends.rows <= now_s))
        ended = [self.ids[slot] for slot in over]
        self.drop_all(ended)
        return ended

    def drop_all(self, ids: Iterable[str]) -> None:
        """Take records out, those that are there."""
        for id_ in ids:
            self.drop(id_)

    def compact(self) -> None:
        """Leave out dead rows once they are many: more than a third."""
        dead = len(self.ids) - len(self)
        if dead <= max(_MOST_DEAD, len(self) // 2):
            return
        stays = np.flatnonzero(self.living)
        moved = np.full(len(self.ids), -1, dtype=np.int64)
        moved[stays] = np.arange(len(stays))
        self._keep(stays, moved)

    def _keep(self, stays: RowNumbers, moved: RowNumbers) -> None:
        self.ids = [self.ids[slot] for slot in stays]
        self.facts = [self.facts[slot] for slot in stays]
        self._slots = {id_: slot for slot, id_ in enumerate(self.ids)}
        columns: tuple[Column[np.float32] | Column[np.float64] | Column[np.bool_], ...] = (
            *(self._vectors, self._lengths, self._ends),
            *(self._has_vector, self._lives, self._damaged),
            *self.numbers.values(),
        )
        for column in columns:
            column.keep(stays)
        for postings in (self.words, *self.tags.values()):
            postings.keep(moved)
