"""Calibration: choose the similarity threshold of an embedder from labelled pairs of texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import ceil, floor, isfinite
from typing import NamedTuple

import numpy as np
import orjson

from sharedmem.errors import InvalidError
from sharedmem.providers.protocol import Embedder, EmbedderThresholds
from sharedmem.text.contradictions import find_contradiction

THRESHOLDS = tuple(round(1 - 0.01 * step, 2) for step in range(31))
"""From 1.0 down to 0.7: below it two prompts hardly ever mean the same."""
_STEPS = 1000
"""Thresholds are in thousandths."""
_RULE_OF_THREE = 3
_MERGED, _ANSWERED = 0.02, 0.005
"""Shares of the pairs of different questions that may be merged, and answered from the cache."""
_NOISE, _LINKED, _RELATED = 0.98, 0.99, 0.8
"""Shares of the unrelated pairs whose similarity is below the noise, no link, and no hit of a query."""


class LabelledPair(NamedTuple):
    """Two texts with a label: whether they ask for the same."""

    a: str
    b: str
    same: bool


class ThresholdPoint(NamedTuple):
    """The result of a threshold: shares of the pairs with that label that pass it, 0 to 1."""

    threshold: float
    same_hit: float
    different_hit: float
    same_hit_guarded: float
    different_hit_guarded: float


class ThresholdAdvice(NamedTuple):
    """The recommended threshold."""

    threshold: float
    same_hit: float
    """Share of the pairs labelled `same` that pass guards and this threshold."""
    different_hit: float
    """Share of the other pairs that pass guards and this threshold."""
    is_certain: bool
    """Whether there are enough different pairs to measure so small a share."""


def threshold_curve(
    pairs: Sequence[LabelledPair], similarities: Sequence[float], *, thresholds: Sequence[float] = THRESHOLDS
) -> list[ThresholdPoint]:
    """Return the result of each threshold, without and with guards.

    Args:
        pairs: labelled pairs of both kinds.
        similarities: cosine similarity of each pair, in their order.
        thresholds: the thresholds to evaluate.

    Raises:
        InvalidError: one kind of pair is missing, or a similarity is missing.
    """
    split = _PairsByLabel.of(pairs, similarities)
    return [split.point(threshold) for threshold in thresholds]


def advise_threshold(
    pairs: Sequence[LabelledPair], similarities: Sequence[float], *, max_false_hits: float
) -> ThresholdAdvice | None:
    """Return the lowest threshold at which guards and threshold together pass few enough different pairs.

    Args:
        pairs, similarities: as `threshold_curve`.
        max_false_hits: tolerated share of the different pairs, 0 to below 1.

    Returns:
        The threshold; None if no threshold up to 1.0 passes so few.

    Raises:
        InvalidError: as `threshold_curve`, or the share is out of range.
    """
    if isinstance(max_false_hits, bool) or not isinstance(max_false_hits, int | float) or not 0 <= max_false_hits < 1:
        raise InvalidError("max_false_hits", max_false_hits, "give a share from 0 to below 1, such as 0.005")
    split = _PairsByLabel.of(pairs, similarities)
    threshold = split.lowest(floor(max_false_hits * len(split.different)))
    if threshold > 1:
        return None
    point = split.point(threshold)
    certain = len(split.different) * max_false_hits >= _RULE_OF_THREE
    return ThresholdAdvice(threshold, point.same_hit_guarded, point.different_hit_guarded, certain)


def unrelated_pairs(pairs: Sequence[LabelledPair]) -> list[LabelledPair]:
    """Return pairs of texts that have nothing to do with each other: each first text with the second one far away."""
    half = len(pairs) // 2
    return [LabelledPair(one.a, pairs[(place + half) % len(pairs)].b, False) for place, one in enumerate(pairs)]


def measure_thresholds(
    pairs: Sequence[LabelledPair], similarities: Sequence[float], unrelated: Sequence[float]
) -> EmbedderThresholds:
    """Return the row of an embedder in the table of `providers.protocol`.

    Args:
        pairs: labelled pairs of both kinds, some hundreds at least.
        similarities: cosine similarity of each pair, in their order.
        unrelated: those of `unrelated_pairs`.

    Raises:
        InvalidError: one kind of pair is missing, or a similarity is missing.
    """
    dedup, cache = (advise_threshold(pairs, similarities, max_false_hits=share) for share in (_MERGED, _ANSWERED))
    noise, link, related = (round(float(np.quantile(unrelated, share)), 3) for share in (_NOISE, _LINKED, _RELATED))
    return EmbedderThresholds(
        dedup=1.0 if dedup is None else dedup.threshold,
        cache=1.0 if cache is None else cache.threshold,
        noise=noise,
        link=link,
        recall=related,
        score=related,
    )


class _MeasuredPair(NamedTuple):
    """A pair: how near its texts are, and whether a guard distinguishes them."""

    similarity: float
    is_guarded: bool


class _PairsByLabel(NamedTuple):
    """Pairs by their label."""

    same: list[_MeasuredPair]
    different: list[_MeasuredPair]

    @classmethod
    def of(cls, pairs: Sequence[LabelledPair], similarities: Sequence[float]) -> _PairsByLabel:
        if len(pairs) != len(similarities) or not all(map(isfinite, similarities)):
            raise InvalidError(
                "similarities", len(similarities), f"give a finite number for each of {len(pairs)} pairs"
            )
        judged = [
            (_MeasuredPair(similarity, find_contradiction(pair.a, pair.b) is not None), pair.same)
            for pair, similarity in zip(pairs, similarities, strict=True)
        ]
        split = cls([pair for pair, same in judged if same], [pair for pair, same in judged if not same])
        if not split.same or not split.different:
            label = "different" if split.same else "same"
            raise InvalidError("pairs", len(pairs), f"no pair is labelled {label}; give pairs of both kinds")
        return split

    def point(self, threshold: float) -> ThresholdPoint:
        same = [pair for pair in self.same if pair.similarity >= threshold]
        different = [pair for pair in self.different if pair.similarity >= threshold]
        return ThresholdPoint(
            threshold,
            len(same) / len(self.same),
            len(different) / len(self.different),
            sum(not pair.is_guarded for pair in same) / len(self.same),
            sum(not pair.is_guarded for pair in different) / len(self.different),
        )

    def lowest(self, allowed: int) -> float:
        """Return the lowest threshold, in thousandths, that passes at most so many different pairs."""
        let_through = sorted((pair.similarity for pair in self.different if not pair.is_guarded), reverse=True)
        if len(let_through) <= allowed:
            return min(THRESHOLDS)
        nearest = let_through[allowed]
        step = max(ceil(nearest * _STEPS), round(min(THRESHOLDS) * _STEPS))
        return (step + (step / _STEPS <= nearest)) / _STEPS


_BATCH = 128
_LABELS = {0: False, 1: True}


class LabelledPairs(NamedTuple):
    """The pairs of a file."""

    good: list[LabelledPair]
    bad_lines: list[int]
    """Numbers of the lines, from 1, that do not contain a pair."""


def read_pairs(lines: Iterable[bytes]) -> LabelledPairs:
    """Return the pairs of lines such as `{"a": "...", "b": "...", "same": true}`; blank lines do not count."""
    pairs = LabelledPairs([], [])
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        pair = _parse_pair(line)
        if pair is None:
            pairs.bad_lines.append(number)
        else:
            pairs.good.append(pair)
    return pairs


async def pair_similarities(
    embedder: Embedder, pairs: Sequence[LabelledPair], *, progress: Callable[[int], None] | None = None
) -> list[float]:
    """Return the cosine similarity of each pair's texts.

    Args:
        embedder: the embedder to measure.
        pairs: the texts.
        progress: called with the number of pairs done.

    Raises:
        UnavailableError, LimitedError, ConfigError: as `Embedder.embed`.
    """
    found: list[float] = []
    for start in range(0, len(pairs), _BATCH):
        some = pairs[start : start + _BATCH]
        texts = [pair.a for pair in some] + [pair.b for pair in some]
        vectors = (await embedder.embed(texts, purpose="query")).vectors
        found += np.einsum("ij,ij->i", vectors[: len(some)], vectors[len(some) :], dtype=np.float64).tolist()
        if progress:
            progress(len(found))
    return found


def _parse_pair(line: bytes) -> LabelledPair | None:
    try:
        fields = orjson.loads(line)
        a, b, same = fields["a"], fields["b"], fields["same"]
    except (ValueError, TypeError, KeyError):
        return None
    if not isinstance(a, str) or not isinstance(b, str) or not a.strip() or not b.strip():
        return None
    label = _LABELS.get(same) if isinstance(same, int) else None
    return None if label is None else LabelledPair(a, b, label)
