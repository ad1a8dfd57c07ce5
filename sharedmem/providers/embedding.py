"""What all embedders share around the model, and the embedding of a query, which never fails."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sharedmem.errors import ConfigError, InvalidError, SharedMemoryError
from sharedmem.providers.protocol import Embedder, Purpose
from sharedmem.redis.vectors import Matrix, Vector, normalize

_UNEVEN = 1e-3


def encodable_texts(texts: Sequence[str]) -> list[str]:
    """The texts as UTF-8 can hold them; a half of a surrogate pair becomes a question mark.

    Raises:
        InvalidError: this is one text, or some of it is no text.
    """
    if isinstance(texts, str):
        raise InvalidError("texts", texts, "give a list of texts, also for a single one")
    for text in texts:
        if not isinstance(text, str):
            raise InvalidError("texts", text, "give texts")
    return [text if text.isascii() else text.encode("utf-8", "replace").decode() for text in texts]


def non_blank_positions(texts: Sequence[str]) -> list[int]:
    """The positions of the texts that are more than blanks: nobody is asked about the others."""
    return [position for position, text in enumerate(texts) if text.strip()]


def spread_rows(rows: Matrix, positions: Sequence[int], count: int) -> Matrix:
    """The rows at their positions among `count`; zeros elsewhere."""
    if len(positions) == count:
        return rows
    spread_out = np.zeros((count, rows.shape[1]), dtype=np.float32)
    spread_out[list(positions)] = rows
    return spread_out


def check_rows(made: object, *, count: int, dimension: int, name: str) -> Matrix:
    """The vectors that an embedder of a user has made, at length one.

    Raises:
        ConfigError: they are not so many, of another dimension, or hold what is no finite number.
    """
    try:
        rows = np.asarray(made, dtype=np.float32)
    except (TypeError, ValueError):
        raise ConfigError("embedder", name, "it makes what is no matrix of numbers") from None
    if rows.shape != (count, dimension):
        problem = f"for {count} texts it should make vectors of shape {(count, dimension)}, and makes {rows.shape}"
        raise ConfigError("embedder", name, problem)
    lengths = np.linalg.norm(rows, axis=1)
    if not np.isfinite(lengths).all():
        raise ConfigError("embedder", name, "it makes vectors that hold what is no finite number")
    return normalize(rows) if (np.abs(lengths - 1) > _UNEVEN).any() else rows


QUERY_TIMEOUT_S = 5.0
"""How long a search waits for the provider: after that it searches words alone."""


class QueryEmbedding(NamedTuple):
    """What a query means."""

    vector: Vector | None = None
    """Of unit length."""
    tokens: int = 0
    """Sent to the provider."""
    missing: str | None = None
    """Why there is no vector where one was wanted, as a sentence."""
    reason: str = ""
    """The same as one word, for counters."""


async def embed_query(embedder: Embedder | None, text: str, *, purpose: Purpose = "query") -> QueryEmbedding:
    """Embed a text; never fails.

    Args:
        embedder: who embeds; None where there is nobody.
        text: what is asked, or was remembered.
        purpose: which of both it is.
    """
    if embedder is None:
        return QueryEmbedding(missing="there is no embedder; set one, or install the extra `local`", reason="none")
    try:
        async with asyncio.timeout(QUERY_TIMEOUT_S):
            embeddings = await embedder.embed([text], purpose=purpose)
    except TimeoutError:
        return QueryEmbedding(missing=f"{embedder.name} did not answer within {QUERY_TIMEOUT_S:g} s", reason="slow")
    except (SharedMemoryError, OSError) as error:
        return QueryEmbedding(missing=f"{embedder.name} failed: {error}", reason="failed")
    vector: Vector = embeddings.vectors[0]
    if not vector.any():
        return QueryEmbedding(
            tokens=embeddings.tokens, missing="the query has no meaning to the embedder", reason="zero"
        )
    return QueryEmbedding(vector, embeddings.tokens)
