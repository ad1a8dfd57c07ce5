"""The typed callers of the scripts on leases: places that are held for a while, and the line before them."""

from __future__ import annotations

from typing import NamedTuple

from sharedmem.wire.keys import Space
from sharedmem.wire.sender import Sender


class Places(NamedTuple):
    """Where holders and waiting ones of one name are kept."""

    holders: bytes
    waiters: bytes


class Contest(NamedTuple):
    """The same, and the key that names it."""

    holders: bytes
    waiters: bytes
    name: bytes


class Leasing:
    """Takes, prolongs and gives back places for the actors of one hub."""

    def __init__(self, sender: Sender) -> None:
        self._mutate = sender.mutate

    async def lease_acquire(
        self,
        space: Space,
        contest: Contest,
        actor: bytes,
        *,
        capacity: int,
        weight: int,
        lease_ms: int,
        asker: str,
        stands: int,
        gain: bytes,
    ) -> bytes:
        """Returns `got <token>` or `wait <ms> <rank>`."""
        args = (capacity, weight, lease_ms, asker, stands, gain)
        return await self._mutate("lease_acquire", space, contest, actor, args)

    async def lease_renew(self, space: Space, holders: bytes, actor: bytes, *, holder: bytes, lease_ms: int) -> bool:
        """Whether it is kept."""
        return await self._mutate("lease_renew", space, (holders,), actor, (holder, lease_ms)) == b"kept"

    async def lease_release(self, space: Space, places: Places, actor: bytes, *, holder: bytes) -> bool:
        """Whether it was still held."""
        return await self._mutate("lease_release", space, places, actor, (holder,)) == b"released"

    async def lease_leave(self, space: Space, places: Places, actor: bytes, *, asker: str) -> None:
        """Wait no longer."""
        await self._mutate("lease_leave", space, places, actor, (asker,))
