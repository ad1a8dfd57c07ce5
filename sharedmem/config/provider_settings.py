"""Settings of providers: embedders, language models, rerankers, and the services behind them."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

TEN_YEARS_S = 315_360_000
_EMBEDDERS = ("auto", "none", "wordllama", "hashing", "openai", "azure", "onnx", "sentence-transformers")
_MODELS = ("extractive", "openai", "azure")
_RERANKERS = ("none", "cohere", "jina", "onnx")
_PROVIDERS_WITHOUT_MODEL = frozenset({"auto", "none", "wordllama", "hashing", "extractive"})
_PROVIDERS_WITH_USUAL_MODEL = frozenset({"onnx"})
_MODEL_MAY_BE_LEFT_OUT = _PROVIDERS_WITHOUT_MODEL | _PROVIDERS_WITH_USUAL_MODEL


def _check_provider(text: str, known: tuple[str, ...]) -> str:
    provider, separator, model = text.partition(":")
    if (
        provider not in known
        or (provider in _PROVIDERS_WITHOUT_MODEL if separator else provider not in _MODEL_MAY_BE_LEFT_OUT)
        or (separator and not model.strip())
    ):
        shown = [_form(name) for name in known]
        raise ValueError(f"it should be one of {', '.join(shown)}")
    return text


def _form(provider: str) -> str:
    if provider in _PROVIDERS_WITHOUT_MODEL:
        return provider
    return f"{provider}, {provider}:<model>" if provider in _PROVIDERS_WITH_USUAL_MODEL else f"{provider}:<model>"


def _check_embedder(text: str) -> str:
    return _check_provider(text, _EMBEDDERS)


def _check_model(text: str) -> str:
    return _check_provider(text, _MODELS)


def _check_reranker(text: str) -> str:
    return _check_provider(text, _RERANKERS)


def _check_base_url(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError("it is not a URL; write it like https://api.openai.com/v1") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("it should be like https://api.openai.com/v1")
    if "@" in parts.netloc or not url.isprintable():
        raise ValueError("it should contain no credentials; give those as embedding_key, llm_key or reranker_key")
    return url.rstrip("/")


_EmbedderName = Annotated[str, AfterValidator(_check_embedder)]
_ModelName = Annotated[str, AfterValidator(_check_model)]
_RerankerName = Annotated[str, AfterValidator(_check_reranker)]
_BaseUrl = Annotated[str, AfterValidator(_check_base_url)]

# Only `Settings`, which has all fields, is validated: the validators of its bases are never built.
PART = ConfigDict(defer_build=True)


_Timeout = Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)]


class ProviderSettings(BaseModel):
    """Settings of embedders, language models and rerankers."""

    model_config = PART

    embedder: _EmbedderName = Field(
        "auto",
        description="Embedder: auto (wordllama if installed, else none), none, wordllama, "
        "hashing (tests), openai:<model>, azure:<deployment>, onnx (bge-small-en-v1.5), onnx:<model or folder>, "
        "sentence-transformers:<model>.",
    )
    embedding_url: _BaseUrl | None = Field(
        None, description="Base URL of an OpenAI-compatible embedding service, or of the Azure resource."
    )
    embedding_key: SecretStr | None = Field(None, description="API key of the embedding service.")
    embedding_dimension: int | None = Field(
        None, ge=1, le=4096, description="Dimension of vectors; default: the known dimension of the model."
    )
    embedding_pooling: Literal["cls", "mean"] | None = Field(
        None,
        description="How an ONNX model makes a vector of its tokens: from the first (cls), or their mean; default: as "
        "the model's files say, else mean.",
    )
    embedding_query_prefix: str | None = Field(
        None, description="Text that an ONNX model gets before a query; default: as the model's files say."
    )
    embedding_document_prefix: str | None = Field(
        None, description="Text that an ONNX model gets before a text that is stored; likewise."
    )
    embedding_batch: int = Field(100, ge=1, le=2048, description="Texts in one request for embeddings.")
    embedding_cache_s: int = Field(
        3600, ge=0, le=TEN_YEARS_S, description="Seconds for which embeddings are cached; 0: not cached."
    )
    embedding_cache_items: int = Field(512, ge=0, le=10_000_000, description="Embeddings in the cache of one process.")
    embedding_encoding: Literal["base64", "float"] = Field(
        "base64",
        description="Form in which a service returns embeddings: base64 (a quarter of the bytes) or float (numbers as "
        "JSON). A service that refuses base64 is asked for float.",
    )
    embedding_timeout_s: _Timeout | None = Field(
        None, description="Timeout of one request for embeddings, in seconds; default: provider_timeout_s."
    )
    provider_timeout_s: _Timeout = Field(30.0, description="Timeout of one request to a provider, in seconds.")
    provider_retry_for_s: float = Field(
        60.0, ge=0, le=3600, allow_inf_nan=False, description="Seconds during which a failed request is retried."
    )
    provider_concurrency: int = Field(4, ge=1, le=1000, description="Concurrent requests to one provider.")
    llm: _ModelName = Field(
        "extractive",
        description="Model that writes summaries: extractive (offline: picks sentences), openai:<model>, "
        "azure:<deployment>.",
    )
    llm_url: _BaseUrl | None = Field(
        None, description="Base URL of an OpenAI-compatible chat service, or of the Azure resource."
    )
    llm_key: SecretStr | None = Field(None, description="API key of the chat service.")
    llm_timeout_s: _Timeout | None = Field(
        None, description="Timeout of one request to a language model, in seconds; default: provider_timeout_s."
    )
    llm_temperature: float | None = Field(
        0.4,
        ge=0,
        le=2,
        allow_inf_nan=False,
        description="Temperature of the language model; null in a file: not sent. A model that refuses it is asked "
        "without it.",
    )
    llm_top_p: float | None = Field(
        0.9, gt=0, le=1, allow_inf_nan=False, description="Share of likely tokens (top_p), likewise."
    )
    llm_max_tokens: int = Field(
        3000, ge=1, le=1_000_000, description="Most tokens of one answer of the language model."
    )
    reranker: _RerankerName = Field(
        "none",
        description="Reranker of hybrid searches for memories: none, cohere:<model>, jina:<model>, onnx "
        "(ms-marco-MiniLM-L-12-v2, on this machine), onnx:<model or folder>. It gets the query and the texts of the "
        "best 20 memories.",
    )
    reranker_url: _BaseUrl | None = Field(
        None, description="Base URL of a service that has the provider's API; default: that of the provider."
    )
    reranker_key: SecretStr | None = Field(
        None, description="API key of the reranker; default: the variable COHERE_API_KEY or JINA_API_KEY."
    )
    reranker_timeout_s: _Timeout | None = Field(
        None, description="Timeout of one request to the reranker, in seconds; default: provider_timeout_s."
    )
