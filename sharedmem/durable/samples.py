"""Sample queries on the memories of the durable tier: named questions that the store answers without Redis.

A store with a query language of its own for memories answers in it (`NativeSamples`); of any other store, all memories
are read (`memory_scan`). No I/O.
"""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from sharedmem.errors import InvalidError
from sharedmem.models import SampleQuery
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
