"""Operations of semantic memory (memories, threads) and of episodic memory (events of sessions)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import AwareDatetime, Field

from sharedmem.api.operation import Operation
from sharedmem.models import (
    AddResult,
    EpisodeEvent,
    Hit,
    Importance,
    MemoryFilter,
    MemoryItem,
    MemoryMessage,
    MemoryStats,
    MemoryType,
    MemoryVersion,
    Record,
    SearchCost,
    SearchMode,
    ThreadStats,
)
from sharedmem.store import SharedMemoryStore

# -- requests: field names are those of the calls' arguments, where their meaning and limits stand ------


class MemoriesRequest(Record):
    """Memories that a filter lets through."""

    filters: MemoryFilter | None = None


class MemoryRequest(Record):
    """A memory by its id."""

    id: str


class ThreadRequest(Record):
    """A thread."""

    thread_id: str = "main"


class MemoryAdd(Record):
    """A memory to add."""

    item: MemoryItem
    dedup: bool = True


class MemoryAddMany(Record):
    """Memories to add."""

    items: list[MemoryItem]
    dedup: bool = True


class MemoryFieldChanges(Record):
    """Fields of a memory with their new values; those that are left out stay as they are."""

    user_id: str | None = None
    agent_id: str | None = None
    run_id: str | None = None
    messages: tuple[MemoryMessage, ...] = ()
    memory: str = ""
    content: str = ""
    """Follows `memory` unless given."""
    summary: str | None = None
    embedding: tuple[float, ...] | None = Field(default=None, repr=False)
    turn_embedding: tuple[float, ...] | None = Field(default=None, repr=False)
    timestamp: AwareDatetime | None = None
    memory_type: MemoryType = "long-term"
    category: str | None = None
    importance: Importance = "medium"
    ttl: int | None = Field(default=None, ge=-1)
    entity_id: str | None = None
    source_actor: str | None = None
    related_memory_ids: tuple[str, ...] = ()
    metrics: dict[str, float] = Field(default_factory=dict)
    metadata: dict[str, Any] = Field(default_factory=dict)
    tags: tuple[str, ...] = ()
    collections: tuple[str, ...] = ()

    def given(self) -> dict[str, Any]:
        """The fields that are to change."""
        return {name: getattr(self, name) for name in self.model_fields_set}


class MemoryUpdate(MemoryRequest):
    """What to change in a memory."""

    changes: MemoryFieldChanges
    if_version: int | None = None
    """Only if the memory has this version."""


class MemoryUndo(MemoryRequest):
    """Which change of a memory to take back."""

    version: int | None = None


class MemorySearch(MemoriesRequest):
    """What to look for."""

    query: str
    limit: int = 10
    mode: SearchMode = "hybrid"
    threshold: float | None = None
    explain: bool = False
    diversity: float | None = None


class MemoryList(MemoriesRequest):
    """Which page of memories to list."""

    limit: int = 20
    cursor: str | None = None


class MemoryRecent(ThreadRequest):
    """Which memories of a thread to list."""

    limit: int = 10


class ThreadSummarize(ThreadRequest):
    """How much of a thread to sum up."""

    max_turns: int = 50


# -- answers --------------------------------------------------------------------------------------


class MemorySearchReply(Record):
    """What was found, and how."""

    hits: list[Hit]
    mode: SearchMode
    degraded: str | None
    """Why it was searched by words alone."""
    cost: SearchCost


class MemoryPage(Record):
    """One page of memories."""

    items: list[MemoryItem]
    total: int
    cursor: str | None = Field(description="Of the next page; none after the last one.")


async def _search(store: SharedMemoryStore, ask: MemorySearch) -> MemorySearchReply:
    hits = await store.memory.search(
        ask.query,
        limit=ask.limit,
        mode=ask.mode,
        filters=ask.filters,
        threshold=ask.threshold,
        explain=ask.explain,
        diversity=ask.diversity,
    )
    return MemorySearchReply(hits=list(hits), mode=hits.mode, degraded=hits.degraded, cost=hits.cost)


async def _list(store: SharedMemoryStore, ask: MemoryList) -> MemoryPage:
    page = await store.memory.list(ask.filters, limit=ask.limit, cursor=ask.cursor)
    return MemoryPage(items=list(page), total=page.total, cursor=page.cursor)


# -- rows -----------------------------------------------------------------------------------------

MEMORY_ADD = Operation(
    "memory.add",
    "Remember something, unless it is known: then the memory that says it is told.",
    "write",
    MemoryAdd,
    AddResult,
    lambda store, ask: store.memory.add(ask.item, dedup=ask.dedup),
)
MEMORY_ADD_MANY = Operation(
    "memory.add_many",
    "Remember many things.",
    "write",
    MemoryAddMany,
    list[AddResult],
    lambda store, ask: store.memory.add_many(ask.items, dedup=ask.dedup),
)
MEMORY_SEARCH = Operation(
    "memory.search",
    "What is remembered that answers a query, best first.",
    "read",
    MemorySearch,
    MemorySearchReply,
    _search,
)
MEMORY_GET = Operation(
    "memory.get",
    "One memory, or nothing when it is gone.",
    "read",
    MemoryRequest,
    MemoryItem | None,
    lambda store, ask: store.memory.get(ask.id),
)
MEMORY_LIST = Operation("memory.list", "A page of memories, newest first.", "read", MemoryList, MemoryPage, _list)
MEMORY_RECENT = Operation(
    "memory.recent",
    "The newest memories of a thread, newest first.",
    "read",
    MemoryRecent,
    list[MemoryItem],
    lambda store, ask: store.memory.recent(ask.thread_id, limit=ask.limit),
)
MEMORY_UPDATE = Operation(
    "memory.update",
    "Change fields of a memory, and tell how it is now.",
    "write",
    MemoryUpdate,
    MemoryItem,
    lambda store, ask: store.memory.update(ask.id, if_version=ask.if_version, **ask.changes.given()),
)
MEMORY_DELETE = Operation(
    "memory.delete",
    "Forget a memory; its history stays for a while.",
    "write",
    MemoryRequest,
    bool,
    lambda store, ask: store.memory.delete(ask.id),
)
MEMORY_HISTORY = Operation(
    "memory.history",
    "All versions of a memory, newest first.",
    "read",
    MemoryRequest,
    list[MemoryVersion],
    lambda store, ask: store.memory.history(ask.id),
)
MEMORY_UNDO = Operation(
    "memory.undo",
    "Take back a change of a memory, and tell how it is now.",
    "write",
    MemoryUndo,
    MemoryItem,
    lambda store, ask: store.memory.undo(ask.id, ask.version),
)
MEMORY_STATS = Operation(
    "memory.stats",
    "How many memories there are, of which types and categories.",
    "read",
    MemoriesRequest,
    MemoryStats,
    lambda store, ask: store.memory.stats(ask.filters),
)
THREAD_STATS = Operation(
    "thread.stats",
    "What a thread holds, and who takes part.",
    "read",
    ThreadRequest,
    ThreadStats,
    lambda store, ask: store.memory.thread_stats(ask.thread_id),
)
THREAD_SUMMARY = Operation(
    "thread.summary",
    "What a thread was about.",
    "write",
    ThreadSummarize,
    str,
    lambda store, ask: store.memory.summarize_thread(ask.thread_id, max_turns=ask.max_turns),
)

MEMORY_ROWS = tuple(row for row in list(globals().values()) if isinstance(row, Operation))


# -- requests: field names are those of the calls' arguments, where their meaning and limits stand ------


class EpisodesRequest(Record):
    """All sessions of the namespace."""


class EpisodeSessionRequest(Record):
    """A session."""

    session: str


class EventAppend(EpisodeSessionRequest):
    """An event for the end of a session's episode."""

    event: Any


