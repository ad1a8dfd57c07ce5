"""Operations of semantic memory, of the semantic cache, and over all parts of a store at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from pydantic import AwareDatetime, Field

from sharedmem.api.operation import Facet
from sharedmem.cache.semantic_cache import SemanticCache
from sharedmem.memory.memories import Memories
from sharedmem.memory.ranking import RankingWeights
from sharedmem.memory.rollups import MemoryRollups
from sharedmem.memory.subscriptions import DEFAULT_THRESHOLD
from sharedmem.models import (
    AddResult,
    Importance,
    MemoryEvent,
    MemoryFilter,
    MemoryItem,
    MemoryMessage,
    MemorySearchReply,
    MemoryType,
    Record,
    RememberReceipt,
    SynthesisMessage,
)
from sharedmem.store import SharedMemoryStore
from sharedmem.store import SharedMemoryStore as Store

# -- requests that differ from the arguments of their methods ---------------------------------------


class MemoryAdd(Record):
    """A memory to add."""

    item: MemoryItem
    dedup: bool | None = None
    """Whether a duplicate is merged; the setting `dedup_enabled` when not given."""
    dedup_keys: tuple[str, ...] = ()
    """Names of metadata whose values a duplicate must share."""
    summarize: bool = False
    """Whether the language model writes its `summary` first."""


class MemoryFieldChanges(Record):
    """Fields of a memory with their new values; omitted fields stay as they are."""

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
        """Return the fields that are to change."""
        return {name: getattr(self, name) for name in self.model_fields_set}


class MemoryUpdate(Record):
    """What to change in a memory."""

    id: str
    changes: MemoryFieldChanges
    if_version: int | None = None
    """Change it only if it has this version."""


class MemoryFollow(Record):
    """Which memories to follow, and from where on."""

    query: str
    """What they are about, in everyday language."""
    threshold: float = DEFAULT_THRESHOLD
    """Least likeness, 0 to 1."""
    filters: MemoryFilter | None = None
    since: str | int | None = None
    """Cursor of the last event seen; from now on when not given."""


# -- answers --------------------------------------------------------------------------------------


class MemoryPage(Record):
    """One page of memories."""

    items: list[MemoryItem]
    total: int
    cursor: str | None = Field(description="Of the next page; none after the last one.")


def _search_reply(hits: Any) -> MemorySearchReply:
    return MemorySearchReply(hits=list(hits), mode=hits.mode, degraded=hits.degraded, cost=hits.cost)


def _memory_page(page: Any) -> MemoryPage:
    return MemoryPage(items=list(page), total=page.total, cursor=page.cursor)


async def _add(store: SharedMemoryStore, ask: MemoryAdd) -> AddResult:
    return await store.memory.add(ask.item, dedup=ask.dedup, dedup_keys=ask.dedup_keys, summarize=ask.summarize)


async def _update(store: SharedMemoryStore, ask: MemoryUpdate) -> MemoryItem:
    return await store.memory.update(ask.id, if_version=ask.if_version, **ask.changes.given())


async def _events(store: SharedMemoryStore, ask: MemoryFollow) -> AsyncIterator[MemoryEvent]:
    following = store.memory.subscribe(ask.query, threshold=ask.threshold, filters=ask.filters, since=ask.since)
    async with following as events:
        async for event in events:
            yield event


# -- operations -------------------------------------------------------------------------------------

_FILTERS = {"filters": MemoryFilter | None}
_FOUND: dict[str, Any] = {"reply": _search_reply, "gives": MemorySearchReply, "fields": _FILTERS}
_ID = {"id_": "id"}
_THREAD = {"thread_id": (str, "main")}

_memory = Facet("memory", lambda store, _: store.memory)

_memory.operation(
    "memory.list",
    Memories.list,
    "GET /memory/items",
    fields=_FILTERS | {"limit": (int, 20)},
    reply=_memory_page,
    gives=MemoryPage,
    paging="cursor",
)
_memory.written(
    "memory.add",
    Memories.add,
    "POST /memory/items",
    _add,
    created=201,
    location="/memory/items/{id}",
    is_new=lambda added: not added.merged,
    takes=MemoryAdd,
    gives=AddResult,
)
_memory.operation(
    "memory.add_many",
    Memories.add_many,
    "POST /memory/batch",
    fields={"items": list[MemoryItem], "dedup_keys": (list[str], [])},
    bulk=True,
)
_memory.operation(
    "memory.import",
    Memories.import_,
    "POST /memory/import",
    answer="imported",
    fields={"items": list[MemoryItem]},
    bulk=True,
)
_memory.operation(
    "memory.search",
    Memories.search,
    "POST /memory/search",
    needs="read",
    reply=_search_reply,
    gives=MemorySearchReply,
    fields=_FILTERS | {"recipe": RankingWeights | None},
)
_memory.operation("memory.search_hybrid", Memories.search_hybrid, "POST /memory/search/hybrid", needs="read", **_FOUND)
_memory.operation(
    "memory.search_keywords", Memories.search_keywords, "POST /memory/search/keywords", needs="read", **_FOUND
)
_memory.operation(
    "memory.search_semantic", Memories.search_semantic, "POST /memory/search/semantic", needs="read", **_FOUND
)
_memory.operation(
    "memory.search_vector",
    Memories.find_similar,
    "POST /memory/search/vector",
    needs="read",
    formerly=["memory.find_similar"],
    **_FOUND,
)
_memory.operation("memory.get", Memories.get, "GET /memory/items/{id}", absent="memory")
_memory.written(
    "memory.update", Memories.update, "PATCH /memory/items/{id}", _update, takes=MemoryUpdate, gives=MemoryItem
)
_memory.operation("memory.summarize", Memories.summarize, "POST /memory/items/{id}/summary", names=_ID)
_memory.operation("memory.delete", Memories.delete, "DELETE /memory/items/{id}", answer="deleted", names=_ID)
_memory.operation(
    "memory.delete_all",
    Memories.delete_all,
    "POST /memory/delete",
    answer="deleted",
    fields={"filters": MemoryFilter},
    bulk=True,
)
_memory.operation(
    "memory.merge_duplicates",
    Memories.merge_duplicates,
    "POST /memory/duplicates/merge",
    fields=_FILTERS,
    bulk=True,
)
_memory.operation("memory.history", Memories.history, "GET /memory/items/{id}/history", names=_ID)
_memory.operation("memory.undo", Memories.undo, "POST /memory/items/{id}/undo", names=_ID)
_memory.operation("memory.stats", Memories.stats, "GET /memory/stats", fields=_FILTERS)
_memory.operation("memory.uses", Memories.uses, "GET /memory/uses", formerly=["memory.use", "GET /memory/use"])
_memory.operation("memory.recent", Memories.recent, "GET /memory/threads/{thread_id}", fields=_THREAD)
_memory.operation("thread.stats", Memories.thread_stats, "GET /memory/threads/{thread_id}/stats", fields=_THREAD)
_memory.operation(
    "thread.summary",
    Memories.summarize_thread,
    "POST /memory/threads/{thread_id}/summary",
    answer="summary",
    fields=_THREAD,
)

_rollups = Facet("memory", lambda store, _: store.memory.rollups)

_rollups.operation(
    "thread.roll_up",
    MemoryRollups.roll_up_thread,
    "POST /memory/threads/{thread_id}/rollups",
    answer="rollups",
    fields=_THREAD,
)
_rollups.operation("memory.roll_up_old", MemoryRollups.roll_up_old, "POST /memory/rollups", answer="rollups")

_memory.feed("memory.subscribe", Memories.subscribe, _events, takes=MemoryFollow, gives=MemoryEvent)


# -- the semantic cache ---------------------------------------------------------------------------


_cache = Facet("cache", lambda store, _: store.cache)

_cache.operation("cache.check", SemanticCache.check, "POST /cache/check", needs="read", answer="hit")
_cache.operation("cache.put", SemanticCache.put, "POST /cache", created=201, answer="id")
_cache.operation(
    "cache.delete",
    SemanticCache.delete,
    "POST /cache/delete",
    answer="deleted",
    bulk=True,
    formerly=["cache.invalidate", "POST /cache/invalidate"],
)
_cache.operation("cache.clear", SemanticCache.clear, "DELETE /cache", answer="deleted", bulk=True)
_cache.operation(
    "cache.report",
    SemanticCache.report_false_hit,
    "POST /cache/answers/{id}/report",
    needs="read",
    names={"id_": "id"},
    gives=None,
)
_cache.operation("cache.list", SemanticCache.list, "GET /cache")
_cache.operation("cache.stats", SemanticCache.stats, "GET /cache/stats")


# -- all parts of a store -------------------------------------------------------------------------


_TEXT_OR_MESSAGES = {"conversation": list[SynthesisMessage] | str}

_knowledge = Facet[Store]("knowledge")

_knowledge.operation("knowledge.recall", Store.recall, "POST /recall", needs="read")
_knowledge.operation(
    "knowledge.remember",
    Store.remember,
    "POST /remember",
    fields=_TEXT_OR_MESSAGES,
    created=202,
    location="/remember/{task_id}",
)
_knowledge.operation("knowledge.receipt", Store.remember_receipt, "GET /remember/{task_id}", gives=RememberReceipt)
FACETS = (_memory, _rollups, _cache, _knowledge)
