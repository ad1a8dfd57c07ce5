"""BM25 as RediSearch computes it (its scorer `BM25STD`), so that every index ranks words alike.

Seen with `EXPLAINSCORE` on RediSearch 2.10.5: `k1` is 1.2 and `b` is 0.5 (most others take 0.75); a document is as
long as it has words, repeats included; the average is over all documents, those without words too.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]

K1 = 1.2
"""How soon more of the same word stops to count."""
B = 0.5
"""How much a long document is held against it."""


def rarity(documents: int, holders: int) -> float:
    """How much a word tells (its inverse document frequency), always above zero.

    Args:
        documents: how many there are in all.
        holders: how many of them hold the word.
    """
    return math.log(1.0 + (documents - holders + 0.5) / (holders + 0.5))


def relevance(frequencies: Floats, lengths: Floats, average: float) -> Floats:
    """What one word adds to the score of documents that hold it, before it is multiplied by the word's rarity.

    Args:
        frequencies: how often each document holds it.
        lengths: words of each of these documents.
        average: words of a document of this index on average.
    """
    return frequencies * (K1 + 1) / (frequencies + K1 * (1 - B + B * lengths / average))
