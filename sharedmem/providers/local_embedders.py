"""Embedders that run on this machine: static word vectors, sentence-transformers, and hashing for tests.

The wheel of wordllama contains its model (20 MB): nothing is downloaded. It is loaded at the first use, in a thread,
once a process; the vectors of the words of a text are averaged.

The hashing embedder is deterministic, without training. Each word, and each three letters of it, adds one to a number
of the vector or subtracts one, selected by a checksum (feature hashing: Weinberger et al., 2009). It has no notion of
meaning: `car` and `automobile` are unrelated to it.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, Protocol, cast
from zlib import crc32

import numpy as np

from sharedmem.errors import ConfigError, InvalidError, UnsupportedError
from sharedmem.providers.chunks import LONGEST_TOKENS, combine_chunk_vectors, split_into_chunks
from sharedmem.providers.embedding import encodable_texts, non_blank_positions, spread_rows
from sharedmem.providers.protocol import Embeddings, Purpose
from sharedmem.redis.vectors import Matrix, Vector, normalize

DIMENSIONS = (64, 128, 256)
WORDLLAMA_REMEDY = "pip install 'sharedmem-hub[local]'"
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
            raise UnsupportedError("the offline embedder wordllama", WORDLLAMA_REMEDY)
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
        raise UnsupportedError(
            "the model of wordllama", f"its files cannot be read; {WORDLLAMA_REMEDY} anew"
        ) from error
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


# -- sentence-transformers -----------------------------------------------------------------------


TRANSFORMERS_REMEDY = "pip install 'sharedmem-hub[sentence-transformers]'"
# Known dimensions of its models; other models are loaded to find theirs.
KNOWN = {
    "all-MiniLM-L6-v2": 384,
    "all-MiniLM-L12-v2": 384,
    "all-mpnet-base-v2": 768,
    "paraphrase-multilingual-MiniLM-L12-v2": 384,
    "multi-qa-mpnet-base-dot-v1": 768,
}
_OF = "sentence-transformers/"
# The model counts other tokens than `chunks`: a fifth is kept free, so that little is cut off.
_SHARE = 0.8


class _SentenceTransformer(Protocol):
    max_seq_length: int | None

    def encode_query(self, sentences: list[str], **options: object) -> object: ...

    def encode_document(self, sentences: list[str], **options: object) -> object: ...


class TransformerEmbedder:
    """Vectors of a model that sentence-transformers loads (and downloads, unless it is on disk); always in a thread.

    Args:
        model: name of a model, or a folder.
        dimension: numbers of a vector; None for the known dimension of the model.
        batch: texts that the model reads at a time.
        origin: where `dimension` came from, for errors.

    Raises:
        UnsupportedError: sentence-transformers is not installed.
        ConfigError: no dimension is given, and none is known.
    """

    is_remote = False

    def __init__(self, model: str, *, dimension: int | None = None, batch: int = 100, origin: str = "argument") -> None:
        if find_spec("sentence_transformers") is None:
            raise UnsupportedError("sentence-transformers", TRANSFORMERS_REMEDY)
        known = KNOWN.get(model.removeprefix(_OF))
        if dimension is None and known is None:
            problem = f"it is not known how many numbers the vectors of {model!r} have; set it"
            raise ConfigError("embedding_dimension", origin, problem)
        self._name = model
        self._dimension = dimension or known or 0
        self._batch = batch
        self._origin = origin
        self._model: _SentenceTransformer | None = None
        # One text after the other: the model uses all cores for one, and its tokenizer is not thread-safe.
        self._turn = threading.Lock()

    @property
    def name(self) -> str:
        """`sentence-transformers:<model>`."""
        return f"sentence-transformers:{self._name.removeprefix(_OF)}"

    @property
    def dimension(self) -> int:
        """Numbers of a vector."""
        return self._dimension

    async def embed(self, texts: Sequence[str], *, purpose: Purpose = "document") -> Embeddings:
        """Return the vectors of some texts; a long one is read in pieces (see `providers.chunks`).

        Raises:
            InvalidError: an argument is not a text.
            UnsupportedError: the model cannot be loaded.
            ConfigError: its vectors have another dimension than expected.
        """
        sound = encodable_texts(texts)
        return Embeddings(await asyncio.to_thread(self._vectors, sound, purpose), 0)

    async def close(self) -> None:
        """Release the model."""
        self._model = None

    def _vectors(self, texts: list[str], purpose: Purpose) -> Matrix:
        positions = non_blank_positions(texts)
        if not positions:
            return np.zeros((len(texts), self._dimension), dtype=np.float32)
        with self._turn:
            model = self._loaded()
            longest = min(LONGEST_TOKENS, int((model.max_seq_length or LONGEST_TOKENS) * _SHARE))
            pieces = split_into_chunks([texts[position] for position in positions], longest=max(longest, 1))
            encode = model.encode_query if purpose == "query" else model.encode_document
            found = encode([piece.text for piece in pieces], batch_size=self._batch, show_progress_bar=False)
        rows = np.asarray(found, dtype=np.float32)
        self._check(rows.shape[1])
        return spread_rows(combine_chunk_vectors(rows, pieces, len(positions)), positions, len(texts))

    def _loaded(self) -> _SentenceTransformer:
        if self._model is None:
            from sentence_transformers import SentenceTransformer  # noqa: PLC0415  it brings torch

            try:
                self._model = cast("_SentenceTransformer", SentenceTransformer(self._name))
            except (OSError, ValueError) as error:
                raise UnsupportedError(f"the model {self._name!r}", f"it cannot be loaded: {error}") from error
        return self._model

    def _check(self, found: int) -> None:
        if found != self._dimension:
            problem = f"{self.name} returns vectors of {found} numbers, expected {self._dimension}"
            raise ConfigError("embedding_dimension", self._origin, f"{problem}; set it to {found}")

    def __repr__(self) -> str:
        return f"<TransformerEmbedder {self.name}>"


# -- hashing, for tests --------------------------------------------------------------------------


# This tokenizer determines every stored vector: it must not be replaced.
_WORD = re.compile(r"\w+")
_GRAM = 3
_WORD_WEIGHT, _GRAM_WEIGHT = 1.0, 0.3
_SIGN_BIT = 1 << 31
# Below it, a handover to a thread takes longer than the work.
_HASHED_AT_ONCE_CHARACTERS = 20_000


class HashingEmbedder:
    """Vectors from checksums of words; the same on every machine.

    Args:
        dimension: numbers of a vector.
    """

    is_remote = False

    def __init__(self, dimension: int = 64) -> None:
        if dimension < 1:
            raise InvalidError("dimension", dimension, "give at least one")
        self._dimension = dimension

    @property
    def name(self) -> str:
        """`hashing:<dimension>`."""
        return f"hashing:{self._dimension}"

    @property
    def dimension(self) -> int:
        """Numbers of a vector."""
        return self._dimension

    async def embed(self, texts: Sequence[str], *, purpose: Purpose = "document") -> Embeddings:  # noqa: ARG002  its vectors serve both
        """Return the vectors of some texts; in a thread if they are long.

        Raises:
            InvalidError: an argument is not a text.
        """
        sound = encodable_texts(texts)
        if sum(map(len, sound)) <= _HASHED_AT_ONCE_CHARACTERS:
            return Embeddings(self._vectors(sound), 0)
        return Embeddings(await asyncio.to_thread(self._vectors, sound), 0)

    async def close(self) -> None:
        """Do nothing: there are no connections."""

    def _vectors(self, texts: list[str]) -> Matrix:
        positions = non_blank_positions(texts)
        rows = np.array([self._vector(texts[position]) for position in positions], dtype=np.float32)
        return spread_rows(rows.reshape(len(positions), self._dimension), positions, len(texts))

    def _vector(self, text: str) -> Vector:
        vector = np.zeros(self._dimension, dtype=np.float32)
        for feature, weight in _features(text.casefold()):
            checksum = crc32(feature.encode())
            vector[checksum % self._dimension] += -weight if checksum & _SIGN_BIT else weight
        if not vector.any():
            vector[crc32(text.encode()) % self._dimension] = 1
        return normalize(vector)

    def __repr__(self) -> str:
        return f"<HashingEmbedder of {self._dimension} numbers>"


def _features(text: str) -> Iterator[tuple[str, float]]:
    """Yield the counted parts of a text with their counts; without words, its signs."""
    words = Counter(_WORD.findall(text) or text.split())
    grams: Counter[str] = Counter()
    for word, count in words.items():
        yield word, _WORD_WEIGHT * count
        bounded = f"<{word}>"
        for start in range(len(bounded) - _GRAM + 1):
            grams[bounded[start : start + _GRAM]] += count
    for gram, count in grams.items():
        yield gram, _GRAM_WEIGHT * count
