"""Rank some texts by words and meaning, without an index. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sharedmem.search.scoring import inverse_document_frequency, reciprocal_rank_scores, sum_scores, term_score
from sharedmem.text.analysis import document_terms, query_terms

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
