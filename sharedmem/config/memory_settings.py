"""Settings of semantic memory, its model providers, the semantic cache, graphs and synthesis."""

from __future__ import annotations

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

_TEN_YEARS_S = 315_360_000
_EMBEDDERS = ("auto", "none", "wordllama", "hashing", "openai", "azure", "sentence-transformers")
_MODELS = ("extractive", "openai", "azure")
_PROVIDERS_WITHOUT_MODEL = frozenset({"auto", "none", "wordllama", "hashing", "extractive"})


def _check_provider(text: str, known: tuple[str, ...]) -> str:
    provider, separator, model = text.partition(":")
    if (
        provider not in known
        or (provider in _PROVIDERS_WITHOUT_MODEL) == bool(separator)
        or (separator and not model.strip())
    ):
        shown = [name if name in _PROVIDERS_WITHOUT_MODEL else f"{name}:<model>" for name in known]
        raise ValueError(f"it should be one of {', '.join(shown)}")
    return text


def _check_embedder(text: str) -> str:
    return _check_provider(text, _EMBEDDERS)


def _check_model(text: str) -> str:
    return _check_provider(text, _MODELS)


def _check_base_url(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError("it is no URL; write it like https://api.openai.com/v1") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("it should be like https://api.openai.com/v1")
    if "@" in parts.netloc or not url.isprintable():
        raise ValueError("it should hold no credentials; give those as embedding_key or llm_key")
    return url.rstrip("/")


_EmbedderName = Annotated[str, AfterValidator(_check_embedder)]
_ModelName = Annotated[str, AfterValidator(_check_model)]
_BaseUrl = Annotated[str, AfterValidator(_check_base_url)]
_Ttl = Annotated[int, Field(ge=1, le=_TEN_YEARS_S)]
_Similarity = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]

# Only `Settings`, which has all fields, is ever validated: the validators of its bases are never built.
_PART = ConfigDict(defer_build=True)


class MemorySettings(BaseModel):
    """What can be chosen of memory, providers and cache."""

    model_config = _PART

    embedder: _EmbedderName = Field(
        "auto",
        description="Who turns texts into vectors: auto (wordllama where installed, else none), none, wordllama, "
        "hashing (tests), openai:<model>, azure:<deployment>, sentence-transformers:<model>.",
    )
    embedding_url: _BaseUrl | None = Field(
        None, description="Base URL of an OpenAI-compatible embedding service, or of the Azure resource."
    )
    embedding_key: SecretStr | None = Field(None, description="API key of the embedding service.")
    embedding_dimension: int | None = Field(
        None, ge=1, le=4096, description="Numbers of a vector; without it what the model is known for."
    )
    embedding_batch: int = Field(100, ge=1, le=2048, description="Texts that one request for embeddings holds.")
    embedding_cache_s: int = Field(
        3600, ge=0, le=_TEN_YEARS_S, description="Seconds that embeddings are remembered; 0 for not at all."
    )
    embedding_cache_items: int = Field(
        10_000, ge=0, le=10_000_000, description="Embeddings that one process remembers."
    )
    provider_timeout_s: float = Field(
        30.0, gt=0, le=3600, allow_inf_nan=False, description="Seconds that one request to a provider may take."
    )
    provider_retry_for_s: float = Field(
        60.0, ge=0, le=3600, allow_inf_nan=False, description="Seconds in which a failed request is tried again."
    )
    provider_concurrency: int = Field(4, ge=1, le=1000, description="Requests to one provider at a time.")
    llm: _ModelName = Field(
        "extractive",
        description="Who writes summaries: extractive (offline: picks sentences), openai:<model>, azure:<deployment>.",
    )
    llm_url: _BaseUrl | None = Field(
        None, description="Base URL of an OpenAI-compatible chat service, or of the Azure resource."
    )
    llm_key: SecretStr | None = Field(None, description="API key of the chat service.")
    memory_enabled: bool = Field(
        default=True, description="Whether actors remember; without it their memory calls do nothing."
    )
    memory_durability: bool = Field(
        default=True, description="Whether memories and graphs are kept in the durable tier, where there is one."
    )
    short_term_ttl_s: _Ttl = Field(86_400, description="Seconds that short-term memories live.")
    dedup_similarity: _Similarity = Field(
        0.95, description="Cosine similarity from which a memory is merged into the one it resembles."
    )
    memory_history: int = Field(100, ge=1, le=10_000, description="Versions of a memory that are kept.")
    memory_history_s: _Ttl = Field(2_592_000, description="Seconds that the history of a deleted memory stays.")
    cache_ttl_s: _Ttl = Field(3600, description="Seconds that the semantic cache keeps an answer.")
    cache_similarity: _Similarity = Field(
        0.98, description="Cosine similarity from which the semantic cache takes two prompts for the same."
    )
    search_candidates: int = Field(
        100, ge=10, le=1000, description="Hits by words and hits by meaning that a search ranks."
    )
    search_timeout_ms: int = Field(2000, ge=1, le=60_000, description="Milliseconds that the server may search.")
    promote_above: int = Field(
        1000, ge=1, le=10_000_000, description="Memories above which a namespace gets an index of its own."
    )
    hnsw_above: int = Field(
        20_000, ge=1, le=1_000_000_000, description="Memories above which such an index is approximate (HNSW)."
    )
    graph_backend: Literal["redis", "falkordb"] = Field(
        "redis", description="Who keeps knowledge graphs: redis, or the FalkorDB module of the server."
    )
    graph_rules: str | None = Field(
        None, description="File with the relations, vocabularies and rules by which facts are found offline (YAML)."
    )
    graph_summary_every: int = Field(
        20, ge=0, le=10_000, description="Turns of a session after which the graph sums them up; 0 for never."
    )


