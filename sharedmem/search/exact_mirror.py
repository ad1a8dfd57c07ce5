"""A copy of the records of a namespace in this process, kept up to date by the change log."""

from __future__ import annotations

import asyncio
import math
import threading
from array import array
from collections import Counter
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from sharedmem.clock import Clock
from sharedmem.errors import ConfigError, SharedMemoryError
from sharedmem.record_family import RecordFamily
from sharedmem.redis.client import RedisClient
from sharedmem.redis.keys import KeySpace
from sharedmem.redis.replies import Command, Reply, ServerError, public_error
from sharedmem.redis.vectors import Vector, from_half, normalize
from sharedmem.text.analysis import split_tags

COMMANDS_EACH = 2
"""Commands that the read of one record takes."""
_NO_SUCH_KEY = -2


class MirroredRecord(NamedTuple):
    """The indexed data of one record."""

    id: str
    terms: list[bytes]
    vector: Vector | None
    """A unit vector; None if there is no vector, or one of zeros, which is near to nothing."""
    facts: bytes
    tags: list[list[str]]
    """The distinct values of each tag, in the family's order."""
    numbers: list[float]
    """The family's numbers in its order; NaN for a missing one."""
    lives_ms: int | None
    """Milliseconds until it expires; None for never."""
    is_damaged: bool
    """Whether its vector could not be read."""


def read_commands(keyspace: KeySpace, family: RecordFamily, namespace: str, id_: str) -> tuple[Command, Command]:
    """Return the commands that read one record."""
    key = keyspace.record(family.name, namespace, id_)
    return ("HMGET", key, "terms", "vector", "facts", *family.tags, *family.numbers), ("PTTL", key)


def parse_record(family: RecordFamily, id_: str, fields: Reply, lives_ms: Reply) -> MirroredRecord | None:
    """Return a record from the replies to `read_commands`; None if there is no record, or the key is not a hash."""
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
    """Return replies in pairs."""
    return list(zip(replies[::2], replies[1::2], strict=True))


Mask: TypeAlias = NDArray[np.bool_]
RowNumbers: TypeAlias = NDArray[np.int64]

_FIRST_ROWS = 64
_Number = TypeVar("_Number", bound=np.generic)


class Column(Generic[_Number]):
    """Numbers of one kind, one or several in each row.

    Args:
        kind: type of a number.
        width: numbers in a row; 0 for a plain column.
    """

    def __init__(self, kind: type[_Number], width: int | None = None) -> None:
        self._shape = () if width is None else (width,)
        self._rows: NDArray[_Number] = np.zeros((_FIRST_ROWS, *self._shape), dtype=kind)
        self._count = 0

    @property
    def rows(self) -> NDArray[_Number]:
        """A view of the rows, valid until the next row is added."""
        return self._rows[: self._count]

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self._rows.nbytes

    def add(self, row: Any) -> None:
        """Append a row."""
        if self._count == len(self._rows):
            grown = np.zeros((2 * self._count, *self._shape), dtype=self._rows.dtype)
            grown[: self._count] = self._rows
            self._rows = grown
        self._rows[self._count] = row
        self._count += 1

    def keep(self, slots: RowNumbers) -> None:
        """Keep only these rows, in this order."""
        self._rows = self._rows[slots] if len(slots) else np.zeros((_FIRST_ROWS, *self._shape), dtype=self._rows.dtype)
        self._count = len(slots)


