"""Fusion: what each search adds to the score of what it has found. Pure functions.

A record's score is the sum of its shares, whether one search has found it or several. Shares by rank (reciprocal rank
fusion) are right where the searches are equally strong: what one of them is sure of does not count for more. Shares by
score keep how sure it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sharedmem.search.protocol import IndexHit

RRF_K = 60
"""How little the first places stand out; the value that everybody uses."""


class RankedHit(Protocol):
    """A hit of whichever search."""

    @property
    def id(self) -> str:
        """Of the record."""


def reciprocal_rank_scores(hits: Sequence[RankedHit], weight: float = 1.0, *, k: int = RRF_K) -> dict[str, float]:
    """Reciprocal ranks, scaled so that the first hit gets the whole weight: weight * (k + 1) / (k + rank).

    Args:
        hits: best first.
        weight: of this search.
        k: how little the first places stand out, above zero.
    """
    return {hit.id: weight * (k + 1) / (k + rank) for rank, hit in enumerate(hits, start=1)}


def scores_by_best(hits: Sequence[IndexHit], weight: float = 1.0) -> dict[str, float]:
    """Scores divided by the highest: right for words, whose scores begin at zero but end nowhere."""
    best = max([score for _, score, _ in hits], default=0.0)
    if best <= 0:
        return dict.fromkeys([id_ for id_, _, _ in hits], 0.0)
    return {id_: weight * score / best for id_, score, _ in hits}


def min_max_scores(hits: Sequence[IndexHit], weight: float = 1.0) -> dict[str, float]:
    """Scores stretched to fill 0 to 1: right for similarities, which lie close together; equal ones all count as 1."""
    scores = [score for _, score, _ in hits]
    low = min(scores, default=0.0)
    width = max(scores, default=0.0) - low
    if width <= 0:
        return dict.fromkeys([id_ for id_, _, _ in hits], weight)
    return {id_: weight * (score - low) / width for id_, score, _ in hits}


def sum_scores(some: dict[str, float], others: dict[str, float]) -> dict[str, float]:
    """The score of each record that at least one of two searches has found."""
    scores = some.copy()
    for id_, share in others.items():
        scores[id_] = scores.get(id_, 0.0) + share
    return scores
