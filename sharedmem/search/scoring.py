"""Scores of search results: BM25 as RediSearch computes it (`BM25STD`), fusion of searches, and diversity.

Pure functions. Fusion: a record's score is the sum of its shares, from one search or several. Shares by rank
(reciprocal rank fusion) fit searches that are equally strong: they ignore how certain a search is of a hit. Shares by
score keep that.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sharedmem.redis.vectors import Matrix
from sharedmem.search.protocol import IndexHit
from sharedmem.text.analysis import document_terms, query_terms

Floats: TypeAlias = NDArray[np.float64]

K1 = 1.2
"""BM25 `k1`: how soon repetitions of a word stop to count."""
B = 0.5
"""BM25 `b`: how much the length of a document lowers its score."""


def inverse_document_frequency(documents: int, holders: int) -> float:
    """Return the inverse document frequency of a word, always above zero.

    Args:
        documents: number of documents.
        holders: how many of them contain the word.
    """
    return math.log(1.0 + (documents - holders + 0.5) / (holders + 0.5))


def term_score(frequencies: Floats, lengths: Floats, average: float) -> Floats:
    """Return a word's part in the score of documents that contain it, before the factor for the word's rarity.

    Args:
        frequencies: how often each document contains it.
        lengths: words of each of these documents.
        average: average number of words of a document of this index.
    """
    return frequencies * (K1 + 1) / (frequencies + K1 * (1 - B + B * lengths / average))


# -- fusion -----------------------------------------------------------------------------------------

RRF_K = 60
"""How little the first places stand out; the commonly used value."""


class RankedHit(Protocol):
    """A hit of any search."""

    @property
    def id(self) -> str:
        """Id of the record."""


def reciprocal_rank_scores(hits: Sequence[RankedHit], weight: float = 1.0, *, k: int = RRF_K) -> dict[str, float]:
    """Return reciprocal ranks, scaled so that the first hit gets the whole weight: weight * (k + 1) / (k + rank).

    Args:
        hits: best first.
        weight: weight of this search.
        k: how little the first places stand out, above zero.
    """
    return {hit.id: weight * (k + 1) / (k + rank) for rank, hit in enumerate(hits, start=1)}


def scores_by_best(hits: Sequence[IndexHit], weight: float = 1.0) -> dict[str, float]:
    """Return scores divided by the highest: for words, whose scores begin at zero and have no upper bound."""
    best = max([score for _, score, _ in hits], default=0.0)
    if best <= 0:
        return dict.fromkeys([id_ for id_, _, _ in hits], 0.0)
    return {id_: weight * score / best for id_, score, _ in hits}


def min_max_scores(hits: Sequence[IndexHit], weight: float = 1.0) -> dict[str, float]:
    """Return scores scaled to the range 0 to 1: for similarities, which differ little; equal ones all count as 1."""
    scores = [score for _, score, _ in hits]
    low = min(scores, default=0.0)
    width = max(scores, default=0.0) - low
    if width <= 0:
        return dict.fromkeys([id_ for id_, _, _ in hits], weight)
    return {id_: weight * (score - low) / width for id_, score, _ in hits}


def sum_scores(some: dict[str, float], others: dict[str, float]) -> dict[str, float]:
    """Return the score of each record that at least one of two searches found."""
    scores = some.copy()
    for id_, share in others.items():
        scores[id_] = scores.get(id_, 0.0) + share
    return scores


# -- diversity --------------------------------------------------------------------------------------


def select_diverse(relevance: Sequence[float], vectors: Matrix, *, balance: float, k: int) -> list[int]:
    """Return which hits to show, in order: each time the one most relevant and least like those before it.

    The merit of a hit is balance * relevance - (1 - balance) * similarity to the most similar chosen one, with the
    relevance scaled to 0 to 1. Takes about `k` times as long as a pass over all vectors.

    Args:
        relevance: a score for each hit.
        vectors: a unit vector for each hit; zeros are like nothing, and so are opposites.
        balance: 1 for relevance alone, 0 for variety alone.
        k: most hits to choose.

    Returns:
        Positions in `relevance`, each once; ties go to the first.
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


# -- texts without an index ----------------------------------------------------------------------


LEAST_SIMILARITY = 0.5
"""Texts that share no word with the query must be this similar (cosine)."""


class _Found(NamedTuple):
    id: str
    score: float


def rank_texts(query: str, texts: Sequence[str], similarities: Sequence[float] = ()) -> list[str]:
    """Return the texts that match a query by words (BM25) or meaning, fused by reciprocal ranks, best first.

    Linear in the length of the texts.

    Args:
        query: the query.
        texts: of equal matches the earlier comes first.
        similarities: cosine similarity to the query of the first of these texts, as many as were compared.
    """
    if not texts:
        return []
    by_words = reciprocal_rank_scores(_match_words(query, texts))
    near = [_Found(str(at), score) for at, score in enumerate(similarities) if score >= LEAST_SIMILARITY]
    near.sort(key=lambda one: -one.score)
    by_meaning = reciprocal_rank_scores(near)
    scores = sum_scores(by_words, by_meaning)
    return [texts[int(at)] for at in sorted(scores, key=lambda at: (-scores[at], int(at)))]


def _match_words(query: str, texts: Sequence[str]) -> list[_Found]:
    counts = [Counter(document_terms(text)) for text in texts]
    lengths = np.array([max(1, terms.total()) for terms in counts], dtype=np.float64)
    scores = np.zeros(len(texts))
    for term in query_terms(query):
        frequencies = np.array([terms[term] for terms in counts], dtype=np.float64)
        rarity = inverse_document_frequency(len(texts), int(np.count_nonzero(frequencies)))
        scores += rarity * term_score(frequencies, lengths, float(lengths.mean()))
    found = [_Found(str(at), float(score)) for at, score in enumerate(scores) if score > 0]
    return sorted(found, key=lambda one: -one.score)
