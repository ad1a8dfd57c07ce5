"""Operations on keys of any type: existence, expiry and listing, and usage, clearing and sweeping of a namespace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable

from sharedmem.data.key_access import MOST_TRIES, KeyAccess, restored_in_vain_error
from sharedmem.models import TypeUsage, Usage
from sharedmem.redis.change_stream import text_of
from sharedmem.redis.keys import Target
from sharedmem.redis.lifetimes import NO_EXPIRY, check_ttl_ms
from sharedmem.redis.service_keys import find_damage

_ANY_TYPE = "value"
_PTTL_MISSING = -2
_CLOSED_FOR_MS = 30_000


class KeyOperations:
    """Operations on keys of any type, one by one or all of the own namespace."""

    def __init__(self, keys: KeyAccess) -> None:
        self._any_keys = keys

    async def exists(self, key: str) -> bool:
        """Whether the key holds anything. One round trip.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `read`.
        """
        access = self._any_keys
        target = access.scope.to_read(key)
        return await access.ask(target, _ANY_TYPE, "EXISTS", target.physical) == 1

    async def delete(self, key: str) -> bool:
        """Remove a key with whatever it holds; False when there was nothing. One round trip.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `write`.
        """
        return await self._delete(self._any_keys.scope.to_write(key))

    async def expire(self, key: str, ttl: float) -> bool:
        """Let a key expire in `ttl` seconds; False when there is no such key. One round trip.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `write`.
        """
        access = self._any_keys
        target = access.scope.to_write(key)
        call = access.scripts.key_expire(target, access.actor, ttl_ms=check_ttl_ms(ttl), keep=access.durability(target))
        version, _ = await access.explained(target, _ANY_TYPE, call)
        return version > 0

    async def persist(self, key: str) -> bool:
        """Take a key's expiry away; False when it has none or is not there. One round trip.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `write`.
        """
        access = self._any_keys
        target = access.scope.to_write(key)
        call = access.scripts.key_expire(target, access.actor, ttl_ms=NO_EXPIRY, keep=access.durability(target))
        version, _ = await access.explained(target, _ANY_TYPE, call)
        return version > 0

    async def ttl(self, key: str) -> float | None:
        """Seconds until the key expires; None when it never does or is not there. One round trip.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `read`.
        """
        access = self._any_keys
        target = access.scope.to_read(key)
        asking = access.expiry_commands(target)
        await access.ensure_joined(target)
        for _ in range(MOST_TRIES):
            replies = await access.explained(target, _ANY_TYPE, access.client.read_many(asking))
            if replies[0] != _PTTL_MISSING or not await access.restore(target):
                left_ms = access.remaining_ms(target, replies)
                return None if left_ms is None else left_ms / 1000
        raise restored_in_vain_error(target)

    async def keys(self, pattern: str = "*") -> AsyncIterator[str]:
        """The absolute keys that match, in no order, each once; pages of the server's scan, then of the durable tier.

        Args:
            pattern: with `*` and `?` as wild cards. Without `:` it is matched against the identifier in every
                scope of the own namespace (`*`: all its keys); with `:` it is absolute and begins with a
                literal namespace.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `read`.
        """
        access = self._any_keys
        namespace, matches = access.scope.matcher(pattern)
        seen: set[str] = set()
        async for page in self._pages(namespace):
            for physical in page:
                key = access.scope.keyspace.logical(physical)
                if matches(key) and key not in seen and access.scope.identity.may("read", key):
                    seen.add(key)
                    yield key
        if access.tier is not None:
            async for absent in access.tier.absent(namespace, seen):
                for key in filter(matches, absent):
                    if access.scope.identity.may("read", key):
                        yield key

    # -- the own namespace

    async def usage(self, progress: Callable[[int], None] | None = None) -> Usage:
        """Count the keys and bytes of the namespace, by type; paced so that nobody else waits long.

        What is agreed on and remembered there is counted too; the search indexes are not.

        Args:
            progress: called with the number of keys seen so far.

        Raises:
            UnavailableError: the server stayed away.
        """
        access = self._any_keys
        keys: defaultdict[str, int] = defaultdict(int)
        sizes: defaultdict[str, int] = defaultdict(int)
        keyspace = access.scope.keyspace
        async for belongings in self._owned_key_pages(access.scope.identity.namespace):
            page = [key for key in belongings if not keyspace.is_state(key)]
            commands = [part for key in page for part in (("TYPE", key), ("MEMORY", "USAGE", key))]
            replies = await access.client.read_many(commands, aside=True)
            for kind, size in zip(replies[::2], replies[1::2], strict=True):
                if isinstance(size, int):
                    keys[text_of(kind)] += 1
                    sizes[text_of(kind)] += size
            if progress is not None:
                progress(sum(keys.values()))
        return Usage(
            namespace=access.scope.identity.namespace,
            keys=sum(keys.values()),
            bytes=sum(sizes.values()),
            types={kind: TypeUsage(keys=keys[kind], bytes=sizes[kind]) for kind in sorted(keys)},
        )

    async def clear(self, progress: Callable[[int], None] | None = None) -> int:
        """Remove every key of the namespace that this store may write; returns how many.

        A store without an actor may write them all, and what is agreed on with them: locks (their holders are
        told that they lost them), queues and their tasks, decisions, memories and the semantic cache. Writers are
        then refused until it is done, and one change `clear` is announced. An actor's store removes key by key, each
        announced, and leaves what is agreed on and remembered. Paced: other clients of the server hardly notice,
        also with millions of keys.

        Args:
            progress: called with the number of keys removed so far.

        Raises:
            UnavailableError: the server stayed away; call it again to go on.
        """
        access = self._any_keys
        if access.scope.identity.actor is None:
            return await self._clear_all(progress)
        removed = 0
        async for keys in self._list_all_keys():
            for key in keys:
                if access.scope.identity.may("write", key):
                    removed += await self._delete(access.scope.keyspace.target(key))
            if progress is not None:
                progress(removed)
        return removed

    async def sweep(self, *, remove: bool = True) -> int:
        """Find what nothing refers to any more: blobs of keys that have expired, and what memories leave that have.

        Args:
            remove: whether to remove them, or only to count.

        Returns:
            How many were found. Blobs younger than an hour are left out: a write may be about to refer to them.

        Raises:
            UnavailableError: the server stayed away.
        """
        access = self._any_keys
        namespace = access.scope.identity.namespace
        found = await access.context.blob_gc.sweep(namespace, remove=remove)
        for sweep in access.context.sweep_hooks:
            found += await sweep(namespace, remove)
        return found

    async def damaged_keys(self) -> dict[str, str]:
        """Look at sharedmem's own keys of the namespace: which of them another client has damaged.

        The types of all keys are compared, and of what they hold up to 1,000 members each.

        Returns:
            By key, as it lies in Redis: what is wrong with it, and what to do about it.

        Raises:
            UnavailableError: the server stayed away.
        """
        access = self._any_keys
        space, keyspace = access.scope.home, access.scope.keyspace
        found: dict[str, str] = {}
        async for page in access.client.scan(keyspace.namespace_glob(space.namespace), near=space.clock):
            own = [key for key in page if keyspace.is_in_namespace(key, space.namespace)]
            async for damage in find_damage(access.client.read_many, own):
                found[damage.key] = str(damage)
        return found

    async def _delete(self, target: Target) -> bool:
        access = self._any_keys
        call = access.scripts.key_delete(target, access.actor, keep=access.durability(target))
        version, blob = await access.explained(target, _ANY_TYPE, call)
        if blob:
            await access.remove_blob(target, blob)
        return version > 0

    async def _pages(self, namespace: str) -> AsyncIterator[list[bytes]]:
        """The users' physical keys of a namespace, page by page; a key may come twice."""
        access = self._any_keys
        keyspace = access.scope.keyspace
        near = keyspace.space(namespace).clock
        async for page in access.client.scan(keyspace.pattern(namespace), near=near):
            if keys := [key for key in page if not keyspace.is_service(key)]:
                yield keys

    async def _owned_key_pages(self, namespace: str) -> AsyncIterator[list[bytes]]:
        """As `_pages`, with what agents agree by (locks, queues, decisions) and what they remember."""
        access = self._any_keys
        keyspace = access.scope.keyspace
        near = keyspace.space(namespace).clock
        async for page in access.client.scan(keyspace.namespace_glob(namespace), near=near):
            own = [key for key in page if keyspace.is_in_namespace(key, namespace)]
            if keys := [key for key in own if not keyspace.is_service(key) or keyspace.is_part(key)]:
                yield keys

    async def _list_all_keys(self) -> AsyncIterator[list[str]]:
        """The absolute keys of the namespace, page by page: those in Redis, then those that the tier has alone."""
        access = self._any_keys
        namespace = access.scope.identity.namespace
        async for page in self._pages(namespace):
            yield [access.scope.keyspace.logical(physical) for physical in page]
        if access.tier is not None:
            async for keys in access.tier.absent(namespace, ()):
                yield keys

    async def _clear_all(self, progress: Callable[[int], None] | None) -> int:
        access = self._any_keys
        space = access.scope.home
        removed = 0
        stamp = await access.scripts.namespace_close(space.clock, lease_ms=_CLOSED_FOR_MS)
        if access.tier is not None:
            # First there: whatever is still in Redis can be cleared once more.
            await access.tier.clear(space.namespace, stamp)
        async for page in self._owned_key_pages(space.namespace):
            count = await access.client.call_aside("UNLINK", *page)
            # How keys stood between Redis and the tier is nothing that anybody has made.
            states = sum(map(access.scope.keyspace.is_state, page))
            removed += max(0, count - states) if isinstance(count, int) else 0
            await access.scripts.namespace_close(space.clock, lease_ms=_CLOSED_FOR_MS)
            if progress is not None:
                progress(removed)
        await access.context.blobs.clear(space.namespace)
        for told in access.context.clear_hooks:
            await told(space.namespace)
        await access.scripts.namespace_cleared(space, access.actor, logical=space.namespace)
        return removed
