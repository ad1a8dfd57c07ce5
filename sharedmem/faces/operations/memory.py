"""The operations of semantic memory: remembering, recalling, and what became of a memory."""

from __future__ import annotations

from typing import Any

from pydantic import AwareDatetime, Field

from sharedmem.faces.operations.row import Operation
from sharedmem.models import (
    AddResult,
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


class OnMemories(Record):
    """Memories that a filter lets through."""

    filters: MemoryFilter | None = None


class OnMemory(Record):
    """A memory by its id."""

    id: str


class OnThread(Record):
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


class MemoryChanges(Record):
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


class MemoryUpdate(OnMemory):
    """What to change in a memory."""

    changes: MemoryChanges
    if_version: int | None = None
    """Only if the memory has this version."""


class MemoryUndo(OnMemory):
    """Which change of a memory to take back."""

    version: int | None = None


class MemorySearch(OnMemories):
    """What to look for."""

    query: str
    limit: int = 10
    mode: SearchMode = "hybrid"
    threshold: float | None = None
    explain: bool = False
    diversity: float | None = None


class MemoryList(OnMemories):
    """Which page of memories to list."""

    limit: int = 20
    cursor: str | None = None


class MemoryRecent(OnThread):
    """Which memories of a thread to list."""

    limit: int = 10


class ThreadSummarize(OnThread):
    """How much of a thread to sum up."""

    max_turns: int = 50


# -- answers --------------------------------------------------------------------------------------


class Recalled(Record):
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


async def _search(store: SharedMemoryStore, ask: MemorySearch) -> Recalled:
    hits = await store.memory.search(
        ask.query,
        limit=ask.limit,
        mode=ask.mode,
        filters=ask.filters,
        threshold=ask.threshold,
        explain=ask.explain,
        diversity=ask.diversity,
    )
    return Recalled(hits=list(hits), mode=hits.mode, degraded=hits.degraded, cost=hits.cost)


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
    Recalled,
    _search,
)
MEMORY_GET = Operation(
    "memory.get",
    "One memory, or nothing when it is gone.",
    "read",
    OnMemory,
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
    OnMemory,
    bool,
    lambda store, ask: store.memory.delete(ask.id),
)
MEMORY_HISTORY = Operation(
    "memory.history",
    "All versions of a memory, newest first.",
    "read",
    OnMemory,
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
    OnMemories,
    MemoryStats,
    lambda store, ask: store.memory.stats(ask.filters),
)
THREAD_STATS = Operation(
    "thread.stats",
    "What a thread holds, and who takes part.",
    "read",
    OnThread,
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

ROWS = tuple(row for row in list(globals().values()) if isinstance(row, Operation))
