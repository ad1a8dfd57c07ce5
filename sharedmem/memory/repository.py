"""The repository of a namespace's memories: writes, deletions, expiry, and records that cannot be read."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

import orjson

from sharedmem.errors import DurabilityPendingError, SharedMemoryError
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.memory.access import MEMORY
from sharedmem.memory.serialization import (
    decode_item_if_readable,
    encode_body,
    encode_embedding,
    indexed_text,
    ranking_features,
    tag_fields,
)
from sharedmem.models import MemoryItem
from sharedmem.redis.durability import LOG_MODE, DurabilityModes, UnsettledError
from sharedmem.redis.keys import SHARED_SCOPE
from sharedmem.redis.replies import Argument, Reply, ServerError, public_key_error
from sharedmem.redis.scripts.knowledge import COMMON_PARTS, MemoryDelete, MemoryScripts, MemoryWrite
from sharedmem.redis.vectors import Vector, finite_half_or_none, to_half
from sharedmem.runtime import Counters
from sharedmem.text.analysis import indexed_terms

_log = logging.getLogger(__name__)
_MOST_NAMED = 1000


class UnreadableMemories:
    """The memories of one namespace that this hub could not read.

    Args:
        namespace: the namespace of the memories.
        counters: `memory_unreadable` is incremented at each failed read.
    """

    def __init__(self, namespace: str, counters: Counters) -> None:
        self._namespace = namespace
        self._counters = counters
        # In the order of the first failed read.
        self._ids: dict[str, None] = {}

    def note(self, id_: str) -> None:
        """Record that a memory could not be read; log it the first time."""
        self._counters.increment("memory_unreadable")
        if id_ not in self._ids and len(self._ids) < _MOST_NAMED:
            self._ids[id_] = None
            _log.warning("memory %r of %s cannot be read: another client has overwritten it", id_, self._namespace)

    def problems(self) -> list[str]:
        """Return the problems as sentences."""
        if not self._ids:
            return []
        first = next(iter(self._ids))
        found = f"{len(self._ids)} memories of {self._namespace!r} could not be read, such as {first!r}"
        return [f"{found}: another client has overwritten them; restore them from a backup, or delete their keys"]


def unreadable_memories(context: KnowledgeContext, namespace: str) -> UnreadableMemories:
    """Return the unreadable memories of a namespace; all stores of a hub share them."""
    return context.shared(UnreadableMemories, namespace, lambda: UnreadableMemories(namespace, context.counters))


MOST_AT_ONCE = 64
"""Memories that one call of a script changes: the server serves no other client meanwhile."""
_MOST_BESIDE_OTHERS = 256
"""Memories that are read on the connection of all calls; more would delay these."""
_CONFLICT = b"BEHIND"
_FIELDS = ("body", "version", "turn", "digest", "change", "vector")
_VERSION_DIGITS = 16
_NO_ACTOR = SHARED_SCOPE.encode()
_EXPIRED_AT_ONCE = 16
_EXPIRE_EVERY = 16


class StoredMemory(NamedTuple):
    """A memory as it is stored on the server."""

    item: MemoryItem
    digest: str
    vector: bytes | None
    change: bytes
    """JSON of its last change."""
    body: bytes


class MemoryWriteStatus(NamedTuple):
    """The status of one write."""

    word: str
    """`ok`, `dup`, `here` or `stale` (see lua/memory_write.lua)."""
    rest: list[str]


class MemoryWriteResult(NamedTuple):
    """The result of several writes."""

    waiting: int
    """Memories of the namespace that wait for their embedding."""
    verdicts: list[MemoryWriteStatus]


class MemoryWriteConflict(NamedTuple):
    """Nothing was written, because another writer was faster."""

    version: int
    """The newest change; 0 if too much has changed to list."""
    ids: list[str]
    """Ids of the changed memories."""


class MemoryRepository:
    """One namespace's memories, for modules that change them; all stores of a hub share it.

    Args:
        context: dependencies that the hub shares with its stores.
        namespace: the namespace of the memories.
    """

    def __init__(self, context: KnowledgeContext, namespace: str) -> None:
        self.context = context
        self.namespace = namespace
        self._scripts = MemoryScripts(context.executor)
        keyspace = context.keyspace
        self._space = keyspace.space(namespace)
        self._records = keyspace.records(MEMORY, namespace).encode()
        self._histories = keyspace.record_item(MEMORY, namespace, "history", "")
        self._turns = keyspace.record_item(MEMORY, namespace, "turns", "")
        self._common = [keyspace.record_part(MEMORY, namespace, part) for part in COMMON_PARTS]
        self._dimension = context.memories.family.dimension
        self._written = 0

    @classmethod
    def of(cls, context: KnowledgeContext, namespace: str) -> MemoryRepository:
        """Return the repository that all stores of a namespace share in this hub."""
        return context.shared(cls, namespace, lambda: cls(context, namespace))

    def history_key(self, id_: str) -> bytes:
        """Return the key of the list of past versions of a memory."""
        return self._histories + id_.encode()

    @property
    def pending_key(self) -> bytes:
        """The key of the sorted set of memories that wait for their embedding."""
        return self._common[COMMON_PARTS.index("pending")]

    async def held(self, ids: Iterable[str]) -> dict[str, StoredMemory]:
        """Return the memories with these ids that exist. One round trip; none without ids."""
        wanted = list(dict.fromkeys(ids))
        if not wanted:
            return {}
        replies = await self.context.client.read_each(
            [("HMGET", self._records + id_.encode(), *_FIELDS) for id_ in wanted],
            aside=len(wanted) > _MOST_BESIDE_OTHERS,
        )
        found = zip(wanted, replies, strict=True)
        return {id_: held for id_, reply in found if (held := self._held(id_, reply)) is not None}

    async def stored_with_history(self, id_: str) -> tuple[StoredMemory | None, list[bytes]]:
        """Return a memory if it exists, and the JSON of its past versions, newest first. One round trip."""
        look = ("HMGET", self._records + id_.encode(), *_FIELDS)
        now, past = await self.context.client.read_each([look, ("LRANGE", self.history_key(id_), 0, -1)], aside=True)
        return self._held(id_, now), [one for one in past if isinstance(one, bytes)] if isinstance(past, list) else []

    def record_key(self, id_: str) -> bytes:
        """Return the key of the hash of a memory."""
        return self._records + id_.encode()

    def _held(self, id_: str, reply: Reply) -> StoredMemory | None:
        fields = reply if isinstance(reply, list) else [b""] * len(_FIELDS)
        if all(one is None for one in fields):
            return None
        body, version, turn, digest, change, vector = (one if isinstance(one, bytes) else b"" for one in fields)
        item = decode_item_if_readable(id_, self.namespace, body, version, turn or b"0")
        if item is None:
            unreadable_memories(self.context, self.namespace).note(id_)
            return None
        return StoredMemory(
            item, digest.decode(errors="replace"), finite_half_or_none(vector, self._dimension), change, body
        )

    def write_of(
        self,
        change: str,
        item: MemoryItem,
        change_json: bytes,
        digest: str,
        vector: bytes | None,
        *,
        before: StoredMemory | None = None,
        over: str = "",
        waits: bool = False,
        turn: Argument = "",
    ) -> MemoryWrite:
        """Return the arguments of the script.

        Args:
            change: the word for the change in the change feed.
            item: the memory after the write.
            change_json: JSON of the change.
            digest: the digest that equal memories share.
            vector: in half precision.
            before: the stored memory; None for a new one.
            over: see lua/memory_write.lua.
            waits: whether the embedding is made later.
            turn: its turn index; empty to let the server assign it.
        """
        position = ranking_features(item, 0).encoded()
        head = b"[" + orjson.dumps(item.thread_id) + b","
        tags = tag_fields(item, self.namespace)
        fields: list[Argument] = ["terms", indexed_terms(indexed_text(item), self.namespace), "at", _timestamp_ms(item)]
        for pair in tags.items():
            fields += pair
        if vector is not None:
            fields += ("vector", vector)
        return MemoryWrite(
            id=item.id,
            expect=before.item.version if before else 0,
            change=change,
            change_json=change_json,
            digest=digest,
            former=before.digest if before else "",
            over=over,
            ttl_ms=_ttl_ms(item, before),
            turn=turn,
            thread=item.thread_id,
            head=head,
            tail=position[len(head) + 1 :],
            author=item.author or "",
            body=encode_body(item),
            waits=int(waits),
            vector=encode_embedding(vector) if self.context.record_tier.is_durable else b"",
            afresh=int(before is not None and self._removes_field(before, tags, vector)),
            fields=tuple(fields),
        )

    def _removes_field(self, before: StoredMemory, tags: dict[str, str], vector: bytes | None) -> bool:
        """Return whether a field of the hash is removed."""
        if before.vector is not None and vector is None:
            return True
        return bool(tag_fields(before.item, self.namespace).keys() - tags.keys())

    async def write(
        self, actor: bytes, writes: Sequence[MemoryWrite], *, seen: int | None = None, whole: bool = False
    ) -> MemoryWriteResult | MemoryWriteConflict:
        """Write, unless anything newer than `seen` has changed (None: write in any case). One round trip.

        Args:
            actor: the actor of the writes.
            writes: up to `MOST_AT_ONCE`.
            seen: the newest change that the caller has considered.
            whole: whether to write all or none.

        Raises:
            SharedMemoryError: as `write` of a store.
        """
        settings = self.context.settings
        keys = self._keys([write.id for write in writes], [write.thread for write in writes])
        try:
            reply = await self._scripts.memory_write(
                self._space,
                actor,
                keys=keys,
                seen="" if seen is None else seen,
                whole=int(whole),
                most=settings.memory_history,
                history_s=settings.memory_history_s,
                writes=writes,
                keep=self._keep([write.id for write in writes]),
            )
        except ServerError as error:
            raise self._explained(error) from error
        except UnsettledError as error:
            raise self._unsettled(writes[0].id, error) from error.cause
        await self._tidy(len(writes))
        return _parse_result(reply)

    async def delete(self, actor: bytes, deletes: Sequence[MemoryDelete], change_json: bytes) -> list[bytes]:
        """Delete memories; return for each its version, `stale <version>` or `gone`. One round trip.

        Raises:
            SharedMemoryError: as `write` of a store.
        """
        settings = self.context.settings
        try:
            replies = await self._scripts.memory_delete(
                self._space,
                actor,
                keys=self._keys([one.id for one in deletes], [one.thread for one in deletes]),
                most=settings.memory_history,
                history_s=settings.memory_history_s,
                change_json=change_json,
                deletes=deletes,
                keep=self._keep([one.id for one in deletes]),
            )
        except ServerError as error:
            raise self._explained(error) from error
        except UnsettledError as error:
            raise self._unsettled(deletes[0].id, error) from error.cause
        await self._tidy(len(deletes))
        return replies

    async def embed(self, actor: bytes, vectors: Sequence[tuple[StoredMemory, Vector]]) -> int:
        """Set the vectors of memories, except changed ones; return how many. One round trip."""
        log, pending = self._common[COMMON_PARTS.index("log")], self.pending_key
        keys = [*(self._records + held.item.id.encode() for held, _ in vectors), log, pending]
        args: list[Argument] = []
        for held, vector in vectors:
            args += (held.item.id, held.item.version, to_half(vector))
        return await self._scripts.memory_embed(self._space, actor, keys=keys, vectors=args)

    async def claim(self, most: int, lease_ms: int) -> list[str] | int:
        """Return ids of memories to embed; else the milliseconds until there will be some, 0 if none wait."""
        ids = await self._scripts.memory_claim(pending=self.pending_key, most=most, lease_ms=lease_ms)
        return ids if isinstance(ids, int) else [id_.decode() for id_ in ids]

    async def sweep(self, *, remove: bool) -> int:
        """Delete, or only count, what expired memories have left behind. A few round trips for every 64."""
        cleared, now_ms = 0, round(self.context.clock.now().timestamp() * 1000)
        if not remove:
            return sum(not one.startswith(b" ") for one in await self._due(now_ms, -1))
        while endings := await self._due(now_ms, MOST_AT_ONCE):
            cleared += sum(not one.startswith(b" ") for one in endings)
            await self._remove_expired(endings)
        return cleared

    async def _due(self, now_ms: int, most: int) -> list[bytes]:
        """Return the expired memories, the oldest first."""
        due = await self.context.client.call("ZRANGEBYSCORE", self._common[2], "-inf", now_ms, "LIMIT", 0, most)
        return [one for one in due if isinstance(one, bytes)] if isinstance(due, list) else []

    async def _tidy(self, count: int) -> None:
        """Delete leftovers of expired memories now and then, more than can have expired since the last time."""
        self._written += count
        if self._written < _EXPIRE_EVERY:
            return
        most, self._written = max(_EXPIRED_AT_ONCE, 2 * self._written), 0
        # The write itself succeeded: the cleanup can run another time.
        with suppress(SharedMemoryError):
            await self._clear_away(most)

    async def _clear_away(self, most: int) -> None:
        now_ms = round(self.context.clock.now().timestamp() * 1000)
        endings = await self._due(now_ms, most)
        for first in range(0, len(endings), MOST_AT_ONCE):
            await self._remove_expired(endings[first : first + MOST_AT_ONCE])

    async def _remove_expired(self, endings: list[bytes]) -> None:
        parts = [ending.strip().split(b" ", 3) for ending in endings]
        records = [self._records + part[0] for part in parts]
        turns = [self._turns + part[3] for part in parts]
        await self._scripts.memory_lapse(
            self._space, _NO_ACTOR, keys=[*records, *turns, *self._common[:3]], endings=endings
        )

    def _keys(self, ids: Sequence[str], threads: Sequence[str]) -> list[bytes]:
        coded = [id_.encode() for id_ in ids]
        return [
            *(self._records + id_ for id_ in coded),
            *(self._histories + id_ for id_ in coded),
            *(self._turns + thread.encode() for thread in threads),
            *self._common,
        ]

    def _keep(self, ids: Sequence[str]) -> DurabilityModes | None:
        """Return the durability modes of memories; these stay in Redis as logs. None without a durable tier."""
        if not self.context.record_tier.is_durable:
            return None
        target = self.context.keyspace.target
        return DurabilityModes(tuple(target(f"{self.namespace}:${MEMORY}:{id_}") for id_ in ids), LOG_MODE * len(ids))

    def _unsettled(self, id_: str, error: UnsettledError) -> DurabilityPendingError:
        """Return the error for a change that Redis has and the tier does not have."""
        versions = [int(word) for word in error.reply.split() if word.isdigit() and len(word) == _VERSION_DIGITS]
        return DurabilityPendingError(f"{self.namespace}:${MEMORY}:{id_}", max(versions, default=0), str(error.cause))

    def _explained(self, error: ServerError) -> SharedMemoryError:
        key = f"{self.namespace}:${MEMORY}"
        return public_key_error(error, self.context.client.address, key=key, held="foreign value", wanted="memory")


def _timestamp_ms(item: MemoryItem) -> int:
    return round(item.timestamp.timestamp() * 1000) if item.timestamp else 0


def _ttl_ms(item: MemoryItem, before: StoredMemory | None) -> Argument:
    if item.ttl is None or item.ttl == -1:
        return -1
    # A change keeps the remaining lifetime; a merge starts a new one.
    if before is not None and before.item.ttl == item.ttl and before.item.occurrences == item.occurrences:
        return ""
    return item.ttl * 1000


def _parse_result(reply: bytes) -> MemoryWriteResult | MemoryWriteConflict:
    if reply.startswith(_CONFLICT):
        _, *details = reply.decode().split(" ")
        return MemoryWriteConflict(int(details[0]), details[1:]) if details else MemoryWriteConflict(0, [])
    waiting, *lines = reply.decode().split("\n")
    return MemoryWriteResult(
        int(waiting), [MemoryWriteStatus(word, rest) for word, *rest in (line.split(" ") for line in lines)]
    )
