"""Read memories, cached answers and notes by their ids in the index, within the rights of a store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sharedmem.cache.repository import CACHE, FIELDS, read_answer
from sharedmem.clock import from_microseconds
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.memory.access import MemoryAccess
from sharedmem.memory.reader import MemoryReader
from sharedmem.models.record import Record
from sharedmem.redis.scope import Scope
from sharedmem.search.protocol import Every, Index
from sharedmem.synthesis.note_repository import RedisNoteRepository
from sharedmem.synthesis.note_repository.repository import NOTES_COLLECTION
from sharedmem.synthesis.note_repository.serialization import record_name, unescape_app


class MemoryRecords:
    """The memories of a namespace, as `RecordReader` describes it."""

    def __init__(self, context: KnowledgeContext, scope: Scope) -> None:
        self._access = MemoryAccess(context, scope)
        self._reader = MemoryReader(self._access)
        self.index: Index = context.memories

    async def enter(self) -> None:
        """Check that the store may read memories."""
        await self._access.enter("read")

    async def narrowed(self, filters: Every) -> Every:
        """Return the filters: the index is of memories alone."""
        return filters

    async def read(self, ids: Sequence[str]) -> list[tuple[str, Record]]:
        """Return memories. One round trip."""
        return [(one.item.id, one.item) for one in await self._reader.fetch(ids)]

    async def ids_of(self, key: str) -> list[str]:
        """Return the key: it is the id."""
        return [key]


class CacheEntry(Record):
    """An answer of the semantic cache with what it was made for."""

    id: str
    prompt: str
    """For which it was computed."""
    response: Any = None
    created_at: datetime
    cost: float = 0.0
    tokens: int = 0
    tags: tuple[str, ...] = ()


class CachedAnswerRecords:
    """The cached answers of a namespace, as `RecordReader` describes it."""

    def __init__(self, context: KnowledgeContext, scope: Scope) -> None:
        self._context = context
        self._scope = scope
        self._namespace = scope.identity.namespace
        self.index: Index = context.answers

    async def enter(self) -> None:
        """Check that the store may read the cache."""
        self._scope.common(CACHE, "read")

    async def narrowed(self, filters: Every) -> Every:
        """Return the filters: the index is of answers alone."""
        return filters

    async def read(self, ids: Sequence[str]) -> list[tuple[str, Record]]:
        """Return answers. One round trip."""
        record = self._context.keyspace.record
        commands = [("HMGET", record(CACHE, self._namespace, id_), *FIELDS) for id_ in ids]
        replies = await self._context.client.read_each(commands)
        found = [read_answer(id_, reply) for id_, reply in zip(ids, replies, strict=True)]
        return [
            (
                one.id,
                CacheEntry(
                    id=one.id,
                    prompt=one.prompt,
                    response=one.value(),
                    created_at=from_microseconds(round(one.made_s * 1_000_000)),
                    cost=one.cost,
                    tokens=one.tokens,
                    tags=tuple(sorted(one.tags)),
                ),
            )
            for one in found
            if one is not None
        ]

    async def ids_of(self, key: str) -> list[str]:
        """Return the key: it is the id."""
        return [key]


class NoteRecords:
    """The synthesised notes of a namespace, as `RecordReader` describes it."""

    def __init__(self, context: KnowledgeContext, scope: Scope) -> None:
        self._scope = scope
        self._notes = RedisNoteRepository(context, scope)
        self.index: Index = context.notes

    async def enter(self) -> None:
        """Check that the store may read notes."""
        self._scope.common(NOTES_COLLECTION, "read")

    async def narrowed(self, filters: Every) -> Every:
        """Return the filters: the index is of notes alone."""
        return filters

    async def read(self, ids: Sequence[str]) -> list[tuple[str, Record]]:
        """Return notes. One round trip an app."""
        by_app: defaultdict[str, list[str]] = defaultdict(list)
        for named in ids:
            app, _, id_ = named.partition("/")
            by_app[unescape_app(app)].append(id_)
        found: dict[str, Record] = {}
        for app_id, some in by_app.items():
            notes = await self._notes.get(app_id, some)
            found |= {record_name(app_id, id_): note for id_, note in notes.items()}
        return [(named, found[named]) for named in ids if named in found]

    async def ids_of(self, key: str) -> list[str]:
        """Return where a note of this id may be: in any app. One round trip."""
        return [record_name(app_id, key) for app_id in await self._notes.apps()]