class Postings:
    """The rows that contain a word or a value, and how often: each as one integer, row * 65536 + times."""

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
        """Record that a row, newer than all before, contains it that many times."""
        numbers = self._lists.get(name)
        if numbers is None:
            numbers = self._lists[name] = array("q")
        numbers.append((slot << self._TIMES_BITS) + min(times, self._MOST_TIMES))

    def of(self, name: bytes | str) -> tuple[RowNumbers, RowNumbers]:
        """Return (rows that contain it, how often each does)."""
        numbers = self._lists.get(name)
        if numbers is None:
            return _NO_POSTINGS, _NO_POSTINGS
        packed = np.frombuffer(numbers, dtype=np.int64)
        return packed >> self._TIMES_BITS, packed & self._MOST_TIMES

    def keep(self, moved: RowNumbers) -> None:
        """Give each row its new place; a negative one deletes it."""
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
    """Columns of living rows, and of rows that died since the last compaction: a row never changes.

    A changed record gets a new row and its old row dies, so that no list of rows must be searched for it. Each caller
    that reads or changes the mirror holds `guard`, since searches of large mirrors run in threads.

    Args:
        family: the family of the records.
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
        """A mask of the rows that are current records; the others are dead."""
        return self._lives.rows

    @property
    def vectors(self) -> NDArray[np.float32]:
        """A vector for each row, zeros if it has no vector."""
        return self._vectors.rows

    @property
    def has_vector(self) -> Mask:
        """A mask of the rows with a vector."""
        return self._has_vector.rows

    @property
    def lengths(self) -> NDArray[np.float64]:
        """Words of each row."""
        return self._lengths.rows

    @property
    def average_length(self) -> float:
        """Average number of words of a record; never zero."""
        return self._total_length / len(self) if self._total_length else 1.0

    @property
    def damaged(self) -> int:
        """The number of records whose vector could not be read."""
        return int(np.count_nonzero(self._damaged.rows & self.living))

    @property
    def nbytes(self) -> int:
        """Bytes of memory, about."""
        columns = sum(column.nbytes for column in (self._lengths, self._ends, *self.numbers.values()))
        lists = sum(postings.nbytes for postings in (self.words, *self.tags.values()))
        return self._vectors.nbytes + columns + lists + _ABOUT_BYTES_OF_A_RECORD * len(self.ids)

    def put(self, record: MirroredRecord, now_s: float) -> None:
        """Add a record; it replaces one with the same id.

        Args:
            record: the indexed data.
            now_s: the time on a monotonic clock, which `expire` uses too.
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
        """Remove a record, if it exists."""
        slot = self._slots.pop(id_, None)
        if slot is None:
            return
        self._lives.rows[slot] = False
        self._total_length -= float(self.lengths[slot])

    def expire(self, now_s: float) -> list[str]:
        """Remove the expired records and return their ids."""
        over = np.flatnonzero(self.living & (self._ends.rows <= now_s))
        ended = [self.ids[slot] for slot in over]
        self.drop_all(ended)
        return ended

    def drop_all(self, ids: Iterable[str]) -> None:
        """Remove the records that exist among these ids."""
        for id_ in ids:
            self.drop(id_)

    def compact(self) -> None:
        """Remove the dead rows if they are more than a third."""
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


T = TypeVar("T")
Versions: TypeAlias = dict[str, int]
"""Ids, and the version of the last change of each."""

_PAGE = 100
_MOST_CHANGES = 1000
_FEW = 20
_LOG_SAFETY_US = 3_600_000_000
_MOST_GONE = 1000


