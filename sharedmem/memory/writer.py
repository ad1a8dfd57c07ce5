"""Write memories: add, update and delete."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sharedmem.errors import ConflictError, InvalidError, VersionConflictError
from sharedmem.memory.base import MEMORY, check_filter
from sharedmem.memory.dedup import StoredMemory
from sharedmem.memory.embedding_queue import embed_drafts
from sharedmem.memory.filters import matches_filter, to_index_filter
from sharedmem.memory.group_commit import GroupCommit
from sharedmem.memory.repository import MOST_AT_ONCE
from sharedmem.memory.serialization import encode_change, text_hash
from sharedmem.memory.validation import (
    MemoryScope,
    NewMemory,
    check_embedding,
    check_id,
    check_item,
    dedup_digest,
    default_ttl,
    prepare_memory,
    validate_item,
)
from sharedmem.memory.versions import EmbeddingToWrite, MemoryHistory
from sharedmem.models import AddResult, MemoryFilter, MemoryItem
from sharedmem.redis.scope import EVERYONE
from sharedmem.redis.scripts.memories import MemoryDelete
from sharedmem.redis.vectors import to_half
from sharedmem.runtime import measured
from sharedmem.search.filters import Every

_MOST_TRIES = 50
_PAGE = 512
# What the server assigns, and where a memory stands, does not change.
_IMMUTABLE_FIELDS = frozenset(
    {"id", "tenant_id", "thread_id", "turn_index", "hash", "occurrences", "version"}
    | {"created_at", "created_by", "updated_at"}
)


class MemoryWriter(MemoryHistory):
    """Adds, changes and deletes memories."""

    @measured("memory.add")
    async def add(
        self,
        memory: str | MemoryItem | Mapping[str, Any],
        *,
        dedup: bool = True,
        dedup_keys: Sequence[str] = (),
        **fields: Any,
    ) -> AddResult:
        """Remember something. Two round trips, and one more for each memory that is near; several adds share them.

        What says the same as a memory that is there is merged into it: to the letter, or near in meaning
        (`dedup_similarity`) unless numbers, names or negations differ; of the same category and user, and of the same
        agent, thread and run where this is narrowed to them. A turn of a conversation (`messages`) is the same only
        as itself: same thread, author, text and, if given, time. When the embedding provider is away the memory is
        written at once, found by its words, and embedded later.

        Args:
            memory: the fact as text, or a whole item (up to 1 MiB of text).
            dedup: False remembers it beside whatever is there.
            dedup_keys: names of metadata whose values a duplicate has to share.
            fields: further fields of `MemoryItem`.

        Returns:
            Its id, or that of the memory it was merged into. An id that is given and there already with the same text
            is answered, and nothing changes.

        Raises:
            InvalidError: something cannot be remembered; nothing is written.
            VersionConflictError: the given id has another text already.
            AccessDeniedError, UnavailableError: as `write`.
            ConfigError: the embedding provider refuses the key or model.
        """
        self._permit("write")
        made = self._draft(memory, fields, self._context.clock.now(), dedup=dedup, dedup_keys=dedup_keys)
        (future,) = self._batches.put([made])
        return await future

    @measured("memory.add_many")
    async def add_many(
        self,
        items: Iterable[str | MemoryItem | Mapping[str, Any]],
        *,
        dedup: bool = True,
        dedup_keys: Sequence[str] = (),
        on_progress: Callable[[int, int], None] | None = None,
    ) -> list[AddResult]:
        """Remember many things, as `add` does each, in their order. A few round trips for every 64.

        Where 500 or more may have duplicates, the vectors of the namespace are fetched once, unless it is far larger
        or they take more than 128 MiB; that is quicker than to search for each.

        Args:
            items: texts, items or mappings of their fields; all are checked before anything is written.
            dedup, dedup_keys: as `add`.
            on_progress: called with (how many are written, how many there are).

        Returns:
            What became of each. When it fails on the way, what was written stays: the same call again goes on.

        Raises:
            InvalidError, AccessDeniedError, ConfigError, UnavailableError, VersionConflictError: as `add`.
        """
        self._permit("write")
        now = self._context.clock.now()
        drafts = [self._draft(item, {}, now, dedup=dedup, dedup_keys=dedup_keys) for item in _check_items(items)]
        results: list[AddResult] = []
        looking = sum(one.dedup and not one.is_exact for one in drafts)
        async with self._batches.neighbours.expecting(looking):
            for first in range(0, len(drafts), _PAGE):
                page = drafts[first : first + _PAGE]
                await embed_drafts(self._context, page)
                results += await _gather_results(self._batches.put(page))
                if on_progress is not None:
                    on_progress(len(results), len(drafts))
        return results

    @measured("memory.update")
    async def update(self, id_: str, *, if_version: int | None = None, **changes: Any) -> MemoryItem:
        """Change fields of a memory; another text gets another embedding and hash. Two round trips.

        Args:
            id_: of the memory.
            if_version: only if it has this version; None changes whatever is there.
            changes: fields of `MemoryItem` with their new values. Thread, turn and what the store assigns stay.
                `content` follows `memory` unless given.

        Returns:
            The memory as it is now.

        Raises:
            NotFoundError: there is no such memory.
            InvalidError: a field cannot be changed, or not to that.
            VersionConflictError: it has another version than `if_version`.
            AccessDeniedError, UnavailableError, ConfigError: as `add`.
        """
        await self._enter("write")
        return await self._updated(id_, changes, if_version=if_version, permit=self._check_author)

    async def _updated(
        self,
        id_: str,
        changes: Mapping[str, Any],
        *,
        if_version: int | None = None,
        permit: Callable[[MemoryItem], None] | None = None,
    ) -> MemoryItem:
        """The memory with these changes; see `update`. What `permit` raises for stays as it is."""
        check_id(id_)
        given = _check_changes(changes)
        for _ in range(_MOST_TRIES):
            held = (await self._retry_after_restore(lambda: self._desk.held([id_]))).get(id_)
            if held is None or not matches_filter(self._within, held.item):
                raise self._unknown(id_)
            if if_version is not None and held.item.version != if_version:
                raise VersionConflictError(self._key(id_), if_version, held.item.version)
            if permit is not None:
                permit(held.item)
            done = await self._changed(held, given, changes)
            if done is not None:
                return done
        raise ConflictError(f"memory {id_!r} changes as often as it is read; try again")

    @measured("memory.delete")
    async def delete(self, id_: str) -> bool:
        """Forget a memory; `history` and `undo` know it for `memory_history_s` (30 days). Two round trips.

        Args:
            id_: of the memory.

        Returns:
            Whether it was there.

        Raises:
            InvalidError: the id cannot be one.
            AccessDeniedError, UnavailableError: as `write`.
        """
        await self._enter("write")
        check_id(id_)
        return bool(await self._retry_after_restore(lambda: self._deleted([id_], MemoryFilter())))

    @measured("memory.delete_all")
    async def delete_all(self, filters: MemoryFilter | Mapping[str, Any]) -> int:
        """Forget all memories that a filter lets through, as `delete` does each. Three round trips for every 64.

        Args:
            filters: which; an empty filter means all of the namespace, or of what this is narrowed to.

        Returns:
            How many there were.

        Raises:
            InvalidError: the filter is none.
            AccessDeniedError, UnavailableError: as `write`; what was deleted by then stays deleted.
        """
        await self._enter("write")
        wanted = check_filter(filters)
        index = self._context.memories
        await index.ensure(self._namespace)
        conditions = to_index_filter(self._within, wanted)
        await self._check_authors(conditions, wanted)
        count = skipped = 0
        while True:
            page = await index.matching(self._namespace, conditions, offset=skipped, limit=MOST_AT_ONCE)
            if not page.ids:
                return count
            deleted = await self._deleted(page.ids, wanted)
            # What has expired or changed by now is passed over.
            count, skipped = count + deleted, skipped + len(page.ids) - deleted

    async def _check_authors(self, conditions: Every, filters: MemoryFilter) -> None:
        """Look through all memories of a filter before the first of them is deleted; only where others may own some."""
        if self._scope.identity.may_change(EVERYONE, MEMORY):
            return
        after = 0
        while (
            page := await self._context.memories.matching(self._namespace, conditions, offset=after, limit=_PAGE)
        ).ids:
            for held in (await self._desk.held(page.ids)).values():
                if matches_filter(self._within, held.item) and matches_filter(filters, held.item):
                    self._check_author(held.item)
            after += len(page.ids)

    @property
    def _batches(self) -> GroupCommit:
        return self._context.shared(GroupCommit, self._namespace, lambda: GroupCommit(self._context, self._namespace))

    @property
    def _home(self) -> MemoryScope:
        identity = self._scope.identity
        return MemoryScope(self._namespace, identity.actor, self._within, self._context.memories.family.dimension)

    def _draft(
        self, given: object, fields: Mapping[str, Any], now: datetime, *, dedup: bool, dedup_keys: Sequence[str]
    ) -> NewMemory:
        settings = self._context.settings
        made = prepare_memory(given, fields, self._home, settings, now, dedup=dedup, dedup_keys=dedup_keys)
        made.actor = self._actor
        return made

    async def _changed(self, held: StoredMemory, given: MemoryItem, changes: Mapping[str, Any]) -> MemoryItem | None:
        """The memory with these changes; None when somebody else was faster."""
        now = self._context.clock.now()
        item = _apply_changes(held.item, given, changes).model_copy(update={"updated_at": now})
        if "ttl" not in changes and item.memory_type != held.item.memory_type:
            item = item.model_copy(update={"ttl": default_ttl(item.memory_type, self._context.settings)})
        check_item(item)
        if not matches_filter(self._within, item):
            raise InvalidError("changes", dict(changes), "these memories are narrowed; change it where it would belong")
        stored = EmbeddingToWrite(held.vector, held.vector is None)
        if "embedding" in changes and given.embedding is not None:
            vector = check_embedding(given.embedding, self._context.memories.family.dimension)
            stored = EmbeddingToWrite(to_half(vector), waits=False)
        elif item.memory != held.item.memory:
            stored = await self._stored(item)
        told = encode_change("updated", self._actor.decode())
        write = self._rewritten("updated", item, told, self._digest(held, item), stored, before=held)
        return await self._put([write], item)

    def _digest(self, held: StoredMemory, item: MemoryItem) -> str:
        old = held.item
        if (item.hash, item.category, item.user_id) == (old.hash, old.category, old.user_id):
            return held.digest
        return dedup_digest(item, self._within, item)

    async def _deleted(self, ids: Sequence[str], filters: MemoryFilter) -> int:
        """How many of these there were, within scope and filter."""
        count, left = 0, list(ids)
        told = encode_change("deleted", self._actor.decode())
        for _ in range(_MOST_TRIES):
            held = (await self._desk.held(left)).values()
            found = [
                one.item for one in held if matches_filter(self._within, one.item) and matches_filter(filters, one.item)
            ]
            if not found:
                return count
            for item in found:
                self._check_author(item)
            deletes = [MemoryDelete(item.id, item.version, item.author or "", item.thread_id) for item in found]
            verdicts = await self._desk.delete(self._actor, deletes, told)
            count += sum(verdict.isdigit() for verdict in verdicts)
            left = [item.id for item, verdict in zip(found, verdicts, strict=True) if verdict.startswith(b"stale")]
            if not left:
                return count
        raise ConflictError("these memories change as often as they are read; try again")

    def _key(self, id_: str) -> str:
        return f"{self._namespace}:${MEMORY}:{id_}"


def _check_items(
    items: Iterable[str | MemoryItem | Mapping[str, Any]],
) -> Iterable[str | MemoryItem | Mapping[str, Any]]:
    # A text would be taken for its letters, a mapping for its names, an item for its fields.
    if isinstance(items, str | bytes | Mapping | MemoryItem) or not isinstance(items, Iterable):
        raise InvalidError("items", items, "give a list of texts, items or mappings; a single one goes to add()")
    return items


async def _gather_results(futures: Sequence[asyncio.Future[AddResult]]) -> list[AddResult]:
    """The results of all, once all are settled.

    Raises:
        SharedMemoryError: the first failure.
    """
    results = await asyncio.gather(*futures, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if isinstance(result, AddResult)]


def _check_changes(changes: Mapping[str, Any]) -> MemoryItem:
    """The changes in the form that a memory has."""
    if not changes:
        raise InvalidError("changes", changes, "say what is to change")
    fixed = sorted(_IMMUTABLE_FIELDS & changes.keys())
    if fixed:
        raise InvalidError("field", fixed[0], "it stays as it is; add another memory instead")
    given = validate_item(changes)
    if "memory" in changes and not given.memory.strip():
        raise InvalidError("memory", given.memory, "give a text that says something, or delete the memory")
    return given


def _apply_changes(old: MemoryItem, given: MemoryItem, changes: Mapping[str, Any]) -> MemoryItem:
    wanted = {name: getattr(given, name) for name in changes if name != "embedding"}
    if "memory" in wanted:
        wanted["hash"] = text_hash(given.memory)
        wanted.setdefault("content", given.memory)
    if wanted.get("importance") == "critical":
        wanted["memory_type"] = "long-term"
    if "timestamp" in wanted and wanted["timestamp"] is None:
        wanted["timestamp"] = old.timestamp
    return old.model_copy(update=wanted)
