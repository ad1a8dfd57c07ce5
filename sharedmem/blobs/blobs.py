"""Large values: Redis has a reference, a store of named objects has the bytes, each content once in a namespace.

A content is stored under its SHA-256; each write that needs it adds a reference object, which names the key. With the
last reference object, the content is deleted. A write creates its reference object first, then the content, and then
its key refers to them; they are deleted after the key no longer refers to them. So a crash leaves an orphan for the
sweep, never a reference without a content.

Processes may put and remove the same content concurrently. A remover reads the content's mark, then searches for
references, then deletes the content only if it still has that mark. A writer adds its reference before it stores the
content, which changes the mark. So either the remover finds the reference, or the mark has changed, or the content is
stored after the deletion. `tests/store/test_blob_interleavings.py` checks all orders. Garbage collection deletes blobs
that no key references any more.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Iterable
from typing import Protocol
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, ValidationError

from sharedmem.clock import Clock, new_id
from sharedmem.deferred_builds import DEFER_BUILD
from sharedmem.errors import NotFoundError, SharedMemoryError
from sharedmem.redis.client import RedisClient
from sharedmem.redis.codec import BLOB, parse_record
from sharedmem.redis.keys import KeySpace
from sharedmem.redis.replies import ServerError
from sharedmem.runtime import get_logger
from sharedmem.runtime.concurrency import Background, BackgroundTask

_CONTENT = "content"
_REFERENCE = re.compile(r"[0-9a-f]{32}-[0-9a-f]{12}")
_CONTENT_TYPES = {b"json": "application/json", b"json.zst": "application/zstd"}
_NAMESPACE_CHARS = 100
_AT_ONCE = 16
# Below this size, starting a thread takes longer than the digest.
_DIGEST_ASIDE_BYTES = 65_536
_logger = get_logger("blobs")


class BlobReference(BaseModel):
    """The content of a large value's key."""

    model_config = ConfigDict(frozen=True, defer_build=DEFER_BUILD)

    type: str = "blob"
    path: str
    """Name of the key's reference object: `<namespace>/<sha256>/<key>-<id>`, next to the content."""
    size: int
    sha256: str
    content_type: str
    codec: str


class Referrer(BaseModel):
    """The content of a reference object."""

    model_config = ConfigDict(frozen=True, defer_build=DEFER_BUILD)

    key: str
    codec: str


class BlobStore(Protocol):
    """Named objects of bytes; `testing.blob_suite.BlobSuite` tests each implementation.

    A name has two or more parts between slashes. All methods raise `UnavailableError` if the store is unavailable, and
    `AccessDeniedError` or `ConfigError` if the credentials are rejected.
    """

    @property
    def place(self) -> str:
        """The name of the store for messages, without secrets."""

    async def put(self, name: str, body: bytes) -> None:
        """Store an object atomically, and replace an existing one; it gets a new mark."""

    async def get(self, name: str) -> bytes | None:
        """Return the bytes; None if the object does not exist."""

    async def mark(self, name: str) -> str | None:
        """Return the mark, which every `put` of the name changes; None if the object does not exist."""

    async def delete(self, name: str, *, mark: str | None = None) -> None:
        """Delete an object; it need not exist.

        Args:
            name: name of the object.
            mark: delete only if it has this mark, checked in the same step; None: any mark.
        """

    def list(self, prefix: str) -> AsyncIterator[tuple[str, float]]:
        """Return (name, seconds since it was put) of the objects with a prefix, in no order.

        It includes all objects put before the call. After an interrupted write, a name's last part begins with `.`.

        Args:
            prefix: whole parts of names, with a slash at the end.
        """

    async def close(self) -> None:
        """Close connections; may be called again."""


