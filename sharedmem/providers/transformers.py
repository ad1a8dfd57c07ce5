"""Embeddings of a sentence-transformers model that runs on this machine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Protocol, cast

import numpy as np

from sharedmem.errors import ConfigError, UnsupportedError
from sharedmem.providers.chunks import LONGEST_TOKENS, combine_chunk_vectors, split_into_chunks
from sharedmem.providers.embedding import encodable_texts, non_blank_positions, spread_rows
from sharedmem.providers.protocol import Embeddings, Purpose
from sharedmem.redis.vectors import Matrix

REMEDY = "pip install 'sharedmem-hub[sentence-transformers]'"
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
            raise UnsupportedError("sentence-transformers", REMEDY)
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
