"""Write existing memories: update, delete, rewrite as a whole, list past versions and undo a change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from sharedmem.clock import new_id
from sharedmem.errors import ConflictError, InvalidError, NotFoundError, VersionConflictError
from sharedmem.memory.access import ANY, MEMORY, MemoryAccess
from sharedmem.memory.embedding_queue import EmbeddingQueue
from sharedmem.memory.repository import MOST_AT_ONCE, MemoryRepository, MemoryWriteConflict, StoredMemory
from sharedmem.memory.serialization import encode_change, item_from_body, version_from_json
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
from sharedmem.models import MemoryFilter, MemoryItem, MemoryVersion
from sharedmem.redis.scope import EVERYONE
from sharedmem.redis.scripts.knowledge import MemoryDelete, MemoryWrite
from sharedmem.redis.service_keys import decoding
from sharedmem.redis.vectors import to_half
from sharedmem.search.protocol import Every
from sharedmem.text.analysis import text_hash

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
        if not deleted and await self._context.record_tier.gather(self._namespace, again=True):
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


# -- past versions -------------------------------------------------------------------------------


_ID_LENGTH = 20
# The fields that decide whether a change can be undone; the others follow from them, or the server sets them.
_REVERTED = tuple(
    name
    for name in MemoryItem.model_fields
    if name not in {"id", "tenant_id", "turn_index", "embedding", "version", "created_at", "updated_at"}
)
_NOT_UNDOABLE = {
    "extended": "its uses have extended its lifetime; update `ttl` instead",
    "added": "nothing comes before it: delete the memory instead",
    "restored": "delete the memory instead",
    "undone": "it has undone another change; update the memory, or add the text again",
}


class _VersionHistory(NamedTuple):
    versions: list[MemoryVersion]
    """Newest first, as far as the caller may read them."""
    merged: dict[int, dict[str, Any]]
    """The memories that were merged in, as bodies of items, by version."""
    held: StoredMemory | None
    """The memory as it is now."""


class MemoryHistory:
    """Reads and undoes changes of the memories of one scope.

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

    async def versions(self, id_: str) -> list[MemoryVersion]:
        """Return the versions of a memory that are in this scope, newest first. One round trip."""
        return (await self._read(id_)).versions

    async def undo(self, id_: str, version: int | None) -> MemoryItem:
        """Undo a change; see `Memories.undo`."""
        for _ in range(MOST_TRIES):
            history = await self._read(id_)
            wanted = _find_version(id_, history.versions, version)
            self._access.check_author(history.held.item if history.held is not None else wanted.item)
            done = await self._undone(history, wanted)
            if done is not None:
                return done
        raise ConflictError(f"memory {id_!r} keeps changing; try again")

    async def _read(self, id_: str) -> _VersionHistory:
        held, past = await self._access.retry_after_restore(
            lambda: self._repository.stored_with_history(id_), lambda found: found == (None, [])
        )
        with decoding(self._repository.history_key(id_)):
            entries = [orjson.loads(entry) for entry in past]
            versions = [version_from_json(id_, self._namespace, one | {"item": dict(one["item"])}) for one in entries]
        if held is not None:
            with decoding(self._repository.record_key(id_)):
                now = {"version": held.item.version, "turn_index": held.item.turn_index or 0}
                entries.insert(0, now | {"change": orjson.loads(held.change), "item": orjson.loads(held.body)})
                versions.insert(0, version_from_json(id_, self._namespace, entries[0]))
        merged = {one["version"]: one["change"]["merged"] for one in entries if "merged" in one["change"]}
        return _VersionHistory([one for one in versions if self._access.covers(one.item)], merged, held)

    async def _undone(self, history: _VersionHistory, wanted: MemoryVersion) -> MemoryItem | None:
        """Return the memory without that change; None if another writer was faster."""
        versions, held = history.versions, history.held
        if wanted.change == "deleted":
            return await self._restored(wanted) if held is None else None
        if held is None:
            raise InvalidError("version", wanted.version, "the memory is deleted; undo the deletion first")
        place = versions.index(wanted)
        if place + 1 == len(versions):
            raise InvalidError("version", wanted.version, "the version before it is no longer stored")
        now = self._context.clock.now()
        item = without_change(versions[place + 1].item, wanted.item, held.item, now)
        change_json = encode_change("undone", self._access.actor.decode(), undoes=wanted.version)
        is_same = item.memory == held.item.memory
        stored = EmbeddingToWrite(held.vector, held.vector is None) if is_same else await self._rewriter.embedding(item)
        digest = held.digest if is_same else dedup_digest(item, ANY, item)
        write = self._rewriter.rewrite("updated", item, change_json, digest, stored, before=held)
        writes = [write]
        if wanted.change == "merged":
            writes.append(await self._split_off(wanted, history.merged[wanted.version]))
        return await self._rewriter.write(writes, item)

    async def _split_off(self, wanted: MemoryVersion, body: dict[str, Any]) -> MemoryWrite:
        """Return the write of the merged-in memory as a memory of its own."""
        item = item_from_body(new_id(_ID_LENGTH), self._namespace, body, 0, 0)
        change_json = encode_change("restored", self._access.actor.decode(), undoes=wanted.version)
        digest = dedup_digest(item, ANY, item)
        return self._rewriter.rewrite("added", item, change_json, digest, await self._rewriter.embedding(item), turn="")

    async def _restored(self, wanted: MemoryVersion) -> MemoryItem | None:
        item = wanted.item
        change_json = encode_change("restored", self._access.actor.decode(), undoes=wanted.version)
        digest = dedup_digest(item, ANY, item)
        write = self._rewriter.rewrite(
            "added", item, change_json, digest, await self._rewriter.embedding(item), turn=item.turn_index or 0
        )
        return await self._rewriter.write([write], item)


