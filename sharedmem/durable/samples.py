"""Sample queries on the memories of the durable tier: named questions that the store answers without Redis.

A store with a query language of its own for memories answers in it (`NativeSamples`); of any other store, all memories
are read, and each is ranked or counted.
"""

from __future__ import annotations

import math
import re
import struct
from base64 import b64decode
from collections.abc import AsyncIterator, Iterator, Sequence
from heapq import heappush, heapreplace
from operator import mul
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import orjson

from sharedmem.clock import Clock
from sharedmem.durable.protocol import Durable, has_expired
from sharedmem.errors import InvalidError
from sharedmem.models import DurableRecord, SampleQuery, SampleResult
from sharedmem.redis.keys import check_name

SampleRow: TypeAlias = "dict[str, Any]"
MEMORY_FIELDS = ("id", "thread_id", "turn_index", "memory", "content", "timestamp", "metadata")
"""Fields of each memory in a result."""
_LARGEST_LIMIT = 1_000
_LONGEST_TEXT = 2_000
_LONGEST_VECTOR = 4_096
WORD = re.compile(r"\w+")

SAMPLES: tuple[SampleQuery, ...] = (
    SampleQuery(name="recent-turns", description="the newest turns of a thread", requires=("thread_id",)),
    SampleQuery(name="recent", description="the newest memories by their time", takes=("thread_id",)),
    SampleQuery(
        name="nearest", description="the memories nearest in meaning", requires=("vector",), takes=("thread_id",)
    ),
    SampleQuery(
        name="hybrid",
        description="the best memories by meaning and words together (reciprocal rank fusion)",
        requires=("text", "vector"),
        takes=("thread_id",),
    ),
    SampleQuery(
        name="words", description="the memories with most of some words", requires=("text",), takes=("thread_id",)
    ),
    SampleQuery(
        name="phrase",
        description="the newest memories that contain a phrase, of a thread or of all",
        requires=("text",),
        takes=("thread_id",),
    ),
    SampleQuery(
        name="duplicates",
        description="up to five memories of nearly the same meaning",
        requires=("vector",),
        takes=("category",),
    ),
    SampleQuery(
        name="thread-statistics",
        description="the turns of a thread, its first and last time, and its tokens",
        requires=("thread_id",),
    ),
    SampleQuery(name="count", description="how many memories there are", takes=("thread_id",)),
)


class SampleRequest(NamedTuple):
    """A checked sample query and its parameters."""

    name: str
    namespace: str
    now_ms: int
    """Milliseconds since 1970: memories that have expired by then are left out."""
    limit: int
    thread_id: str | None = None
    text: str = ""
    vector: tuple[float, ...] = ()
    category: str | None = None

    @property
    def words(self) -> list[str]:
        """The words of the text, without repetitions."""
        return list(dict.fromkeys(WORD.findall(self.text.casefold())))


class NativeAnswer(NamedTuple):
    """The answer of a store in its own query language."""

    rows: list[SampleRow]
    query: str


@runtime_checkable
class NativeSamples(Protocol):
    """A store that answers sample queries in its own query language."""

    async def sample_memories(self, request: SampleRequest) -> NativeAnswer | None:
        """Run a sample query; None if this store has no container for memories.

        Raises:
            UnavailableError, LimitedError, AccessDeniedError: the store is unavailable.
        """


def check_sample(name: str, namespace: str, now_ms: int, given: dict[str, Any]) -> SampleRequest:
    """Return a checked request.

    Raises:
        InvalidError: there is no such sample, or a parameter is missing, invalid, or not one of this sample.
    """
    sample = next((one for one in SAMPLES if one.name == name), None)
    if sample is None:
        raise InvalidError("sample", name, f"give one of {', '.join(one.name for one in SAMPLES)}")
    check_name("namespace", namespace)
    limit = given.pop("limit")
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= _LARGEST_LIMIT:
        raise InvalidError("limit", limit, f"ask for 1 to {_LARGEST_LIMIT:,} memories")
    named = {parameter: value for parameter, value in given.items() if value is not None}
    for parameter in sample.requires:
        if parameter not in named:
            raise InvalidError(parameter, None, f"the sample {name} requires it")
    for parameter, value in named.items():
        if parameter not in (*sample.requires, *sample.takes):
            raise InvalidError(parameter, "...", f"the sample {name} does not take it; leave it out")
        if parameter == "vector":
            named[parameter] = _check_vector(value)
        elif not isinstance(value, str) or not value.strip() or len(value) > _LONGEST_TEXT:
            raise InvalidError(parameter, value, f"give a text of 1 to {_LONGEST_TEXT:,} characters")
    request = SampleRequest(name, namespace, now_ms, limit, **named)
    if "text" in sample.requires and not request.words:
        raise InvalidError("text", request.text, "give a text with a letter or digit in it")
    return request


