"""Labelled pairs: read from lines of JSON, and how near their texts are to an embedder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import orjson

from sharedmem.knowledge.cache.calibration import LabelledPair
from sharedmem.providers.protocol import Embedder

_BATCH = 128
_LABELS = {0: False, 1: True}


class Pairs(NamedTuple):
    """The pairs of a file."""

    good: list[LabelledPair]
    bad_lines: list[int]
    """Numbers of the lines, from 1, that hold no pair."""


def read_pairs(lines: Iterable[bytes]) -> Pairs:
    """The pairs of lines such as `{"a": "...", "b": "...", "same": true}`; blank lines do not count."""
    pairs = Pairs([], [])
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        pair = _pair(line)
        if pair is None:
            pairs.bad_lines.append(number)
        else:
            pairs.good.append(pair)
    return pairs


async def similarities(
    embedder: Embedder, pairs: Sequence[LabelledPair], *, progress: Callable[[int], None] | None = None
) -> list[float]:
    """The cosine similarity of each pair's texts.

    Args:
        embedder: whose vectors are compared.
        pairs: the texts.
        progress: called with the number of pairs done.

    Raises:
        UnavailableError, LimitedError, ConfigError: as `Embedder.embed`.
    """
    found: list[float] = []
    for start in range(0, len(pairs), _BATCH):
        some = pairs[start : start + _BATCH]
        texts = [pair.a for pair in some] + [pair.b for pair in some]
        vectors = (await embedder.embed(texts, purpose="query")).vectors
        found += np.einsum("ij,ij->i", vectors[: len(some)], vectors[len(some) :], dtype=np.float64).tolist()
        if progress:
            progress(len(found))
    return found


def _pair(line: bytes) -> LabelledPair | None:
    try:
        told = orjson.loads(line)
        a, b, same = told["a"], told["b"], told["same"]
    except (ValueError, TypeError, KeyError):
        return None
    if not isinstance(a, str) or not isinstance(b, str) or not a.strip() or not b.strip():
        return None
    label = _LABELS.get(same) if isinstance(same, int) else None
    return None if label is None else LabelledPair(a, b, label)
