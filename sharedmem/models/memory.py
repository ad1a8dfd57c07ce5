"""Records and results of memory: semantic memory, episodes, and the semantic cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypedDict

from pydantic import AwareDatetime, Field

from sharedmem.models.record import Record

Role = Literal["user", "agent", "tool", "system"]
MemoryType = Literal["short-term", "long-term", "semantic-cache"]
Importance = Literal["low", "medium", "high", "critical"]
SearchMode = Literal["hybrid", "semantic", "keywords"]


class MemoryMessage(Record):
    """One message of a conversation."""

    role: Role
    content: str
    entity_id: str | None = None
    name: str | None = None
    """Who speaks, as people say it."""
    timestamp: AwareDatetime | None = None
    embedding: tuple[float, ...] | None = Field(default=None, repr=False)
    metadata: dict[str, Any] = Field(default_factory=dict)


class MemoryItem(Record):
    """One thing that is remembered. What is not given when it is added is filled in by the store."""

    id: str = ""
    """Given by the store when empty."""
    tenant_id: str = ""
    """The namespace; another tenant's items cannot be written or read."""
    user_id: str | None = None
    agent_id: str | None = None
    """The store's actor when not given."""
    thread_id: str = "main"
    run_id: str | None = None
    turn_index: int | None = Field(default=None, ge=0)
    """Place in its thread: assigned at the server, rising, when not given."""
    messages: tuple[MemoryMessage, ...] = ()
    """The turn of a conversation that this remembers; recall then looks at speaker, date and neighbouring turns."""
    memory: str = ""
    """The fact: what is embedded."""
    content: str = ""
    """The full text; `memory` when not given. Words of both are found."""
    summary: str | None = None
    embedding: tuple[float, ...] | None = Field(default=None, repr=False)
    """Computed from `memory` when not given; answered only to those who ask for it."""
    turn_embedding: tuple[float, ...] | None = Field(default=None, repr=False)
    hash: str = ""
    """SHA-256 of the normalised text; the store's work."""
    timestamp: AwareDatetime | None = None
    """When it happened or was said; now when not given."""
    created_at: AwareDatetime | None = None
    updated_at: AwareDatetime | None = None
    memory_type: MemoryType = "long-term"
    category: str | None = None
    importance: Importance = "medium"
    ttl: int | None = Field(default=None, ge=-1)
    """Seconds until it is forgotten; -1 for never; by `memory_type` when not given."""
    entity_id: str | None = None
    """Whom or what it is about."""
    source_actor: str | None = None
    created_by: str | None = None
    """The actor who added it, `shared` for the namespace itself; the store's work. None before there were authors."""
    related_memory_ids: tuple[str, ...] = ()
    metrics: dict[str, float] = Field(default_factory=dict)
    metadata: dict[str, Any] = Field(default_factory=dict)
    tags: tuple[str, ...] = ()
    collections: tuple[str, ...] = ()
    occurrences: int = Field(default=1, ge=1)
    """How often it was added; duplicates are merged into it."""
    version: int = Field(default=0, ge=0)
    """Version of its last change; the store's work."""

    @property
    def author(self) -> str | None:
        """Who speaks, when this is a turn of a conversation."""
        if not self.messages:
            return None
        first = self.messages[0]
        return first.name or first.entity_id or first.role


class _WritableFields(TypedDict, total=False):
    """The fields of a `MemoryItem` that a caller may set, when it is added and later."""

    user_id: str | None
    agent_id: str | None
    run_id: str | None
    messages: Sequence[MemoryMessage | Mapping[str, Any]]
    content: str
    summary: str | None
    embedding: Sequence[float] | None
    turn_embedding: Sequence[float] | None
    timestamp: datetime | str | None
    memory_type: MemoryType
    category: str | None
    ttl: int | None
    entity_id: str | None
    source_actor: str | None
    related_memory_ids: Sequence[str]
    metrics: Mapping[str, float]
    metadata: Mapping[str, Any]
    tags: Sequence[str]
    collections: Sequence[str]


class OutputFields(_WritableFields, total=False):
    """The keyword arguments of `remember_output`: fields of a `MemoryItem` beside its text and importance."""

    id: str
    tenant_id: str
    thread_id: str
    turn_index: int | None
    created_at: datetime | str | None
    updated_at: datetime | str | None
    created_by: str | None
    occurrences: int


class MemoryFields(OutputFields, total=False):
    """The keyword arguments of `memory.add`: fields of a `MemoryItem` beside its text."""

    importance: Importance


class MemoryChanges(_WritableFields, total=False):
    """The keyword arguments of `memory.update`: fields of a `MemoryItem` with their new values."""

    memory: str
    importance: Importance


class MemoryFilter(Record):
    """Which memories a call is about: all that is given must hold. Of several values one must hold."""

    user_id: str | tuple[str, ...] | None = None
    agent_id: str | tuple[str, ...] | None = None
    thread_id: str | tuple[str, ...] | None = None
    run_id: str | tuple[str, ...] | None = None
    category: str | tuple[str, ...] | None = None
    importance: Importance | tuple[Importance, ...] | None = None
    memory_type: MemoryType | tuple[MemoryType, ...] | None = None
    entity_id: str | tuple[str, ...] | None = None
    source_actor: str | tuple[str, ...] | None = None
    tags: str | tuple[str, ...] = ()
    """All of them must be there."""
    collections: str | tuple[str, ...] = ()
    """All of them must be there."""
    since: AwareDatetime | None = None
    """`timestamp` at or after it."""
    until: AwareDatetime | None = None
    """`timestamp` at or before it."""
    metadata: dict[str, str | int | float | bool] = Field(default_factory=dict)
    """Equal values of the top level of `metadata`."""


