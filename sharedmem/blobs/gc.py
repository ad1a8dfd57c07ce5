"""Blob garbage collection: find and delete blobs that no key references any more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container

from sharedmem.blobs.blobs import Blobs, entries_owner
from sharedmem.clock import Clock
from sharedmem.errors import SharedMemoryError
from sharedmem.redis.client import RedisClient
from sharedmem.redis.codec import BLOB, parse_record
from sharedmem.redis.keys import KeySpace
from sharedmem.redis.replies import ServerError
from sharedmem.runtime import get_logger
from sharedmem.runtime.background import Background, BackgroundTask

# A younger blob may belong to a write that will refer to it.
_MIN_AGE_S = 3600.0
_EVERY_S = 1800.0
_logger = get_logger("sweeping")


class BlobGarbageCollector:
    """Deletes the blobs that no key refers to any more.

    Args:
        client: client of the server.
        keyspace: builds the keys.
        blobs: the large values.
        background: runs the regular sweeps.
        clock: paces them.
        entry_paths: returns the paths to which entries of a namespace's conversations refer.
        refers_elsewhere: called with a key and the path of a blob: returns whether the key refers to it outside this
            server, for example in the durable tier.
    """

    def __init__(
        self,
        client: RedisClient,
        keyspace: KeySpace,
        blobs: Blobs,
        background: Background,
        clock: Clock,
        *,
        entry_paths: Callable[[str], Awaitable[Container[str]]],
        refers_elsewhere: Callable[[str, str], Awaitable[bool]] | None = None,
    ) -> None:
        self._client = client
        self._keyspace = keyspace
        self._blobs = blobs
        self._background = background
        self._clock = clock
        self._refers_elsewhere = refers_elsewhere
        self._entry_paths = entry_paths
        self._watched: set[str] = set()
        self._work: BackgroundTask | None = None

    def watch(self, namespace: str) -> None:
        """Sweep a namespace regularly from now on, for as long as the hub is open."""
        self._watched.add(namespace)
        if self._work is None or self._work.done:
            self._work = self._background.start("sweep blobs", self._regularly())

    async def sweep(self, namespace: str, *, remove: bool = True) -> int:
        """Sweep a namespace once; return the number of orphans. Three round trips a blob older than an hour.

        Args:
            namespace: the namespace.
            remove: whether to delete them, or only to count them.

        Raises:
            UnavailableError: the server or the store of blobs cannot be reached.
        """
        found, owner = 0, entries_owner(namespace)
        of_entries: Container[str] | None = None
        async for key, path in self._blobs.referrers(namespace, older_than_s=_MIN_AGE_S):
            if key != owner:
                is_needed = await self._is_referenced(key, path)
            else:
                # Forks share entries, so all conversations are looked at, once in a sweep.
                of_entries = await self._entry_paths(namespace) if of_entries is None else of_entries
                is_needed = path in of_entries
            if not is_needed:
                found += 1
                if remove:
                    await self._blobs.remove(key, path)
        return found + await self._blobs.collect(namespace, older_than_s=_MIN_AGE_S, remove=remove)

    async def _is_referenced(self, key: str, path: str) -> bool:
        if await self._is_referenced_in_redis(key, path):
            return True
        return self._refers_elsewhere is not None and await self._refers_elsewhere(key, path)

    async def _is_referenced_in_redis(self, key: str, path: str) -> bool:
        return await self._value_references(key, path) or await self._once_result_references(key, path)

    async def _once_result_references(self, key: str, path: str) -> bool:
        """Return whether the result of a `once` run of this key refers to the blob."""
        once = self._keyspace.part(self._keyspace.target(key), "once")
        result = await self._client.call("HGET", once, "result")
        return isinstance(result, bytes) and path.encode() in result

    async def _value_references(self, key: str, path: str) -> bool:
        try:
            raw = await self._client.call("GET", self._keyspace.target(key).physical)
        except ServerError:
            return False  # the key has another type by now
        stored = parse_record(raw) if isinstance(raw, bytes) else None
        return stored is not None and stored.codec == BLOB and path.encode() in stored.body

    async def _regularly(self) -> None:
        while True:
            await self._clock.sleep(_EVERY_S)
            for namespace in sorted(self._watched):
                try:
                    await self.sweep(namespace)
                except SharedMemoryError as error:
                    _logger.warning("the sweep of %s is postponed: %s", namespace, error)
