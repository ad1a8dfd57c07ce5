"""How many records hold a word, as it was counted in the last minute."""

from __future__ import annotations

from collections.abc import Sequence

_REMEMBERED_S = 60.0
_MOST_REMEMBERED = 10_000


class Holders:
    """What is remembered of the words of queries."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[int, float]] = {}

    def unknown(self, terms: Sequence[str], now: float) -> list[str]:
        """Those that are to be counted."""
        return [term for term in terms if self._counts.get(term, (0, 0.0))[1] < now]

    def learn(self, terms: Sequence[str], counts: Sequence[int], now: float) -> None:
        """Remember for a while how many records hold each."""
        if len(self._counts) > _MOST_REMEMBERED:
            self._counts.clear()
        self._counts |= {term: (count, now + _REMEMBERED_S) for term, count in zip(terms, counts, strict=True)}

    def of(self, terms: Sequence[str]) -> dict[str, int]:
        """How many records hold each, as it was last counted."""
        return {term: self._counts.get(term, (0, 0.0))[0] for term in terms}
