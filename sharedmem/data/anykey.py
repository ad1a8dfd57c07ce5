"""What can be done with a key of whatever type: is it there, how long, which ones, away with it."""

from __future__ import annotations

from collections.abc import AsyncIterator

from sharedmem.data.lifetimes import NO_EXPIRY, check_ttl_ms
from sharedmem.data.structure import Structure
from sharedmem.wire.keys import Target

_ANY = "value"
_NOT_THERE = -2


class AnyKey(Structure):
    """Calls that do not care what a key holds."""

    async def exists(self, key: str) -> bool:
        """Whether the key holds anything. One round trip.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `read`.
        """
        target = self._scope.to_read(key)
        return await self._asked(target, _ANY, "EXISTS", target.physical) == 1

    async def delete(self, key: str) -> bool:
        """Remove a key with whatever it holds; False when there was nothing. One round trip.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `write`.
        """
        return await self._delete(self._scope.to_write(key))

    async def expire(self, key: str, ttl: float) -> bool:
        """Let a key expire in `ttl` seconds; False when there is no such key. One round trip.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `write`.
        """
        target = self._scope.to_write(key)
        call = self._mutations.key_expire(target, self._actor, ttl_ms=check_ttl_ms(ttl), keep=self._keep(target))
        version, _ = await self._explained(target, _ANY, call)
        return version > 0

    async def persist(self, key: str) -> bool:
        """Take a key's expiry away; False when it has none or is not there. One round trip.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `write`.
        """
        target = self._scope.to_write(key)
        call = self._mutations.key_expire(target, self._actor, ttl_ms=NO_EXPIRY, keep=self._keep(target))
        version, _ = await self._explained(target, _ANY, call)
        return version > 0

    async def ttl(self, key: str) -> float | None:
        """Seconds until the key expires; None when it never does or is not there. One round trip.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `read`.
        """
        target = self._scope.to_read(key)
        asking = self._asking_for_life(target)
        await self._joined(target)
        replies = await self._explained(target, _ANY, self._line.read_many(asking))
        if replies[0] == _NOT_THERE and await self._recalled(target):
            replies = await self._explained(target, _ANY, self._line.read_many(asking))
        left_ms = self._left_ms(target, replies)
        return None if left_ms is None else left_ms / 1000

    async def keys(self, pattern: str = "*") -> AsyncIterator[str]:
        """The absolute keys that match, in no order, each once; pages of the server's scan, then of the durable tier.

        Args:
            pattern: with `*` and `?` as wild cards. Without `:` it is matched against the identifier in every
                scope of the own namespace (`*`: all its keys); with `:` it is absolute and begins with a
                literal namespace.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `read`.
        """
        namespace, matches = self._scope.matcher(pattern)
        seen: set[str] = set()
        async for page in self._pages(namespace):
            for physical in page:
                key = self._scope.keyspace.logical(physical)
                if matches(key) and key not in seen and self._scope.identity.may("read", key):
                    seen.add(key)
                    yield key
        if self._tier is not None:
            async for absent in self._tier.absent(namespace, seen):
                for key in filter(matches, absent):
                    if self._scope.identity.may("read", key):
                        yield key

    async def _delete(self, target: Target) -> bool:
        call = self._mutations.key_delete(target, self._actor, keep=self._keep(target))
        version, blob = await self._explained(target, _ANY, call)
        if blob:
            await self._let_go(target, blob)
        return version > 0

    async def _pages(self, namespace: str) -> AsyncIterator[list[bytes]]:
        """The users' physical keys of a namespace, page by page; a key may come twice."""
        keyspace = self._scope.keyspace
        near = keyspace.space(namespace).clock
        async for page in self._line.scan(keyspace.pattern(namespace), near=near):
            if keys := [key for key in page if not keyspace.is_service(key)]:
                yield keys

    async def _belongings(self, namespace: str) -> AsyncIterator[list[bytes]]:
        """As `_pages`, with what agents agree by (locks, queues, decisions) and what they remember."""
        keyspace = self._scope.keyspace
        near = keyspace.space(namespace).clock
        async for page in self._line.scan(keyspace.belongings(namespace), near=near):
            own = [key for key in page if keyspace.belongs(key, namespace)]
            if keys := [key for key in own if not keyspace.is_service(key) or keyspace.is_part(key)]:
                yield keys
