"""Vectors as bytes: half precision in Redis, single precision in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sharedmem.errors import InvalidError

Vector: TypeAlias = NDArray[np.float32]
"""An array of shape (dimension,)."""
Matrix: TypeAlias = NDArray[np.float32]
"""An array of shape (number of vectors, dimension)."""

_HALF = np.dtype("<f2")


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


def from_half(data: bytes) -> Vector:
    """Return the vector from these bytes."""
    return np.frombuffer(data, dtype=_HALF).astype(np.float32)
