"""Words whose score has overflowed, and how to search on with them.

RediSearch 2.10 counts a changed record twice until its garbage collector has come by. When a word then seems to be in
more records than there are, the count of those without it falls below zero, wraps round, and the most common word of
all scores as if it were unheard of. Newer servers take zero. So do we: such a word still finds its records, and adds
nothing to their score. A score that no query should have gives it away; then each word is asked for by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sharedmem.redis.replies import Reply
from sharedmem.search.redisearch.replies import top_score

IMPLAUSIBLE = 30.0
"""A score from which one looks closer: a wrapped word gives some forty, five rare words together about as much."""
_LARGE_INDEX = 2000
"""Records from which rare words may well give such a score."""
_REMEMBERED_S = 5.0
_MOST_REMEMBERED = 1000
_HIGHEST_GAIN = 2.2
_SLACK = 1.0


class ScoredTerms(NamedTuple):
    """The words of a query."""

    scoring: list[str]
    silent: list[str]
    """They find, and do not score."""


class OverflowGuard:
    """The worn words of the last moments."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        self._calm: dict[str, float] = {}

    def is_suspicious(self, namespace: str, score: float, now: float) -> bool:
        """Whether one should look closer at the words that gave a score."""
        return score >= IMPLAUSIBLE and self._calm.get(namespace, 0.0) <= now

    def note_plausible(self, namespace: str, documents: int, now: float) -> None:
        """The words were sound; where there are many records, that is believed of others too for a moment."""
        if documents >= _LARGE_INDEX:
            self._calm[namespace] = now + _REMEMBERED_S

    def split_overflowed(self, terms: list[str], now: float) -> ScoredTerms:
        """The words of a query, the worn ones apart."""
        if not self._until:
            return ScoredTerms(terms, [])
        silent = [term for term in terms if self._until.get(term, 0.0) > now]
        return (
            ScoredTerms([term for term in terms if term not in silent], silent)
            if silent
            else ScoredTerms(terms, silent)
        )

    def remember(self, terms: Iterable[str], now: float) -> None:
        """These are worn now; the collector comes by sooner or later."""
        if len(self._until) > _MOST_REMEMBERED:
            self._until.clear()
        self._until |= dict.fromkeys(terms, now + _REMEMBERED_S)


def overflowed_terms(terms: Sequence[str], replies: Sequence[Reply], documents: int) -> list[str]:
    """The words whose own best score is higher than it can be.

    Args:
        terms: asked for one by one.
        replies: to each, its best hit with its score.
        documents: how many the index has.
    """
    found = []
    for term, reply in zip(terms, replies, strict=True):
        holders, score = top_score(reply)
        rarest = math.log((documents + 1) / (min(holders, documents) + 0.5))
        if score > _HIGHEST_GAIN * max(rarest, 0.0) + _SLACK:
            found.append(term)
    return found
