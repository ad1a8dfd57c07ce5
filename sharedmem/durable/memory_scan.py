"""Sample queries on a store without a query language for memories: each memory is read, and ranked or counted."""

from __future__ import annotations

import math
import struct
from base64 import b64decode
from collections.abc import Iterator, Sequence
from heapq import heappush, heapreplace
from operator import mul
from typing import Any, NamedTuple, Protocol

import orjson

from sharedmem.durable.samples import MEMORY_FIELDS, WORD, SampleRequest, SampleRow
from sharedmem.models import DurableRecord

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
