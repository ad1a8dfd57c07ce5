"""Typed callers of the scripts on shared data: keys, lists, hashes, sets, counters, messages, namespaces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

from sharedmem.redis.durability import DurabilityModes
from sharedmem.redis.keys import Space, Target
from sharedmem.redis.replies import Argument
from sharedmem.redis.scripts.executor import ScriptExecutor, split_version

_USUAL_COUNTS = {"append": 1, "hset": 2, "hdel": 1, "hincrby": 2, "incr": 1, "sadd": 1, "srem": 1}


class CollectionChange(NamedTuple):
    """A change of a list, hash, set or counter."""

    target: Target
    operation: str
    """`append`, `hset`, `hdel`, `hincrby`, `incr`, `sadd` or `srem`."""
    arguments: Sequence[Argument]
    """As `lua/collection_change.lua` expects them for the operation."""
    ttl_ms: int
    """New expiry; 0: unchanged."""
    max_length: int
    """Length to which a list is trimmed; 0: it is not."""
    mode: str
    """Durability mode (see `redis.durability`); empty without a durable tier."""
    size: int
    """Bytes of the arguments."""


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

    async def collection_change(self, space: Space, actor: bytes, changes: Sequence[CollectionChange]) -> list[bytes]:
        """Change collections of one namespace; return one reply line for each (see `lua/collection_change.lua`)."""
        args: list[Argument] = []
        keys: list[bytes] = []
        size = 0
        modes = ""
        for target, operation, arguments, ttl_ms, max_length, mode, bytes_ in changes:
            keys.append(target.physical)
            count = len(arguments)
            is_usual = not ttl_ms and not max_length and count == _USUAL_COUNTS[operation]
            args.append(operation if is_usual else f"{operation} {count} {ttl_ms} {max_length}")
            args += arguments
            size += bytes_
            modes += mode
        keep = DurabilityModes(tuple([change.target for change in changes]), modes) if modes else None
        reply = await self._executor.mutate("collection_change", space, keys, actor, args, large=size, keep=keep)
        return reply.split(b"\n")

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
        keep: DurabilityModes | None = None,
    ) -> tuple[int, bytes]:
        reply = await self._executor.mutate(script, key.space, [key.physical], actor, args, keep=keep)
        return split_version(reply)
