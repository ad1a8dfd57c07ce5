"""Embed a query without ever failing: a search without a vector goes on by words."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from sharedmem.errors import SharedMemoryError
from sharedmem.providers.protocol import Embedder, Purpose
from sharedmem.redis.vectors import Vector

QUERY_TIMEOUT_S = 5.0
"""How long a search waits for the provider: whoever recalls would rather have words now than vectors later."""


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
