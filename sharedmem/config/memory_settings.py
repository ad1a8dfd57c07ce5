"""Settings of memory, the semantic cache, searches and graphs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from sharedmem.config.pattern_rules import PatternRules
from sharedmem.config.provider_settings import PART, TEN_YEARS_S
from sharedmem.deferred_builds import DEFER_BUILD


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