class Blobs:
    """The contents of large values, and the references to them.

    Args:
        store: store of the objects; all processes that share the values need the same one.
    """

    def __init__(self, store: BlobStore) -> None:
        self._store = store

    async def put(self, key: str, codec: bytes, body: bytes) -> BlobReference:
        """Store the bytes of a key and return their reference. Two objects are written.

        Raises:
            UnavailableError: the store cannot be written: no space, no permission, or it cannot be reached.
        """
        digest = await _digest(body)
        folder = f"{_namespace_folder(key.partition(':')[0])}/{digest}"
        # Each write has its own reference: removing a replaced one does not affect other writes of the same content.
        path = f"{folder}/{_key_digest(key)}-{new_id()}"
        await self._store.put(path, Referrer(key=key, codec=codec.decode()).model_dump_json().encode())
        try:
            await self._store.put(f"{folder}/{_CONTENT}", body)
        except SharedMemoryError:
            await self.remove(key, path)
            raise
        return BlobReference(
            path=path,
            size=len(body),
            sha256=digest,
            content_type=_CONTENT_TYPES.get(codec, "application/x-msgpack"),
            codec=codec.decode(),
        )

    async def get(self, key: str, reference: BlobReference) -> bytes:
        """Return the bytes of a reference. Two objects are read concurrently.

        Raises:
            NotFoundError: the bytes are lost, or were changed.
            UnavailableError: the store cannot be read now.
        """
        folder = _content_folder(key, reference.path)
        if folder is None:
            raise NotFoundError("blob of key", key, "its reference names another blob; write the value again")
        referred, body = await asyncio.gather(self._store.mark(reference.path), self._store.get(f"{folder}/{_CONTENT}"))
        if referred is None or body is None:
            advice = f"it is not in {self._store.place}; all processes need the same blob_dir or blob_url"
            raise NotFoundError("blob of key", key, advice)
        if len(body) != reference.size or not reference.sha256 == await _digest(body) == folder.rpartition("/")[2]:
            raise NotFoundError("intact blob of key", key, "its content was changed; write the value again")
        return body

    async def remove(self, key: str, path: str) -> None:
        """Delete the reference of a replaced write, and the content if it was the last reference.

        If the deletion fails, a sweep repeats it: the new value is not affected.

        Args:
            key: the key.
            path: path from its reference. A path of another key, or a missing one, is ignored.
        """
        if (folder := _content_folder(key, path)) is None:
            return
        try:
            await self._store.delete(path)
            await self._collect(folder)
        except SharedMemoryError as error:
            _logger.warning("a blob of key %r is left to a sweep: %s", key, error)

    async def referrers(self, namespace: str, *, older_than_s: float) -> AsyncIterator[tuple[str, str]]:
        """Yield (logical key, path) of the references of a namespace; the caller checks whether they are still used.

        Args:
            namespace: the namespace.
            older_than_s: younger ones may belong to a write that will refer to them.

        Raises:
            UnavailableError: the store cannot be reached.
        """
        old = [name for name, age_s in await self._listed(f"{_namespace_folder(namespace)}/") if age_s >= older_than_s]
        for path in filter(_is_reference, old):
            key = _parse_referrer_key(await self._store.get(path) or b"")
            if key is not None and _content_folder(key, path) is not None:
                yield key, path

    async def collect(self, namespace: str, *, older_than_s: float, remove: bool = True) -> int:
        """Find contents without a reference, and interrupted writes; return their number.

        Args:
            namespace: the namespace.
            older_than_s: younger ones may belong to a running write.
            remove: whether to delete them, or only to count them.

        Raises:
            UnavailableError: the store cannot be reached.
        """
        names = await self._listed(f"{_namespace_folder(namespace)}/")
        needed = {_parent_folder(name) for name, _ in names if _is_reference(name)}
        old = [name for name, age_s in names if age_s >= older_than_s]
        loose = [_parent_folder(name) for name in old if _is_content(name) and _parent_folder(name) not in needed]
        broken_off = [name for name in old if _base_name(name).startswith(".")]
        if remove:
            await _gather_limited(self._store.delete(name) for name in broken_off)
            await _gather_limited(self._collect(folder) for folder in loose)
        return len(loose) + len(broken_off)

    async def clear(self, namespace: str) -> None:
        """Delete all references of a namespace and its annex, with their contents.

        Raises:
            UnavailableError: the store cannot be reached; call it again to continue.
        """
        for place in (namespace, annex_namespace(namespace)):
            await self._clear(place)

    async def _clear(self, namespace: str) -> None:
        names = [name for name, _ in await self._listed(f"{_namespace_folder(namespace)}/")]
        await _gather_limited(self._store.delete(name) for name in names if _is_reference(name))
        await _gather_limited(
            self._collect(folder) for folder in {_parent_folder(name) for name in names if _is_content(name)}
        )

    async def close(self) -> None:
        """Close the store's connections."""
        await self._store.close()

    async def _collect(self, folder: str) -> None:
        """Delete a content unless a key refers to it, or a writer has stored it again."""
        content = f"{folder}/{_CONTENT}"
        # First the mark, then the references: see the docstring of the module.
        mark = await self._store.mark(content)
        if mark is None:
            return
        if not any(_is_reference(name) for name, _ in await self._listed(f"{folder}/")):
            await self._store.delete(content, mark=mark)

    async def _listed(self, prefix: str) -> list[tuple[str, float]]:
        return [found async for found in self._store.list(prefix)]


