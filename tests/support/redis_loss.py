"""Losing Redis: a server that is flushed, or set back to what it held before."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

from sharedmem import Hub
from sharedmem.redis.change_stream import as_list
from support.contexts import client_of


async def lose_redis(hub: Hub) -> None:
    """Let a server lose all it holds, once the durable tier has all of it."""
    for namespace in await hub.namespaces():
        await hub.durable.drain(namespace)
    await client_of(hub).call("FLUSHALL")


# As a snapshot of a server is: of one moment, whatever its hubs do meanwhile.
_MEMORISE = """
local held = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  held[#held + 1] = key
  held[#held + 1] = redis.call('DUMP', key)
end
return held
"""
_SET_BACK = """
for i = 1, #ARGV, 2 do redis.call('RESTORE', ARGV[i], 0, ARGV[i + 1]) end
return 1
"""


async def dump_server(hub: Hub) -> list[bytes]:
    """All that a server holds, key and content in turn, to be set back to."""
    return [one for one in as_list(await client_of(hub).call("EVAL", _MEMORISE, 0)) if isinstance(one, bytes)]


async def restore_dump(hub: Hub, held: list[bytes]) -> None:
    """Let a server hold what it held before, once the durable tier has all that came after."""
    await lose_redis(hub)
    await client_of(hub).call("EVAL", _SET_BACK, 0, *held)


class RedisLosingProxy:
    """Passes calls on, and loses Redis before each of them.

    Args:
        inner: the object whose methods are called.
        hub: on whose server.
    """

    def __init__(self, inner: object, hub: Hub) -> None:
        self._inner = inner
        self._hub = hub
        self._under_way = 0
        self._is_there = asyncio.Event()
        self._is_there.set()

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._inner, name)
        return attribute if name == "executing" else self._transient_error(attribute)

    def _transient_error(self, method: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
        async def passed(*args: object, **options: object) -> object:
            # What is changed by a call that has not returned yet may be lost; what it promises then is another test's.
            if not self._under_way and self._is_there.is_set():
                self._is_there.clear()
                await lose_redis(self._hub)
                self._is_there.set()
            await self._is_there.wait()
            self._under_way += 1
            try:
                return await method(*args, **options)
            finally:
                self._under_way -= 1

        return cast("Callable[..., Awaitable[object]]", passed)
