"""Extend the lifetimes of used memories, where the setting `adaptive_ttl` asks for it.

Counts of uses are sent in the background; after them, this reads the used memories with an adaptive lifetime, and
writes those whose lifetime begins anew. A write is a version of the memory, so the durable tier, exports and the log of
changes have the new lifetime too. If a memory changes meanwhile, or the process dies, the next use extends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from sharedmem.errors import AccessDeniedError, SharedMemoryError
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.memory.dedup import StoredMemory
from sharedmem.memory.lifetimes import adapted_ttl, default_ttl
from sharedmem.memory.repository import MOST_AT_ONCE, MemoryRepository, MemoryWriteResult
from sharedmem.memory.serialization import encode_change
from sharedmem.models import MemoryItem
from sharedmem.redis.keys import SHARED_SCOPE
from sharedmem.redis.replies import Reply, ServerError
from sharedmem.redis.scripts.memories import MemoryWrite
from sharedmem.runtime import get_logger

_logger = get_logger("memory")
_PASSED_SHARE = 1 / 8
"""Share of its lifetime that must have passed before a use begins it anew: so a memory is rarely written."""


class TtlExtender:
    """Extends the lifetimes of memories of one namespace; all stores of a hub share it.

    Args:
        context: dependencies that the hub shares with its stores.
        namespace: the namespace of the memories.
        used: key of the sorted set of uses.
    """

    def __init__(self, context: KnowledgeContext, namespace: str, used: bytes) -> None:
        self._context = context
        self._namespace = namespace
        self._settings = context.settings_of(namespace)
        self._repository = MemoryRepository.of(context, namespace)
        self._used = used
        # In the order of their first use.
        self._waiting: dict[str, None] = {}

    def note(self, items: Iterable[MemoryItem]) -> None:
        """Note which of the used memories have an adaptive lifetime. No round trip."""
        self._waiting.update({item.id: None for item in items if item.adaptive_ttl})

    async def extend(self) -> None:
        """Extend lifetimes of the noted memories: three round trips for every 64, none without any."""
        while ids := list(self._waiting)[:MOST_AT_ONCE]:
            for id_ in ids:
                del self._waiting[id_]
            try:
                await self._extend(ids)
            except AccessDeniedError as refused:
                # This user may only read.
                _logger.info("lifetimes of memories of %s are not extended: %s", self._namespace, refused)
            except (SharedMemoryError, ServerError) as error:
                self._waiting.update(dict.fromkeys(ids))
                _logger.warning("lifetimes of memories of %s are not extended yet: %s", self._namespace, error)
                return
            except asyncio.CancelledError:
                # The hub closes, and sends once more: an extension that has arrived is not due again.
                self._waiting.update(dict.fromkeys(ids))
                raise

    async def _extend(self, ids: list[str]) -> None:
        held = await self._repository.held(ids)
        if not held:
            return
        times, *left_ms = await self._context.client.read_each(
            [("ZMSCORE", self._used, *held), *(("PTTL", self._repository.record_key(id_)) for id_ in held)]
        )
        uses = times if isinstance(times, list) else [None] * len(held)
        planned = [
            write
            for one, often, left in zip(held.values(), uses, left_ms, strict=True)
            if (write := self._write_of(one, _parse_uses(often), left)) is not None
        ]
        if not planned:
            return
        outcome = await self._repository.write(SHARED_SCOPE.encode(), planned)
        assert isinstance(outcome, MemoryWriteResult)  # there are no conflicts without `seen`
        extended = sum(verdict.word == "ok" for verdict in outcome.verdicts)
        self._context.counters.add("memory_lifetimes_extended", extended)

    def _write_of(self, held: StoredMemory, uses: int, left_ms: Reply) -> MemoryWrite | None:
        """Return the write that begins a lifetime anew; None if it is not due."""
        item = held.item
        default_s = default_ttl(item.memory_type, self._settings)
        if not item.adaptive_ttl or default_s < 0 or not isinstance(left_ms, int) or left_ms <= 0:
            return None
        ttl_s = adapted_ttl(default_s, item.importance, uses)
        if left_ms > ttl_s * 1000 * (1 - _PASSED_SHARE):
            return None
        now = self._context.clock.now()
        write = self._repository.write_of(
            "extended",
            item.model_copy(update={"ttl": ttl_s, "updated_at": now}),
            encode_change("extended", SHARED_SCOPE),
            held.digest,
            held.vector,
            before=held,
            over="*",
            waits=held.vector is None and self._context.embedder is not None,
            turn=item.turn_index or 0,
        )
        return write._replace(ttl_ms=ttl_s * 1000)


def _parse_uses(score: Reply) -> int:
    return round(float(score)) if isinstance(score, bytes | float | int) else 0
