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
StandingKind = Literal["instruction", "preference"]


class MemoryMessage(Record):
    """One message of a conversation."""

    role: Role
    content: str
    entity_id: str | None = None
    name: str | None = None
    """Name of the speaker, as people write it."""
    timestamp: AwareDatetime | None = None
    embedding: tuple[float, ...] | None = Field(default=None, repr=False)
    metadata: dict[str, Any] = Field(default_factory=dict)


class MemoryItem(Record):
    """One memory. The store fills in fields that are not given when it is added."""

    id: str = ""
    """Set by the store if empty."""
    tenant_id: str = ""
    """The namespace; another tenant's items cannot be written or read."""
    user_id: str | None = None
    agent_id: str | None = None
    """Default: the store's actor."""
    thread_id: str = "main"
    run_id: str | None = None
    turn_index: int | None = Field(default=None, ge=0)
    """Position in its thread; by default the server assigns the next one."""
    messages: tuple[MemoryMessage, ...] = ()
    """The turn of a conversation that this memory records; searches then use speaker, date and neighbouring turns."""
    memory: str = ""
    """The text that is embedded."""
    content: str = ""
    """The full text; default: `memory`. Searches by words use both."""
    summary: str | None = None
    embedding: tuple[float, ...] | None = Field(default=None, repr=False)
    """Computed from `memory` if not given; returned only on request."""
    turn_embedding: tuple[float, ...] | None = Field(default=None, repr=False)
    hash: str = ""
    """SHA-256 of the normalised text; set by the store."""
    timestamp: AwareDatetime | None = None
    """When it happened; default: now."""
    created_at: AwareDatetime | None = None
    updated_at: AwareDatetime | None = None
    memory_type: MemoryType = "long-term"
    category: str | None = None
    importance: Importance = "medium"
    ttl: int | None = Field(default=None, ge=-1)
    """Seconds until it expires; -1: never; by default `memory_type` decides."""
    adaptive_ttl: bool = False
    """Whether its lifetime follows its importance and use; set by the store (setting `adaptive_ttl`)."""
    entity_id: str | None = None
    """The person or thing that it is about."""
    source_actor: str | None = None
    created_by: str | None = None
    """The actor that added it, `shared` for the namespace itself; set by the store. None in early releases."""
    related_memory_ids: tuple[str, ...] = ()
    metrics: dict[str, float] = Field(default_factory=dict)
    metadata: dict[str, Any] = Field(default_factory=dict)
    tags: tuple[str, ...] = ()
    collections: tuple[str, ...] = ()
    occurrences: int = Field(default=1, ge=1)
    """Number of times it was added; duplicates are merged into it."""
    version: int = Field(default=0, ge=0)
    """Version of its last change; set by the store."""

    @property
    def author(self) -> str | None:
        """Name of the speaker, if this is a turn of a conversation."""
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
    """A filter of memories: every given field must match. A field with several values matches any of them."""

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
    """Tags that a memory must all have."""
    collections: str | tuple[str, ...] = ()
    """Collections that a memory must all be in."""
    since: AwareDatetime | None = None
    """Earliest `timestamp`."""
    until: AwareDatetime | None = None
    """Latest `timestamp`."""
    standing: StandingKind | tuple[StandingKind, ...] | None = None
    """Only standing instructions or preferences, as the store has recognised them."""
    metadata: dict[str, str | int | float | bool] = Field(default_factory=dict)
    """Values that top-level entries of `metadata` must equal."""


class AddResult(Record):
    """The result of adding a memory."""

    id: str
    """Id of the new memory, or of the memory that it was merged into."""
    merged: bool = False
    similarity: float | None = None
    """Cosine similarity to the memory that it was merged into; 1.0 if the texts are the same."""
    version: int = 0
    embedded: bool = True
    """False while its embedding is not computed yet; until then searches find it by its words."""


class Signal(Record):
    """One component of a score."""

    name: str
    """`text`, `vector`, `neighbours`, `author`, `thread`, `question`, `length`, `time`, `number`, `name`, `date`,
    `attribute`, `recency`, `importance`, `reranker`; `standing` and `latest` for what instructions, preferences and
    newer statements gain."""
    score: float
    """Raw score of the signal (BM25, cosine similarity, a factor)."""
    rank: int | None = None
    """Rank among the hits of this signal alone, from 1; None if it did not find the item."""
    weight: float
    contribution: float
    """Contribution to the rank score."""


class SearchCost(Record):
    """The cost of a search."""

    round_trips: int
    milliseconds: float
    tokens: int = 0
    """Tokens sent to the embedding provider; 0 if the embedding was cached."""
    request_units: float = 0.0
    """Request units that this call spent on the durable tier: 0 unless memories had to be restored."""


class Why(Record):
    """The explanation of a search result."""

    signals: tuple[Signal, ...]
    cost: SearchCost


class Passage(Record):
    """The part of a long memory that has to do with a query: sentences in a row, of 120 words together at most."""

    start: int
    """Offset of its first character in the text of the memory."""
    end: int
    """Offset behind its last character."""
    text: str


