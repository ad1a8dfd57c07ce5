"""What a search and a listing answer: lists that also say how they came about."""

from __future__ import annotations

from collections.abc import Iterable

from sharedmem.models import Hit, MemoryItem, SearchCost, SearchMode


class Hits(list[Hit]):
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


class Listing(list[MemoryItem]):
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
