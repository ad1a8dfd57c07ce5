"""Reasons: what each signal contributed to the place of a memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sharedmem.knowledge.scoring.factors import Factor
from sharedmem.knowledge.scoring.recipe import Recipe
from sharedmem.models import Signal
from sharedmem.search.protocol import Candidate, Found


class Reasons:
    """The signals of one search.

    Args:
        found: what the index answered.
        text, vector: what the two searches contribute, by id.
        recipe: the weights.
    """

    def __init__(self, found: Found, text: Mapping[str, float], vector: Mapping[str, float], recipe: Recipe) -> None:
        self._searches = (
            ("text", _places(found.text), text, recipe.text),
            ("vector", _places(found.vector), vector, recipe.vector),
        )

    def of(self, id_: str, gained: float, factors: Iterable[Factor]) -> tuple[Signal, ...]:
        """Every signal that had a part in the score; the contributions add up to it.

        Args:
            id_: of the memory.
            gained: what its neighbours lent it.
            factors: applied in this order.
        """
        signals = []
        score = gained
        for name, places, shares, weight in self._searches:
            if id_ in places:
                rank, raw = places[id_]
                share = shares.get(id_, 0.0)
                score += share
                signals.append(Signal(name=name, score=raw, rank=rank, weight=weight, contribution=share))
        if gained:
            signals.append(Signal(name="neighbours", score=gained, weight=1.0, contribution=gained))
        for name, value in factors:
            if value != 1.0:
                signals.append(Signal(name=name, score=value, weight=value, contribution=score * (value - 1)))
                score *= value
        return tuple(signals)


def _places(hits: Sequence[Candidate]) -> dict[str, tuple[int, float]]:
    return {hit.id: (place, hit.score) for place, hit in enumerate(hits, 1)}
