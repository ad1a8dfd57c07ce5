"""Settings of memory, the semantic cache, searches and graphs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from sharedmem.config.provider_settings import PART, TEN_YEARS_S

Ttl = Annotated[int, Field(ge=1, le=TEN_YEARS_S)]
_Similarity = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]


class MemorySettings(BaseModel):
    """Settings of memory, cache, searches and graphs."""

    model_config = PART

    memory_enabled: bool = Field(
        default=True, description="Whether actors use memory; without it their memory calls do nothing."
    )
    memory_durability: bool = Field(
        default=True, description="Whether the durable tier, if there is one, stores memories and graphs."
    )
    short_term_ttl_s: Ttl = Field(86_400, description="Lifetime of short-term memories in seconds.")
    dedup_similarity: _Similarity = Field(
        0.95, description="Cosine similarity from which a memory is merged into an existing one."
    )
    memory_history: int = Field(100, ge=1, le=10_000, description="Stored versions of a memory.")
    memory_history_s: Ttl = Field(2_592_000, description="Seconds for which a deleted memory's history is stored.")
    cache_ttl_s: Ttl = Field(3600, description="Seconds for which the semantic cache stores an answer.")
    cache_similarity: _Similarity = Field(
        0.98, description="Cosine similarity from which the semantic cache treats two prompts as the same."
    )
    search_candidates: int = Field(
        100, ge=10, le=1000, description="Hits by words and hits by meaning that a search ranks."
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
