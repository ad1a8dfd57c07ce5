"""Past versions of a memory, and undoing a change."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from sharedmem.clock import new_id
from sharedmem.errors import ConflictError, InvalidError, NotFoundError
from sharedmem.memory.base import MEMORY, MemoryBase
from sharedmem.memory.dedup import StoredMemory
from sharedmem.memory.embedding_queue import EmbeddingQueue, embed_drafts
from sharedmem.memory.filters import matches_filter
from sharedmem.memory.repository import MemoryRepository, MemoryWriteConflict
from sharedmem.memory.serialization import encode_change, item_from_body, version_from_json
from sharedmem.memory.validation import NewMemory, check_id, dedup_digest
from sharedmem.models import MemoryFilter, MemoryItem, MemoryVersion
from sharedmem.redis.scripts.memories import MemoryWrite
from sharedmem.redis.service_keys import decoding
from sharedmem.redis.vectors import to_half
from sharedmem.runtime import measured

_ID_LENGTH = 20
_MOST_TRIES = 50
# What a change is judged by; the rest follows from it, or is the server's work.
_REVERTED = tuple(
    name
    for name in MemoryItem.model_fields
    if name not in {"id", "tenant_id", "turn_index", "embedding", "version", "created_at", "updated_at"}
)
_NOT_UNDOABLE = {
    "added": "nothing comes before it: delete the memory instead",
    "restored": "delete the memory instead",
    "undone": "it has taken back another change; update the memory, or add the text again",
}


class EmbeddingToWrite(NamedTuple):
    """The embedding of a memory as it is to be written."""

    vector: bytes | None
    """In half precision."""
    waits: bool
    """Whether it is to be made later."""


class _VersionHistory(NamedTuple):
    versions: list[MemoryVersion]
    """Newest first, as far as the caller may see them."""
    merged: dict[int, dict[str, Any]]
    """What was merged in, as the body of an item, by version."""
    held: StoredMemory | None
    """The memory as it is now."""


class MemoryHistory(MemoryBase):
    """Tells and takes back what has become of memories."""

    @measured("memory.history")
    async def history(self, id_: str) -> list[MemoryVersion]:
        """Every version of a memory that is kept, newest first; of a deleted one too, for `memory_history_s`.

        One round trip. Beyond `memory_history` versions (default 100) the oldest go.

        Args:
            id_: of the memory; empty answer when it is not known, or outside of what this is narrowed to.

        Raises:
            InvalidError: the id cannot be one.
            AccessDeniedError, UnavailableError: as `read`.
        """
        await self._enter("read")
        return (await self._versions(check_id(id_))).versions

    @measured("memory.undo")
    async def undo(self, id_: str, version: int | None = None) -> MemoryItem:
        """Take back a change of a memory; what was changed after it stays. Up to four round trips.

        A merge that is taken back splits: what was merged in becomes a memory of its own again. A deletion that is
        taken back brings the memory back. The history tells of it, also in the memory that was split off.

        Args:
            id_: of the memory.
            version: of the change to be taken back, as `history` tells it; None for the last that can be.

        Returns:
            The memory as it is now.

        Raises:
            NotFoundError: there is no such memory or version.
            InvalidError: that version cannot be taken back, such as the addition itself.
            ConflictError: what it has changed was changed again; take that back first.
            AccessDeniedError, UnavailableError: as `write`.
        """
        await self._enter("write")
        check_id(id_)
        for _ in range(_MOST_TRIES):
            story = await self._versions(id_)
            wanted = _find_version(id_, story.versions, version)
            self._check_author(story.held.item if story.held is not None else wanted.item)
            done = await self._taken_back(story, wanted)
            if done is not None:
                return done
        raise ConflictError(f"memory {id_!r} changes as often as it is read; try again")

    @property
    def _desk(self) -> MemoryRepository:
        return MemoryRepository.of(self._context, self._namespace)

    async def _versions(self, id_: str) -> _VersionHistory:
        held, past = await self._desk.stored_with_history(id_)
        with decoding(self._desk.history_key(id_)):
            told = [orjson.loads(entry) for entry in past]
            versions = [version_from_json(id_, self._namespace, one | {"item": dict(one["item"])}) for one in told]
        if held is not None:
            with decoding(self._desk.record_key(id_)):
                now = {"version": held.item.version, "turn_index": held.item.turn_index or 0}
                told.insert(0, now | {"change": orjson.loads(held.change), "item": orjson.loads(held.body)})
                versions.insert(0, version_from_json(id_, self._namespace, told[0]))
        merged = {one["version"]: one["change"]["merged"] for one in told if "merged" in one["change"]}
        return _VersionHistory([one for one in versions if matches_filter(self._within, one.item)], merged, held)

    async def _taken_back(self, story: _VersionHistory, wanted: MemoryVersion) -> MemoryItem | None:
        """The memory without that change; None when somebody else was faster."""
        versions, held = story.versions, story.held
        if wanted.change == "deleted":
            return await self._restored(wanted) if held is None else None
        if held is None:
            raise InvalidError("version", wanted.version, "the memory is deleted; take that back first")
        place = versions.index(wanted)
        if place + 1 == len(versions):
            raise InvalidError("version", wanted.version, "what was before it is kept no more")
        now = self._context.clock.now()
        item = without_change(versions[place + 1].item, wanted.item, held.item, now)
        told = encode_change("undone", self._actor.decode(), undoes=wanted.version)
        is_same = item.memory == held.item.memory
        stored = EmbeddingToWrite(held.vector, held.vector is None) if is_same else await self._stored(item)
        digest = held.digest if is_same else dedup_digest(item, MemoryFilter(), item)
        write = self._rewritten("updated", item, told, digest, stored, before=held)
        writes = [write]
        if wanted.change == "merged":
            writes.append(await self._split_off(wanted, story.merged[wanted.version]))
        return await self._put(writes, item)

    async def _split_off(self, wanted: MemoryVersion, body: dict[str, Any]) -> MemoryWrite:
        """What was merged in, as a memory of its own."""
        item = item_from_body(new_id(_ID_LENGTH), self._namespace, body, 0, 0)
        told = encode_change("restored", self._actor.decode(), undoes=wanted.version)
        digest = dedup_digest(item, MemoryFilter(), item)
        return self._rewritten("added", item, told, digest, await self._stored(item), turn="")

    async def _restored(self, wanted: MemoryVersion) -> MemoryItem | None:
        item = wanted.item
        told = encode_change("restored", self._actor.decode(), undoes=wanted.version)
        digest = dedup_digest(item, MemoryFilter(), item)
        write = self._rewritten("added", item, told, digest, await self._stored(item), turn=item.turn_index or 0)
        return await self._put([write], item)

    async def _stored(self, item: MemoryItem) -> EmbeddingToWrite:
        """The vector of a memory, or that it waits for one.

        Raises:
            ConfigError: the provider refuses the key or model.
        """
        draft = NewMemory(item=item, digest="", alike=MemoryFilter(), vector=None, is_exact=True, dedup=False)
        await embed_drafts(self._context, [draft])
        return EmbeddingToWrite(None if draft.vector is None else to_half(draft.vector), draft.waits)

    def _rewritten(
        self,
        change: str,
        item: MemoryItem,
        told: bytes,
        digest: str,
        stored: EmbeddingToWrite,
        *,
        before: StoredMemory | None = None,
        turn: int | str | None = None,
    ) -> MemoryWrite:
        return self._desk.write_of(
            change,
            item,
            told,
            digest,
            stored.vector,
            before=before,
            over="*",
            waits=stored.waits and self._context.embedder is not None,
            turn=(item.turn_index or 0) if turn is None else turn,
        )

    async def _put(self, writes: list[MemoryWrite], item: MemoryItem) -> MemoryItem | None:
        """The first of these as it is now, when all are written; None when it has changed meanwhile."""
        outcome = await self._desk.write(self._actor, writes, whole=True)
        assert not isinstance(outcome, MemoryWriteConflict)
        if outcome.waiting:
            EmbeddingQueue.of(self._context, self._namespace).wake()
        word, rest = outcome.verdicts[0]
        if word != "ok":
            return None
        return item.model_copy(update={"version": int(rest[0]), "turn_index": int(rest[1])})

    def _unknown(self, id_: str) -> NotFoundError:
        return NotFoundError("memory", id_, "check its id, and whether these memories are narrowed to others")


def _find_version(id_: str, versions: list[MemoryVersion], version: int | None) -> MemoryVersion:
    """The version that is to be taken back.

    Raises:
        NotFoundError: there is none.
        InvalidError: it cannot be taken back.
    """
    if not versions:
        raise NotFoundError(MEMORY, id_, "check its id, and whether these memories are narrowed to others")
    undone = {one.undoes for one in versions if one.undoes is not None}
    if version is None:
        for one in versions:
            if one.change not in _NOT_UNDOABLE and one.version not in undone:
                return one
        raise InvalidError("id", id_, "it has no change that could be taken back; delete the memory instead")
    for one in versions:
        if one.version == version:
            if one.change in _NOT_UNDOABLE:
                raise InvalidError("version", version, _NOT_UNDOABLE[one.change])
            if version in undone:
                raise InvalidError("version", version, "it is taken back already")
            return one
    raise NotFoundError("version", str(version), f"the history of memory {id_!r} shows those that are kept")


# -- taking back, without I/O -----------------------------------------------------------------------------


def without_change(before: MemoryItem, after: MemoryItem, now: MemoryItem, at: datetime) -> MemoryItem:
    """A memory as it is, without the change that made `after` of `before`.

    Args:
        before, after: around that change.
        now: as it is.
        at: the time of this.

    Raises:
        ConflictError: a field was changed again since.
    """
    kept: dict[str, Any] = {"updated_at": at}
    for name in _REVERTED:
        old, new, current = getattr(before, name), getattr(after, name), getattr(now, name)
        if old != new:
            kept[name] = old if current == new else _without_field_change(name, old, new, current)
    return now.model_copy(update=kept)


def _without_field_change(name: str, old: Any, new: Any, current: Any) -> Any:
    """A field that was changed again, without the first of the changes."""
    if name == "occurrences":
        return max(1, current - (new - old))
    if name == "content" and new.startswith(old) and current.startswith(new):
        return old + current[len(new) :]
    if isinstance(current, tuple):
        return tuple(one for one in current if one in old or one not in new)
    if isinstance(current, dict):
        return _without_entry_changes(old, new, current)
    raise ConflictError(f"{name} was changed again since; take that change back first, or update the memory")


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
