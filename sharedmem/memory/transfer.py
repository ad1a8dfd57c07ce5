"""Export all memories of a scope one by one, and import them elsewhere unchanged."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sharedmem.errors import InvalidError, VersionConflictError
from sharedmem.memory.access import MemoryAccess
from sharedmem.memory.embedding_queue import EmbeddingQueue
from sharedmem.memory.reader import MemoryReader
from sharedmem.memory.repository import MOST_AT_ONCE, MemoryRepository, MemoryWriteResult, StoredMemory
from sharedmem.memory.serialization import encode_change
from sharedmem.memory.validation import MemoryScope, NewMemory, parse_item, prepare_memory
from sharedmem.models import MemoryFilter, MemoryItem
from sharedmem.redis.scripts.knowledge import MemoryWrite
from sharedmem.redis.vectors import to_half

ImportedItem = MemoryItem | Mapping[str, Any]
ImportProgress = Callable[[int, int], None]
"""Called with (items looked at, how many of them were written)."""
_NO_TTL = -1
_EMPTY_RESULT = MemoryWriteResult(0, [])


class MemoryTransfer:
    """Exports and imports the memories of one scope.

    Args:
        access: rights and scope of the caller.
        reader: reads memories of this scope.
    """

    def __init__(self, access: MemoryAccess, reader: MemoryReader) -> None:
        self._access = access
        self._reader = reader
        self._context = access.context
        self._namespace = access.namespace
        self._home = MemoryScope.of(access)

    async def export_pages(
        self, filters: MemoryFilter, *, embedding: bool, since: int
    ) -> AsyncIterator[list[MemoryItem]]:
        """Yield pages of memories that changed after a version, by their last change; see `Memories.export`."""
        if isinstance(since, bool) or not isinstance(since, int) or since < 0:
            raise InvalidError("since", since, "give the version of the last exported item, or 0")
        async for page in self._reader.logged(after=since):
            ids = [each.id for each in page]
            yield [one.item for one in await self._reader.fetch(ids, filters=filters, embedding=embedding)]

    async def import_(
        self, items: Iterable[ImportedItem] | AsyncIterable[ImportedItem], on_progress: ImportProgress | None
    ) -> int:
        """Write items as they are; see `Memories.import_`."""
        read = written = 0
        async for batch in _batches(items):
            written += await self._write_batch(batch)
            read += len(batch)
            if on_progress is not None:
                on_progress(read, written)
        return written

    async def _write_batch(self, batch: Sequence[ImportedItem]) -> int:
        context, now = self._context, self._context.clock.now()
        await context.memories.ensure(self._namespace)
        repository = MemoryRepository.of(context, self._namespace)
        embeddings = EmbeddingQueue.of(context, self._namespace)
        left = self._drafts(batch, now)
        written = 0
        while left:
            held = await repository.held(one.item.id for one in left)
            left = [one for one in left if self._is_newer(one, held.get(one.item.id))]
            for one in left:
                self._keep_author(one, held.get(one.item.id))
            await embeddings.embed(left)
            writes = [self._write_of(repository, one, held.get(one.item.id), now) for one in left]
            outcome = await repository.write(self._access.actor, writes) if writes else _EMPTY_RESULT
            assert isinstance(outcome, MemoryWriteResult)  # there are no conflicts without `seen`
            # Another writer was faster with some of them: read these again.
            settled = [verdict.word == "ok" for verdict in outcome.verdicts]
            written += sum(settled)
            left = [one for one, is_settled in zip(left, settled, strict=True) if not is_settled]
            if outcome.waiting:
                embeddings.wake()
        return written

    def _drafts(self, batch: Sequence[ImportedItem], now: datetime) -> list[NewMemory]:
        """Return the memories to write: of several states of a memory the newest, and none that has expired."""
        home, settings = self._home, self._access.settings
        drafts: dict[str, NewMemory] = {}
        for given in batch:
            item = _fit_item(given, home.dimension)
            one = prepare_memory(item, {}, home, settings, now, dedup=False, refuses_cache=False)
            before = drafts.get(one.item.id)
            if _ttl_left_s(one.item, now) != 0 and (
                before is None or _modified_at(before.item) < _modified_at(one.item)
            ):
                drafts[one.item.id] = one
        return list(drafts.values())

    def _is_newer(self, one: NewMemory, held: StoredMemory | None) -> bool:
        if held is None:
            return True
        if not self._access.covers(held.item):
            raise VersionConflictError(self._access.key(one.item.id), 0, held.item.version)
        return _modified_at(held.item) < _modified_at(one.item)

    def _keep_author(self, one: NewMemory, held: StoredMemory | None) -> None:
        """Keep the author of a memory that is replaced."""
        if held is not None:
            self._access.check_author(held.item)
            one.item = one.item.model_copy(update={"created_by": held.item.created_by})

    def _write_of(
        self, repository: MemoryRepository, one: NewMemory, held: StoredMemory | None, now: datetime
    ) -> MemoryWrite:
        change = "added" if held is None else "updated"
        vector = None if one.vector is None else to_half(one.vector)
        turn = "" if one.item.turn_index is None else one.item.turn_index
        write = repository.write_of(
            change,
            one.item,
            encode_change(change, self._access.actor.decode()),
            one.digest,
            vector,
            before=held,
            over="*",
            waits=one.waits,
            turn=turn if held is None or turn != "" else held.item.turn_index or 0,
        )
        left_s = _ttl_left_s(one.item, now)
        return write._replace(ttl_ms=-1 if left_s == _NO_TTL else round(left_s * 1000))


def _fit_item(given: ImportedItem, dimension: int) -> MemoryItem:
    """Return the item, from any namespace, without an embedding of another embedder's length."""
    item = parse_item(given, {})
    if not item.id:
        raise InvalidError("id", item.id, "an imported memory needs its id, so that a repeated import finds it")
    fits = item.embedding is not None and len(item.embedding) == dimension and any(item.embedding)
    return item.model_copy(update={"tenant_id": "", "embedding": item.embedding if fits else None})


def _modified_at(item: MemoryItem) -> datetime:
    """Return the time of its last change."""
    moment = item.updated_at or item.created_at
    assert moment is not None  # a draft is complete
    return moment


def _ttl_left_s(item: MemoryItem, now: datetime) -> float:
    """Return its remaining lifetime in seconds; -1 for no end, 0 if it has expired."""
    if item.ttl is None or item.ttl == _NO_TTL:
        return _NO_TTL
    left = _modified_at(item) + timedelta(seconds=item.ttl) - now
    return max(left.total_seconds(), 0.0)


async def _batches(items: Iterable[ImportedItem] | AsyncIterable[ImportedItem]) -> AsyncIterator[list[ImportedItem]]:
    batch: list[ImportedItem] = []
    async for item in _one_by_one(items):
        batch.append(item)
        if len(batch) == MOST_AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch


async def _one_by_one(items: Iterable[ImportedItem] | AsyncIterable[ImportedItem]) -> AsyncIterator[ImportedItem]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
        return
    for item in items:
        yield item
