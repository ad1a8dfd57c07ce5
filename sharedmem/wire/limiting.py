"""The typed callers of the scripts that count against rate limits: one method a file of `lua/`."""

from __future__ import annotations

from typing import NamedTuple

from sharedmem.errors import InternalError
from sharedmem.wire.keys import Space
from sharedmem.wire.replies import Reply
from sharedmem.wire.sender import Sender


class Taken(NamedTuple):
    """What a script has judged."""

    allowed: bool
    remaining: int
    retry_us: int


class Limiting:
    """Counts for the actors of one hub.

    Args:
        sender: sends the scripts.
    """

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    async def limit_window_take(
        self, space: Space, log: bytes, actor: bytes, *, limit: int, window_us: int, cost: int
    ) -> Taken:
        """Admits a cost if the window has room for it."""
        return _taken(await self._sender.mutate("limit_window_take", space, (log,), actor, (limit, window_us, cost)))

    async def limit_window_look(self, log: bytes, *, limit: int, window_us: int) -> Taken:
        """What a cost of one would be told now."""
        return _seen(await self._sender.run("limit_window_look", (log,), (limit, window_us)))

    async def limit_bucket_take(
        self, space: Space, bucket: bytes, actor: bytes, *, burst: int, unit: int, rate: int, cost: int
    ) -> Taken:
        """Takes tokens if the bucket has so many."""
        return _taken(
            await self._sender.mutate("limit_bucket_take", space, (bucket,), actor, (burst, unit, rate, cost))
        )

    async def limit_bucket_look(self, bucket: bytes, *, burst: int, unit: int, rate: int) -> Taken:
        """What a cost of one would be told now."""
        return _seen(await self._sender.run("limit_bucket_look", (bucket,), (burst, unit, rate)))


def _taken(reply: bytes) -> Taken:
    allowed, remaining, retry_us = reply.split()
    return Taken(allowed == b"1", int(remaining), int(retry_us))


def _seen(reply: Reply) -> Taken:
    if not isinstance(reply, bytes):
        raise InternalError(f"a script answered {reply!r} where it promises text")
    remaining, retry_us = map(int, reply.split())
    return Taken(remaining > 0, remaining, retry_us)
