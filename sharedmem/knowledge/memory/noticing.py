"""What a standing query takes notice of: pure decisions over what a memory was and what it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from sharedmem.knowledge.memory.narrowing import admits
from sharedmem.knowledge.scoring import indexed_text
from sharedmem.models import MemoryFilter, MemoryItem
from sharedmem.search.analysis import document_terms
from sharedmem.wire.vectors import Vector

Event = Literal["written", "changed", "withdrawn"]


@dataclass(frozen=True)
class Interest:
    """What somebody wants to hear of."""

    terms: tuple[str, ...]
    """Words of the query."""
    vector: Vector | None = field(repr=False)
    """Meaning of the query; None: words decide."""
    threshold: float
    filters: Sequence[MemoryFilter] = ()

    def likeness(self, item: MemoryItem | None, vector: Vector | None) -> float | None:
        """How much a memory is like the query; None when it is not there, filtered out, or too little.

        Args:
            item: the memory.
            vector: its meaning; without it the share of the query's words that it holds is its likeness.
        """
        if item is None or not all(admits(each, item) for each in self.filters):
            return None
        if self.vector is not None and vector is not None:
            likeness = float(self.vector @ vector)
        elif self.terms:
            likeness = len(set(self.terms) & set(document_terms(indexed_text(item)))) / len(self.terms)
        else:
            return None
        return likeness if likeness >= self.threshold else None


def event_of(before: float | None, after: float | None) -> Event | None:
    """What to tell of a memory that was and is so much like the query; None when it is no concern of it."""
    if after is not None:
        return "written" if before is None else "changed"
    return None if before is None else "withdrawn"
