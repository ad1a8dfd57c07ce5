"""What a memory was before: its versions, and taking a change back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from sharedmem.clock import new_id
from sharedmem.errors import ConflictError, InvalidError, NotFoundError
from sharedmem.knowledge.memory.base import MEMORY, MemoryBase
from sharedmem.knowledge.memory.dedup import Held
from sharedmem.knowledge.memory.desk import Behind, Desk
from sharedmem.knowledge.memory.documents import encode_change, item_of_body, version_told
from sharedmem.knowledge.memory.drafts import Draft, check_id, digest_of
from sharedmem.knowledge.memory.narrowing import admits
from sharedmem.knowledge.memory.pending import Pending, embed_drafts
from sharedmem.models import MemoryFilter, MemoryItem, MemoryVersion
from sharedmem.telemetry import measured
from sharedmem.wire.remembering import Write
from sharedmem.wire.service_keys import decoding
from sharedmem.wire.vectors import to_half

_ID_LENGTH = 20
_MOST_TRIES = 50
# What a change is judged by; the rest follows from it, or is the server's work.
_REVERTED = tuple(
    name
    for name in MemoryItem.model_fields
    if name not in {"id", "tenant_id", "turn_index", "embedding", "version", "created_at", "updated_at"}
)
_FINAL = {
    "added": "nothing comes before it: delete the memory instead",
    "restored": "delete the memory instead",
    "undone": "it has taken back another change; update the memory, or add the text again",
}


class Stored(NamedTuple):
    """The embedding of a memory as it is to be written."""

    vector: bytes | None
    """In half precision."""
    waits: bool
    """Whether it is to be made later."""


class _Story(NamedTuple):
    versions: list[MemoryVersion]
    """Newest first, as far as the caller may see them."""
    merged: dict[int, dict[str, Any]]
    """What was merged in, as the body of an item, by version."""
    held: Held | None
    """The memory as it is now."""


class Past(MemoryBase):
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
            wanted = _wanted(id_, story.versions, version)
            self._check_author(story.held.item if story.held is not None else wanted.item)
            done = await self._taken_back(story, wanted)
            if done is not None:
                return done
        raise ConflictError(f"memory {id_!r} changes as often as it is read; try again")

    @property
    def _desk(self) -> Desk:
        return Desk.of(self._minds, self._namespace)

    async def _versions(self, id_: str) -> _Story:
        held, past = await self._desk.held_with_past(id_)
        with decoding(self._desk.history_key(id_)):
            told = [orjson.loads(entry) for entry in past]
            versions = [version_told(id_, self._namespace, one | {"item": dict(one["item"])}) for one in told]
        if held is not None:
            with decoding(self._desk.record_key(id_)):
                now = {"version": held.item.version, "turn_index": held.item.turn_index or 0}
                told.insert(0, now | {"change": orjson.loads(held.change), "item": orjson.loads(held.body)})
                versions.insert(0, version_told(id_, self._namespace, told[0]))
        merged = {one["version"]: one["change"]["merged"] for one in told if "merged" in one["change"]}
        return _Story([one for one in versions if admits(self._within, one.item)], merged, held)

    async def _taken_back(self, story: _Story, wanted: MemoryVersion) -> MemoryItem | None:
        """The memory without that change; None when somebody else was faster."""
        versions, held = story.versions, story.held
        if wanted.change == "deleted":
            return await self._restored(wanted) if held is None else None
        if held is None:
            raise InvalidError("version", wanted.version, "the memory is deleted; take that back first")
        place = versions.index(wanted)
        if place + 1 == len(versions):
            raise InvalidError("version", wanted.version, "what was before it is kept no more")
        now = self._minds.clock.now()
        item = without(versions[place + 1].item, wanted.item, held.item, now)
        told = encode_change("undone", self._actor.decode(), undoes=wanted.version)
        is_same = item.memory == held.item.memory
        stored = Stored(held.vector, held.vector is None) if is_same else await self._stored(item)
        digest = held.digest if is_same else digest_of(item, MemoryFilter(), item)
        write = self._rewritten("updated", item, told, digest, stored, before=held)
        writes = [write]
        if wanted.change == "merged":
            writes.append(await self._split_off(wanted, story.merged[wanted.version]))
        return await self._put(writes, item)

    async def _split_off(self, wanted: MemoryVersion, body: dict[str, Any]) -> Write:
        """What was merged in, as a memory of its own."""
        item = item_of_body(new_id(_ID_LENGTH), self._namespace, body, 0, 0)
        told = encode_change("restored", self._actor.decode(), undoes=wanted.version)
        digest = digest_of(item, MemoryFilter(), item)
        return self._rewritten("added", item, told, digest, await self._stored(item), turn="")

    async def _restored(self, wanted: MemoryVersion) -> MemoryItem | None:
        item = wanted.item
        told = encode_change("restored", self._actor.decode(), undoes=wanted.version)
        digest = digest_of(item, MemoryFilter(), item)
        write = self._rewritten("added", item, told, digest, await self._stored(item), turn=item.turn_index or 0)
        return await self._put([write], item)

    async def _stored(self, item: MemoryItem) -> Stored:
        """The vector of a memory, or that it waits for one.

        Raises:
            ConfigError: the provider refuses the key or model.
        """
        draft = Draft(item=item, digest="", alike=MemoryFilter(), vector=None, is_exact=True, dedup=False)
        await embed_drafts(self._minds, [draft])
        return Stored(None if draft.vector is None else to_half(draft.vector), draft.waits)

    def _rewritten(
        self,
        change: str,
        item: MemoryItem,
        told: bytes,
        digest: str,
        stored: Stored,
        *,
        before: Held | None = None,
        turn: int | str | None = None,
    ) -> Write:
        return self._desk.write_of(
            change,
            item,
            told,
            digest,
            stored.vector,
            before=before,
            over="*",
            waits=stored.waits and self._minds.embedder is not None,
            turn=(item.turn_index or 0) if turn is None else turn,
        )

    async def _put(self, writes: list[Write], item: MemoryItem) -> MemoryItem | None:
        """The first of these as it is now, when all are written; None when it has changed meanwhile."""
        outcome = await self._desk.write(self._actor, writes, whole=True)
        assert not isinstance(outcome, Behind)
        if outcome.waiting:
            Pending.of(self._minds, self._namespace).wake()
        word, rest = outcome.verdicts[0]
        if word != "ok":
            return None
        return item.model_copy(update={"version": int(rest[0]), "turn_index": int(rest[1])})

    def _unknown(self, id_: str) -> NotFoundError:
        return NotFoundError("memory", id_, "check its id, and whether these memories are narrowed to others")


def _wanted(id_: str, versions: list[MemoryVersion], version: int | None) -> MemoryVersion:
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
            if one.change not in _FINAL and one.version not in undone:
                return one
        raise InvalidError("id", id_, "it has no change that could be taken back; delete the memory instead")
    for one in versions:
        if one.version == version:
            if one.change in _FINAL:
                raise InvalidError("version", version, _FINAL[one.change])
            if version in undone:
                raise InvalidError("version", version, "it is taken back already")
            return one
    raise NotFoundError("version", str(version), f"the history of memory {id_!r} shows those that are kept")


# -- taking back, without I/O -----------------------------------------------------------------------------


def without(before: MemoryItem, after: MemoryItem, now: MemoryItem, at: datetime) -> MemoryItem:
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
            kept[name] = old if current == new else _apart(name, old, new, current)
    return now.model_copy(update=kept)


def _apart(name: str, old: Any, new: Any, current: Any) -> Any:
    """A field that was changed again, without the first of the changes."""
    if name == "occurrences":
        return max(1, current - (new - old))
    if name == "content" and new.startswith(old) and current.startswith(new):
        return old + current[len(new) :]
    if isinstance(current, tuple):
        return tuple(one for one in current if one in old or one not in new)
    if isinstance(current, dict):
        return _entries_apart(old, new, current)
    raise ConflictError(f"{name} was changed again since; take that change back first, or update the memory")


def _entries_apart(old: Mapping[str, Any], new: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(current)
    for key in old.keys() | new.keys():
        if old.get(key) == new.get(key) or current.get(key) != new.get(key):
            continue
        if key in old:
            found[key] = old[key]
        else:
            found.pop(key, None)
    return found