class Hit(Record):
    """A memory that was found."""

    item: MemoryItem
    score: float
    """The probability that the memory is relevant to the query, from 0 to 1; near 0 for all hits of a query that has
    nothing to do with them. Calibrated for the weights of the embedder: another `recipe` or a reranker changes
    the order, and this less well."""
    rank_score: float = 0.0
    """What the hits are ordered by, higher first; comparable within one result only. The cosine similarity in mode
    `semantic`."""
    why: Why | None = None
    """The explanation, with `explain=True`."""
    standing: StandingKind | None = None
    """Whether it is a standing instruction or preference of its owner."""
    supersedes: tuple[str, ...] = ()
    """Ids of older memories in this result that it replaces: they say otherwise of the same thing."""
    superseded_by: str | None = None
    """Id of a newer memory in this result that replaces it."""
    passage: Passage | None = None
    """Of a memory of more than 120 words the part in which most words of the query occur, rare ones first; None for a
    shorter one, and where no word of the query occurs."""


class MemoryVersion(Record):
    """One version of a memory: its content after a change, and the change."""

    version: int
    at: datetime
    actor: str
    change: Literal["added", "updated", "merged", "extended", "deleted", "restored", "undone"]
    item: MemoryItem
    merged_text: str | None = None
    """The text that this change merged in."""
    similarity: float | None = None
    undoes: int | None = None
    """The version that this change undid."""
    merged_into: str | None = None
    """The id of the memory that this one was merged into, if it was deleted for that."""


class DuplicateMemory(Record):
    """A stored memory that says the same as an older one."""

    id: str
    memory: str
    into: str
    """The id of the older memory."""
    into_memory: str
    similarity: float
    """Cosine similarity; 1 for the same text."""


class DuplicateReport(Record):
    """The result of a pass over stored memories that looks for duplicates."""

    compared: int
    """Memories that were compared with those near to them."""
    found: int
    """Duplicates among them."""
    merged: int
    """How many of these were merged: all, or none in a dry run."""
    kept_apart: int
    """Near pairs that are no duplicates: numbers, names or negations differ, or both together are too long."""
    duplicates: tuple[DuplicateMemory, ...]
    """The first 1,000 of them."""


class Participant(Record):
    """A participant of a thread: a speaker, an `entity_id` or a `source_actor` of its turns."""

    name: str
    turns: int


class ThreadStats(Record):
    """Statistics of a thread."""

    thread_id: str
    turn_count: int
    total_tokens: int
    """Sum of the metrics `input_tokens` and `output_tokens` of its turns; the words of its turns if none has them."""
    tokens_from: Literal["metrics", "words"] = "words"
    """What `total_tokens` sums."""
    first_turn_at: datetime | None
    last_turn_at: datetime | None
    participants: tuple[Participant, ...]


class MemoryStats(Record):
    """Statistics of the memories of a namespace, or of the ones that match a filter."""

    count: int
    bytes: int
    by_type: dict[str, int]
    by_tenant: dict[str, int]
    by_category: dict[str, int]
    duplicates_merged: int
    """Number of additions that were merged into the counted memories."""


class MemoryUse(Record):
    """Usage of a memory."""

    id: str
    times: int
    """Number of times that searches and `get` returned it."""
    last: datetime | None
    """Time of the last use; None if never used."""


class MemoryEvent(Record):
    """An event of a standing query."""

    event: Literal["written", "changed", "withdrawn", "gap"]
    """`withdrawn`: it was deleted, or no longer matches. `gap`: events may be missing before this one."""
    id: str
    """Empty for a `gap`."""
    item: MemoryItem | None
    """None if it was deleted."""
    similarity: float | None
    cursor: str
    """Cursor behind this event: pass it as `since` to continue there."""


class CachedResult(Record):
    """An answer from the semantic cache."""

    id: str
    response: Any
    similarity: float
    """Cosine similarity of the prompts; 1.0 if they are the same."""
    age_s: float
    prompt: str
    """The prompt it was computed for."""
    exact: bool


class CacheEntry(Record):
    """An answer that the semantic cache holds, and what it was made for."""

    id: str
    prompt: str
    """The prompt it was computed for."""
    response: Any = None
    created_at: datetime
    expires_at: datetime | None = None
    """None if it has expired meanwhile."""
    cost: float = 0.0
    tokens: int = 0
    tags: tuple[str, ...] = ()


class CachePage(Record):
    """Some of the answers that the semantic cache holds."""

    answers: list[CacheEntry]
    cursor: str | None
    """Where the next page begins; None after the last."""


class CacheStats(Record):
    """Statistics of the semantic cache of a namespace."""

    hits: int
    exact_hits: int
    misses: int
    false_hits: int
    """Hits that callers reported as wrong."""
    guarded: int
    """Similar prompts that a guard rejected."""
    entries: int
    saved_cost: float
    saved_tokens: int

    @property
    def hit_rate(self) -> float:
        """Share of hits among all checks; 0 without checks."""
        checks = self.hits + self.misses
        return self.hits / checks if checks else 0.0


class IndexStatus(Record):
    """The state of a search index."""

    name: str
    family: str
    """Kind of its records: `memory`, `cache`."""
    namespaces: tuple[str, ...] = ()
    """The namespace that has this index alone; empty for the index that small namespaces share."""
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
    """Problems of the index, in sentences."""


class EpisodeEvent(Record):
    """One event of a session."""

    at: datetime
    """Server time."""
    actor: str
    event: Any
    cursor: str
    """Cursor behind this event: pass it as `since` to continue there."""


class MemorySearchReply(Record):
    """The result of a search for memories."""

    hits: list[Hit]
    mode: SearchMode
    degraded: str | None
    """Why only words were searched; None if meaning was searched too."""
    cost: SearchCost
