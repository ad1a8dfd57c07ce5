"""Vectors as bytes: half precision in Redis, single precision in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sharedmem.errors import InvalidError

Vector: TypeAlias = NDArray[np.float32]
"""An array of shape (dimension,)."""
Matrix: TypeAlias = NDArray[np.float32]
"""An array of shape (number of vectors, dimension)."""

_HALF = np.dtype("<f2")
_SHORTEST = 1e-9
"""Length of a row, as a share of all, below which it is rounding."""
_AT_ONCE = 2**18
"""Multiplications from which on numpy uses several threads for a product."""


def check_vector(field: str, vector: Sequence[float] | Vector, dimension: int) -> Vector:
    """Return the vector at unit length; a zero vector stays zero, and is similar to no other.

    Raises:
        InvalidError: the vector has another dimension, or an element that is not a finite number.
    """
    try:
        # Values beyond single precision become infinite, and are rejected below.
        with np.errstate(over="ignore"):
            checked = np.asarray(vector, dtype=np.float32)
    except (TypeError, ValueError):
        raise InvalidError(field, "...", "give numbers") from None
    if checked.shape != (dimension,):
        raise InvalidError(field, f"shape {checked.shape}", f"this index needs vectors of {dimension} numbers")
    if not np.isfinite(checked).all():
        raise InvalidError(field, "...", "it has an element that is not a finite number")
    return normalize(checked)


def normalize(vector: Vector) -> Vector:
    """Return the vector at length one; zero stays zero. Works row by row on a matrix."""
    # In double precision: the squares of large numbers would overflow.
    wide = vector.astype(np.float64)
    length = np.linalg.norm(wide, axis=-1, keepdims=True)
    scaled: NDArray[np.float64] = np.divide(wide, length, out=np.zeros_like(wide), where=length > 0)
    return scaled.astype(np.float32)


def to_half(vector: Vector) -> bytes:
    """Return the bytes for Redis: two for each number, little-endian."""
    return vector.astype(_HALF).tobytes()


def finite_half_or_none(data: object, dimension: int) -> bytes | None:
    """Return the bytes of a vector from Redis; None if it does not exist, or another client has damaged it."""
    if not isinstance(data, bytes) or not data or len(data) != _HALF.itemsize * dimension:
        return None
    return data if np.isfinite(np.frombuffer(data, dtype=_HALF)).all() else None


def stored_similarities(stored: Iterable[object], vector: Vector) -> list[float]:
    """Return the cosine similarity of a vector to each of some in Redis; 0 for one that is missing or damaged.

    Args:
        stored: at least one, as `to_half` makes them.
        vector: shape (dimension,).
    """
    missing = bytes(_HALF.itemsize * len(vector))
    halves = [finite_half_or_none(each, len(vector)) or missing for each in stored]
    rows = np.frombuffer(b"".join(halves), dtype=_HALF).reshape(len(halves), len(vector)).astype(np.float32)
    similarities: list[float] = np.dot(normalize(rows), normalize(vector)).tolist()
    return similarities


def from_half(data: bytes) -> Vector:
    """Return the vector from these bytes."""
    return np.frombuffer(data, dtype=_HALF).astype(np.float32)


def products(rows: Matrix, columns: Matrix) -> Matrix:
    """Return the product of each row with each column; for unit vectors their cosine similarities.

    In this thread: on a busy machine the threads of one product wait for each other.

    Args:
        rows: shape (n, dimension).
        columns: shape (m, dimension), with m at least 1.

    Returns:
        Shape (n, m).
    """
    dimension = columns.shape[1]
    height = max(1, _AT_ONCE // (dimension * len(columns)))
    whole = len(rows) - len(rows) % height
    found = np.empty((len(rows), len(columns)), dtype=np.float32)
    blocks = rows[:whole].reshape(-1, height, dimension)
    np.matmul(blocks, columns.T, out=found[:whole].reshape(-1, height, len(columns)))
    np.matmul(rows[whole:], columns.T, out=found[whole:])
    return found


def main_directions(vectors: Matrix, count: int) -> Matrix:
    """Return orthogonal directions, of length one, in which the vectors are long: about their principal axes.

    By the randomized range finder with one power iteration (Halko, Martinsson, Tropp: Finding structure with
    randomness, 2011). The same vectors always have the same directions.

    Args:
        vectors: shape (n, dimension).
        count: how many directions, at most the dimension.

    Returns:
        Shape (count, dimension); zeros in place of directions that the vectors do not have.
    """
    found = np.random.default_rng(0).standard_normal((count, vectors.shape[1]), dtype=np.float32)
    for _ in range(2):
        found = _orthogonal(products(vectors.T, products(vectors, found).T).T)
    return found


def _orthogonal(rows: Matrix) -> Matrix:
    """Return orthogonal rows of length one that span the same space (Gram and Schmidt); zeros for rows of no length."""
    made: NDArray[np.float64] = rows.astype(np.float64)
    shortest = _SHORTEST * np.sqrt(np.square(made).sum())
    for place in range(len(made)):
        for _ in range(2):  # the second time removes what rounding left
            made[place] -= (np.vecdot(made[:place], made[place])[:, None] * made[:place]).sum(axis=0)
        length = np.linalg.norm(made[place])
        made[place] *= 1 / length if length > shortest else 0
    return made.astype(np.float32)
