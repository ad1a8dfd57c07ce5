"""Embeddings, text and structured answers from OpenAI, Azure OpenAI and compatible services.

Prices of tokens are list prices of OpenAI for pay-as-you-go, as of 2025-08-01, in US dollars. Prices change, and
contracts differ: a computed cost is an estimate.
"""

from __future__ import annotations

import asyncio
import re
from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import orjson
from pydantic import BaseModel

from sharedmem.errors import ConfigError
from sharedmem.providers.chat import (
    REFUSED_CONTENT,
    ChatBody,
    ChatCalls,
    ChatReply,
    Sampling,
    SamplingOptions,
    complete_in_form,
    message_body,
    read_events,
    refuses_field,
)
from sharedmem.providers.chunks import TextChunk, combine_chunk_vectors, split_into_chunks
from sharedmem.providers.embedding import encodable_texts, non_blank_positions, spread_rows
from sharedmem.providers.http_client import GarbledError, Json, ModelEndpoint, ModelHttpClient, RefusedError
from sharedmem.providers.protocol import ChatMessage, Embeddings, Model, Purpose
from sharedmem.redis.vectors import Matrix, Vector
from sharedmem.runtime import Counters

_LONGEST_NAME = 64
# Defaults have no meaning if every field is required; titles only repeat names.
_LEFT_OUT = frozenset({"default", "title"})


def strict_schema(form: type[BaseModel]) -> dict[str, object]:
    """Return the JSON schema with every field required and no others allowed, as strict mode requires."""
    return {str(name): value for name, value in _make_mapping_strict(form.model_json_schema()).items()}


def schema_name(form: type[BaseModel]) -> str:
    """Return the schema's name in the form that a service accepts."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", form.__name__)[:_LONGEST_NAME]


def _make_strict(node: object) -> object:
    if isinstance(node, list):
        return [_make_strict(item) for item in node]
    return _make_mapping_strict(node) if isinstance(node, Mapping) else node


def _make_mapping_strict(node: Mapping[str, object]) -> dict[str, object]:
    strict = {name: _make_strict(value) for name, value in node.items() if name not in _LEFT_OUT}
    properties = node.get("properties")
    if isinstance(properties, Mapping) and node.get("type") == "object":
        # These names are names of fields, which may be `title` too.
        strict["properties"] = {name: _make_strict(value) for name, value in properties.items()}
        strict["required"] = list(properties)
        strict["additionalProperties"] = False
    return strict


# OpenAI accepts 300,000 tokens in a request; estimates may be too low.
_MOST_TOKENS = 200_000
KNOWN = {"text-embedding-3-small": 1536, "text-embedding-3-large": 3072, "text-embedding-ada-002": 1536}
_SHORTENED_AT_WILL = frozenset({"text-embedding-3-small", "text-embedding-3-large"})


class VectorShape(NamedTuple):
    """The dimension of a model's vectors."""

    dimension: int
    is_asked_for: bool
    """Whether the request contains the dimension: else vectors are only checked."""


def vector_shape(endpoint: ModelEndpoint) -> VectorShape:
    """Return the dimension of a model's vectors, from the settings or the known models.

    Raises:
        ConfigError: neither has it, or the model has no vectors of that dimension.
    """
    chosen, known = endpoint.settings.embedding_dimension, KNOWN.get(endpoint.model)
    if chosen is None and known is None:
        problem = f"it is not known how many numbers the vectors of {endpoint.model!r} have; set it"
        raise endpoint.config_error("embedding_dimension", problem)
    if chosen is None or known is None or chosen == known:
        return VectorShape(chosen or known or 0, is_asked_for=False)
    if endpoint.model not in _SHORTENED_AT_WILL or chosen > known:
        problem = f"{endpoint.model} has vectors of {known} numbers, not of {chosen}; leave it out or set it to that"
        raise endpoint.config_error("embedding_dimension", problem)
    return VectorShape(chosen, is_asked_for=True)


EmbeddingEncoding = Literal["base64", "float"]
"""Form of the vectors in a response: base64 of little-endian float32, or numbers as JSON."""
_FLOAT32 = np.dtype("<f4")


class _EmbeddedBatch(NamedTuple):
    rows: Matrix
    tokens: int


