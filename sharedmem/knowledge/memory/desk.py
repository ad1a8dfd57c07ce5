"""Where changes of a namespace's memories are written down: items become what the scripts take, and come back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

import orjson

from sharedmem.errors import DurabilityPendingError, SharedMemoryError
from sharedmem.knowledge.memory.base import MEMORY
from sharedmem.knowledge.memory.dedup import Held
from sharedmem.knowledge.memory.documents import embedding_text, encode_body, item_if_readable, tags_of
from sharedmem.knowledge.memory.spoilt import spoilt_of
from sharedmem.knowledge.minds import Minds
from sharedmem.knowledge.scoring import facts_of, indexed_text
from sharedmem.models import MemoryItem
from sharedmem.search.analysis import indexed_terms
from sharedmem.wire.faults import explain
from sharedmem.wire.keys import SHARED_SCOPE
from sharedmem.wire.remembering import COMMON_PARTS, Delete, Remembering, Write
from sharedmem.wire.replies import Argument, Reply, ServerError
from sharedmem.wire.tier import LOG, Keep, UnsettledError
from sharedmem.wire.vectors import Vector, sound_half, to_half

MOST_AT_ONCE = 64
"""Memories that one call of a script changes: it holds up everybody for that long."""
_BEHIND = b"BEHIND"
_FIELDS = ("body", "version", "turn", "digest", "change", "vector")
_VERSION_DIGITS = 16
_NOBODY = SHARED_SCOPE.encode()
_LAPSED_AT_ONCE = 16
_LAPSE_EVERY = 16


class Verdict(NamedTuple):
    """What became of one write."""

    word: str
    """`ok`, `dup`, `here` or `stale` (see lua/memory_write.lua)."""
    rest: list[str]


class Outcome(NamedTuple):
    """What became of several writes."""

    waiting: int
    """Memories of the namespace that wait for their embedding."""
    verdicts: list[Verdict]


class Behind(NamedTuple):
    """Nothing was written: somebody else was faster."""

    version: int
    """The newest change; 0 when too much has changed to be told."""
    ids: list[str]
    """What has changed."""


class Desk:
    """One namespace's memories, for those who change them; all stores of a hub share it.

    Args:
        minds: what the hub lends.
        namespace: whose memories.
    """

    def __init__(self, minds: Minds, namespace: str) -> None:
        self.minds = minds
        self.namespace = namespace
        self._remembering = Remembering(minds.sender)
        keyspace = minds.keyspace
        self._space = keyspace.space(namespace)
        self._records = keyspace.records(MEMORY, namespace).encode()
        self._histories = keyspace.record_item(MEMORY, namespace, "history", "")
        self._turns = keyspace.record_item(MEMORY, namespace, "turns", "")
        self._common = [keyspace.record_part(MEMORY, namespace, part) for part in COMMON_PARTS]
        self._dimension = minds.memories.family.dimension
        self._written = 0

    @classmethod
    def of(cls, minds: Minds, namespace: str) -> Desk:
        """The one that all stores of a namespace share in this hub."""
        return minds.shared(cls, namespace, lambda: cls(minds, namespace))

    def history_key(self, id_: str) -> bytes:
        """The list of past versions of a memory."""
        return self._histories + id_.encode()

    @property
    def pending_key(self) -> bytes:
        """The sorted set of those that wait for their embedding."""
        return self._common[COMMON_PARTS.index("pending")]

    async def held(self, ids: Iterable[str]) -> dict[str, Held]:
        """Those of some memories that are there. One round trip; none for none."""
        wanted = list(dict.fromkeys(ids))
        if not wanted:
            return {}
        replies = await self.minds.line.read_each(
            [("HMGET", self._records + id_.encode(), *_FIELDS) for id_ in wanted], aside=len(wanted) > MOST_AT_ONCE
        )
        found = zip(wanted, replies, strict=True)
        return {id_: held for id_, reply in found if (held := self._held(id_, reply)) is not None}

    async def held_with_past(self, id_: str) -> tuple[Held | None, list[bytes]]:
        """A memory as it is, if it is there, and the JSON of its past versions, newest first. One round trip."""
        look = ("HMGET", self._records + id_.encode(), *_FIELDS)
        now, past = await self.minds.line.read_each([look, ("LRANGE", self.history_key(id_), 0, -1)], aside=True)
        return self._held(id_, now), [one for one in past if isinstance(one, bytes)] if isinstance(past, list) else []

    def record_key(self, id_: str) -> bytes:
        """The hash of a memory."""
        return self._records + id_.encode()

    def _held(self, id_: str, reply: Reply) -> Held | None:
        fields = reply if isinstance(reply, list) else [b""] * len(_FIELDS)
        if all(one is None for one in fields):
            return None
        body, version, turn, digest, change, vector = (one if isinstance(one, bytes) else b"" for one in fields)
        item = item_if_readable(id_, self.namespace, body, version, turn or b"0")
        if item is None:
            spoilt_of(self.minds, self.namespace).note(id_)
            return None
        return Held(item, digest.decode(errors="replace"), sound_half(vector, self._dimension), change, body)

    def write_of(
        self,
        change: str,
        item: MemoryItem,
        told: bytes,
        digest: str,
        vector: bytes | None,
        *,
        before: Held | None = None,
        over: str = "",
        waits: bool = False,
        turn: Argument = "",
    ) -> Write:
        """What the script takes.

        Args:
            change: the word by which it is announced.
            item: as it is to be.
            told: JSON of the change.
            digest: what tells the same memory.
            vector: in half precision.
            before: as it was; None when it is new.
            over: see lua/memory_write.lua.
            waits: whether the embedding is to be made later.
            turn: its turn index; empty to have it assigned.
        """
        position = facts_of(item, 0).encoded()
        head = b"[" + orjson.dumps(item.thread_id) + b","
        tags = tags_of(item, self.namespace)
        fields: list[Argument] = ["terms", indexed_terms(indexed_text(item), self.namespace), "at", _at_ms(item)]
        for pair in tags.items():
            fields += pair
        if vector is not None:
            fields += ("vector", vector)
        return Write(
            id=item.id,
            expect=before.item.version if before else 0,
            change=change,
            told=told,
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
            vector=embedding_text(vector) if self.minds.tier is not None else b"",
            afresh=int(before is not None and self._loses(before, tags, vector)),
            fields=tuple(fields),
        )

    def _loses(self, before: Held, tags: dict[str, str], vector: bytes | None) -> bool:
        """Whether a field of the hash goes."""
        if before.vector is not None and vector is None:
            return True
        return bool(tags_of(before.item, self.namespace).keys() - tags.keys())

    async def write(
        self, actor: bytes, writes: Sequence[Write], *, seen: int | None = None, whole: bool = False
    ) -> Outcome | Behind:
        """Write, unless something newer than what was seen has changed (None: whatever has). One round trip.

        Args:
            actor: who does it.
            writes: up to `MOST_AT_ONCE`.
            seen: the newest change that was judged.
            whole: whether to write all or none.

        Raises:
            SharedMemoryError: as `write` of a store.
        """
        settings = self.minds.settings
        keys = self._keys([write.id for write in writes], [write.thread for write in writes])
        try:
            reply = await self._remembering.memory_write(
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
        return _understood(reply)

    async def delete(self, actor: bytes, deletes: Sequence[Delete], told: bytes) -> list[bytes]:
        """Delete; for each its version, `stale <version>` or `gone`. One round trip.

        Raises:
            SharedMemoryError: as `write` of a store.
        """
        settings = self.minds.settings
        try:
            replies = await self._remembering.memory_delete(
                self._space,
                actor,
                keys=self._keys([one.id for one in deletes], [one.thread for one in deletes]),
                most=settings.memory_history,
                history_s=settings.memory_history_s,
                told=told,
                deletes=deletes,
                keep=self._keep([one.id for one in deletes]),
            )
        except ServerError as error:
            raise self._explained(error) from error
        except UnsettledError as error:
            raise self._unsettled(deletes[0].id, error) from error.cause
        await self._tidy(len(deletes))
        return replies

    async def embed(self, actor: bytes, vectors: Sequence[tuple[Held, Vector]]) -> int:
        """Give memories the vectors that they have waited for, unless they have changed; how many. One round trip."""
        log, pending = self._common[COMMON_PARTS.index("log")], self.pending_key
        keys = [*(self._records + held.item.id.encode() for held, _ in vectors), log, pending]
        args: list[Argument] = []
        for held, vector in vectors:
            args += (held.item.id, held.item.version, to_half(vector))
        return await self._remembering.memory_embed(self._space, actor, keys=keys, vectors=args)

    async def claim(self, most: int, lease_ms: int) -> list[str] | int:
        """Ids of memories to be embedded; else the milliseconds until there will be some, 0 when none wait."""
        ids = await self._remembering.memory_claim(pending=self.pending_key, most=most, lease_ms=lease_ms)
        return ids if isinstance(ids, int) else [id_.decode() for id_ in ids]

    async def sweep(self, *, remove: bool) -> int:
        """Clear away, or only count, what memories have left that have expired. A few round trips for every 64."""
        cleared, now_ms = 0, round(self.minds.clock.now().timestamp() * 1000)
        if not remove:
            return sum(not one.startswith(b" ") for one in await self._due(now_ms, -1))
        while endings := await self._due(now_ms, MOST_AT_ONCE):
            cleared += sum(not one.startswith(b" ") for one in endings)
            await self._lapse(endings)
        return cleared

    async def _due(self, now_ms: int, most: int) -> list[bytes]:
        """What has ended, the oldest first."""
        due = await self.minds.line.call("ZRANGEBYSCORE", self._common[2], "-inf", now_ms, "LIMIT", 0, most)
        return [one for one in due if isinstance(one, bytes)] if isinstance(due, list) else []

    async def _tidy(self, count: int) -> None:
        """Clear away what has expired, now and then, and more than can have come meanwhile."""
        self._written += count
        if self._written < _LAPSE_EVERY:
            return
        most, self._written = max(_LAPSED_AT_ONCE, 2 * self._written), 0
        # What was to be written is written: this may as well be done another time.
        with suppress(SharedMemoryError):
            await self._clear_away(most)

    async def _clear_away(self, most: int) -> None:
        now_ms = round(self.minds.clock.now().timestamp() * 1000)
        endings = await self._due(now_ms, most)
        for first in range(0, len(endings), MOST_AT_ONCE):
            await self._lapse(endings[first : first + MOST_AT_ONCE])

    async def _lapse(self, endings: list[bytes]) -> None:
        parts = [ending.strip().split(b" ", 3) for ending in endings]
        records = [self._records + part[0] for part in parts]
        turns = [self._turns + part[3] for part in parts]
        await self._remembering.memory_lapse(
            self._space, _NOBODY, keys=[*records, *turns, *self._common[:3]], endings=endings
        )

    def _keys(self, ids: Sequence[str], threads: Sequence[str]) -> list[bytes]:
        coded = [id_.encode() for id_ in ids]
        return [
            *(self._records + id_ for id_ in coded),
            *(self._histories + id_ for id_ in coded),
            *(self._turns + thread.encode() for thread in threads),
            *self._common,
        ]

    def _keep(self, ids: Sequence[str]) -> Keep | None:
        """How memories last, where they do: as logs, which never leave Redis by themselves."""
        if self.minds.tier is None:
            return None
        target = self.minds.keyspace.target
        return Keep(tuple(target(f"{self.namespace}:${MEMORY}:{id_}") for id_ in ids), LOG * len(ids))

    def _unsettled(self, id_: str, error: UnsettledError) -> DurabilityPendingError:
        """The change is made, and the tier does not have it."""
        versions = [int(word) for word in error.reply.split() if word.isdigit() and len(word) == _VERSION_DIGITS]
        return DurabilityPendingError(f"{self.namespace}:${MEMORY}:{id_}", max(versions, default=0), str(error.cause))

    def _explained(self, error: ServerError) -> SharedMemoryError:
        key = f"{self.namespace}:${MEMORY}"
        return explain(error, self.minds.line.address, key=key, held="foreign value", wanted="memory")


def _at_ms(item: MemoryItem) -> int:
    return round(item.timestamp.timestamp() * 1000) if item.timestamp else 0


def _ttl_ms(item: MemoryItem, before: Held | None) -> Argument:
    if item.ttl is None or item.ttl == -1:
        return -1
    # What only changes goes on living as it did; what is merged begins anew.
    if before is not None and before.item.ttl == item.ttl and before.item.occurrences == item.occurrences:
        return ""
    return item.ttl * 1000


def _understood(reply: bytes) -> Outcome | Behind:
    if reply.startswith(_BEHIND):
        _, *told = reply.decode().split(" ")
        return Behind(int(told[0]), told[1:]) if told else Behind(0, [])
    waiting, *lines = reply.decode().split("\n")
    return Outcome(int(waiting), [Verdict(word, rest) for word, *rest in (line.split(" ") for line in lines)])
