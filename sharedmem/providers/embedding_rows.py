"""Texts in, rows of vectors out: what all embedders share around the model itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sharedmem.errors import ConfigError, InvalidError
from sharedmem.redis.vectors import Matrix, normalize

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
