"""The typed callers of the scripts behind barriers: one method a file of `lua/`."""

from __future__ import annotations

from typing import NamedTuple

from sharedmem.wire.keys import Space
from sharedmem.wire.sender import Sender


class BarrierKeys(NamedTuple):
    """Where those who have come, and those who were let through, lie."""

    barrier: bytes
    opened: bytes


class Gathering:
    """Brings the actors of one hub to barriers.

    Args:
        sender: sends the scripts.
    """

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    async def barrier_arrive(
        self, space: Space, keys: BarrierKeys, actor: bytes, *, waiter: str, parties: int, lease_ms: int
    ) -> bytes:
        """Returns `opened <generation> <position>`, `waiting <arrival>` or `parties <n>`."""
        return await self._sender.mutate("barrier_arrive", space, keys, actor, (waiter, parties, lease_ms))

    async def barrier_stay(
        self, space: Space, keys: BarrierKeys, actor: bytes, *, waiter: str, arrival: bytes, lease_ms: int
    ) -> bytes:
        """Returns `opened <generation> <position>`, `waiting <arrival>` or `gone`."""
        return await self._sender.mutate("barrier_stay", space, keys, actor, (waiter, arrival, lease_ms))

    async def barrier_leave(self, space: Space, keys: BarrierKeys, actor: bytes, *, waiter: str) -> bytes:
        """Returns `opened <generation> <position>`, or `left <how many still wait>`."""
        return await self._sender.mutate("barrier_leave", space, keys, actor, (waiter,))

    async def barrier_look(self, barrier: bytes) -> int:
        """How many wait at it."""
        reply = await self._sender.run("barrier_look", (barrier,), ())
        return reply if isinstance(reply, int) else 0
