"""Groups of settings: providers, memory, synthesis, observability."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, SecretStr

from sharedmem.config.model_services import services_for
from sharedmem.deferred_builds import DEFER_BUILD

# -- rules for patterns ---------------------------------------------------------------------------


V = TypeVar("V")


class PatternRules(Mapping[str, V]):
    """Patterns with the rule of each, in the given order; immutable and hashable."""

    def __init__(self, rules: Mapping[str, V]) -> None:
        self._rules = dict(rules)

    def __getitem__(self, pattern: str) -> V:
        return self._rules[pattern]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rules)

    def __len__(self) -> int:
        return len(self._rules)

    def __hash__(self) -> int:
        return hash(frozenset(self._rules.items()))


# -- providers ------------------------------------------------------------------------------------


TEN_YEARS_S = 315_360_000
_EMBEDDERS = ("auto", "none", "wordllama", "hashing", "onnx", "sentence-transformers", *services_for("embedder"))
_MODELS = ("extractive", *services_for("llm"))
_RERANKERS = ("none", "onnx", "model", *services_for("reranker"))
_PROVIDERS_WITHOUT_MODEL = frozenset({"auto", "none", "wordllama", "hashing", "extractive", "model"})
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
        "hashing (tests), onnx (bge-small-en-v1.5), onnx:<model or folder>, sentence-transformers:<model>, "
        "azure:<deployment>, or <service>:<model> with openai, gemini, mistral, ollama, vllm or lmstudio.",
    )
    embedding_url: _BaseUrl | None = Field(
        None,
        description="Base URL of an OpenAI-compatible embedding service, or of the Azure resource; default: that of "
        "the service.",
    )
    embedding_key: SecretStr | None = Field(
        None,
        description="API key of the embedding service; default, without embedding_url: the variable of the service, "
        "such as OPENAI_API_KEY.",
    )
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
        description="Model that writes summaries: extractive (offline: picks sentences), azure:<deployment>, or "
        "<service>:<model> with openai, anthropic, gemini, mistral, groq, deepseek, openrouter, ollama, vllm or "
        "lmstudio.",
    )
    llm_url: _BaseUrl | None = Field(
        None,
        description="Base URL of a service with the same API, or of the Azure resource; default: that of the service.",
    )
    llm_key: SecretStr | None = Field(
        None,
        description="API key of the chat service; default, without llm_url: the variable of the service, such as "
        "OPENAI_API_KEY or ANTHROPIC_API_KEY.",
    )
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
        "(ms-marco-MiniLM-L-12-v2, on this machine), onnx:<model or folder>, model (one call of the llm for each "
        "search). It gets the query and the texts of the best 20 memories.",
    )
    reranker_url: _BaseUrl | None = Field(
        None, description="Base URL of a service that has the provider's API; default: that of the provider."
    )
    reranker_key: SecretStr | None = Field(
        None,
        description="API key of the reranker; default, without reranker_url: the variable COHERE_API_KEY or "
        "JINA_API_KEY.",
    )
    reranker_timeout_s: _Timeout | None = Field(
        None, description="Timeout of one request to the reranker, in seconds; default: provider_timeout_s."
    )
    reranker_budget_ms: int = Field(
        5000,
        ge=1,
        le=600_000,
        description="Milliseconds that a search waits for the reranker; after that its order stays as it is.",
    )


# -- memory ---------------------------------------------------------------------------------------


def parse_json(value: object) -> object:
    """Return the parsed JSON text, so that an environment variable can contain a mapping."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise ValueError('it should be JSON, as in {"temp:*": "ephemeral"}') from error


_Ttl = Annotated[int, Field(ge=1, le=TEN_YEARS_S)]
_Similarity = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]


_SearchMode = Literal["hybrid", "semantic", "keywords"]


def _check_long_ttl(seconds: int) -> int:
    if not seconds:
        raise ValueError("it should be seconds from 1 to ten years, or -1 for ever")
    return seconds


_LongTtl = Annotated[int, Field(ge=-1, le=TEN_YEARS_S), AfterValidator(_check_long_ttl)]


