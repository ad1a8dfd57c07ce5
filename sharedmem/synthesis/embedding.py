"""The vector of a whole note, also of one that is longer than a model reads at once."""

from __future__ import annotations

import asyncio

import numpy as np

from sharedmem.providers.chunks import LONGEST_TOKENS, OVERLAP_TOKENS, Piece, pieces_of
from sharedmem.providers.protocol import Embedder
from sharedmem.wire.vectors import Vector, unit

# Below it, handing the work to a thread takes longer than the work.
_AT_ONCE_CHARACTERS = 20_000


async def embedded(
    embedder: Embedder, text: str, *, tokens: int = LONGEST_TOKENS, overlap: int = OVERLAP_TOKENS
) -> Vector | None:
    """The mean of the vectors of a text's pieces, at unit length. One call of the embedder.

    Source: "Self-Evolving Composite Memory Synthesis Architecture", section 7.1 Token-Based Chunking. Every piece
    counts the same, also the last one, which is shorter.

    Args:
        embedder: with its caches.
        text: what to embed.
        tokens: of a piece at most; estimated from its characters where there is no tokenizer.
        overlap: tokens that a piece repeats of the one before it.

    Returns:
        None when the text means nothing: it is blank, or its vector is zero.

    Raises:
        UnavailableError, LimitedError, ConfigError: as `Embedder.embed`.
        InvalidError: pieces of so many tokens cannot overlap by so many.
    """
    if not text.strip():
        return None
    pieces = await _pieces(text, tokens=tokens, overlap=overlap)
    vectors, _ = await embedder.embed([piece.text for piece in pieces])
    mean = unit((vectors.astype(np.float64).sum(axis=0) / len(pieces)).astype(np.float32))
    return mean if mean.any() else None


async def _pieces(text: str, *, tokens: int, overlap: int) -> list[Piece]:
    if len(text) <= _AT_ONCE_CHARACTERS:
        return pieces_of([text], longest=tokens, overlap=overlap)
    return await asyncio.to_thread(pieces_of, [text], longest=tokens, overlap=overlap)
