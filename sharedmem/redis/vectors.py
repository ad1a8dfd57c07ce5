"""Vectors as bytes: half precision in Redis, single precision in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sharedmem.errors import InvalidError

Vector: TypeAlias = NDArray[np.float32]
"""Shape (dimension,)."""
Matrix: TypeAlias = NDArray[np.float32]
"""Shape (number of vectors, dimension)."""

_HALF = np.dtype("<f2")


def check_vector(field: str, vector: Sequence[float] | Vector, dimension: int) -> Vector:
    """Return the vector at unit length; a zero vector stays zero, and is near to nothing.

    Raises:
        InvalidError: it has another dimension, or holds what is no finite number.
    """
    try:
        # What is beyond single precision becomes infinite, and is refused below.
        with np.errstate(over="ignore"):
            checked = np.asarray(vector, dtype=np.float32)
    except (TypeError, ValueError):
        raise InvalidError(field, "...", "give numbers") from None
    if checked.shape != (dimension,):
        raise InvalidError(field, f"shape {checked.shape}", f"this index takes vectors of {dimension} numbers")
    if not np.isfinite(checked).all():
        raise InvalidError(field, "...", "it holds what is no finite number")
    return normalize(checked)


def normalize(vector: Vector) -> Vector:
    """Return the vector at length one; zero stays zero. Also row by row of a matrix."""
    # In double precision: the squares of large numbers would overflow.
    wide = vector.astype(np.float64)
    length = np.linalg.norm(wide, axis=-1, keepdims=True)
    scaled: NDArray[np.float64] = np.divide(wide, length, out=np.zeros_like(wide), where=length > 0)
    return scaled.astype(np.float32)


def to_half(vector: Vector) -> bytes:
    """Return the bytes that lie in Redis: two a number, little end first."""
    return vector.astype(_HALF).tobytes()


def finite_half_or_none(data: object, dimension: int) -> bytes | None:
    """Return the bytes of a vector that lies in Redis; None when there is none, or some other client has spoilt it."""
    if not isinstance(data, bytes) or not data or len(data) != _HALF.itemsize * dimension:
        return None
    return data if np.isfinite(np.frombuffer(data, dtype=_HALF)).all() else None


def from_half(data: bytes) -> Vector:
    """Return the vector of those bytes."""
    return np.frombuffer(data, dtype=_HALF).astype(np.float32)