class NamespaceSettings(BaseModel):
    """Settings of memory, cache and searches that a namespace may have of its own (`namespace_settings`)."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=DEFER_BUILD)

    memory_enabled: bool = Field(
        default=True, description="Whether actors use memory; without it their memory calls do nothing."
    )
    short_term_ttl_s: _Ttl = Field(86_400, description="Lifetime of short-term memories in seconds.")
    long_term_ttl_s: _LongTtl = Field(-1, description="Lifetime of long-term memories in seconds; -1: for ever.")
    adaptive_ttl: bool = Field(
        default=False,
        description="Whether lifetimes that no caller gave follow importance and use: half to 8 times the default.",
    )
    dedup_enabled: bool = Field(
        default=True, description="Whether additions are merged into duplicates, unless a call says otherwise."
    )
    dedup_similarity: _Similarity | None = Field(
        None,
        description="Cosine similarity from which a memory is merged into an existing one; default: that of the "
        "embedder.",
    )
    importance_scoring: Literal["none", "rules", "model"] = Field(
        "none",
        description="Who scores the importance of a new memory whose caller gives none: none (it is medium), rules (a "
        "heuristic for English), or model (one call of the llm).",
    )
    rollup_turns: int = Field(
        0,
        ge=0,
        le=1000,
        description="Older turns of a conversation that become one memory, once there are so many; 0: never.",
    )
    rollup_tokens: int = Field(
        0,
        ge=0,
        le=1_000_000,
        description="Tokens of older turns from which fewer turns are summarised, checked every 10 turns; 0: never.",
    )
    rollup_keep: int = Field(10, ge=0, le=1000, description="Newest turns of a conversation that are not summarised.")
    rollup_expire_s: int = Field(
        0,
        ge=0,
        le=TEN_YEARS_S,
        description="Seconds after which memories that a roll-up covers expire; 0: they stay.",
    )
    rollup_old_after_days: int = Field(
        0,
        ge=0,
        le=36_500,
        description="Days after which memories that are no turns are summarised, several into one; 0: never.",
    )
    rollup_old_every_s: int = Field(
        86_400, ge=60, le=2_678_400, description="Seconds from one look for such old memories to the next."
    )
    cache_enabled: bool = Field(
        default=True, description="Whether the semantic cache is used; without it nothing is stored or found there."
    )
    cache_ttl_s: _Ttl = Field(3600, description="Seconds for which the semantic cache stores an answer.")
    cache_similarity: _Similarity | None = Field(
        None,
        description="Cosine similarity from which the semantic cache treats two prompts as the same; default: that of "
        "the embedder.",
    )
    search_limit: int = Field(10, ge=1, le=1000, description="Hits of a search for memories that gives no limit.")
    search_max_limit: int = Field(
        100, ge=10, le=1000, description="Highest limit that a search for memories may give; at least search_limit."
    )
    search_mode: _SearchMode = Field(
        "hybrid", description="Mode of a search for memories that gives none: hybrid, semantic or keywords."
    )


class NamespaceRules(PatternRules[NamespaceSettings]):
    """Patterns of namespaces with the settings of each."""

    def __repr__(self) -> str:
        return repr(rules_as_given(self))


def rules_as_given(rules: Mapping[str, NamespaceSettings]) -> dict[str, dict[str, object]]:
    """Return what is set for each pattern."""
    return {pattern: rule.model_dump(exclude_unset=True) for pattern, rule in rules.items()}


def rule_of(rules: Mapping[str, NamespaceSettings], namespace: str) -> dict[str, object]:
    """Return what the first pattern that matches a namespace sets; nothing without one."""
    for pattern, rule in rules.items():
        if fnmatchcase(namespace, pattern):
            return rule.model_dump(exclude_unset=True)
    return {}


_Pattern = Annotated[str, Field(min_length=1)]
_Rules = Annotated[
    Mapping[_Pattern, NamespaceSettings],
    BeforeValidator(parse_json),
    AfterValidator(NamespaceRules),
    PlainSerializer(rules_as_given),
]


class MemorySettings(NamespaceSettings):
    """Settings of memory, cache, searches and graphs."""

    model_config = PART

    memory_durability: bool = Field(
        default=True, description="Whether the durable tier, if there is one, stores memories and graphs."
    )
    memory_history: int = Field(100, ge=1, le=10_000, description="Stored versions of a memory.")
    memory_history_s: _Ttl = Field(2_592_000, description="Seconds for which a deleted memory's history is stored.")
    search_candidates: int = Field(
        100, ge=10, le=1000, description="Hits by words and hits by meaning that a search ranks."
    )
    standing_memories: bool = Field(
        default=True,
        description="Whether searches and recall offer standing instructions and preferences whatever is asked.",
    )
    latest_truth: bool = Field(
        default=True,
        description="Whether searches put a statement before older ones that it replaces; plain documents keep their "
        "order.",
    )
    search_timeout_ms: int = Field(
        2000, ge=1, le=60_000, description="Timeout of a search at the server, in milliseconds."
    )
    promote_above: int = Field(
        1000, ge=1, le=10_000_000, description="Memories above which a namespace gets an index of its own."
    )
    hnsw_above: int = Field(
        20_000, ge=1, le=1_000_000_000, description="Memories above which such an index is approximate (HNSW)."
    )
    graph_backend: Literal["redis", "falkordb"] = Field(
        "redis", description="Storage of knowledge graphs: redis, or the FalkorDB module of the server."
    )
    graph_rules: str | None = Field(
        None, description="YAML file with the relations, vocabularies and rules for offline extraction of facts."
    )
    graph_summary_every: int = Field(
        20, ge=0, le=10_000, description="Turns of a session after which the graph summarises them; 0: never."
    )
    namespace_settings: _Rules = Field(
        NamespaceRules({}),
        description="Settings of single namespaces by pattern, the first that matches counts, such as "
        '{"sandbox-*": {"dedup_enabled": false}}; in the environment write JSON.',
    )


# -- synthesis ------------------------------------------------------------------------------------


# The base64 of 24 to 64 bytes, as in the Standard Webhooks scheme.
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
    """Settings of synthesis."""

    model_config = PART

    synthesis_max_messages: int = Field(30, ge=1, le=1000, description="Most messages in one note.")
    synthesis_recall_threshold: _Share | None = Field(
        None,
        description="Cosine similarity below which a query ignores a note, unless the note contains the query's words; "
        "default: that of the embedder.",
    )
    synthesis_score_threshold: _Share | None = Field(
        None,
        description="Composite score below which a query does not return a note, unless it contains the query's words; "
        "default: that of the embedder.",
    )
    synthesis_results: int = Field(10, ge=1, le=1000, description="Most notes that a query returns.")
    synthesis_link_threshold: _Share | None = Field(
        None,
        description="Composite score from which a note is compared with older ones; default: that of the embedder.",
    )
    synthesis_links: int = Field(4, ge=1, le=33, description="Most older notes that a new one is compared with.")
    synthesis_concurrency: int = Field(
        4, ge=0, le=1000, description="Concurrent tasks of one process; 0 leaves them to other processes."
    )
    synthesis_attempts: int = Field(5, ge=1, le=100, description="Attempts before a task counts as failed.")
    synthesis_result_s: int = Field(
        604_800, ge=60, le=31_622_400, description="Seconds for which the result of a task is stored."
    )
    synthesis_archive_after_days: int = Field(
        3650, ge=1, le=36_500, description="Days after which an unused note may be archived."
    )
    webhook_secret: Annotated[SecretStr, AfterValidator(_check_webhook_secret)] | None = Field(
        None, description="Secret that signs webhooks: `whsec_` and the base64 of 24 to 64 random bytes."
    )
    webhook_private: bool = Field(
        default=False, description="Whether webhooks may go to private and loopback addresses."
    )


# -- observability --------------------------------------------------------------------------------


def _check_host(host: str) -> str:
    if not host or not host.isprintable() or any(sign in host for sign in " /[]@"):
        raise ValueError("it should be an address of this machine, such as 127.0.0.1, ::1 or 0.0.0.0")
    return host


def _check_collector(url: str) -> str:
    if not re.fullmatch(r"https?://[^\s@]+", url):
        raise ValueError("it should be a URL without a password, such as http://127.0.0.1:4318")
    return url


def _fold_case(value: object) -> object:
    """Return `INFO` as `info`."""
    return value.lower() if isinstance(value, str) else value


_Host = Annotated[str, AfterValidator(_check_host)]
_Collector = Annotated[str, AfterValidator(_check_collector)]
_Level = Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_fold_case)]
_Format = Annotated[Literal["text", "json"], BeforeValidator(_fold_case)]


class ObservabilitySettings(BaseModel):
    """Settings of metrics, traces and logs."""

    model_config = PART

    metrics_port: int | None = Field(
        None,
        ge=0,
        le=65_535,
        description="Port on which a hub serves the metrics of its process (http://host:port/metrics); 0: a free one. "
        "Default: not served. Of the command line only `serve grpc` uses it.",
    )
    metrics_host: _Host = Field("127.0.0.1", description="Address for metrics_port; the metrics need no token.")
    otlp_endpoint: _Collector | None = Field(
        None,
        description="Collector of OpenTelemetry to which a hub sends the metrics of its process every 15 seconds, as "
        "OTLP over HTTP, such as http://127.0.0.1:4318. Default: not sent.",
    )
    trace_content: bool = Field(
        default=False,
        description="Whether spans of memory operations have the text of queries and memories, which then goes where "
        "the spans go. Default: ids and numbers only.",
    )
    trace_redis: bool = Field(
        default=False,
        description="Whether each call of Redis inside of a span is a span of its own (`db.*`), with the name of the "
        "command or script, never with keys or values.",
    )
    log_level: _Level | None = Field(
        None,
        description="Least level that commands and services log: debug, info, warning or error. Default: warning for "
        "services; other commands log only if this or log_file is set.",
    )
    log_format: _Format = Field("text", description="Form of a line in the log of commands and services: text or json.")
    log_file: Path | None = Field(
        None, description="File that commands and services append their log to; without it standard error."
    )
