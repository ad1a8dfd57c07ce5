"""The calls of leases to the server: requests and releases of the same moment share one.

Each request is independent in its call: it has its own reply line, and one that the server refuses fails alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import NamedTuple

from sharedmem.coordination.names import NameAccess
from sharedmem.redis.keys import Space, Target
from sharedmem.redis.scripts.coordination import (
    LeaseKeys,
    LeaseScripts,
    LeaseTerms,
    NamedLeaseKeys,
)
from sharedmem.redis.scripts.data import WriteBatcher


class LeaseResource(NamedTuple):
    """A name that can be leased."""

    kind: str
    name: str
    """The name as callers give it."""
    target: Target
    contest: NamedLeaseKeys
    places: LeaseKeys


class _Request(NamedTuple):
    contest: NamedLeaseKeys
    asker: str
    size: int = 0
    """Names are short: their bytes do not count."""


class _Release(NamedTuple):
    places: LeaseKeys
    holder: bytes
    size: int = 0


class _Alike(NamedTuple):
    """What requests of one call have in common."""

    space: Space
    terms: LeaseTerms
    waits: int


class LeaseCalls:
    """Acquires, renews and releases leases for the callers of one store.

    Every method raises `SharedMemoryError` as the calls of a store do.

    Args:
        names: the names within the actor's rights.
    """

    def __init__(self, names: NameAccess) -> None:
        self.names = names
        self._scripts = LeaseScripts(names.context.executor)
        background = names.context.background
        self._requests = WriteBatcher[_Alike, _Request](self._acquire_alike, background)
        self._releases = WriteBatcher[Space, _Release](self._release_together, background)

    async def acquire(self, place: LeaseResource, terms: LeaseTerms, asker: str, *, waits: int) -> bytes:
        """Return `got <token>` or `wait <ms> <rank>`. One round trip, shared with concurrent requests."""
        group = _Alike(place.target.space, terms, waits)
        return await self.names.own_reply(
            place.target, place.places, self._requests.put(group, _Request(place.contest, asker))
        )

    async def release(self, place: LeaseResource, holder: bytes) -> bool:
        """Return whether the lease was held until now. One round trip, shared with concurrent releases."""
        call = self._releases.put(place.target.space, _Release(place.places, holder))
        return await self.names.own_reply(place.target, place.places, call) == b"released"

    async def renew(self, place: LeaseResource, holder: bytes, *, lease_ms: int) -> bool:
        """Return whether the lease is still held. One round trip."""
        call = self._scripts.lease_renew(
            place.target.space, place.places.holders, self.names.actor, holder=holder, lease_ms=lease_ms
        )
        return await self.names.explained(place.target, call)

    async def leave(self, place: LeaseResource, asker: str) -> None:
        """Remove a waiter, and the lease that it may have got. One round trip."""
        call = self._scripts.lease_leave(place.target.space, place.places, self.names.actor, asker=asker)
        await self.names.explained(place.target, call)

    async def revoke(self, place: LeaseResource, *, token: int, change: str) -> bool:
        """Return whether a holder had the token until now. One round trip."""
        call = self._scripts.lease_revoke(
            place.target.space, place.contest, self.names.actor, token=token, change=change
        )
        return await self.names.explained(place.target, call)

    def _acquire_alike(self, group: _Alike, requests: Sequence[_Request]) -> Awaitable[bytes]:
        keys = [request.contest for request in requests]
        askers = [request.asker for request in requests]
        return self._scripts.lease_acquire(
            group.space, keys, self.names.actor, group.terms, waits=group.waits, askers=askers
        )

    def _release_together(self, space: Space, releases: Sequence[_Release]) -> Awaitable[bytes]:
        keys = [release.places for release in releases]
        holders = [release.holder for release in releases]
        return self._scripts.lease_release(space, keys, self.names.actor, holders=holders)
