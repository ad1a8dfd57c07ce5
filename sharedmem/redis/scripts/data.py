"""Typed callers of the scripts on shared data: keys, lists, hashes, sets, counters, messages, namespaces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from sharedmem.redis.durability import DurabilityModes
from sharedmem.redis.keys import Space, Target
from sharedmem.redis.replies import Argument
from sharedmem.redis.scripts.executor import ScriptExecutor, split_version


class DataScripts:
    """Changes shared data for the actors of one hub."""

    def __init__(self, executor: ScriptExecutor) -> None:
        self._executor = executor

    async def key_delete(self, key: Target, actor: bytes, *, keep: DurabilityModes | None = None) -> tuple[int, bytes]:
        """Return (version or 0, path of its blob or empty)."""
        return await self._one("key_delete", key, actor, keep=keep)

    async def key_expire(
        self, key: Target, actor: bytes, *, ttl_ms: int, keep: DurabilityModes | None = None
    ) -> tuple[int, bytes]:
        """Return (version or 0, b'1' if something changed)."""
        return await self._one("key_expire", key, actor, ttl_ms, keep=keep)

    async def list_append(
        self,
        list_: Target,
        actor: bytes,
        *,
        member: bytes,
        max_length: int,
        ttl_ms: int,
        keep: DurabilityModes | None = None,
    ) -> tuple[int, bytes]:
        """Return (version, length of the list)."""
        return await self._one("list_append", list_, actor, member, max_length, ttl_ms, large=len(member), keep=keep)

    async def hash_set(
        self,
        hash_: Target,
        actor: bytes,
        *,
        ttl_ms: int,
        pairs: Sequence[Argument],
        keep: DurabilityModes | None = None,
    ) -> tuple[int, bytes]:
        """Return (version, number of new fields)."""
        return await self._one("hash_set", hash_, actor, ttl_ms, *pairs, large=_size(pairs), keep=keep)

    async def hash_delete(
        self, hash_: Target, actor: bytes, *, fields: Sequence[str], keep: DurabilityModes | None = None
    ) -> tuple[int, bytes]:
        """Return (version or 0, number removed)."""
        return await self._one("hash_delete", hash_, actor, *fields, large=_size(fields), keep=keep)

    async def hash_increment(
        self, hash_: Target, actor: bytes, *, field: str, by: int, ttl_ms: int, keep: DurabilityModes | None = None
    ) -> tuple[int, bytes]:
        """Return (version, the new number)."""
        return await self._one("hash_increment", hash_, actor, field, by, ttl_ms, keep=keep)

    async def counter_increment(
        self, counter: Target, actor: bytes, *, by: int, ttl_ms: int, keep: DurabilityModes | None = None
    ) -> tuple[int, bytes]:
        """Return (version, the new number)."""
        return await self._one("counter_increment", counter, actor, by, ttl_ms, keep=keep)

    async def set_add(
        self, set_: Target, actor: bytes, *, ttl_ms: int, members: Sequence[bytes], keep: DurabilityModes | None = None
    ) -> tuple[int, bytes]:
        """Return (version or 0, number of new members)."""
        return await self._one("set_add", set_, actor, ttl_ms, *members, large=_size(members), keep=keep)

    async def set_remove(
        self, set_: Target, actor: bytes, *, members: Sequence[bytes], keep: DurabilityModes | None = None
    ) -> tuple[int, bytes]:
        """Return (version or 0, number removed)."""
        return await self._one("set_remove", set_, actor, *members, large=_size(members), keep=keep)

    async def set_pop(self, set_: Target, actor: bytes, *, keep: DurabilityModes | None = None) -> tuple[int, bytes]:
        """Return (version or 0 when empty, the member)."""
        return await self._one("set_pop", set_, actor, keep=keep)

    async def set_move(
        self, source: Target, destination: Target, actor: bytes, *, member: bytes, keep: DurabilityModes | None = None
    ) -> tuple[int, bytes]:
        """Return (version or 0, b'1' if it has moved)."""
        keys = [source.physical, destination.physical]
        return split_version(await self._executor.mutate("set_move", source.space, keys, actor, [member], keep=keep))

    async def message_publish(self, operations: bytes, *, channel: bytes, message: bytes) -> int:
        """Return the number of subscribers that received it."""
        return int(await self._executor.run_once("message_publish", operations, [channel, message], large=len(message)))

    async def namespace_close(self, clock: bytes, *, lease_ms: int) -> int:
        """Reject writes to a namespace for `lease_ms` (0: allow them); return a version above all earlier ones."""
        return int(cast("bytes", await self._executor.run("namespace_close", [clock], [lease_ms])))

    async def namespace_cleared(self, space: Space, actor: bytes, *, logical: str) -> int:
        """Open a cleared namespace and announce that on its change feed; return the version of the clearing."""
        reply = await self._executor.run("namespace_cleared", [space.clock, space.changes], [actor, logical])
        return int(cast("bytes", reply))

    async def _one(
        self,
        script: str,
        key: Target,
        actor: bytes,
        *args: Argument,
        large: int = 0,
        keep: DurabilityModes | None = None,
    ) -> tuple[int, bytes]:
        reply = await self._executor.mutate(script, key.space, [key.physical], actor, args, large=large, keep=keep)
        return split_version(reply)


def _size(args: Sequence[Argument]) -> int:
    return sum(len(arg) for arg in args if isinstance(arg, bytes | str))
