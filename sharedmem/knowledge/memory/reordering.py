"""Second thoughts about an order: what a reranker says, and variety. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sharedmem.knowledge.scoring import Ranked
from sharedmem.models import Signal
from sharedmem.search import mmr
from sharedmem.wire.vectors import Vector

FIRST_THOUGHT = 0.3
"""How much the first order counts beside a reranker's."""


def reranked(order: Sequence[Ranked], scores: Sequence[float], *, explain: bool) -> list[Ranked]:
    """The order that a reranker's scores and the first scores make together.

    Args:
        order: what it judged, best first.
        scores: its score for each.
        explain: whether to tell what it contributed.
    """
    first = _stretched([ranked.score for ranked in order])
    second = _stretched(scores)
    places = {index: place for place, index in enumerate(sorted(range(len(scores)), key=lambda i: -scores[i]), 1)}
    judged = []
    for index, ranked in enumerate(order):
        gain = (1 - FIRST_THOUGHT) * second[index]
        total = FIRST_THOUGHT * first[index] + gain
        signals = ranked.signals
        if explain:
            signals = (*_scaled(signals, FIRST_THOUGHT * first[index]), _said(scores[index], places[index], gain))
        judged.append(Ranked(ranked.id, total, signals))
    return sorted(judged, key=lambda ranked: (-ranked.score, ranked.id))


def _said(score: float, place: int, gain: float) -> Signal:
    return Signal(name="reranker", score=score, rank=place, weight=1 - FIRST_THOUGHT, contribution=gain)


def _scaled(signals: Sequence[Signal], total: float) -> list[Signal]:
    """Signals whose contributions add up to a total."""
    whole = sum(signal.contribution for signal in signals)
    factor = total / whole if whole else 0.0
    return [signal.model_copy(update={"contribution": signal.contribution * factor}) for signal in signals]


def _stretched(scores: Sequence[float]) -> list[float]:
    """Scores between 0 and 1."""
    low, high = min(scores, default=0.0), max(scores, default=0.0)
    return [(score - low) / (high - low) if high > low else 1.0 for score in scores]


def diversified(order: Sequence[Ranked], vectors: Mapping[str, Vector | None], diversity: float) -> list[Ranked]:
    """An order in which each says something else than those before it (maximal marginal relevance, greedily).

    Args:
        order: best first.
        vectors: unit vectors by id; what has none is like nothing else.
        diversity: 0 to 1, how much likeness to those before counts against the score.
    """
    dimension = max((len(vector) for vector in vectors.values() if vector is not None), default=1)
    matrix = np.zeros((len(order), dimension), dtype=np.float32)
    for place, ranked in enumerate(order):
        if (vector := vectors.get(ranked.id)) is not None:
            matrix[place] = vector
    places = mmr.diversified([ranked.score for ranked in order], matrix, balance=1 - diversity, k=len(order))
    return [order[place] for place in places]
