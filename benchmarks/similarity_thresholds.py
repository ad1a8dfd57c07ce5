"""The result of a threshold of the semantic cache, or of dedup: the share of pairs that count as the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from retrieval_data import Pair

from sharedmem.providers.protocol import Embedder
from sharedmem.text.contradictions import find_contradiction

THRESHOLDS = (0.98, 0.95, 0.9, 0.85, 0.8)


class ThresholdRates(NamedTuple):
    """The result of one threshold."""

    threshold: str
    same: float
    """Share of the pairs labelled the same that it hits."""
    different: float
    """Share of the other pairs that it hits: false hits."""
    guarded: tuple[float, float]
    """Both, with guards."""


async def rates_by_threshold(pairs: Sequence[Pair], embedder: Embedder) -> list[ThresholdRates]:
    """Return the curve over thresholds of an embedder."""
    left = (await embedder.embed([pair.a for pair in pairs])).vectors
    right = (await embedder.embed([pair.b for pair in pairs])).vectors
    similarity = np.einsum("ij,ij->i", left, right)
    same = np.array([pair.same for pair in pairs])
    passed = np.array([find_contradiction(pair.a, pair.b) is None for pair in pairs])
    return [
        ThresholdRates(
            f"{threshold:.2f}",
            *_shares(similarity >= threshold, same),
            _shares((similarity >= threshold) & passed, same),
        )
        for threshold in THRESHOLDS
    ]


def _shares(hit: np.typing.NDArray[np.bool_], same: np.typing.NDArray[np.bool_]) -> tuple[float, float]:
    return float(hit[same].mean()), float(hit[~same].mean())
