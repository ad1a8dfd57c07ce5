"""Providers as the settings choose them; nothing is loaded and nobody is called before the first text."""

from __future__ import annotations

from sharedmem.clock import Clock
from sharedmem.config import Settings
from sharedmem.providers.asking import Patience, Service
from sharedmem.providers.caching import CachedEmbedder
from sharedmem.providers.endpoint import CHAT, EMBEDDING, Role, open_endpoint
from sharedmem.providers.extractive import ExtractiveSummarizer
from sharedmem.providers.hashing import HashingEmbedder
from sharedmem.providers.openai_embedder import OpenAIEmbedder, shape_of
from sharedmem.providers.openai_model import OpenAIModel
from sharedmem.providers.protocol import Embedder, LanguageModel
from sharedmem.providers.static import REMEDY, StaticEmbedder, is_installed
from sharedmem.providers.transformers import TransformerEmbedder
from sharedmem.telemetry import Counters, get_logger

_log = get_logger("providers")


def open_embedder(settings: Settings, clock: Clock, counters: Counters) -> CachedEmbedder | None:
    """Who turns texts into vectors, with what this process remembers in front; None when nobody does.

    Raises:
        UnsupportedError: the chosen provider is not installed.
        ConfigError: a setting of it is missing or wrong.
    """
    embedder = _embedder(settings, clock, counters)
    return None if embedder is None else remembering(embedder, settings, clock=clock, counters=counters)


def remembering(embedder: Embedder, settings: Settings, *, clock: Clock, counters: Counters) -> CachedEmbedder:
    """An embedder with what this process remembers in front, unless it has that already."""
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
    """Who writes summaries.

    Raises:
        UnsupportedError: the chosen provider is not installed.
        ConfigError: a setting of it is missing or wrong.
    """
    if settings.llm == "extractive":
        return ExtractiveSummarizer()
    service = _service(settings, CHAT, clock=clock, counters=counters)
    return OpenAIModel(service, counters=counters)


def _embedder(settings: Settings, clock: Clock, counters: Counters) -> Embedder | None:
    provider, _, model = settings.embedder.partition(":")
    match provider:
        case "none":
            return None
        case "hashing":
            return HashingEmbedder(settings.embedding_dimension or 64)
        case "wordllama":
            return _static(settings)
        case "auto":
            if is_installed():
                return _static(settings)
            _log.info("no embedder: memories are found by their words alone; %s finds them by meaning too", REMEDY)
            return None
        case "sentence-transformers":
            origin = settings.origin("embedding_dimension")
            return TransformerEmbedder(
                model, dimension=settings.embedding_dimension, batch=settings.embedding_batch, origin=origin
            )
    service = _service(settings, EMBEDDING, clock=clock, counters=counters)
    shape = shape_of(service.endpoint)
    return OpenAIEmbedder(service, shape=shape, batch=settings.embedding_batch, counters=counters)


def _service(settings: Settings, role: Role, *, clock: Clock, counters: Counters) -> Service:
    patience = Patience(
        timeout_s=settings.provider_timeout_s,
        retry_for_s=settings.provider_retry_for_s,
        concurrency=settings.provider_concurrency,
    )
    endpoint = open_endpoint(settings, role)
    return Service(endpoint, patience=patience, clock=clock, counters=counters, counted_as=role.counted_as)


def _static(settings: Settings) -> StaticEmbedder:
    if settings.embedding_dimension is None:
        return StaticEmbedder()
    return StaticEmbedder(settings.embedding_dimension, origin=settings.origin("embedding_dimension"))