def _find_version(id_: str, versions: list[MemoryVersion], version: int | None) -> MemoryVersion:
    """Return the version to undo.

    Raises:
        NotFoundError: there is no such version.
        InvalidError: the version cannot be undone.
    """
    if not versions:
        raise unknown_memory(id_)
    undone = {one.undoes for one in versions if one.undoes is not None}
    if version is None:
        for one in versions:
            if one.change not in _NOT_UNDOABLE and one.version not in undone:
                return one
        raise InvalidError("id", id_, "it has no change that can be undone; delete the memory instead")
    for one in versions:
        if one.version == version:
            if one.change in _NOT_UNDOABLE:
                raise InvalidError("version", version, _NOT_UNDOABLE[one.change])
            if version in undone:
                raise InvalidError("version", version, "it is undone already")
            return one
    raise NotFoundError("version", str(version), f"memory.history({id_!r}) lists the stored versions")


# -- undoing, without I/O ---------------------------------------------------------------------------------


def without_change(before: MemoryItem, after: MemoryItem, now: MemoryItem, at: datetime) -> MemoryItem:
    """Return a memory as it is, without the change from `before` to `after`.

    Args:
        before, after: the states around that change.
        now: the current state.
        at: the time of this undo.

    Raises:
        ConflictError: a field was changed again since.
    """
    kept: dict[str, Any] = {"updated_at": at}
    for name in _REVERTED:
        old, new, current = getattr(before, name), getattr(after, name), getattr(now, name)
        # An adaptive lifetime follows the uses, whatever else is undone.
        if old != new and not (name == "ttl" and now.adaptive_ttl):
            kept[name] = old if current == new else _without_field_change(name, old, new, current)
    return now.model_copy(update=kept)


def _without_field_change(name: str, old: Any, new: Any, current: Any) -> Any:
    """Return a field that was changed again, without the first of the changes."""
    if name == "occurrences":
        return max(1, current - (new - old))
    if name == "content" and new.startswith(old) and current.startswith(new):
        return old + current[len(new) :]
    if isinstance(current, tuple):
        return tuple(one for one in current if one in old or one not in new)
    if isinstance(current, dict):
        return _without_entry_changes(old, new, current)
    raise ConflictError(f"{name} was changed again since; undo that change first, or update the memory")


def _without_entry_changes(
    old: Mapping[str, Any], new: Mapping[str, Any], current: Mapping[str, Any]
) -> dict[str, Any]:
    found = dict(current)
    for key in old.keys() | new.keys():
        if old.get(key) == new.get(key) or current.get(key) != new.get(key):
            continue
        if key in old:
            found[key] = old[key]
        else:
            found.pop(key, None)
    return found