class AddResult(Record):
    """What became of a memory that was added."""

    id: str
    """Of the new memory, or of the one it was merged into."""
    merged: bool = False
    similarity: float | None = None
    """Cosine similarity to what it was merged into; 1.0 when the texts are the same."""
    version: int = 0
    embedded: bool = True
    """False while its embedding waits for the provider; it is found by its words meanwhile."""


class Signal(Record):
    """One reason for a place in the ranking."""

    name: str
    """`text`, `vector`, `author`, `neighbours`, `thread`, `date`, `question`, `recency`, `importance`, `reranker`."""
    score: float
    """As the signal gives it (BM25, cosine similarity, a factor)."""
    rank: int | None = None
    """Place among the hits of this signal alone, from 1; None when it did not find the item."""
    weight: float
    contribution: float
    """What it added to the final score."""


class SearchCost(Record):
    """What a search took."""

    round_trips: int
    milliseconds: float
    tokens: int = 0
    """Sent to the embedding provider; 0 when the embedding was cached."""
    request_units: float = 0.0


class Why(Record):
    """Why a memory was found."""

    signals: tuple[Signal, ...]
    cost: SearchCost


class Hit(Record):
    """A memory that was found."""

    item: MemoryItem
    score: float
    """Higher is better; comparable within one answer only, except in mode `semantic`: cosine similarity."""
    why: Why | None = None
    """With `explain=True`."""


class MemoryVersion(Record):
    """One version of a memory: what it was after a change, and what the change was."""

    version: int
    at: datetime
    actor: str
    change: Literal["added", "updated", "merged", "deleted", "restored", "undone"]
    item: MemoryItem
    merged_text: str | None = None
    """The text that was merged in by this change."""
    similarity: float | None = None
    undoes: int | None = None
    """The version that this change took back."""


class Participant(Record):
    """Who takes part in a thread."""

    name: str
    turns: int


class ThreadStats(Record):
    """What a thread holds."""

    thread_id: str
    turn_count: int
    total_tokens: int
    first_turn_at: datetime | None
    last_turn_at: datetime | None
    participants: tuple[Participant, ...]


class MemoryStats(Record):
    """What the memories of a namespace, or those that a filter lets through, are."""

    count: int
    bytes: int
    by_type: dict[str, int]
    by_tenant: dict[str, int]
    by_category: dict[str, int]
    duplicates_merged: int
    """How many additions were merged into the memories counted here."""


class MemoryUse(Record):
    """How a memory is used."""

    id: str
    times: int
    """How often searches and `get` have answered it."""
    last: datetime | None
    """When that was last; None when it never was."""


class MemoryEvent(Record):
    """What a standing query is told."""

    event: Literal["written", "changed", "withdrawn", "gap"]
    """`withdrawn`: it was deleted, or does not match any more. `gap`: memories may be gone without a word."""
    id: str
    """Empty for a `gap`."""
    item: MemoryItem | None
    """None when it is gone."""
    similarity: float | None
    cursor: str
    """Pass it as `since` to go on after this event."""


class CachedResult(Record):
    """An answer that the semantic cache has."""

    id: str
    response: Any
    similarity: float
    """1.0 when the prompts are the same."""
    age_s: float
    prompt: str
    """The prompt it was computed for."""
    exact: bool


class CacheStats(Record):
    """How the semantic cache of a namespace has done."""

    hits: int
    exact_hits: int
    misses: int
    false_hits: int
    """Hits that somebody reported to be wrong."""
    guarded: int
    """Near prompts that a guard refused."""
    entries: int
    saved_cost: float
    saved_tokens: int

    @property
    def hit_rate(self) -> float:
        """Hits of all checks; 0 without any."""
        checks = self.hits + self.misses
        return self.hits / checks if checks else 0.0


class IndexStatus(Record):
    """A search index as people see it."""

    name: str
    family: str
    """What it holds: `memory`, `cache`."""
    namespaces: tuple[str, ...] = ()
    """Whose own index it is; none for the one that small namespaces share."""
    documents: int
    algorithm: Literal["FLAT", "HNSW", "exact"]
    dimension: int
    model: str
    """Name of the embedder."""
    schema_version: int
    failures: int = 0
    """Documents that the server could not index."""
    indexing: bool = False
    bytes: int = 0
    problems: tuple[str, ...] = ()
    """What is wrong with it, in sentences."""


class EpisodeEvent(Record):
    """One event of a session."""

    at: datetime
    """Server time."""
    actor: str
    event: Any
    cursor: str
    """Pass it as `since` to go on after this event."""


class MemorySearchReply(Record):
    """The memories that were found, and how."""

    hits: list[Hit]
    mode: SearchMode
    degraded: str | None
    """Why it was searched by words alone."""
    cost: SearchCost
