"""Create providers from settings; nothing is loaded or called before the first text."""

from __future__ import annotations

from sharedmem.clock import Clock
from sharedmem.config import Settings
from sharedmem.errors import ConfigError
from sharedmem.providers.anthropic import AnthropicModel
from sharedmem.providers.chat import Sampling
from sharedmem.providers.embedding import CachedEmbedder
from sharedmem.providers.extractive import ExtractiveSummarizer, can_follow_instructions
from sharedmem.providers.http_client import (
    CHAT,
    EMBEDDING,
    RERANKING,
    ModelHttpClient,
    RetryPolicy,
    ServiceRole,
    open_endpoint,
)
from sharedmem.providers.local_embedders import (
    WORDLLAMA_REMEDY,
    HashingEmbedder,
    TransformerEmbedder,
    WordLlamaEmbedder,
    is_installed,
)
from sharedmem.providers.onnx import DEFAULT_EMBEDDER, DEFAULT_RERANKER, OnnxEmbedder, OnnxReranker, PromptOptions
from sharedmem.providers.openai import OpenAIEmbedder, OpenAIModel, vector_shape
from sharedmem.providers.protocol import Embedder, LanguageModel, Reranker
from sharedmem.providers.reranker import HttpReranker, ModelReranker
from sharedmem.runtime import Counters, get_logger

_log = get_logger("providers")


def open_embedder(settings: Settings, clock: Clock, counters: Counters) -> CachedEmbedder | None:
    """Return the embedder of the settings with a cache; None without an embedder.

    Raises:
        UnsupportedError: the chosen provider is not installed.
        ConfigError: a setting of it is missing or invalid.
    """
    embedder = _create_embedder(settings, clock, counters)
    return None if embedder is None else with_cache(embedder, settings, clock=clock, counters=counters)


def with_cache(embedder: Embedder, settings: Settings, *, clock: Clock, counters: Counters) -> CachedEmbedder:
    """Return an embedder with a cache in this process; one that has a cache already is returned unchanged."""
    if isinstance(embedder, CachedEmbedder):
        return embedder
    return CachedEmbedder(
        embedder,
        clock=clock,
        ttl_s=settings.embedding_cache_s,
        items=settings.embedding_cache_items,
        counters=counters,
    )


def open_model(settings: Settings, clock: Clock, counters: Counters) -> LanguageModel:
    """Return the language model of the settings.

    Raises:
        UnsupportedError: the chosen provider is not installed.
        ConfigError: a setting of it is missing or invalid.
    """
    if settings.llm == "extractive":
        return ExtractiveSummarizer()
    service = _create_http_client(settings, CHAT, clock=clock, counters=counters)
    sampling = Sampling(settings.llm_temperature, settings.llm_top_p, settings.llm_max_tokens)
    if service.endpoint.provider == "anthropic":
        return AnthropicModel(service, sampling=sampling, counters=counters)
    return OpenAIModel(service, sampling=sampling, counters=counters)


def open_reranker(
    settings: Settings, clock: Clock, counters: Counters, *, model: LanguageModel | None = None
) -> Reranker | None:
    """Return the reranker of the settings; None without one.

    Args:
        settings: name it.
        clock: for pauses between tries.
        counters: count requests.
        model: the language model that reranks if the settings say so; the caller closes it.

    Raises:
        UnsupportedError: the HTTP client, or what ONNX models need, is not installed.
        ConfigError: a setting of it is missing or invalid.
    """
    provider, _, name = settings.reranker.partition(":")
    match provider:
        case "none":
            return None
        case "onnx":
            return OnnxReranker(name or DEFAULT_RERANKER, origin=settings.origin("reranker"))
        case "model":
            if model is None or not can_follow_instructions(model):
                problem = "`model` needs a language model; set llm, as in llm=openai:<model>"
                raise ConfigError("reranker", settings.origin("reranker"), problem)
            return ModelReranker(model)
    service = _create_http_client(settings, RERANKING, clock=clock, counters=counters)
    return HttpReranker(service, counters=counters)


def _create_embedder(settings: Settings, clock: Clock, counters: Counters) -> Embedder | None:
    provider, _, model = settings.embedder.partition(":")
    match provider:
        case "none":
            return None
        case "hashing":
            return HashingEmbedder(settings.embedding_dimension or 64)
        case "wordllama":
            return _create_wordllama(settings)
        case "auto":
            if is_installed():
                return _create_wordllama(settings)
            _log.info(
                "no embedder: memories are found by their words alone; %s finds them by meaning too", WORDLLAMA_REMEDY
            )
            return None
        case "onnx":
            return _create_onnx_embedder(settings, model)
        case "sentence-transformers":
            origin = settings.origin("embedding_dimension")
            return TransformerEmbedder(
                model, dimension=settings.embedding_dimension, batch=settings.embedding_batch, origin=origin
            )
    service = _create_http_client(settings, EMBEDDING, clock=clock, counters=counters)
    shape = vector_shape(service.endpoint)
    return OpenAIEmbedder(
        service,
        shape=shape,
        batch=settings.embedding_batch,
        encoding=settings.embedding_encoding,
        counters=counters,
    )


def _create_http_client(settings: Settings, role: ServiceRole, *, clock: Clock, counters: Counters) -> ModelHttpClient:
    patience = RetryPolicy(
        timeout_s=getattr(settings, role.timeout) or settings.provider_timeout_s,
        retry_for_s=settings.provider_retry_for_s,
        concurrency=settings.provider_concurrency,
    )
    endpoint = open_endpoint(settings, role)
    return ModelHttpClient(endpoint, patience=patience, clock=clock, counters=counters, counted_as=role.counted_as)


def _create_onnx_embedder(settings: Settings, model: str) -> OnnxEmbedder:
    prompts = PromptOptions(
        settings.embedding_pooling, settings.embedding_query_prefix, settings.embedding_document_prefix
    )
    return OnnxEmbedder(
        model or DEFAULT_EMBEDDER,
        dimension=settings.embedding_dimension,
        prompts=prompts,
        origin=settings.origin("embedder"),
    )


def _create_wordllama(settings: Settings) -> WordLlamaEmbedder:
    if settings.embedding_dimension is None:
        return WordLlamaEmbedder()
    return WordLlamaEmbedder(settings.embedding_dimension, origin=settings.origin("embedding_dimension"))