class EventList(EpisodeSessionRequest):
    """Which events of a session to list."""

    since: datetime | str | int | None = None
    limit: int = 1000


class EpisodeRetrieve(Record):
    """What to look for, and where."""

    query: str
    k: int = 5
    filters: dict[str, Any] | None = None


# -- rows -----------------------------------------------------------------------------------------

EPISODE_APPEND = Operation(
    "episode.append",
    "Put an event at the end of a session's episode, and tell how many it keeps.",
    "write",
    EventAppend,
    int,
    lambda store, ask: store.episodes.append_event(ask.session, ask.event),
)
EPISODE_EVENTS = Operation(
    "episode.events",
    "The events of a session, oldest first.",
    "read",
    EventList,
    list[EpisodeEvent],
    lambda store, ask: store.episodes.events(ask.session, since=ask.since, limit=ask.limit),
)
EPISODE_SESSIONS = Operation(
    "episode.sessions",
    "The sessions that have events, the one with the newest event first.",
    "read",
    EpisodesRequest,
    list[str],
    lambda store, _: store.episodes.sessions(),
)
EPISODE_SUMMARIZE = Operation(
    "episode.summarize",
    "What a session was about in some of its own sentences, or nothing when it has no events.",
    "write",
    EpisodeSessionRequest,
    str | None,
    lambda store, ask: store.episodes.summarize_episode(ask.session),
)
EPISODE_RETRIEVE = Operation(
    "episode.retrieve",
    "The newest events and summaries that hold a piece of text.",
    "read",
    EpisodeRetrieve,
    list[str],
    lambda store, ask: store.episodes.retrieve(ask.query, ask.k, ask.filters),
)

EPISODE_ROWS = tuple(row for row in list(globals().values()) if isinstance(row, Operation))
