"""Export all memories of a scope one by one, and import them elsewhere unchanged."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sharedmem.errors import InvalidError, VersionConflictError
from sharedmem.memory.base import MEMORY, check_filter
from sharedmem.memory.dedup import StoredMemory
from sharedmem.memory.embedding_queue import EmbeddingQueue, embed_drafts
from sharedmem.memory.reader import MemoryFetcher
from sharedmem.memory.repository import MOST_AT_ONCE, MemoryRepository, MemoryWriteResult
from sharedmem.memory.serialization import encode_change
from sharedmem.memory.validation import MemoryScope, NewMemory, parse_item, prepare_memory
from sharedmem.models import MemoryFilter, MemoryItem
from sharedmem.redis.scripts.memories import MemoryWrite
from sharedmem.redis.vectors import to_half

ImportedItem = MemoryItem | Mapping[str, Any]
ImportProgress = Callable[[int, int], None]
"""Called with (items looked at, how many of them were written)."""
_NO_TTL = -1
_EMPTY_RESULT = MemoryWriteResult(0, [])


class MemoryTransfer(MemoryFetcher):
    """Takes memories out and in."""

    async def export(
        self,
        filters: MemoryFilter | Mapping[str, Any] | None = None,
        *,
        embedding: bool = False,
        since: int = 0,
    ) -> AsyncIterator[MemoryItem]:
        """All memories of this scope, those that changed last at the end. Two round trips five hundred.

        What changes meanwhile comes again with its newer state, so that nothing is left out; `import_` takes it so.

        Args:
            filters: which are meant; None for all.
            embedding: whether their embeddings are wanted too; without them, who imports embeds anew.
            since: `version` of the last item that an interrupted export gave; it goes on behind it.

        Raises:
            InvalidError: an argument is none.
            AccessDeniedError, UnavailableError: as `get`.
        """
        await self._enter("read")
        wanted = check_filter(filters)
        if isinstance(since, bool) or not isinstance(since, int) or since < 0:
            raise InvalidError("since", since, "give the version of the last item that was exported, or 0")
        async for page in self._logged(after=since):
            for kept in await self._take([each.id for each in page], filters=wanted, embedding=embedding):
                yield kept.item

    async def import_(
        self, items: Iterable[ImportedItem] | AsyncIterable[ImportedItem], *, on_progress: ImportProgress | None = None
    ) -> int:
        """Take in memories as they were: with their ids, times, places in threads, and without looking for duplicates.

        It may be repeated, also after an interruption: what is there already stays as it is, unless what comes has
        changed later (`updated_at`, else `created_at`); the older state becomes a past version then. Two round trips
        for each 64 items, and what embedding takes.

        Args:
            items: as `export` gives them, or mappings of their fields; each with its id. They become memories of this
                namespace, and of what this is narrowed to.
            on_progress: called after each 64 items.

        Returns:
            How many were written. What has lived its `ttl` already is left out.

        Raises:
            InvalidError: an item is none; those before it are taken in.
            VersionConflictError: its id belongs to a memory outside of this scope.
            AccessDeniedError: this actor may not write here.
            ConfigError, UnavailableError: as `add`.
        """
        self._permit("write")
        looked_at = written = 0
        async for batch in _batches(items):
            written += await self._take_in(batch)
            looked_at += len(batch)
            if on_progress is not None:
                on_progress(looked_at, written)
        return written

    async def _take_in(self, batch: Sequence[ImportedItem]) -> int:
        context, now = self._context, self._context.clock.now()
        await context.memories.ensure(self._namespace)
        desk = MemoryRepository.of(context, self._namespace)
        left = self._drafts(batch, now)
        written = 0
        while left:
            held = await desk.held(one.item.id for one in left)
            left = [one for one in left if self._is_news(one, held.get(one.item.id))]
            for one in left:
                self._keep_author(one, held.get(one.item.id))
            await embed_drafts(context, left)
            writes = [self._write_of(desk, one, held.get(one.item.id), now) for one in left]
            outcome = await desk.write(self._actor, writes) if writes else _EMPTY_RESULT
            assert isinstance(outcome, MemoryWriteResult)  # nothing was seen that somebody could have changed
            # Somebody else was faster with some: look again.
            settled = [verdict.word == "ok" for verdict in outcome.verdicts]
            written += sum(settled)
            left = [one for one, is_settled in zip(left, settled, strict=True) if not is_settled]
            if outcome.waiting:
                EmbeddingQueue.of(context, self._namespace).wake()
        return written

    def _drafts(self, batch: Sequence[ImportedItem], now: datetime) -> list[NewMemory]:
        """What is to be written: of several states of a memory the newest one, and nothing that has expired."""
        context = self._context
        home = MemoryScope(self._namespace, self._scope.identity.actor, self._within, context.memories.family.dimension)
        drafts: dict[str, NewMemory] = {}
        for given in batch:
            one = prepare_memory(_fit_item(given, home.dimension), {}, home, context.settings, now, dedup=False)
            before = drafts.get(one.item.id)
            if _ttl_left_s(one.item, now) != 0 and (
                before is None or _modified_at(before.item) < _modified_at(one.item)
            ):
                drafts[one.item.id] = one
        return list(drafts.values())

    def _is_news(self, one: NewMemory, held: StoredMemory | None) -> bool:
        if held is None:
            return True
        if not self._is_visible(MemoryFilter(), held.item):
            raise VersionConflictError(f"{self._namespace}:${MEMORY}:{one.item.id}", 0, held.item.version)
        return _modified_at(held.item) < _modified_at(one.item)

    def _keep_author(self, one: NewMemory, held: StoredMemory | None) -> None:
        """What takes the place of a memory stays its author's."""
        if held is not None:
            self._check_author(held.item)
            one.item = one.item.model_copy(update={"created_by": held.item.created_by})

    def _write_of(
        self, desk: MemoryRepository, one: NewMemory, held: StoredMemory | None, now: datetime
    ) -> MemoryWrite:
        change = "added" if held is None else "updated"
        vector = None if one.vector is None else to_half(one.vector)
        turn = "" if one.item.turn_index is None else one.item.turn_index
        write = desk.write_of(
            change,
            one.item,
            encode_change(change, self._actor.decode()),
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
    """The item, whatever namespace it comes from, without an embedding of another embedder's length."""
    item = parse_item(given, {})
    if not item.id:
        raise InvalidError("id", item.id, "what is imported has its id, so that a repeat finds it")
    fits = item.embedding is not None and len(item.embedding) == dimension and any(item.embedding)
    return item.model_copy(update={"tenant_id": "", "embedding": item.embedding if fits else None})


def _modified_at(item: MemoryItem) -> datetime:
    """When it came to be as it is."""
    moment = item.updated_at or item.created_at
    assert moment is not None  # a draft is complete
    return moment


def _ttl_left_s(item: MemoryItem, now: datetime) -> float:
    """Seconds that it has still to live; -1 for ever, 0 for none."""
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
