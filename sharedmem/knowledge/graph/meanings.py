"""Vectors for what the graph takes in: one request for all texts of a step, and none twice."""

from __future__ import annotations

from collections.abc import Iterable

from sharedmem.errors import SharedMemoryError
from sharedmem.knowledge.minds import Minds
from sharedmem.wire.vectors import Vector, to_half


class Meanings:
    """What texts mean, as far as there is an embedder that can be asked.

    Args:
        minds: what the hub lends.
        namespace: whose texts these are.
    """

    def __init__(self, minds: Minds, namespace: str) -> None:
        self._counters = minds.counters
        self._embedder = minds.embedder_of(namespace)

    async def of(self, texts: Iterable[str]) -> dict[str, Vector]:
        """The vectors of some texts, of unit length; without those that have no meaning to the embedder.

        Never fails: what has no vector is found by its words. Failures are counted as `graph_unembedded`.
        """
        wanted = [text for text in dict.fromkeys(texts) if text.strip()]
        if self._embedder is None or not wanted:
            return {}
        try:
            embeddings = await self._embedder.embed(wanted)
        except SharedMemoryError:
            self._counters.add("graph_unembedded", len(wanted))
            return {}
        pairs = zip(wanted, embeddings.vectors, strict=True)
        return {text: vector for text, vector in pairs if vector.any()}

    async def halves(self, texts: Iterable[str]) -> dict[str, bytes]:
        """As `of`, in the half precision that lies in Redis."""
        return {text: to_half(vector) for text, vector in (await self.of(texts)).items()}
