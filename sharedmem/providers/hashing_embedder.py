"""A deterministic embedder for tests: texts that share words and letters have near vectors, without training.

Each word, and each three letters of it, adds one to a number of the vector or subtracts one, selected by a checksum
(feature hashing: Weinberger et al., 2009). It has no notion of meaning: `car` and `automobile` are unrelated to it.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from zlib import crc32

import numpy as np

from sharedmem.errors import InvalidError
from sharedmem.providers.embedding import encodable_texts, non_blank_positions, spread_rows
from sharedmem.providers.protocol import Embeddings, Purpose
from sharedmem.redis.vectors import Matrix, Vector, normalize

# This tokenizer determines every stored vector: it must not be replaced.
_WORD = re.compile(r"\w+")
_GRAM = 3
_WORD_WEIGHT, _GRAM_WEIGHT = 1.0, 0.3
_SIGN_BIT = 1 << 31
# Below it, a handover to a thread takes longer than the work.
_AT_ONCE_CHARACTERS = 20_000


class HashingEmbedder:
    """Vectors from checksums of words; the same on every machine.

    Args:
        dimension: numbers of a vector.
    """

    is_remote = False

    def __init__(self, dimension: int = 64) -> None:
        if dimension < 1:
            raise InvalidError("dimension", dimension, "give at least one")
        self._dimension = dimension

    @property
    def name(self) -> str:
        """`hashing:<dimension>`."""
        return f"hashing:{self._dimension}"

    @property
    def dimension(self) -> int:
        """Numbers of a vector."""
        return self._dimension

    async def embed(self, texts: Sequence[str], *, purpose: Purpose = "document") -> Embeddings:  # noqa: ARG002  its vectors serve both
        """Return the vectors of some texts; in a thread if they are long.

        Raises:
            InvalidError: an argument is not a text.
        """
        sound = encodable_texts(texts)
        if sum(map(len, sound)) <= _AT_ONCE_CHARACTERS:
            return Embeddings(self._vectors(sound), 0)
        return Embeddings(await asyncio.to_thread(self._vectors, sound), 0)

    async def close(self) -> None:
        """Do nothing: there are no connections."""

    def _vectors(self, texts: list[str]) -> Matrix:
        positions = non_blank_positions(texts)
        rows = np.array([self._vector(texts[position]) for position in positions], dtype=np.float32)
        return spread_rows(rows.reshape(len(positions), self._dimension), positions, len(texts))

    def _vector(self, text: str) -> Vector:
        vector = np.zeros(self._dimension, dtype=np.float32)
        for feature, weight in _features(text.casefold()):
            checksum = crc32(feature.encode())
            vector[checksum % self._dimension] += -weight if checksum & _SIGN_BIT else weight
        if not vector.any():
            vector[crc32(text.encode()) % self._dimension] = 1
        return normalize(vector)

    def __repr__(self) -> str:
        return f"<HashingEmbedder of {self._dimension} numbers>"


def _features(text: str) -> Iterator[tuple[str, float]]:
    """Yield the counted parts of a text with their counts; without words, its signs."""
    words = Counter(_WORD.findall(text) or text.split())
    grams: Counter[str] = Counter()
    for word, count in words.items():
        yield word, _WORD_WEIGHT * count
        bounded = f"<{word}>"
        for start in range(len(bounded) - _GRAM + 1):
            grams[bounded[start : start + _GRAM]] += count
    for gram, count in grams.items():
        yield gram, _GRAM_WEIGHT * count
