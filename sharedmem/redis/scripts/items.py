"""Typed callers of the scripts on items by namespace, which are hashes, and the set of their namespaces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sharedmem.redis.durability import DurabilityModes
from sharedmem.redis.keys import Target
from sharedmem.redis.replies import Argument, Reply
from sharedmem.redis.scripts.executor import ScriptExecutor


class ItemWrite(NamedTuple):
    """One item to set, or to delete."""

    field: str
    ttl_ms: int | None
    """0: it never expires; None: delete it."""
    payload: bytes


class ItemScripts:
    """Changes and reads items for the actors of one hub."""

    def __init__(self, runner: ScriptExecutor) -> None:
        self._runner = runner

    async def item_put(
        self,
        items_: Target,
        namespaces: bytes,
        actor: bytes,
        *,
        member: bytes,
        most: int,
        items: Sequence[ItemWrite],
        keep: DurabilityModes | None = None,
    ) -> bytes:
        """Return the version, 0 if nothing was changed."""
        args: list[Argument] = [member, most]
        for item in items:
            args += (item.field, "" if item.ttl_ms is None else item.ttl_ms, item.payload)
        size = sum([len(item.payload) for item in items])
        keys = [items_.physical, namespaces]
        return await self._runner.mutate("item_put", items_.space, keys, actor, args, large=size, keep=keep)

    async def item_sweep(
        self, items: Target, namespaces: bytes, actor: bytes, *, member: bytes, keep: DurabilityModes | None = None
    ) -> int:
        """Return how many items were deleted."""
        keys = [items.physical, namespaces]
        return int(await self._runner.mutate("item_sweep", items.space, keys, actor, [member], keep=keep))

    async def item_look(self, items: bytes, *, renews: bool, fields: Sequence[str]) -> Reply:
        """Return the reply (see `lua/item_look.lua`)."""
        return await self._runner.run("item_look", [items], [int(renews), *fields], aside=len(fields) > 1)
