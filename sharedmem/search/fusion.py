"""Fusion: how the hits of several searches become one ranking. Pure functions.

A search gives each of its hits a share; a record's score is the sum of its shares, whether one search has found it or
several. Shares by rank (reciprocal rank fusion) are right where the searches are equally strong: what one of them is
sure of does not count for more. Shares by score keep how sure it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from sharedmem.search.protocol import Candidate

Shares: TypeAlias = Mapping[str, float]
"""What a search adds to the score of each record it has found, by id."""
RRF_K = 60
"""How little the first places stand out; the value that everybody uses."""


class Fused(NamedTuple):
    """A record that at least one search found."""

    id: str
    score: float
    shares: tuple[float, ...]
    """What each search added, in their order; 0 where it did not find the record."""


def shares_by_rank(hits: Sequence[Candidate], weight: float = 1.0, *, k: int = RRF_K) -> dict[str, float]:
    """Reciprocal ranks, scaled so that the first hit gets the whole weight: weight * (k + 1) / (k + rank).

    Args:
        hits: best first.
        weight: of this search.
        k: how little the first places stand out, above zero.
    """
    return {hit.id: weight * (k + 1) / (k + rank) for rank, hit in enumerate(hits, start=1)}


def shares_by_best(hits: Sequence[Candidate], weight: float = 1.0) -> dict[str, float]:
    """Scores divided by the highest: right for words, whose scores begin at zero but end nowhere."""
    best = max((hit.score for hit in hits), default=0.0)
    return {hit.id: weight * (hit.score / best if best > 0 else 0.0) for hit in hits}


def shares_stretched(hits: Sequence[Candidate], weight: float = 1.0) -> dict[str, float]:
    """Scores stretched to fill 0 to 1: right for similarities, which lie close together; equal ones all count as 1."""
    low = min((hit.score for hit in hits), default=0.0)
    width = max((hit.score for hit in hits), default=0.0) - low
    return {hit.id: weight * ((hit.score - low) / width if width > 0 else 1.0) for hit in hits}


def united(*shares_of_searches: Shares) -> list[Fused]:
    """Whatever at least one search has found, best first; ties by id."""
    ids = dict.fromkeys(id_ for shares in shares_of_searches for id_ in shares)
    found = [(id_, tuple(shares.get(id_, 0.0) for shares in shares_of_searches)) for id_ in ids]
    return sorted((Fused(id_, sum(each), each) for id_, each in found), key=lambda one: (-one.score, one.id))