class MirrorReplicator:
    """Updates the mirror of one namespace to the state of the server at the time of a call.

    It reads only new entries of the log as long as the length of the log agrees with the entries read before. If a log
    was pruned, cleared or restored, the whole log is compared.

    Args:
        client: client of the server.
        keyspace: builds keys.
        family: the family of the records.
        namespace: the namespace to mirror.
        clock: decides which records have expired; only `monotonic` is used, so that a wrong wall clock does no harm.
    """

    def __init__(
        self, client: RedisClient, keyspace: KeySpace, family: RecordFamily, namespace: str, clock: Clock
    ) -> None:
        self.mirror = Mirror(family)
        self.version = 0
        self._client = client
        self._keyspace = keyspace
        self._family = family
        self._namespace = namespace
        self._clock = clock
        self._log = keyspace.record_log(family.name, namespace)
        self._is_loaded = False
        self._newest = ""
        self._logged: Versions = {}
        # Ids in the log without a record, and the version from which the log may lack them.
        self._missing: Versions = {}
        self._turn = asyncio.Lock()
        self._begun = self._done = self._failed = 0
        self._failure: SharedMemoryError | None = None

    async def catch_up(self) -> int:
        """Bring the mirror to the state of the server at the time of this call; return the round trips.

        Callers that wait during another caller's turn share the next turn, and its failure: a turn that has already
        begun may have read too early.

        Raises:
            UnavailableError: the server cannot be reached.
            ConfigError: the log is not a sorted set.
        """
        came = self._begun
        async with self._turn:
            if self._failure is not None and self._failed > came:
                # If each waiting caller tried in turn, the last one would wait many times as long as one try.
                raise self._failure
            trips = await self._take_turn() if self._done <= came else 1
            self._expire()
            return trips

    async def _take_turn(self) -> int:
        self._begun += 1
        try:
            trips = await self._translated(self._follow())
        except SharedMemoryError as error:
            self._failed, self._failure = self._begun, error
            raise
        self._done, self._failure = self._begun, None
        return trips

    async def _translated(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except ServerError as error:
            raise public_error(error, self._client.address) from error

    async def _follow(self) -> int:
        if not self._is_loaded:
            return await self._compare()
        newer, length = await self._newer()
        # At least one change is known; if the log lacks it, this is another log.
        if len(newer) >= _MOST_CHANGES or (self._newest and self._newest not in newer):
            return 1 + await self._compare()
        trips = 1 + await self._fetch(newer)
        self._advance(newer)
        if not self._is_same_log(length) or len(self._missing) > _MOST_GONE + len(self.mirror):
            trips += await self._compare()
        return trips

    async def _newer(self) -> tuple[Versions, int]:
        """Return (changes since the newest known change, including that one; length of the log)."""
        changes = ("ZRANGEBYSCORE", self._log, self.version, "+inf", "WITHSCORES", "LIMIT", 0, _MOST_CHANGES)
        newer, length = await self._client.read_many([changes, ("ZCARD", self._log)])
        assert isinstance(length, int)
        return _parse_versions(newer), length

    async def _compare(self) -> int:
        """Compare the whole log, and fetch the differences; return the round trips."""
        listing = _parse_versions(await self._client.call_aside("ZRANGE", self._log, 0, -1, "WITHSCORES"))
        with self.mirror.guard:
            for id_ in [id_ for id_ in self._logged if id_ not in listing]:
                self._forget(id_)
        trips = await self._fetch(listing)
        self.version, self._newest = 0, ""
        self._advance(listing)
        self._is_loaded = True
        return 1 + trips

    async def _fetch(self, changes: Mapping[str, int]) -> int:
        changed = iter([(id_, version) for id_, version in changes.items() if self._logged.get(id_) != version])
        trips = 0
        while page := dict(islice(changed, _PAGE)):
            await self._fetch_page(page)
            trips += 1
        return trips

    async def _fetch_page(self, page: Versions) -> None:
        commands = [part for id_ in page for part in read_commands(self._keyspace, self._family, self._namespace, id_)]
        now_s = self._clock.monotonic()
        replies = await self._client.read_each(commands, aside=len(commands) > COMMANDS_EACH * _FEW)
        with self.mirror.guard:
            for (id_, version), (fields, lives_ms) in zip(page.items(), reply_pairs(replies), strict=True):
                self._take(id_, version, parse_record(self._family, id_, fields, lives_ms), now_s)

    def _take(self, id_: str, version: int, record: MirroredRecord | None, now_s: float) -> None:
        self._logged[id_] = version
        if record is None:
            self.mirror.drop(id_)
            self._missing[id_] = version + _LOG_SAFETY_US
        else:
            self.mirror.put(record, now_s)
            self._missing.pop(id_, None)

    def _forget(self, id_: str) -> None:
        del self._logged[id_]
        self._missing.pop(id_, None)
        self.mirror.drop(id_)

    def _expire(self) -> None:
        with self.mirror.guard:
            # Their entries in the log are deleted later.
            self._missing.update(dict.fromkeys(self.mirror.expire(self._clock.monotonic()), 0))
            self.mirror.compact()

    def _advance(self, changes: Mapping[str, int]) -> None:
        if changes:
            self._newest, self.version = max(changes.items(), key=lambda change: change[1])

    def _is_same_log(self, length: int) -> bool:
        """Return whether a log of this length can be the log that was followed."""
        missing = len(self._logged) - length
        if missing == 0:
            return True
        may_be_missing = sum(1 for from_version in self._missing.values() if from_version <= self.version)
        return 0 < missing <= may_be_missing


def _parse_versions(reply: Reply) -> Versions:
    return {member.decode(errors="replace"): int(float(score)) for member, score in _member_scores(reply)}


def _member_scores(reply: Reply) -> Iterator[tuple[bytes, bytes]]:
    if not isinstance(reply, list):
        raise ConfigError("log of changes", "Redis", "it must be a sorted set; another client has overwritten it")
    for member, score in reply_pairs(reply):
        assert isinstance(member, bytes)
        assert isinstance(score, bytes)
        yield member, score
