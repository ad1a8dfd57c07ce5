"""Past versions of a memory, and undoing a change."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from sharedmem.clock import new_id
from sharedmem.errors import ConflictError, InvalidError, NotFoundError
from sharedmem.memory.access import ANY, MemoryAccess
from sharedmem.memory.dedup import StoredMemory
from sharedmem.memory.serialization import encode_change, item_from_body, version_from_json
from sharedmem.memory.validation import dedup_digest
from sharedmem.memory.writer import MOST_TRIES, EmbeddingToWrite, MemoryRewriter, unknown_memory
from sharedmem.models import MemoryItem, MemoryVersion
from sharedmem.redis.scripts.knowledge import MemoryWrite
from sharedmem.redis.service_keys import decoding

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
