"""Read memories, cached answers and notes by their ids in the index, within the rights of a store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from sharedmem.cache.repository import CacheRepository
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.memory.access import MemoryAccess
from sharedmem.memory.reader import MemoryReader
from sharedmem.models.record import Record
from sharedmem.redis.scope import Scope
from sharedmem.search.protocol import Every, Index
from sharedmem.synthesis.note_repository import NOTES_COLLECTION, RedisNoteRepository
from sharedmem.synthesis.note_serialization import record_name, unescape_app


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


class CachedAnswerRecords:
    """The cached answers of a namespace, as `RecordReader` describes it."""

    def __init__(self, context: KnowledgeContext, scope: Scope) -> None:
        self._answers = CacheRepository(context, scope)
        self.index: Index = context.answers

    async def enter(self) -> None:
        """Check that the store may read the cache."""
        _ = self._answers.may_read

    async def narrowed(self, filters: Every) -> Every:
        """Return the filters: the index is of answers alone."""
        return filters

    async def read(self, ids: Sequence[str]) -> list[tuple[str, Record]]:
        """Return answers. One round trip."""
        return [(one.id, one) for one in await self._answers.entries(ids)]

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
