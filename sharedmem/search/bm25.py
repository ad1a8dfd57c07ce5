"""BM25 as RediSearch computes it (`BM25STD`), and which query terms are too frequent to search for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]

K1 = 1.2
"""How soon more of the same word stops to count."""
B = 0.5
"""How much a long document is held against it."""


def inverse_document_frequency(documents: int, holders: int) -> float:
    """How much a word tells (its inverse document frequency), always above zero.

    Args:
        documents: how many there are in all.
        holders: how many of them hold the word.
    """
    return math.log(1.0 + (documents - holders + 0.5) / (holders + 0.5))


def term_score(frequencies: Floats, lengths: Floats, average: float) -> Floats:
    """What one word adds to the score of documents that hold it, before it is multiplied by the word's rarity.

    Args:
        frequencies: how often each document holds it.
        lengths: words of each of these documents.
        average: words of a document of this index on average.
    """
    return frequencies * (K1 + 1) / (frequencies + K1 * (1 - B + B * lengths / average))


def without_frequent_terms(holders: Mapping[str, int], commonest: int | None) -> list[str]:
    """The words of a query that are worth looking for, in their order.

    Args:
        holders: how many records of the namespace hold each word.
        commonest: words that more records hold are left out where rarer ones find something; None keeps all.

    Returns:
        The words that few enough records hold, and those that none does; where that would find nothing, the rarest of
        those that find something.
    """
    if commonest is None:
        return list(holders)
    kept = [word for word, count in holders.items() if count <= commonest]
    if any(holders[word] for word in kept):
        return kept
    common = [word for word, count in holders.items() if count]
    return [*kept, min(common, key=holders.__getitem__)] if common else kept
