"""Vectors from OpenAI, from Azure OpenAI, and from any service that speaks as they do."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sharedmem.errors import ConfigError
from sharedmem.providers.asking import GarbledError, Json, Service
from sharedmem.providers.chunks import Piece, joined, pieces_of
from sharedmem.providers.endpoint import Endpoint
from sharedmem.providers.protocol import Embeddings, Purpose
from sharedmem.providers.rows import meaningful, sound_texts, spread
from sharedmem.telemetry import Counters
from sharedmem.wire.vectors import Matrix, Vector

# OpenAI takes 300,000 tokens in a request; estimates may be too low.
_MOST_TOKENS = 200_000
KNOWN = {"text-embedding-3-small": 1536, "text-embedding-3-large": 3072, "text-embedding-ada-002": 1536}
_SHORTENED_AT_WILL = frozenset({"text-embedding-3-small", "text-embedding-3-large"})


class Shape(NamedTuple):
    """How long the vectors of a model are."""

    dimension: int
    is_asked_for: bool
    """Whether the service is told so: else its vectors come as they are, and are only checked."""


def shape_of(endpoint: Endpoint) -> Shape:
    """The dimension of a model's vectors, by the settings or by what is known of it.

    Raises:
        ConfigError: neither tells, or the model has no vectors of that dimension.
    """
    chosen, known = endpoint.settings.embedding_dimension, KNOWN.get(endpoint.model)
    if chosen is None and known is None:
        problem = f"it is not known how many numbers the vectors of {endpoint.model!r} have; set it"
        raise endpoint.blamed("embedding_dimension", problem)
    if chosen is None or known is None or chosen == known:
        return Shape(chosen or known or 0, is_asked_for=False)
    if endpoint.model not in _SHORTENED_AT_WILL or chosen > known:
        problem = f"{endpoint.model} has vectors of {known} numbers, not of {chosen}; leave it out or set it to that"
        raise endpoint.blamed("embedding_dimension", problem)
    return Shape(chosen, is_asked_for=True)


class _Answer(NamedTuple):
    rows: Matrix
    tokens: int


class OpenAIEmbedder:
    """Vectors over HTTP, a batch a request, several requests at a time.

    Args:
        service: whom to ask.
        shape: what vectors to expect.
        batch: pieces of text a request holds.
        counters: get `embedding_tokens` by model.
    """

    is_remote = True

    def __init__(self, service: Service, *, shape: Shape, batch: int, counters: Counters) -> None:
        self._service = service
        self._shape = shape
        self._batch = batch
        self._counters = counters

    @property
    def name(self) -> str:
        """Provider and model, and the dimension if it is not the model's own."""
        shortened = f"@{self._shape.dimension}" if self._shape.is_asked_for else ""
        return f"{self._service.endpoint.name}{shortened}"

    @property
    def dimension(self) -> int:
        """Numbers of a vector."""
        return self._shape.dimension

    async def embed(self, texts: Sequence[str], *, purpose: Purpose = "document") -> Embeddings:  # noqa: ARG002  its vectors serve both
        """As `Embedder.embed`; a long text is read in pieces (`providers.chunks` says how)."""
        sound = sound_texts(texts)
        positions = meaningful(sound)
        if not positions:
            return Embeddings(np.zeros((len(sound), self.dimension), dtype=np.float32), 0)
        pieces = await asyncio.to_thread(pieces_of, [sound[position] for position in positions])
        answers = await _together([self._ask(batch) for batch in _batches(pieces, self._batch)])
        rows = joined(np.concatenate([answer.rows for answer in answers]), pieces, len(positions))
        return Embeddings(spread(rows, positions, len(sound)), sum(answer.tokens for answer in answers))

    async def close(self) -> None:
        """Give back connections; may be called again."""
        await self._service.close()

    async def _ask(self, pieces: Sequence[Piece]) -> _Answer:
        body: dict[str, object] = {
            "model": self._service.endpoint.model,
            "input": [piece.text for piece in pieces],
            "encoding_format": "float",
        }
        if self._shape.is_asked_for:
            body["dimensions"] = self._shape.dimension
        estimate = sum(piece.tokens for piece in pieces)
        answer = await self._service.ask(body, lambda found: self._read(found, len(pieces), estimate))
        self._counters.add("embedding_tokens", answer.tokens, model=self.name)
        return answer

    def _read(self, found: object, count: int, estimate: int) -> _Answer:
        data = found.get("data") if isinstance(found, dict) else None
        if not isinstance(data, list) or not all(isinstance(item, dict) for item in data):
            raise GarbledError("it has no list `data`")
        if len(data) != count:
            raise GarbledError(f"{len(data)} vectors came for {count} texts")
        ordered = sorted(data, key=lambda item: item["index"]) if _are_numbered(data) else data
        rows = [self._row(item.get("embedding")) for item in ordered]
        return _Answer(np.stack(rows), _tokens(found, estimate))

    def _row(self, numbers: object) -> Vector:
        try:
            with np.errstate(over="ignore"):
                row = np.asarray(numbers if isinstance(numbers, list) else [numbers], dtype=np.float32)
        except (TypeError, ValueError):
            raise GarbledError("a vector is no list of numbers") from None
        if row.ndim != 1 or not np.isfinite(row).all():
            raise GarbledError("a vector is no list of finite numbers")
        if len(row) != self.dimension:
            raise self._other_dimension(len(row))
        return row

    def _other_dimension(self, found: int) -> ConfigError:
        problem = f"{self.name} gives vectors of {found} numbers, and {self.dimension} are expected; set it to {found}"
        return self._service.endpoint.blamed("embedding_dimension", problem)

    def __repr__(self) -> str:
        return f"<OpenAIEmbedder {self.name} at {self._service.endpoint.host}>"


async def _together(asked: Sequence[Coroutine[object, object, _Answer]]) -> list[_Answer]:
    """All answers, or the first error, after which nothing goes on behind the caller's back."""
    tasks = [asyncio.create_task(one) for one in asked]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _batches(pieces: Sequence[Piece], most: int) -> Iterator[Sequence[Piece]]:
    batch: list[Piece] = []
    tokens = 0
    for piece in pieces:
        if batch and (len(batch) == most or tokens + piece.tokens > _MOST_TOKENS):
            yield batch
            batch, tokens = [], 0
        batch.append(piece)
        tokens += piece.tokens
    yield batch


def _are_numbered(data: Sequence[Json]) -> bool:
    return {item.get("index") for item in data} == set(range(len(data)))


def _tokens(found: object, estimate: int) -> int:
    """What the service counted, else what was estimated."""
    usage = found.get("usage") if isinstance(found, dict) else None
    counted = usage.get("total_tokens") if isinstance(usage, dict) else None
    return counted if isinstance(counted, int) and counted > 0 else estimate
