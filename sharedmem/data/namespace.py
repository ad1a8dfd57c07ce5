"""The namespace as a whole: what it uses, and how to empty it without anybody noticing but its users."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable

from sharedmem.data.anykey import AnyKey
from sharedmem.models import TypeUsage, Usage
from sharedmem.wire.changes import text_of
from sharedmem.wire.service_keys import all_damage

_CLOSED_FOR_MS = 30_000


class Namespace(AnyKey):
    """Measures and empties the own namespace."""

    async def usage(self, progress: Callable[[int], None] | None = None) -> Usage:
        """Count the keys and bytes of the namespace, by type; paced so that nobody else waits long.

        What is agreed on and remembered there is counted too; the search indexes are not.

        Args:
            progress: called with the number of keys seen so far.

        Raises:
            UnavailableError: the server stayed away.
        """
        keys: defaultdict[str, int] = defaultdict(int)
        sizes: defaultdict[str, int] = defaultdict(int)
        keyspace = self._scope.keyspace
        async for belongings in self._belongings(self._scope.identity.namespace):
            page = [key for key in belongings if not keyspace.is_state(key)]
            commands = [part for key in page for part in (("TYPE", key), ("MEMORY", "USAGE", key))]
            replies = await self._line.read_many(commands, aside=True)
            for kind, size in zip(replies[::2], replies[1::2], strict=True):
                if isinstance(size, int):
                    keys[text_of(kind)] += 1
                    sizes[text_of(kind)] += size
            if progress is not None:
                progress(sum(keys.values()))
        return Usage(
            namespace=self._scope.identity.namespace,
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
        if self._scope.identity.actor is None:
            return await self._clear_all(progress)
        removed = 0
        async for keys in self._all_keys():
            for key in keys:
                if self._scope.identity.may("write", key):
                    removed += await self._delete(self._scope.keyspace.target(key))
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
        namespace = self._scope.identity.namespace
        found = await self._means.sweeper.sweep(namespace, remove=remove)
        for sweep in self._means.when_swept:
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
        space, keyspace = self._scope.home, self._scope.keyspace
        found: dict[str, str] = {}
        async for page in self._line.scan(keyspace.belongings(space.namespace), near=space.clock):
            own = [key for key in page if keyspace.belongs(key, space.namespace)]
            async for damage in all_damage(self._line.read_many, own):
                found[damage.key] = str(damage)
        return found

    async def _all_keys(self) -> AsyncIterator[list[str]]:
        """The absolute keys of the namespace, page by page: those in Redis, then those that the tier has alone."""
        namespace = self._scope.identity.namespace
        async for page in self._pages(namespace):
            yield [self._scope.keyspace.logical(physical) for physical in page]
        if self._tier is not None:
            async for keys in self._tier.absent(namespace, ()):
                yield keys

    async def _clear_all(self, progress: Callable[[int], None] | None) -> int:
        space = self._scope.home
        removed = 0
        stamp = await self._mutations.namespace_close(space.clock, lease_ms=_CLOSED_FOR_MS)
        if self._tier is not None:
            # First there: whatever is still in Redis can be cleared once more.
            await self._tier.clear(space.namespace, stamp)
        async for page in self._belongings(space.namespace):
            count = await self._line.call_aside("UNLINK", *page)
            # How keys stood between Redis and the tier is nothing that anybody has made.
            states = sum(map(self._scope.keyspace.is_state, page))
            removed += max(0, count - states) if isinstance(count, int) else 0
            await self._mutations.namespace_close(space.clock, lease_ms=_CLOSED_FOR_MS)
            if progress is not None:
                progress(removed)
        await self._means.blobs.clear(space.namespace)
        for told in self._means.when_cleared:
            await told(space.namespace)
        await self._mutations.namespace_cleared(space, self._actor, logical=space.namespace)
        return removed
