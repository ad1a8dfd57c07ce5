"""A record as the exact index needs it, read from its hash."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sharedmem.record_family import RecordFamily
from sharedmem.redis.keys import KeySpace
from sharedmem.redis.replies import Command, Reply
from sharedmem.redis.vectors import Vector, from_half, normalize
from sharedmem.search.tags import split_tags

COMMANDS_EACH = 2
"""Commands that reading one record takes."""
_NO_SUCH_KEY = -2


class MirroredRecord(NamedTuple):
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


def read_commands(keyspace: KeySpace, family: RecordFamily, namespace: str, id_: str) -> tuple[Command, Command]:
    """The commands that read one record."""
    key = keyspace.record(family.name, namespace, id_)
    return ("HMGET", key, "terms", "vector", "facts", *family.tags, *family.numbers), ("PTTL", key)


def parse_record(family: RecordFamily, id_: str, fields: Reply, lives_ms: Reply) -> MirroredRecord | None:
    """A record from the replies to `read_commands`; None when there is none, or the key holds no hash."""
    assert isinstance(lives_ms, int)
    if not isinstance(fields, list):
        return None
    texts = [field if isinstance(field, bytes) else None for field in fields]
    if lives_ms == _NO_SUCH_KEY:
        return None
    terms, packed, facts = texts[:3]
    vector = _parse_vector(packed, family.dimension) if packed else None
    return MirroredRecord(
        id=id_,
        terms=(terms or b"").split(),
        vector=vector if vector is not None and vector.any() else None,
        facts=facts or b"",
        tags=[_parse_tags(tag) for tag in texts[3 : 3 + len(family.tags)]],
        numbers=[_parse_number(number) for number in texts[3 + len(family.tags) :]],
        lives_ms=lives_ms if lives_ms >= 0 else None,
        is_damaged=bool(packed) and vector is None,
    )


def _parse_vector(packed: bytes, dimension: int) -> Vector | None:
    if len(packed) != 2 * dimension:
        return None
    vector = from_half(packed)
    return normalize(vector) if np.isfinite(vector).all() else None


def _parse_tags(tag: bytes | None) -> list[str]:
    return list(dict.fromkeys(split_tags((tag or b"").decode(errors="replace"))))


def _parse_number(text: bytes | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return math.nan


def reply_pairs(replies: Sequence[Reply]) -> list[tuple[Reply, Reply]]:
    """Replies two by two."""
    return list(zip(replies[::2], replies[1::2], strict=True))