# The base64 of 24 to 64 bytes, as the Standard Webhooks scheme has it.
_WEBHOOK_SECRET = re.compile(r"whsec_[A-Za-z0-9+/]{32,86}={0,2}")


def _check_webhook_secret(secret: SecretStr) -> SecretStr:
    shown = secret.get_secret_value()
    if shown and not (_WEBHOOK_SECRET.fullmatch(shown) and len(shown.removeprefix("whsec_")) % 4 == 0):
        raise ValueError(
            'it should be "whsec_" and the base64 of 24 to 64 random bytes; '
            "`echo whsec_$(openssl rand -base64 32)` makes one"
        )
    return secret


_Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class SynthesisSettings(BaseModel):
    """What can be chosen of synthesis."""

    model_config = _PART

    synthesis_max_messages: int = Field(30, ge=1, le=1000, description="Messages that one note is made of at most.")
    synthesis_recall_threshold: _Share | None = Field(
        None,
        description="Cosine similarity below which a query does not look at a note, unless it holds the query's words; "
        "without it the embedder's.",
    )
    synthesis_score_threshold: _Share | None = Field(
        None,
        description="Composite score below which a query does not answer a note, unless it holds the query's words; "
        "without it the embedder's.",
    )
    synthesis_results: int = Field(10, ge=1, le=1000, description="Notes that a query answers.")
    synthesis_link_threshold: _Share | None = Field(
        None,
        description="Composite score from which a note is held against older ones; without it the embedder's.",
    )
    synthesis_links: int = Field(4, ge=1, le=33, description="Older notes that a new one is held against at most.")
    synthesis_concurrency: int = Field(
        4, ge=0, le=1000, description="Tasks that one process works on at a time; 0 leaves them to other processes."
    )
    synthesis_attempts: int = Field(5, ge=1, le=100, description="How often a task is tried before it is given up.")
    synthesis_result_s: int = Field(
        604_800, ge=60, le=31_622_400, description="Seconds that the result of a task can be asked for."
    )
    synthesis_archive_after_days: int = Field(
        3650, ge=1, le=36_500, description="Days after which a note that nobody needs may be archived."
    )
    webhook_secret: Annotated[SecretStr, AfterValidator(_check_webhook_secret)] | None = Field(
        None, description="Secret that signs webhooks: `whsec_` and the base64 of 24 to 64 random bytes."
    )
    webhook_private: bool = Field(
        default=False, description="Whether webhooks may go to private and loopback addresses."
    )
