"""Texts in, rows out: what all embedders do alike around the model itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sharedmem.errors import InvalidError
from sharedmem.wire.vectors import Matrix


def sound_texts(texts: Sequence[str]) -> list[str]:
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


def meaningful(texts: Sequence[str]) -> list[int]:
    """The positions of the texts that are more than blanks: nobody is asked about the others."""
    return [position for position, text in enumerate(texts) if text.strip()]


def spread(rows: Matrix, positions: Sequence[int], count: int) -> Matrix:
    """The rows at their positions among `count`; zeros elsewhere."""
    if len(positions) == count:
        return rows
    spread_out = np.zeros((count, rows.shape[1]), dtype=np.float32)
    spread_out[list(positions)] = rows
    return spread_out
