"""The offline embedder: static word vectors from the wheel of wordllama, averaged over a text.

The package contains the model (20 MB): nothing is downloaded. It is loaded at the first use, in a thread, once a
process.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from sharedmem.errors import ConfigError, UnsupportedError
from sharedmem.providers.embedding import encodable_texts, non_blank_positions, spread_rows
from sharedmem.providers.protocol import Embeddings, Purpose
from sharedmem.redis.vectors import Matrix, Vector, normalize

DIMENSIONS = (64, 128, 256)
REMEDY = "pip install 'sharedmem-hub[local]'"
_CONFIG = "l2_supercat"
_LARGEST = max(DIMENSIONS)
# About two milliseconds of work; below it a thread takes longer than the work.
_AT_ONCE_CHARACTERS = 8_000
# Beyond it the vectors of all tokens at once would take 8 MB and more.
_LONG_TOKENS = 8_192


class _Encoding(Protocol):
    @property
    def ids(self) -> list[int]: ...


class _Tokenizer(Protocol):
    def encode(self, sequence: str, *, add_special_tokens: bool) -> _Encoding: ...

    def no_padding(self) -> None: ...


class _WordVectors(NamedTuple):
    tokenizer: _Tokenizer
    table: Matrix
    """The vector of each token."""

    def total(self, text: str) -> Vector:
        """Return the sum of its tokens' vectors: it has the direction of their mean."""
        ids = np.asarray(self.tokenizer.encode(text, add_special_tokens=False).ids)
        # The last row is for tokens that are not in the table.
        np.clip(ids, 0, len(self.table) - 1, out=ids)
        if len(ids) <= _LONG_TOKENS:
            total: Vector = self.table[ids].sum(axis=0)
            return total
        often: Vector = np.bincount(ids, minlength=len(self.table)).astype(np.float32)
        return often @ self.table


_loading = threading.Lock()
_loaded: dict[int, _WordVectors] = {}


class WordLlamaEmbedder:
    """Vectors of wordllama, about 20 us for a sentence; a long text is read as a whole.

    Args:
        dimension: 64, 128 or 256 numbers a vector.

    Raises:
        UnsupportedError: wordllama is not installed.
        ConfigError: wordllama has no vectors of that dimension.
    """

    is_remote = False

    def __init__(self, dimension: int = _LARGEST, *, origin: str = "argument") -> None:
        if not is_installed():
            raise UnsupportedError("the offline embedder wordllama", REMEDY)
        if dimension not in DIMENSIONS:
            problem = f"wordllama has vectors of {', '.join(map(str, DIMENSIONS))} numbers, not of {dimension}"
            raise ConfigError("embedding_dimension", origin, problem)
        self._dimension = dimension

    @property
    def name(self) -> str:
        """`wordllama:<model>-<dimension>`."""
        return f"wordllama:{_CONFIG}-{self._dimension}"

    @property
    def dimension(self) -> int:
        """Numbers of a vector."""
        return self._dimension

    async def embed(self, texts: Sequence[str], *, purpose: Purpose = "document") -> Embeddings:  # noqa: ARG002  its vectors serve both
        """Return the vectors of some texts; in a thread if they are long, or the model is not loaded yet.

        Raises:
            InvalidError: an argument is not a text.
            UnsupportedError: the installed wordllama lacks the model's files.
        """
        sound = encodable_texts(texts)
        model = _loaded.get(self._dimension)
        if model is not None and sum(map(len, sound)) <= _AT_ONCE_CHARACTERS:
            return Embeddings(self._vectors(model, sound), 0)
        return Embeddings(await asyncio.to_thread(self._load_and_embed, sound), 0)

    async def close(self) -> None:
        """Do nothing: other hubs of this process may use the model."""

    def _load_and_embed(self, texts: list[str]) -> Matrix:
        return self._vectors(_load(self._dimension), texts)

    def _vectors(self, model: _WordVectors, texts: list[str]) -> Matrix:
        positions = non_blank_positions(texts)
        rows = np.array([model.total(texts[position]) for position in positions], dtype=np.float32)
        return spread_rows(normalize(rows.reshape(len(positions), self._dimension)), positions, len(texts))

    def __repr__(self) -> str:
        return f"<StaticEmbedder {self.name}>"


def is_installed() -> bool:
    """Return whether wordllama is installed."""
    return find_spec("wordllama") is not None


def _load(dimension: int) -> _WordVectors:
    with _loading:
        if dimension not in _loaded:
            _loaded[dimension] = _read_model(dimension)
        return _loaded[dimension]


def _read_model(dimension: int) -> _WordVectors:
    with _preserve_logging():
        import wordllama  # noqa: PLC0415  it takes half a second, and few commands embed
    # With explicit paths: otherwise it would search the user's folder, and download the files.
    home = Path(wordllama.__file__).parent
    try:
        found = wordllama.WordLlama.load(_CONFIG, cache_dir=home, trunc_dim=dimension, disable_download=True)
    except (OSError, ValueError) as error:
        raise UnsupportedError("the model of wordllama", f"its files cannot be read; {REMEDY} anew") from error
    table = np.ascontiguousarray(found.embedding, dtype=np.float32)
    if table.ndim != 2 or table.shape[1] != dimension:
        problem = f"the installed wordllama returns vectors of shape {table.shape[1:]}, not of {dimension} numbers"
        raise ConfigError("embedding_dimension", "the package wordllama", problem)
    found.tokenizer.no_padding()
    return _WordVectors(found.tokenizer, table)


@contextmanager
def _preserve_logging() -> Iterator[None]:
    """Prevent a library that configures the application's logging at import from doing so."""
    root, keeper = logging.getLogger(), logging.NullHandler()
    root.addHandler(keeper)
    try:
        yield
    finally:
        root.removeHandler(keeper)
