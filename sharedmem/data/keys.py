"""Operations on keys of any type: existence, expiry and listing, and usage, clearing and sweeping of a namespace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable

from sharedmem.data.key_access import MOST_TRIES, KeyAccess, restored_in_vain_error
from sharedmem.errors import InvalidError
from sharedmem.models import KeyInfo, KeyPage, TypeUsage, Usage
from sharedmem.redis.change_stream import text_of
from sharedmem.redis.keys import Target
from sharedmem.redis.lifetimes import NO_EXPIRY, check_ttl_ms
from sharedmem.redis.service_keys import find_damage

_ANY_TYPE = "value"
_PTTL_MISSING = -2
_CLOSED_FOR_MS = 30_000
_MOST_LISTED = 1000
_LOOKED_AT_ONCE = 1000
_MOST_LOOKS = 20


class KeyOperations:
    """Operations on keys of any type, on single keys or on the whole namespace."""

    def __init__(self, keys: KeyAccess) -> None:
        self._any_keys = keys

    async def exists(self, key: str) -> bool:
        """Return whether the key exists. One round trip.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `read`.
        """
        access = self._any_keys
        target = access.scope.to_read(key)
        return await access.ask(target, _ANY_TYPE, "EXISTS", target.physical) == 1

    async def delete(self, key: str) -> bool:
        """Delete a key of any type; return False if it did not exist. One round trip.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `write`.
        """
        return await self._delete(self._any_keys.scope.to_write(key))

    async def expire(self, key: str, ttl: float) -> bool:
        """Let a key expire in `ttl` seconds; return False if it does not exist. One round trip.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `write`.
        """
        access = self._any_keys
        target = access.scope.to_write(key)
        call = access.scripts.key_expire(target, access.actor, ttl_ms=check_ttl_ms(ttl), keep=access.durability(target))
        version, _ = await access.explained(target, _ANY_TYPE, call)
        return version > 0

    async def persist(self, key: str) -> bool:
        """Remove the expiry of a key; return False if it has no expiry or does not exist. One round trip.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `write`.
        """
        access = self._any_keys
        target = access.scope.to_write(key)
        call = access.scripts.key_expire(target, access.actor, ttl_ms=NO_EXPIRY, keep=access.durability(target))
        version, _ = await access.explained(target, _ANY_TYPE, call)
        return version > 0

    async def ttl(self, key: str) -> float | None:
        """Return the seconds until the key expires; None if it never expires or does not exist. One round trip.

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
        """Yield the absolute keys that match, each once, in no order; in pages, from Redis, then from the durable tier.

        Args:
            pattern: with `*` and `?` as wild cards. Without `:` it is matched against the identifier in every
                scope of the store's namespace (`*`: all its keys); with `:` it is absolute and begins with a
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

    async def scan(self, pattern: str = "*", *, limit: int = 100, cursor: str | None = None) -> KeyPage:
        """Return some of the keys in Redis that match, with type, expiry and size; for lists of any length.

        A key may come twice, and keys that are written meanwhile may be missed, as with SCAN of Redis. Keys in
        the durable tier alone are not listed; `keys` lists them. Looks at 20,000 keys at most, so that a rare key
        among millions takes several calls: a page may be empty, and the last is the one without a cursor.
        Two to 21 round trips.

        Args:
            pattern: as `keys`.
            limit: number of keys after which a page ends, 1 to 1,000; the last look may bring some more.
            cursor: of the page before; None begins.

        Raises:
            InvalidError: the pattern, limit or cursor is invalid.
            AccessDeniedError, UnavailableError: as `read`.
        """
        access = self._any_keys
        namespace, matches = access.scope.matcher(pattern)
        if not 1 <= limit <= _MOST_LISTED:
            raise InvalidError("limit", limit, f"give 1 to {_MOST_LISTED}")
        if cursor is not None and not (cursor.isascii() and cursor.isdigit()):
            raise InvalidError("cursor", cursor, "give that of the page before, or none to begin")
        keyspace, following = access.scope.keyspace, cursor or "0"
        glob, near = keyspace.pattern(namespace), keyspace.space(namespace).clock
        found: dict[str, bytes] = {}
        for _ in range(_MOST_LOOKS):
            following, page = await access.client.scan_from(glob, near=near, cursor=following, count=_LOOKED_AT_ONCE)
            for physical in page:
                key = keyspace.logical(physical)
                if not keyspace.is_service(physical) and matches(key) and access.scope.identity.may("read", key):
                    found[key] = physical
            if following == "0" or len(found) >= limit:
                break
        return KeyPage(keys=await self._describe(found), cursor=None if following == "0" else following)

    async def _describe(self, keys: dict[str, bytes]) -> list[KeyInfo]:
        """Return type, expiry and size of keys, by name; without keys that are gone meanwhile. One round trip."""
        questions = [part for key in keys.values() for part in (("TYPE", key), ("PTTL", key), ("MEMORY", "USAGE", key))]
        replies = await self._any_keys.client.read_many(questions, aside=True) if questions else []
        listed = []
        for key, kind, left_ms, size in zip(keys, replies[::3], replies[1::3], replies[2::3], strict=True):
            if isinstance(left_ms, int) and left_ms != _PTTL_MISSING:
                ttl = left_ms / 1000 if left_ms >= 0 else None
                listed.append(KeyInfo(key=key, type=text_of(kind), ttl=ttl, bytes=size if isinstance(size, int) else 0))
        return sorted(listed, key=lambda one: one.key)

    # -- the whole namespace

    async def usage(self, progress: Callable[[int], None] | None = None) -> Usage:
        """Count the keys and bytes of the namespace, by type; paced so that other clients do not wait long.

        Locks, queues, decisions and memories are counted too; search indexes are not.

        Args:
            progress: called with the number of keys counted so far.

        Raises:
            UnavailableError: the server cannot be reached.
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
        """Delete every key of the namespace that this store may write; return their number.

        A store without an actor deletes all of them, and also locks (their holders lose them), queues with their tasks,
        decisions, memories and the semantic cache. Until it is done, writes are refused; the change feed gets one
        change `clear`. A store with an actor deletes key by key, each with a change of its own, and leaves locks,
        queues, decisions and memories as they are. The work is paced: other clients of the server hardly notice it,
        even with millions of keys.

        Args:
            progress: called with the number of keys deleted so far.

        Raises:
            UnavailableError: the server cannot be reached; call it again to continue.
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
        """Find unreferenced data: blobs of expired keys, and what expired memories left behind.

        Args:
            remove: whether to delete the data, or only to count it.

        Returns:
            The number of finds. Blobs younger than an hour do not count: a write may be about to refer to them.

        Raises:
            UnavailableError: the server cannot be reached.
        """
        access = self._any_keys
        namespace = access.scope.identity.namespace
        found = await access.context.blob_gc.sweep(namespace, remove=remove)
        for sweep in access.context.sweep_hooks:
            found += await sweep(namespace, remove)
        return found

    async def damaged_keys(self) -> dict[str, str]:
        """Find the service keys of the namespace that another client has damaged.

        Checks the type of every service key, and up to 1,000 members of each.

        Returns:
            The problem and its remedy by physical key.

        Raises:
            UnavailableError: the server cannot be reached.
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
        """Yield the users' physical keys of a namespace, page by page; a key may come twice."""
        access = self._any_keys
        keyspace = access.scope.keyspace
        near = keyspace.space(namespace).clock
        async for page in access.client.scan(keyspace.pattern(namespace), near=near):
            if keys := [key for key in page if not keyspace.is_service(key)]:
                yield keys

    async def _owned_key_pages(self, namespace: str) -> AsyncIterator[list[bytes]]:
        """Yield pages as `_pages` does, with keys of locks, queues, decisions and memories."""
        access = self._any_keys
        keyspace = access.scope.keyspace
        near = keyspace.space(namespace).clock
        async for page in access.client.scan(keyspace.namespace_glob(namespace), near=near):
            own = [key for key in page if keyspace.is_in_namespace(key, namespace)]
            if keys := [key for key in own if not keyspace.is_service(key) or keyspace.is_part(key)]:
                yield keys

    async def _list_all_keys(self) -> AsyncIterator[list[str]]:
        """Yield the absolute keys of the namespace, page by page: those in Redis, then those only in the tier."""
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
            # The tier first: after a failure, what is still in Redis can be cleared again.
            await access.tier.clear(space.namespace, stamp)
        async for page in self._owned_key_pages(space.namespace):
            count = await access.client.call_aside("UNLINK", *page)
            # State keys between Redis and the tier are not counted: no caller wrote them.
            states = sum(map(access.scope.keyspace.is_state, page))
            removed += max(0, count - states) if isinstance(count, int) else 0
            await access.scripts.namespace_close(space.clock, lease_ms=_CLOSED_FOR_MS)
            if progress is not None:
                progress(removed)
        await access.context.blobs.clear(space.namespace)
        for hook in access.context.clear_hooks:
            await hook(space.namespace)
        names = access.scope.keyspace.names(space.namespace)
        await access.scripts.namespace_cleared(space, names, access.actor, logical=space.namespace)
        return removed
