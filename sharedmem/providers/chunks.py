"""Split long texts into pieces that a model can read, counted in tokens, and combine the vectors of the pieces.

A piece has at most 500 tokens and begins with the last 50 of the one before it. The vector of a text of several
pieces is their mean, each weighted by its tokens, at unit length. Tokens are those of `cl100k_base` if
tiktoken is installed and has its file on disk; else they are estimated: a sign, an ideograph, or up to six letters
of a word count as one, which for English prose is a little more than the true number.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from hashlib import sha1
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sharedmem.errors import InvalidError
from sharedmem.redis.vectors import Matrix, normalize

LONGEST_TOKENS = 500
OVERLAP_TOKENS = 50
_IDEOGRAPHS = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_TOKEN = re.compile(rf"[{_IDEOGRAPHS}]|[^\W{_IDEOGRAPHS}]{{1,6}}|[^\w\s]")
# A text of so few characters never has more tokens than a piece.
_NEVER_LONG_CHARACTERS = 120

_ENCODING = "cl100k_base"
_ENCODING_URL = f"https://openaipublic.blob.core.windows.net/encodings/{_ENCODING}.tiktoken"


class TextChunk(NamedTuple):
    """A piece of a text."""

    owner: int
    """Position of its text."""
    text: str
    tokens: int


def split_into_chunks(
    texts: Sequence[str], *, longest: int = LONGEST_TOKENS, overlap: int | None = None
) -> list[TextChunk]:
    """Return the pieces of all texts, in their order; a short text is one piece.

    Args:
        texts: none of them empty.
        longest: most tokens of a piece.
        overlap: tokens that a piece repeats of the one before it; None for 50, and for a tenth of shorter pieces.

    Raises:
        InvalidError: the overlap is invalid for pieces of this length.
    """
    if overlap is None:
        overlap = min(OVERLAP_TOKENS, longest // 10)
    if not 0 <= overlap < longest:
        raise InvalidError("overlap", overlap, f"pieces of {longest} tokens can overlap by 0 to {longest - 1}")
    found: list[TextChunk] = []
    for owner, text in enumerate(texts):
        found += _split_text(owner, text, longest=longest, overlap=overlap)
    return found


def combine_chunk_vectors(rows: Matrix, pieces: Sequence[TextChunk], count: int) -> Matrix:
    """Return the vectors of `count` texts from those of their pieces, at unit length."""
    totals = np.zeros((count, rows.shape[1]), dtype=np.float64)
    weights = np.array([piece.tokens for piece in pieces], dtype=np.float64)
    np.add.at(totals, [piece.owner for piece in pieces], rows * weights[:, None])
    return normalize(totals.astype(np.float32))


def count_tokens(text: str) -> int:
    """Return how many tokens a text has; at least one, if it is not empty."""
    exactly = _tiktoken_starts()
    return max(len(exactly(text) if exactly else _TOKEN.findall(text)), 1) if text else 0


def _split_text(owner: int, text: str, *, longest: int, overlap: int) -> list[TextChunk]:
    if len(text) <= min(longest, _NEVER_LONG_CHARACTERS):
        return [TextChunk(owner, text, count_tokens(text))]
    starts = _token_starts(text)
    if len(starts) <= longest:
        return [TextChunk(owner, text, max(len(starts), 1))]
    step = longest - overlap
    ends = [*starts[1:], len(text)]
    found = []
    for first in range(0, len(starts), step):
        last = min(first + longest, len(starts))
        found.append(TextChunk(owner, text[starts[first] : ends[last - 1]], last - first))
        if last == len(starts):
            break
    return found


def _token_starts(text: str) -> list[int]:
    """Return the position of each token."""
    exactly = _tiktoken_starts()
    return exactly(text) if exactly else [match.start() for match in _TOKEN.finditer(text)]


@cache
def _tiktoken_starts() -> Callable[[str], list[int]] | None:
    """Return tiktoken's function for token positions; None if it is not installed, or would download its file."""
    if find_spec("tiktoken") is None or not _tiktoken_file().is_file():
        return None
    import tiktoken  # noqa: PLC0415  few have it

    encoding = tiktoken.get_encoding(_ENCODING)

    def starts(text: str) -> list[int]:
        _, offsets = encoding.decode_with_offsets(encoding.encode_ordinary(text))
        return list(offsets)

    return starts


def _tiktoken_file() -> Path:
    """Return tiktoken's file of the encoding: documented variables name the folder, the name is a digest of the URL."""
    folder = os.environ.get("TIKTOKEN_CACHE_DIR") or os.environ.get("DATA_GYM_CACHE_DIR")
    name = sha1(_ENCODING_URL.encode(), usedforsecurity=False).hexdigest()
    return Path(folder or Path(tempfile.gettempdir()) / "data-gym-cache") / name
