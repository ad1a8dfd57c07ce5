"""Typed callers of the scripts on cached answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sharedmem.redis.keys import Space
from sharedmem.redis.replies import Argument
from sharedmem.redis.scripts.executor import ScriptExecutor


class CachePutKeys(NamedTuple):
    """The key of an answer, and its further keys (see `lua/include/cache.lua`)."""

    record: bytes
    log: bytes
    endings: bytes
    gone: bytes
    place: bytes


class CacheScripts:
    """Changes the cached answers of the namespaces of one hub."""

    def __init__(self, sender: ScriptExecutor) -> None:
        self._sender = sender

    async def cache_put(
        self, space: Space, keys: CachePutKeys, actor: bytes, *, id_: str, ttl_ms: int, fields: Sequence[bytes]
    ) -> int:
        """Return the version of the answer."""
        args: list[Argument] = [id_, ttl_ms, *fields]
        large = sum(map(len, fields))
        return int(await self._sender.mutate("cache_put", space, keys, actor, args, large=large))

    async def cache_drop(self, space: Space, keys: Sequence[bytes], actor: bytes, *, ids: Sequence[str]) -> int:
        """Return the number of deleted answers; `keys`: the keys of the answers, then of log, endings and gone."""
        return int(await self._sender.mutate("cache_drop", space, keys, actor, ids))

    async def cache_count(self, space: Space, stats: bytes, actor: bytes, *, pairs: Sequence[str]) -> None:
        """Add amounts, given as field, amount, field, amount."""
        await self._sender.mutate("cache_count", space, [stats], actor, pairs)
