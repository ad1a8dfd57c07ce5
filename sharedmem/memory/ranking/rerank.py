"""Rerank ranked memories: by the scores of a reranker, and for diversity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sharedmem.memory.ranking import RankedMemory
from sharedmem.models import Signal
from sharedmem.redis.vectors import Vector
from sharedmem.search import mmr

FIRST_RANK_WEIGHT = 0.3
"""How much the first order counts beside a reranker's."""


def rerank_by_scores(order: Sequence[RankedMemory], scores: Sequence[float], *, explain: bool) -> list[RankedMemory]:
    """The order that a reranker's scores and the first scores make together.

    Args:
        order: what it judged, best first.
        scores: its score for each.
        explain: whether to tell what it contributed.
    """
    first = _stretch_scores([ranked.score for ranked in order])
    second = _stretch_scores(scores)
    places = {index: place for place, index in enumerate(sorted(range(len(scores)), key=lambda i: -scores[i]), 1)}
    judged = []
    for index, ranked in enumerate(order):
        gain = (1 - FIRST_RANK_WEIGHT) * second[index]
        total = FIRST_RANK_WEIGHT * first[index] + gain
        signals = ranked.signals
        if explain:
            signals = (
                *_scale_signals(signals, FIRST_RANK_WEIGHT * first[index]),
                _reranker_signal(scores[index], places[index], gain),
            )
        judged.append(RankedMemory(ranked.id, total, signals))
    return sorted(judged, key=lambda ranked: (-ranked.score, ranked.id))


def _reranker_signal(score: float, place: int, gain: float) -> Signal:
    return Signal(name="reranker", score=score, rank=place, weight=1 - FIRST_RANK_WEIGHT, contribution=gain)


def _scale_signals(signals: Sequence[Signal], total: float) -> list[Signal]:
    """Signals whose contributions add up to a total."""
    whole = sum(signal.contribution for signal in signals)
    factor = total / whole if whole else 0.0
    return [signal.model_copy(update={"contribution": signal.contribution * factor}) for signal in signals]


def _stretch_scores(scores: Sequence[float]) -> list[float]:
    """Scores between 0 and 1."""
    low, high = min(scores, default=0.0), max(scores, default=0.0)
    return [(score - low) / (high - low) if high > low else 1.0 for score in scores]


def diversify_ranking(
    order: Sequence[RankedMemory], vectors: Mapping[str, Vector | None], diversity: float
) -> list[RankedMemory]:
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
    places = mmr.select_diverse([ranked.score for ranked in order], matrix, balance=1 - diversity, k=len(order))
    return [order[place] for place in places]