def _check_vector(vector: Any) -> tuple[float, ...]:
    try:
        numbers = tuple(float(number) for number in vector)
    except (TypeError, ValueError, OverflowError):
        raise InvalidError("vector", "...", "give numbers") from None
    if not 1 <= len(numbers) <= _LONGEST_VECTOR or not all(map(math.isfinite, numbers)):
        raise InvalidError("vector", f"{len(numbers)} numbers", f"give 1 to {_LONGEST_VECTOR:,} finite numbers")
    return numbers


_MEMORY = "memory"


class MemorySamples:
    """Runs sample queries.

    Args:
        store: the store with the documents.
        clock: decides which memories have expired.
    """

    def __init__(self, store: Durable, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def run(self, name: str, namespace: str, **given: Any) -> SampleResult:
        """Run a sample query; see `DurableAdmin.run_sample`."""
        now_ms = round(self._clock.now().timestamp() * 1000)
        request = check_sample(name, namespace, now_ms, given)
        native = await self._store.sample_memories(request) if isinstance(self._store, NativeSamples) else None
        if native is None:
            native = NativeAnswer(await self._read(request), "")
        return SampleResult(name=name, namespace=namespace, rows=tuple(native.rows), query=native.query)

    async def _read(self, request: SampleRequest) -> list[SampleRow]:
        found = open_collector(request)
        async for memory in self._memories(request):
            found.take(memory)
        return found.rows()

    async def _memories(self, request: SampleRequest) -> AsyncIterator[TierMemory]:
        async for page in self._store.iterate(request.namespace, heads_only=True):
            for record in page:
                if record.type != _MEMORY or record.deleted or has_expired(record, request.now_ms):
                    continue
                memory = parse_memory(record)
                if memory is not None and request.thread_id in {None, memory.row["thread_id"]}:
                    yield memory


# -- stores without a query language for memories ------------------------------------------------


DUPLICATE_SIMILARITY = 0.95
MOST_DUPLICATES = 5
_FUSED = 100
"""Memories of each ranking that are fused at least."""
_RANK_CONSTANT = 60


class MemoryCollector(Protocol):
    """Takes the memories of a namespace one after the other, and returns the rows of a sample query."""

    def take(self, memory: TierMemory) -> None:
        """Take the next memory."""

    def rows(self) -> list[SampleRow]:
        """Return the rows of the result."""


class TierMemory(NamedTuple):
    """A memory as the store has it."""

    row: SampleRow
    category: str | None
    metrics: dict[str, Any]
    half: bytes
    """The embedding in half precision; empty without one."""

    @property
    def words(self) -> set[str]:
        """The words of its text."""
        return set(WORD.findall(f"{self.row['content']} {self.row['memory']}".casefold()))

    def similarity(self, vector: Sequence[float]) -> float | None:
        """Return the cosine similarity; None for a memory without a vector of that length."""
        if len(self.half) != 2 * len(vector):
            return None
        own = struct.unpack(f"<{len(vector)}e", self.half)
        length = math.hypot(*own) * math.hypot(*vector)
        return sum(map(mul, own, vector)) / length if length else None


def parse_memory(record: DurableRecord) -> TierMemory | None:
    """Return the memory in a document; None if it cannot be read."""
    try:
        body = orjson.loads(record.body)
        item = body["item"]
        text = item.get("memory", "")
        row = {
            "id": record.key.split(":", 2)[2],
            "thread_id": item.get("thread_id", "main"),
            "turn_index": body.get("turn_index", item.get("turn_index")),
            "memory": text,
            "content": item.get("content", text),
            "timestamp": item.get("timestamp"),
            "metadata": item.get("metadata", {}),
        }
        half = b64decode(body.get("embedding") or "")
        return TierMemory(row, item.get("category"), item.get("metrics") or {}, half)
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


class _Best:
    """The best rows by a key, as many as asked for."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._heap: list[tuple[Any, str, SampleRow]] = []

    def add(self, key: Any, row: SampleRow) -> None:
        entry = (key, row["id"], row)
        if len(self._heap) < self._limit:
            heappush(self._heap, entry)
        elif entry[:2] > self._heap[0][:2]:
            heapreplace(self._heap, entry)

    def rows(self) -> list[SampleRow]:
        return [row for _, _, row in sorted(self._heap, key=lambda entry: entry[:2], reverse=True)]


class _NewestRows:
    """The newest memories, by turn or by time; those with a phrase, if one is given."""

    def __init__(self, request: SampleRequest) -> None:
        self._best = _Best(request.limit)
        self._by_turn = request.name == "recent-turns"
        self._phrase = request.text.casefold()

    def take(self, memory: TierMemory) -> None:
        row = memory.row
        if self._phrase and not any(self._phrase in str(row[field]).casefold() for field in ("content", "memory")):
            return
        turn = -1 if row["turn_index"] is None else row["turn_index"]
        self._best.add(turn if self._by_turn else str(row["timestamp"] or ""), row)

    def rows(self) -> list[SampleRow]:
        return self._best.rows()


class _Nearest:
    """The memories nearest in meaning, with their similarity."""

    def __init__(self, request: SampleRequest) -> None:
        is_duplicate = request.name == "duplicates"
        self._least = DUPLICATE_SIMILARITY if is_duplicate else -math.inf
        self._best = _Best(MOST_DUPLICATES if is_duplicate else request.limit)
        self._request = request

    def take(self, memory: TierMemory) -> None:
        category, near = self._request.category, memory.similarity(self._request.vector)
        if near is not None and near > self._least and category in {None, memory.category}:
            self._best.add(near, {**memory.row, "similarity": near})

    def rows(self) -> list[SampleRow]:
        return self._best.rows()


class _WithWords:
    """The memories with most of some words; of equally many the newest."""

    def __init__(self, request: SampleRequest, *, limit: int | None = None) -> None:
        self._best = _Best(limit or request.limit)
        self._words = set(request.words)

    def take(self, memory: TierMemory) -> None:
        found = len(self._words & memory.words)
        if found:
            self._best.add((found, str(memory.row["timestamp"] or "")), memory.row)

    def rows(self) -> list[SampleRow]:
        return self._best.rows()


class _Fused:
    """The best memories by meaning and words together."""

    def __init__(self, request: SampleRequest) -> None:
        self._limit = request.limit
        pool = max(request.limit, _FUSED)
        self._legs = (_Nearest(request._replace(limit=pool)), _WithWords(request, limit=pool))

    def take(self, memory: TierMemory) -> None:
        for leg in self._legs:
            leg.take(memory)

    def rows(self) -> list[SampleRow]:
        scores: dict[str, float] = {}
        rows: dict[str, SampleRow] = {}
        for leg in self._legs:
            for rank, row in enumerate(leg.rows(), start=1):
                scores[row["id"]] = scores.get(row["id"], 0.0) + 1 / (_RANK_CONSTANT + rank)
                rows.setdefault(row["id"], {name: row[name] for name in MEMORY_FIELDS})
        return [rows[id_] for id_ in sorted(scores, key=lambda id_: (-scores[id_], id_))[: self._limit]]


class _Statistics:
    """The turns of a thread, its first and last time, and its tokens."""

    def __init__(self) -> None:
        self._times: list[str] = []
        self._count, self._tokens = 0, 0.0

    def take(self, memory: TierMemory) -> None:
        self._count += 1
        self._tokens += sum(_numbers(memory.metrics))
        if memory.row["timestamp"]:
            self._times = [min([*self._times, memory.row["timestamp"]]), max([*self._times, memory.row["timestamp"]])]

    def rows(self) -> list[SampleRow]:
        first, last = self._times or (None, None)
        return [{"turn_count": self._count, "first_turn_at": first, "last_turn_at": last, "total_tokens": self._tokens}]


def _numbers(metrics: dict[str, Any]) -> Iterator[float]:
    for side in ("input_tokens", "output_tokens"):
        value = metrics.get(side)
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield value


class _Counted:
    """How many memories there are."""

    def __init__(self) -> None:
        self._count = 0

    def take(self, memory: TierMemory) -> None:  # noqa: ARG002  # as the others
        self._count += 1

    def rows(self) -> list[SampleRow]:
        return [{"count": self._count}]


def open_collector(request: SampleRequest) -> MemoryCollector:
    """Return the collector of a sample query."""
    match request.name:
        case "recent-turns" | "recent" | "phrase":
            return _NewestRows(request)
        case "nearest" | "duplicates":
            return _Nearest(request)
        case "words":
            return _WithWords(request)
        case "hybrid":
            return _Fused(request)
        case "thread-statistics":
            return _Statistics()
        case _:
            return _Counted()
