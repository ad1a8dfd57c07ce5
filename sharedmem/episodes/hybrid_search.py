"""Find events by words and meaning, in this process: for queries that no event contains literally."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sharedmem.search.scoring import inverse_document_frequency, reciprocal_rank_scores, sum_scores, term_score
from sharedmem.text.analysis import document_terms, query_terms

if TYPE_CHECKING:
    from sharedmem.providers.protocol import Embedder

MOST_EMBEDDED = 256
"""Texts that are compared by meaning, the newest: more are not in the embedding cache, and each costs a request."""
LEAST_SIMILARITY = 0.5
"""Texts that share no word with the query must be this similar (cosine)."""


class _Found(NamedTuple):
    id: str
    score: float


async def rank_texts(query: str, texts: Sequence[str], embedder: Embedder | None) -> list[str]:
    """Return the texts that match a query by words (BM25) or meaning (cosine), fused by reciprocal ranks, best first.

    Linear in the length of the texts. One request to the embedder for texts that it has not embedded lately.

    Args:
        query: the query.
        texts: newest first; of equal matches the newer comes first.
        embedder: None: by words alone.

    Raises:
        UnavailableError, LimitedError, ConfigError: as `Embedder.embed`.
    """
    by_words = await asyncio.to_thread(_match_words, query, texts)
    by_meaning = [] if embedder is None else await _match_meaning(query, texts[:MOST_EMBEDDED], embedder)
    scores = sum_scores(reciprocal_rank_scores(by_words), reciprocal_rank_scores(by_meaning))
    return [texts[int(at)] for at in sorted(scores, key=lambda at: (-scores[at], int(at)))]


def _match_words(query: str, texts: Sequence[str]) -> list[_Found]:
    wanted = query_terms(query)
    counts = [Counter(document_terms(text)) for text in texts]
    lengths = np.array([max(1, terms.total()) for terms in counts], dtype=np.float64)
    scores = np.zeros(len(texts))
    for term in wanted:
        frequencies = np.array([terms[term] for terms in counts], dtype=np.float64)
        rarity = inverse_document_frequency(len(texts), int(np.count_nonzero(frequencies)))
        scores += rarity * term_score(frequencies, lengths, float(lengths.mean()))
    found = [_Found(str(at), float(score)) for at, score in enumerate(scores) if score > 0]
    return sorted(found, key=lambda one: -one.score)


async def _match_meaning(query: str, texts: Sequence[str], embedder: Embedder) -> list[_Found]:
    question, documents = await asyncio.gather(embedder.embed([query], purpose="query"), embedder.embed(texts))
    similarities = documents.vectors @ question.vectors[0]
    found = [_Found(str(at), float(score)) for at, score in enumerate(similarities) if score >= LEAST_SIMILARITY]
    return sorted(found, key=lambda one: -one.score)
