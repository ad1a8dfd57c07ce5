"""The typed callers of the scripts that settle who does a piece of work once: one method a file of `lua/`."""

from __future__ import annotations

from typing import NamedTuple

from sharedmem.errors import InternalError
from sharedmem.wire.keys import Space
from sharedmem.wire.sender import Sender


class OnceKeys(NamedTuple):
    """Where a piece of work, and those who wait for it, lie."""

    once: bytes
    waiters: bytes


class Settling:
    """Begins and ends pieces of work for the actors of one hub.

    Args:
        sender: sends the scripts.
    """

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    async def once_begin(
        self, space: Space, keys: OnceKeys, actor: bytes, *, name: str, waits: int, lease_ms: int, ttl_ms: int
    ) -> bytes:
        """Returns `done <result>`, `yours <token> <attempt>` or `running <milliseconds left> <1|0>`."""
        return await self._sender.mutate("once_begin", space, keys, actor, (name, waits, lease_ms, ttl_ms))

    async def once_renew(
        self, space: Space, once: bytes, actor: bytes, *, token: int, lease_ms: int, ttl_ms: int
    ) -> bool:
        """Whether it is still the runner's."""
        return await self._sender.mutate("once_renew", space, (once,), actor, (token, lease_ms, ttl_ms)) == b"1"

    async def once_finish(
        self, space: Space, keys: OnceKeys, actor: bytes, *, token: int, ttl_ms: int, result: bytes
    ) -> bool:
        """Whether it was still the runner's, and its result is stored."""
        args = (token, ttl_ms, result)
        return await self._sender.mutate("once_finish", space, keys, actor, args, large=len(result)) == b"1"

    async def once_release(self, space: Space, keys: OnceKeys, actor: bytes, *, token: int, ttl_ms: int) -> bool:
        """Whether it was still the runner's, and is free again."""
        return await self._sender.mutate("once_release", space, keys, actor, (token, ttl_ms)) == b"1"

    async def once_leave(self, space: Space, keys: OnceKeys, actor: bytes, *, name: str) -> None:
        """Neither wait nor run under this name any more."""
        await self._sender.mutate("once_leave", space, keys, actor, (name,))

    async def once_forget(self, space: Space, once: bytes, actor: bytes) -> bool:
        """Whether there was a result."""
        return await self._sender.mutate("once_forget", space, (once,), actor, ()) == b"1"

    async def once_look(self, once: bytes) -> bytes:
        """Returns `<none|running|done> <token> <attempt> <milliseconds left> <actor>`, or nothing."""
        reply = await self._sender.run("once_look", (once,), ())
        if isinstance(reply, bytes):
            return reply
        raise InternalError(f"once_look answered {reply!r} where it promises text")
