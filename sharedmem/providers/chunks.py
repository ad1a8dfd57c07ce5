"""Split long texts into pieces that a model can read, counted in tokens, and combine the vectors of the pieces.

A piece has at most 500 tokens and begins with the last 50 of the one before it. The vector of a text of several
pieces is their mean, each weighted by its tokens, at unit length. Tokens are those of the model's own encoding if
tiktoken is installed, knows the model and has the file of the encoding on disk; else those of `cl100k_base`, if its
file is there; else they are estimated: a sign, an ideograph, or up to six letters of a word count as one, which for
English prose is a little more than the true number.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Sequence
from functools import lru_cache
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

_USUAL_ENCODING = "cl100k_base"
_ENCODING_URL = "https://openaipublic.blob.core.windows.net/encodings/{name}.tiktoken"
_FILES = {
    "cl100k_base": "cl100k_base",
    "o200k_base": "o200k_base",
    "o200k_harmony": "o200k_base",
    "p50k_base": "p50k_base",
    "p50k_edit": "p50k_base",
    "r50k_base": "r50k_base",
}
"""The file of each encoding of tiktoken; others are not used."""
_MODELS = 64


class TextChunk(NamedTuple):
    """A piece of a text."""

    owner: int
    """Position of its text."""
    text: str
    tokens: int


def split_into_chunks(
    texts: Sequence[str], *, longest: int = LONGEST_TOKENS, overlap: int | None = None, model: str = ""
) -> list[TextChunk]:
    """Return the pieces of all texts, in their order; a short text is one piece.

    Args:
        texts: none of them empty.
        longest: most tokens of a piece.
        overlap: tokens that a piece repeats of the one before it; None for 50, and for a tenth of shorter pieces.
        model: the model that reads them, such as `openai:text-embedding-3-small`; empty if it is not known.

    Raises:
        InvalidError: the overlap is invalid for pieces of this length.
    """
    if overlap is None:
        overlap = min(OVERLAP_TOKENS, longest // 10)
    if not 0 <= overlap < longest:
        raise InvalidError("overlap", overlap, f"pieces of {longest} tokens can overlap by 0 to {longest - 1}")
    found: list[TextChunk] = []
    for owner, text in enumerate(texts):
        found += _split_text(owner, text, longest=longest, overlap=overlap, model=model)
    return found


def combine_chunk_vectors(rows: Matrix, pieces: Sequence[TextChunk], count: int) -> Matrix:
    """Return the vectors of `count` texts from those of their pieces, at unit length."""
    totals = np.zeros((count, rows.shape[1]), dtype=np.float64)
    weights = np.array([piece.tokens for piece in pieces], dtype=np.float64)
    np.add.at(totals, [piece.owner for piece in pieces], rows * weights[:, None])
    return normalize(totals.astype(np.float32))


def count_tokens(text: str, *, model: str = "") -> int:
    """Return how many tokens a text has; at least one, if it is not empty.

    Args:
        text: the text.
        model: the model that reads or has written it, such as `openai:gpt-4o`; empty if it is not known.
    """
    exactly = _tiktoken_starts(model)
    return max(len(exactly(text) if exactly else _TOKEN.findall(text)), 1) if text else 0


def token_encoding(model: str = "") -> str | None:
    """Return the name of the encoding with which `count_tokens` counts exactly for a model; None where it estimates.

    Args:
        model: the model, such as `openai:gpt-4o`; empty if it is not known.
    """
    own = _own_encoding(model)
    return own if own is not None and _tiktoken_starts(model) and _tiktoken_file(own).is_file() else None


def _split_text(owner: int, text: str, *, longest: int, overlap: int, model: str) -> list[TextChunk]:
    if len(text) <= min(longest, _NEVER_LONG_CHARACTERS):
        return [TextChunk(owner, text, count_tokens(text, model=model))]
    starts = _token_starts(text, model)
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


def _token_starts(text: str, model: str) -> list[int]:
    """Return the position of each token."""
    exactly = _tiktoken_starts(model)
    return exactly(text) if exactly else [match.start() for match in _TOKEN.finditer(text)]


@lru_cache(maxsize=_MODELS)
def _tiktoken_starts(model: str) -> Callable[[str], list[int]] | None:
    """Return tiktoken's function for token positions; None if it is not installed, or would download its file."""
    if find_spec("tiktoken") is None or not any(_tiktoken_file(name).is_file() for name in _FILES.values()):
        return None
    import tiktoken  # noqa: PLC0415  few have it

    own = _own_encoding(model) or _USUAL_ENCODING
    name = next((name for name in (own, _USUAL_ENCODING) if name in _FILES and _tiktoken_file(name).is_file()), None)
    if name is None:
        return None
    encoding = tiktoken.get_encoding(name)

    def starts(text: str) -> list[int]:
        _, offsets = encoding.decode_with_offsets(encoding.encode_ordinary(text))
        return list(offsets)

    return starts


def _own_encoding(model: str) -> str | None:
    """Return the encoding of a model, as far as tiktoken knows the model and this module its file."""
    if find_spec("tiktoken") is None:
        return None
    import tiktoken  # noqa: PLC0415  few have it

    try:
        name = tiktoken.encoding_name_for_model(_bare_name(model))
    except KeyError:
        return None
    return name if name in _FILES else None


def _bare_name(model: str) -> str:
    """Return a model's name without its provider, its vendor and the dimension of its vectors."""
    named = model.partition(":")[2] or model
    return named.partition("@")[0].rpartition("/")[2]


def _tiktoken_file(encoding: str) -> Path:
    """Return tiktoken's file of an encoding: documented variables name the folder, its name is a digest of the URL."""
    folder = os.environ.get("TIKTOKEN_CACHE_DIR") or os.environ.get("DATA_GYM_CACHE_DIR")
    url = _ENCODING_URL.format(name=_FILES[encoding])
    name = sha1(url.encode(), usedforsecurity=False).hexdigest()
    return Path(folder or Path(tempfile.gettempdir()) / "data-gym-cache") / name
