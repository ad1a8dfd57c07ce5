"""Compare the reasonings of plans by meaning: near duplicates, and earlier decisions like a new one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sharedmem.errors import InvalidError, UnsupportedError

if TYPE_CHECKING:
    from sharedmem.providers.protocol import Embedder, OpenEmbedder

_COMPARISON = "comparing plans by meaning"


class ReasoningComparer:
    """Compares texts by the cosine similarity of their embeddings.

    Args:
        embedder: returns the embedder, called when texts are compared; None: the extra `memory` is not installed.
    """

    def __init__(self, embedder: OpenEmbedder | None) -> None:
        self._open_embedder = embedder

    async def similarities(self, reasoning: str, others: Sequence[str]) -> list[float]:
        """Return the cosine similarity of a text to each of the others, from -1 to 1; 0 for a text without a meaning.

        One request to the embedder for texts that it has not embedded lately.

        Raises:
            UnsupportedError: there is no embedder.
            UnavailableError, LimitedError, ConfigError: as `Embedder.embed`.
        """
        embedder = self._embedder()
        if not others:
            return []
        vectors = (await embedder.embed([reasoning, *others])).vectors
        return [float(number) for number in vectors[1:] @ vectors[0]]

    def _embedder(self) -> Embedder:
        if self._open_embedder is None:
            raise UnsupportedError(_COMPARISON, "pip install 'sharedmem-hub[memory]'")
        embedder = self._open_embedder()
        if embedder is None:
            raise UnsupportedError(_COMPARISON, "set `embedder`, or install the extra `local`")
        return embedder


def check_similarity(field: str, threshold: float) -> float:
    """Return a threshold for cosine similarities.

    Raises:
        InvalidError: it is not a number above 0 and up to 1.
    """
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 < threshold <= 1:
        raise InvalidError(field, threshold, "give a number above 0, up to 1")
    return threshold
