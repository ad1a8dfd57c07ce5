"""An embedder whose vectors a test chooses, as directions on a compass."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

import numpy as np

from sharedmem.providers.protocol import Embeddings, Purpose


class AngleEmbedder:
    """Gives each text the direction that its test has said, in degrees; all other texts have no meaning.

    The similarity of two texts is the cosine of the angle between them: 0.985 at 10 degrees, 0.94 at 20.
    """

    name: str = "compass:2"
    dimension = 2

    def __init__(self, **directions: float) -> None:
        self.directions = directions
        self.failure: Exception | None = None
        """What it raises instead."""
        self.asked: list[str] = []

    def point(self, text: str, degrees: float) -> str:
        """Say where a text points to; returns the text."""
        self.directions[text] = degrees
        return text

    async def embed(self, texts: Sequence[str], *, purpose: Purpose = "document") -> Embeddings:  # noqa: ARG002  # both are alike here
        """The directions of some texts as vectors."""
        await asyncio.sleep(0)
        self.asked += texts
        if self.failure is not None:
            raise self.failure
        rows = [self._row(self.directions.get(text)) for text in texts]
        return Embeddings(np.array(rows, dtype=np.float32).reshape(len(rows), 2), tokens=len(rows))

    async def close(self) -> None:
        """There is nothing to give back."""

    def _row(self, degrees: float | None) -> tuple[float, float]:
        return (0.0, 0.0) if degrees is None else (math.cos(math.radians(degrees)), math.sin(math.radians(degrees)))