class OpenAIEmbedder:
    """Vectors over HTTP, one batch in each request, several requests at a time.

    Args:
        service: client of the service.
        shape: expected vectors.
        batch: pieces of text in a request.
        encoding: form in which vectors are requested.
        counters: count `embedding_tokens` by model.
    """

    is_remote = True

    def __init__(
        self,
        service: ModelHttpClient,
        *,
        shape: VectorShape,
        batch: int,
        encoding: EmbeddingEncoding = "base64",
        counters: Counters,
    ) -> None:
        self._service = service
        self._shape = shape
        self._batch = batch
        self._encoding = encoding
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
        """Embed texts, see `Embedder.embed`; a long text is read in pieces (see `providers.chunks`)."""
        sound = encodable_texts(texts)
        positions = non_blank_positions(sound)
        if not positions:
            return Embeddings(np.zeros((len(sound), self.dimension), dtype=np.float32), 0)
        pieces = await asyncio.to_thread(
            split_into_chunks, [sound[position] for position in positions], model=self.name
        )
        answers = await _gather_batches([self._ask(batch) for batch in _batches(pieces, self._batch)])
        rows = combine_chunk_vectors(np.concatenate([answer.rows for answer in answers]), pieces, len(positions))
        return Embeddings(spread_rows(rows, positions, len(sound)), sum(answer.tokens for answer in answers))

    async def close(self) -> None:
        """Close connections; may be called again."""
        await self._service.close()

    async def _ask(self, pieces: Sequence[TextChunk]) -> _EmbeddedBatch:
        body: dict[str, object] = {
            "model": self._service.endpoint.model,
            "input": [piece.text for piece in pieces],
        }
        if self._shape.is_asked_for:
            body["dimensions"] = self._shape.dimension
        estimate = sum(piece.tokens for piece in pieces)
        answer = await self._ask_encoded(body, lambda found: self._read(found, len(pieces), estimate))
        self._counters.add("embedding_tokens", answer.tokens, model=self.name)
        return answer

    async def _ask_encoded(self, body: Json, read: Callable[[object], _EmbeddedBatch]) -> _EmbeddedBatch:
        """Send a request; ask for numbers as JSON once the service has refused base64."""
        encoding = self._encoding
        try:
            return await self._service.ask({**body, "encoding_format": encoding}, read)
        except RefusedError as error:
            if encoding == "float" or not refuses_field(error, "encoding", "base64"):
                raise
        answer = await self._service.ask({**body, "encoding_format": "float"}, read)
        # Only now is it clear that the encoding caused the refusal.
        self._encoding = "float"
        return answer

    def _read(self, found: object, count: int, estimate: int) -> _EmbeddedBatch:
        data = found.get("data") if isinstance(found, dict) else None
        if not isinstance(data, list) or not all(isinstance(item, dict) for item in data):
            raise GarbledError("it has no list `data`")
        if len(data) != count:
            raise GarbledError(f"{len(data)} vectors came for {count} texts")
        ordered = sorted(data, key=lambda item: item["index"]) if _are_numbered(data) else data
        rows = [self._row(item.get("embedding")) for item in ordered]
        return _EmbeddedBatch(np.stack(rows), _count_used_tokens(found, estimate))

    def _row(self, numbers: object) -> Vector:
        # Services that ignore the requested encoding return a list.
        row = _decode_vector(numbers) if isinstance(numbers, str) else _parse_vector(numbers)
        if row.ndim != 1 or not np.isfinite(row).all():
            raise GarbledError("a vector is not a list of finite numbers")
        if len(row) != self.dimension:
            raise self._other_dimension(len(row))
        return row

    def _other_dimension(self, found: int) -> ConfigError:
        problem = f"{self.name} returns vectors of {found} numbers, expected {self.dimension}; set it to {found}"
        return self._service.endpoint.config_error("embedding_dimension", problem)

    def __repr__(self) -> str:
        return f"<OpenAIEmbedder {self.name} at {self._service.endpoint.host}>"


def _decode_vector(text: str) -> Vector:
    try:
        # A copy: the bytes are read-only, and may have another byte order than this machine.
        return np.frombuffer(b64decode(text, validate=True), dtype=_FLOAT32).astype(np.float32)
    except ValueError:
        raise GarbledError("a vector is not the base64 of 32-bit numbers") from None


def _parse_vector(numbers: object) -> Vector:
    try:
        with np.errstate(over="ignore"):
            return np.asarray(numbers if isinstance(numbers, list) else [numbers], dtype=np.float32)
    except (TypeError, ValueError):
        raise GarbledError("a vector is not a list of numbers") from None


async def _gather_batches(asked: Sequence[Coroutine[object, object, _EmbeddedBatch]]) -> list[_EmbeddedBatch]:
    """Return all results, or raise the first error; then no request continues in the background."""
    tasks = [asyncio.create_task(one) for one in asked]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _batches(pieces: Sequence[TextChunk], most: int) -> Iterator[Sequence[TextChunk]]:
    batch: list[TextChunk] = []
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


def _count_used_tokens(found: object, estimate: int) -> int:
    """Return the tokens that the service counted, else the estimate."""
    usage = found.get("usage") if isinstance(found, dict) else None
    counted = usage.get("total_tokens") if isinstance(usage, dict) else None
    return counted if isinstance(counted, int) and counted > 0 else estimate


