"""Write existing memories: update, delete, and rewrite as a whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from sharedmem.errors import ConflictError, InvalidError, NotFoundError, VersionConflictError
from sharedmem.memory.access import ANY, MEMORY, MemoryAccess
from sharedmem.memory.dedup import StoredMemory
from sharedmem.memory.embedding_queue import EmbeddingQueue
from sharedmem.memory.repository import MOST_AT_ONCE, MemoryRepository, MemoryWriteConflict
from sharedmem.memory.serialization import encode_change, text_hash
from sharedmem.memory.validation import (
    NewMemory,
    check_embedding,
    check_id,
    check_item,
    check_memory_type,
    dedup_digest,
    starting_ttl,
    validate_item,
)
from sharedmem.models import MemoryFilter, MemoryItem
from sharedmem.redis.scope import EVERYONE
from sharedmem.redis.scripts.knowledge import MemoryDelete, MemoryWrite
from sharedmem.redis.vectors import to_half
from sharedmem.search.protocol import Every

MOST_TRIES = 50
"""How often a change is retried if another writer was faster."""
_PAGE = 512
# The server assigns these fields, or they identify the memory: they do not change.
_IMMUTABLE_FIELDS = frozenset(
    {"id", "tenant_id", "thread_id", "turn_index", "hash", "occurrences", "version", "adaptive_ttl"}
    | {"created_at", "created_by", "updated_at"}
)


class EmbeddingToWrite(NamedTuple):
    """The embedding of a memory to be written."""

    vector: bytes | None
    """In half precision."""
    waits: bool
    """Whether it is made later."""


class MemoryRewriter:
    """Writes single memories as a whole, unless they have changed since they were read.

    Args:
        access: rights and scope of the caller.
    """

    def __init__(self, access: MemoryAccess) -> None:
        self.repository = MemoryRepository.of(access.context, access.namespace)
        self._embeddings = EmbeddingQueue.of(access.context, access.namespace)
        self._access = access
        self._context = access.context

    async def embedding(self, item: MemoryItem) -> EmbeddingToWrite:
        """Embed the text of a memory, or mark it to be embedded later.

        Raises:
            ConfigError: the provider refuses the key or model.
        """
        draft = NewMemory(item=item, digest="", alike=ANY, vector=None, is_exact=True, dedup=False)
        await self._embeddings.embed([draft])
        return EmbeddingToWrite(None if draft.vector is None else to_half(draft.vector), draft.waits)

    def rewrite(
        self,
        change: str,
        item: MemoryItem,
        change_json: bytes,
        digest: str,
        stored: EmbeddingToWrite,
        *,
        before: StoredMemory | None = None,
        turn: int | str | None = None,
    ) -> MemoryWrite:
        """Return the write of one memory; see `MemoryRepository.write_of`."""
        return self.repository.write_of(
            change,
            item,
            change_json,
            digest,
            stored.vector,
            before=before,
            over="*",
            waits=stored.waits and self._context.embedder is not None,
            turn=(item.turn_index or 0) if turn is None else turn,
        )

    async def write(self, writes: list[MemoryWrite], item: MemoryItem) -> MemoryItem | None:
        """Write all or none; return the first of them as it is now, or None if one of them has changed meanwhile."""
        outcome = await self.repository.write(self._access.actor, writes, whole=True)
        assert not isinstance(outcome, MemoryWriteConflict)
        if outcome.waiting:
            self._embeddings.wake()
        word, rest = outcome.verdicts[0]
        if word != "ok":
            return None
        return item.model_copy(update={"version": int(rest[0]), "turn_index": int(rest[1])})


class MemoryWriter:
    """Changes and deletes memories of one scope.

    Args:
        access: rights and scope of the caller.
        rewriter: writes whole memories.
    """

    def __init__(self, access: MemoryAccess, rewriter: MemoryRewriter) -> None:
        self._access = access
        self._rewriter = rewriter
        self._context = access.context
        self._namespace = access.namespace
        self._repository = rewriter.repository

    async def update(
        self,
        id_: str,
        changes: Mapping[str, Any],
        *,
        if_version: int | None = None,
        permit: Callable[[MemoryItem], None] | None = None,
    ) -> MemoryItem:
        """Return the memory with these changes; see `Memories.update`. `permit` may raise to prevent the change."""
        check_id(id_)
        given = _check_changes(changes)
        for _ in range(MOST_TRIES):
            held = (await self._access.retry_after_restore(lambda: self._repository.held([id_]))).get(id_)
            if held is None or not self._access.covers(held.item):
                raise unknown_memory(id_)
            if if_version is not None and held.item.version != if_version:
                raise VersionConflictError(self._access.key(id_), if_version, held.item.version)
            if permit is not None:
                permit(held.item)
            done = await self._changed(held, given, changes)
            if done is not None:
                return done
        raise ConflictError(f"memory {id_!r} keeps changing; try again")

    async def delete(self, id_: str) -> bool:
        """Delete a memory; return whether it existed."""
        # Not as a read, which may be repeated: a repeated deletion would not find what the first try deleted.
        deleted = await self._deleted([id_], ANY)
        if not deleted and await self._context.restore_lost(self._namespace):
            deleted = await self._deleted([id_], ANY)
        return bool(deleted)

    async def delete_all(self, wanted: MemoryFilter) -> int:
        """Delete all memories of this scope that match a filter; return how many were deleted."""
        index = self._context.memories
        await index.ensure(self._namespace)
        conditions = self._access.index_filter(wanted)
        # Before authors are checked: what Redis has lost has authors too.
        await self._access.retry_after_restore(
            lambda: index.matching(self._namespace, conditions, limit=1), lambda page: not page.ids
        )
        await self._check_authors(conditions, wanted)
        count = skipped = 0
        while True:
            page = await index.matching(self._namespace, conditions, offset=skipped, limit=MOST_AT_ONCE)
            if not page.ids:
                return count
            deleted = await self._deleted(page.ids, wanted)
            # Skip memories that have expired or changed by now.
            count, skipped = count + deleted, skipped + len(page.ids) - deleted

    async def _check_authors(self, conditions: Every, filters: MemoryFilter) -> None:
        """Check the authors of all memories before deleting the first; only if other actors may own some."""
        if self._access.scope.identity.may_change(EVERYONE, MEMORY):
            return
        after = 0
        while (
            page := await self._context.memories.matching(self._namespace, conditions, offset=after, limit=_PAGE)
        ).ids:
            for held in (await self._repository.held(page.ids)).values():
                if self._access.covers(held.item, filters):
                    self._access.check_author(held.item)
            after += len(page.ids)

    async def _changed(self, held: StoredMemory, given: MemoryItem, changes: Mapping[str, Any]) -> MemoryItem | None:
        """Return the memory with these changes; None if another writer was faster."""
        now = self._context.clock.now()
        item = _apply_changes(held.item, given, changes).model_copy(update={"updated_at": now})
        if "ttl" not in changes and item.memory_type != held.item.memory_type:
            item = item.model_copy(update={"ttl": starting_ttl(item, self._access.settings)})
        check_item(item)
        if not self._access.covers(item):
            raise InvalidError("changes", dict(changes), "these memories are narrowed; change it in the target scope")
        stored = EmbeddingToWrite(held.vector, held.vector is None)
        if "embedding" in changes and given.embedding is not None:
            vector = check_embedding(given.embedding, self._context.memories.family.dimension)
            stored = EmbeddingToWrite(to_half(vector), waits=False)
        elif item.memory != held.item.memory:
            stored = await self._rewriter.embedding(item)
        change_json = encode_change("updated", self._access.actor.decode())
        write = self._rewriter.rewrite("updated", item, change_json, self._digest(held, item), stored, before=held)
        return await self._rewriter.write([write], item)

    def _digest(self, held: StoredMemory, item: MemoryItem) -> str:
        old = held.item
        if (item.hash, item.category, item.user_id) == (old.hash, old.category, old.user_id):
            return held.digest
        return dedup_digest(item, self._access.within, item)

    async def _deleted(self, ids: Sequence[str], filters: MemoryFilter) -> int:
        """Delete memories within scope and filter; return how many."""
        count, left = 0, list(ids)
        change_json = encode_change("deleted", self._access.actor.decode())
        for _ in range(MOST_TRIES):
            held = (await self._repository.held(left)).values()
            found = [one.item for one in held if self._access.covers(one.item, filters)]
            if not found:
                return count
            for item in found:
                self._access.check_author(item)
            deletes = [MemoryDelete(item.id, item.version, item.author or "", item.thread_id) for item in found]
            verdicts = await self._repository.delete(self._access.actor, deletes, change_json)
            count += sum(verdict.isdigit() for verdict in verdicts)
            left = [item.id for item, verdict in zip(found, verdicts, strict=True) if verdict.startswith(b"stale")]
            if not left:
                return count
        raise ConflictError("these memories keep changing; try again")


def unknown_memory(id_: str) -> NotFoundError:
    """Return the error for an id that does not exist in this scope."""
    return NotFoundError(MEMORY, id_, "check its id, and whether these memories are narrowed to other values")


def _check_changes(changes: Mapping[str, Any]) -> MemoryItem:
    """Return the changes as the fields of a memory, validated."""
    if not changes:
        raise InvalidError("changes", changes, "give at least one field to change")
    fixed = sorted(_IMMUTABLE_FIELDS & changes.keys())
    if fixed:
        raise InvalidError("field", fixed[0], "it cannot change; add another memory instead")
    given = validate_item(changes)
    check_memory_type(given.memory_type)
    if "memory" in changes and not given.memory.strip():
        raise InvalidError("memory", given.memory, "give a text with at least one word, or delete the memory")
    return given


def _apply_changes(old: MemoryItem, given: MemoryItem, changes: Mapping[str, Any]) -> MemoryItem:
    wanted = {name: getattr(given, name) for name in changes if name != "embedding"}
    if "memory" in wanted:
        wanted["hash"] = text_hash(given.memory)
        wanted.setdefault("content", given.memory)
    if "ttl" in wanted:
        wanted["adaptive_ttl"] = False
    if wanted.get("importance") == "critical":
        wanted["memory_type"] = "long-term"
    if "timestamp" in wanted and wanted["timestamp"] is None:
        wanted["timestamp"] = old.timestamp
    return old.model_copy(update=wanted)
