"""Maximal marginal relevance: select hits that are relevant and different from each other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sharedmem.redis.vectors import Matrix


def select_diverse(relevance: Sequence[float], vectors: Matrix, *, balance: float, k: int) -> list[int]:
    """Which hits to show, in their order: each time the one that is most relevant and least like those before it.

    Its merit is balance * relevance - (1 - balance) * similarity to the most similar one chosen, with the relevance
    stretched to fill 0 to 1. Takes about `k` times as long as a look at all vectors.

    Args:
        relevance: a score for each hit.
        vectors: a vector for each hit, of unit length; zeros are like nothing, and so are opposites.
        balance: 1 for relevance alone, 0 for variety alone.
        k: how many to choose at most.

    Returns:
        Places in `relevance`, each once; ties go to the first.
    """
    merits = balance * _min_max_normalize(np.asarray(relevance, dtype=np.float64))
    likeness = np.zeros(len(merits))
    chosen: list[int] = []
    left = np.ones(len(merits), dtype=np.bool_)
    while len(chosen) < min(k, len(merits)):
        best = int(np.argmax(np.where(left, merits - (1 - balance) * likeness, -np.inf)))
        chosen.append(best)
        left[best] = False
        likeness = np.maximum(likeness, np.vecdot(vectors, vectors[best]))
    return chosen


def _min_max_normalize(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    if not len(scores):
        return scores
    low, width = scores.min(), np.ptp(scores)
    stretched: NDArray[np.float64] = (scores - low) / width if width > 0 else np.ones_like(scores)
    return stretched
