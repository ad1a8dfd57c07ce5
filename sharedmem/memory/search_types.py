"""Checked arguments of searches and listings, and the lists that these return."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sharedmem.errors import InvalidError
from sharedmem.memory.ranking import RankingWeights
from sharedmem.models import Hit, MemoryFilter, MemoryItem, SearchCost, SearchMode

MOST_HITS = 100
LONGEST_QUERY = 10_000
"""Characters of a query that are looked at: the first ones."""
MODES = ("hybrid", "semantic", "keywords")

Rerank = Callable[[str, Sequence[MemoryItem]], Awaitable[Sequence[float]]]
"""Judges how well memories answer a query, a number for each, higher is better; such as a cross-encoder."""


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """One search."""

    query: str
    """What is embedded, and what the ranking reads."""
    keywords: str
    """Whose words are looked for."""
    mode: SearchMode
    limit: int
    filters: MemoryFilter
    threshold: float | None = None
    explain: bool = False
    recipe: RankingWeights = field(default_factory=RankingWeights)
    diversity: float | None = None
    rerank: Rerank | None = None
    by_time: bool = False


def check_query(field: str, text: str) -> str:
    """A query without blanks around it, cut to what is looked at.

    Raises:
        InvalidError: it is no text, or says nothing.
    """
    if not isinstance(text, str):
        raise InvalidError(field, text, "give a text")
    checked = text[:LONGEST_QUERY].strip()
    if not checked:
        raise InvalidError(field, text, "say what to look for, or list the memories: that needs no query")
    # Lone surrogates can be sent nowhere.
    return checked.encode(errors="replace").decode()


def check_limit(limit: int, *, most: int = MOST_HITS) -> int:
    """How many answers are wanted.

    Raises:
        InvalidError: not a whole number from 1 to `most`.
    """
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= most:
        raise InvalidError("limit", limit, f"give a whole number from 1 to {most}")
    return limit


def check_share(field: str, value: float | None, *, least: float = 0.0) -> float | None:
    """A number up to 1, or None.

    Raises:
        InvalidError: it is no number, or out of bounds.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= 1:
        raise InvalidError(field, value, f"give a number from {least:g} to 1")
    return float(value)


def check_choice(field: str, value: Any, choices: Sequence[str]) -> None:
    """Refuse what is none of the choices.

    Raises:
        InvalidError: it is none.
    """
    if value not in choices:
        raise InvalidError(field, value, f"give one of {', '.join(choices)}")


class SearchHits(list[Hit]):
    """What a search found, best first.

    Attributes:
        mode: how it was searched in the end: `keywords` where there was no vector to search with.
        degraded: why it was searched by words alone although meaning was asked for; None when it was not.
        cost: what the search took.
    """

    def __init__(
        self, hits: Iterable[Hit] = (), *, mode: SearchMode, degraded: str | None = None, cost: SearchCost
    ) -> None:
        super().__init__(hits)
        self.mode = mode
        self.degraded = degraded
        self.cost = cost

    def __repr__(self) -> str:
        because = f", by words alone: {self.degraded}" if self.degraded else ""
        return f"<{len(self)} hits, {self.mode}{because}>"


class MemoryListing(list[MemoryItem]):
    """One page of memories.

    Attributes:
        cursor: pass it to get the next page; None after the last one.
        total: how many there are on this page and those after it.
    """

    def __init__(self, items: Iterable[MemoryItem] = (), *, cursor: str | None, total: int) -> None:
        super().__init__(items)
        self.cursor = cursor
        self.total = total

    def __repr__(self) -> str:
        return f"<{len(self)} of {self.total} memories>"