class OpenAIModel:
    """A chat model over HTTP.

    Args:
        service: client of the service.
        sampling: how it picks its words.
        counters: count `llm_tokens` by model and direction.
    """

    def __init__(self, service: ModelHttpClient, *, sampling: Sampling, counters: Counters) -> None:
        limit = "max_tokens" if service.endpoint.is_compatible_only else "max_completion_tokens"
        self._service = service
        self._calls = ChatCalls(service, SamplingOptions(sampling, limit), counters)
        self._knows_schemas = True

    @property
    def name(self) -> str:
        """Provider and model."""
        return self._service.endpoint.name

    async def complete(self, messages: Sequence[ChatMessage], schema: type[Model]) -> Model:
        """Complete, see `LanguageModel.complete`; a wrong answer is sent back once, with its errors.

        An answer that reaches `llm_max_tokens` is an error at once: it would be cut off again.
        """
        return await complete_in_form(self.name, messages, schema, self._structured)

    async def write(self, messages: Sequence[ChatMessage], *, max_tokens: int = 500) -> str:
        """Write, see `LanguageModel.write`; the text arrives as a stream, and an interrupted one is requested again."""
        asked = [message_body(message) for message in messages]
        return await self._calls.write(self._body(asked), asked, _read_stream, max_tokens=max_tokens)

    async def close(self) -> None:
        """Close connections; may be called again."""
        await self._service.close()

    async def _structured(self, asked: Sequence[ChatBody], schema: type[BaseModel]) -> str:
        if self._knows_schemas:
            form = {"name": schema_name(schema), "strict": True, "schema": strict_schema(schema)}
            try:
                return await self._answer(asked, {"type": "json_schema", "json_schema": form})
            except RefusedError as error:
                if error.status not in REFUSED_CONTENT:
                    raise
        answer = await self._answer([_schema_message(schema), *asked], {"type": "json_object"})
        # Only now is it clear that the schema caused the refusal.
        self._knows_schemas = False
        return answer

    async def _answer(self, asked: Sequence[ChatBody], form: Mapping[str, object]) -> str:
        body = {**self._body(asked), "response_format": form}
        return await self._calls.answer(body, asked, _parse_reply)

    def _body(self, asked: Sequence[ChatBody]) -> dict[str, object]:
        return {"model": self._service.endpoint.model, "messages": list(asked)}

    def __repr__(self) -> str:
        return f"<OpenAIModel {self.name} at {self._service.endpoint.host}>"


def _schema_message(schema: type[BaseModel]) -> ChatBody:
    form = orjson.dumps(schema.model_json_schema()).decode()
    return {"role": "system", "content": f"Answer with one JSON object, and nothing else, of this JSON schema: {form}"}


def _parse_reply(answer: object) -> ChatReply:
    choice = _choice(answer)
    message = choice.get("message") if choice else None
    if not isinstance(message, dict):
        raise GarbledError("it has no message in `choices`")
    content = message.get("content") or message.get("refusal")
    if not isinstance(content, str):
        raise GarbledError("its message has no text")
    return ChatReply(content, *_usage(answer), is_cut=choice is not None and choice.get("finish_reason") == "length")


async def _read_stream(lines: AsyncIterator[bytes]) -> ChatReply:
    """Return the complete text of a stream of server-sent events.

    Raises:
        GarbledError: it ends before the model did, or is something else.
    """
    parts: list[str] = []
    usage: tuple[int | None, int | None] = None, None
    is_whole = False
    async for event in read_events(lines):
        if event is None:
            is_whole = True
            break
        choice = _choice(event) or {}
        delta = choice.get("delta")
        if isinstance(delta, dict) and isinstance(text := delta.get("content"), str):
            parts.append(text)
        is_whole = is_whole or choice.get("finish_reason") is not None
        usage = _usage(event) if _usage(event) != (None, None) else usage
    if not is_whole:
        raise GarbledError("its stream ends before the text does")
    return ChatReply("".join(parts), *usage)


def _choice(answer: object) -> dict[str, object] | None:
    choices = answer.get("choices") if isinstance(answer, dict) else None
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else None


def _usage(answer: object) -> tuple[int | None, int | None]:
    """Return tokens (read, written), as far as the response has them."""
    usage = answer.get("usage") if isinstance(answer, dict) else None
    if not isinstance(usage, dict):
        return None, None
    read, written = usage.get("prompt_tokens"), usage.get("completion_tokens")
    return read if isinstance(read, int) else None, written if isinstance(written, int) else None


# -- prices of tokens ----------------------------------------------------------------------------


AS_OF = "2025-08-01"
_MILLION = 1_000_000


class Price(NamedTuple):
    """US dollars for a million tokens."""

    read: float
    written: float = 0.0


PRICES = {
    "text-embedding-3-small": Price(0.02),
    "text-embedding-3-large": Price(0.13),
    "text-embedding-ada-002": Price(0.10),
    "gpt-4o": Price(2.50, 10.00),
    "gpt-4o-mini": Price(0.15, 0.60),
    "gpt-4.1": Price(2.00, 8.00),
    "gpt-4.1-mini": Price(0.40, 1.60),
    "gpt-4.1-nano": Price(0.10, 0.40),
}
LOCAL = frozenset({"wordllama", "hashing", "onnx", "sentence-transformers", "extractive"})


def cost_usd(name: str, *, read: int, written: int = 0) -> float | None:
    """Return about the cost of tokens; None without a known price, as for a deployment or another service.

    Args:
        name: provider and model, the `name` of a provider.
        read: tokens sent.
        written: tokens received.
    """
    provider, _, model = name.partition(":")
    if provider in LOCAL:
        return 0.0
    price = PRICES.get(model.partition("@")[0]) if provider == "openai" else None
    return None if price is None else (read * price.read + written * price.written) / _MILLION