def annex_namespace(namespace: str) -> str:
    """Return the name of a namespace's annex, for contents without keys: sweeps of the namespace skip it.

    It replaces the namespace in the names of such contents; no namespace begins with `$`.
    """
    return f"$annex.{namespace}"


def entries_owner(namespace: str) -> str:
    """Return the key to which the large entries of a namespace's conversations belong: forks share entries."""
    return f"{namespace}:$conversation"


def _namespace_folder(namespace: str) -> str:
    # A namespace may be called "..", or differ from another one only in case, which some disks ignore.
    readable = quote(namespace, safe="").replace(".", "%2E")[:_NAMESPACE_CHARS]
    return f"ns-{readable}-{hashlib.sha256(namespace.encode()).hexdigest()[:12]}"


def _key_digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:32]


def _content_folder(key: str, path: str) -> str | None:
    """Return the content that a path of this key refers to; None if it is not a path of this key.

    A raw client can write any path into a reference; only objects that were created for the key itself are used.
    """
    folder, key_digest = _namespace_folder(key.partition(":")[0]), _key_digest(key)
    fits = re.fullmatch(rf"{re.escape(folder)}/[0-9a-f]{{64}}/{key_digest}-[0-9a-f]{{12}}", path)
    return _parent_folder(path) if fits else None


def _parent_folder(name: str) -> str:
    return name.rpartition("/")[0]


def _base_name(name: str) -> str:
    return name.rpartition("/")[2]


def _is_reference(name: str) -> bool:
    return _REFERENCE.fullmatch(_base_name(name)) is not None


def _is_content(name: str) -> bool:
    return _base_name(name) == _CONTENT


def _parse_referrer_key(body: bytes) -> str | None:
    try:
        return Referrer.model_validate_json(body).key
    except ValidationError:  # deleted in between, or damaged: then its content stays
        return None


async def _digest(body: bytes) -> str:
    if len(body) < _DIGEST_ASIDE_BYTES:
        return hashlib.sha256(body).hexdigest()
    return (await asyncio.to_thread(hashlib.sha256, body)).hexdigest()


async def _gather_limited(calls: Iterable[Awaitable[None]]) -> None:
    """Await calls, some concurrently: a remote store is slow, but must not get thousands of requests at once."""
    free = asyncio.Semaphore(_AT_ONCE)

    async def one(call: Awaitable[None]) -> None:
        async with free:
            await call

    outcomes = await asyncio.gather(*(one(call) for call in calls), return_exceptions=True)
    for error in filter(None, outcomes):
        raise error


# -- garbage collection ---------------------------------------------------------------------------


# A younger blob may belong to a write that will refer to it.
_MIN_AGE_S = 3600.0
_EVERY_S = 1800.0
_gc_logger = get_logger("sweeping")


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
                    _gc_logger.warning("the sweep of %s is postponed: %s", namespace, error)
