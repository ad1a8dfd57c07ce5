"""A record as an index needs it, read from its hash."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sharedmem.search.protocol import Family
from sharedmem.search.tags import parted
from sharedmem.wire.keys import KeySpace
from sharedmem.wire.replies import Command, Reply
from sharedmem.wire.vectors import Vector, from_half, unit

COMMANDS_EACH = 2
"""Commands that reading one record takes."""
_NO_SUCH_KEY = -2


class Record(NamedTuple):
    """What is indexed of one record."""

    id: str
    terms: list[bytes]
    vector: Vector | None
    """Of unit length; None while there is none, or one of zeros, to which nothing is near."""
    facts: bytes
    tags: list[list[str]]
    """The distinct values of each tag, in the family's order."""
    numbers: list[float]
    """The family's numbers in its order; not a number (NaN) where there is none."""
    lives_ms: int | None
    """Milliseconds until it expires; None for never."""
    is_damaged: bool
    """Whether its vector could not be read."""


def reading(keyspace: KeySpace, family: Family, namespace: str, id_: str) -> tuple[Command, Command]:
    """The commands that read one record."""
    key = keyspace.record(family.name, namespace, id_)
    return ("HMGET", key, "terms", "vector", "facts", *family.tags, *family.numbers), ("PTTL", key)


def read(family: Family, id_: str, fields: Reply, lives_ms: Reply) -> Record | None:
    """A record from the replies to `reading`; None when there is none, or some other client has put no hash there."""
    assert isinstance(lives_ms, int)
    if not isinstance(fields, list):
        return None
    texts = [field if isinstance(field, bytes) else None for field in fields]
    if lives_ms == _NO_SUCH_KEY:
        return None
    terms, packed, facts = texts[:3]
    vector = _vector(packed, family.dimension) if packed else None
    return Record(
        id=id_,
        terms=(terms or b"").split(),
        vector=vector if vector is not None and vector.any() else None,
        facts=facts or b"",
        tags=[_values(tag) for tag in texts[3 : 3 + len(family.tags)]],
        numbers=[_number(number) for number in texts[3 + len(family.tags) :]],
        lives_ms=lives_ms if lives_ms >= 0 else None,
        is_damaged=bool(packed) and vector is None,
    )


def _vector(packed: bytes, dimension: int) -> Vector | None:
    if len(packed) != 2 * dimension:
        return None
    vector = from_half(packed)
    return unit(vector) if np.isfinite(vector).all() else None


def _values(tag: bytes | None) -> list[str]:
    return list(dict.fromkeys(parted((tag or b"").decode(errors="replace"))))


def _number(text: bytes | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return math.nan


def pairs(replies: Sequence[Reply]) -> list[tuple[Reply, Reply]]:
    """Replies two by two."""
    return list(zip(replies[::2], replies[1::2], strict=True))
