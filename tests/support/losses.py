"""Losing Redis: a server that is flushed, or set back to what it held before."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

from sharedmem import Hub
from sharedmem.wire.line import Line
from sharedmem.wire.replies import Reply


async def lose(hub: Hub) -> None:
    """Let a server lose all it holds, once the durable tier has all of it."""
    for namespace in await hub.namespaces():
        await hub.durable.drain(namespace)
    await line_of(hub).call("FLUSHALL")


async def memorised(hub: Hub) -> dict[bytes, Reply]:
    """All that a server holds, to be set back to."""
    line = line_of(hub)
    keys = [key async for page in line.scan(b"*", near=None) for key in page]
    return {key: await line.call("DUMP", key) for key in keys}


async def set_back(hub: Hub, held: dict[bytes, Reply]) -> None:
    """Let a server hold what it held before, once the durable tier has all that came after."""
    await lose(hub)
    for key, value in held.items():
        if isinstance(value, bytes):
            await line_of(hub).call("RESTORE", key, 0, value)


def line_of(hub: Hub) -> Line:
    """How a hub speaks to its server."""
    return hub._open_parts().means.line  # what an operator does with redis-cli


class Forgetful:
    """Passes calls on to somebody, and loses Redis before each of them.

    Args:
        somebody: whose methods are called.
        hub: on whose server.
    """

    def __init__(self, somebody: object, hub: Hub) -> None:
        self._somebody = somebody
        self._hub = hub
        self._under_way = 0

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._somebody, name)
        return attribute if name == "executing" else self._passing(attribute)

    def _passing(self, method: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
        async def passed(*args: object, **options: object) -> object:
            # What is changed by a call that has not returned yet may be lost; what it promises then is another test's.
            if not self._under_way:
                self._under_way += 1
                await lose(self._hub)
                self._under_way -= 1
            self._under_way += 1
            try:
                return await method(*args, **options)
            finally:
                self._under_way -= 1

        return cast("Callable[..., Awaitable[object]]", passed)
