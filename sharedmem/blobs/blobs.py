"""Large values: Redis holds a reference, a store of named objects holds the bytes, each content once in a namespace.

A content is stored under its SHA-256; each write that needs it adds a reference object, which names the key. With the
last of these the content is deleted. A write makes its reference object first, then the content, and only then does
its key refer to them; they are removed after the key no longer does: a crash leaves an orphan for the sweep, never a
reference to nothing.

Processes may put and remove the same content at the same moment. Whoever removes notes the content's mark, then looks
for references, then deletes the content only if it still bears that mark. Whoever puts has left the reference before
storing the content, which changes the mark: either the reference is seen, or the mark has changed, or the content is
stored after it was deleted. `tests/store/test_blob_interleavings.py` goes through all orders.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Iterable
from typing import Protocol
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, ValidationError

from sharedmem.clock import new_id
from sharedmem.errors import NotFoundError, SharedMemoryError
from sharedmem.runtime import get_logger

_CONTENT = "content"
_REFERENCE = re.compile(r"[0-9a-f]{32}-[0-9a-f]{12}")
_CONTENT_TYPES = {b"json": "application/json", b"json.zst": "application/zstd"}
_NAMESPACE_CHARS = 100
_AT_ONCE = 16
# Below that, a thread takes longer than the digest.
_DIGEST_ASIDE_BYTES = 65_536
_logger = get_logger("blobs")


class BlobReference(BaseModel):
    """What the key of a large value holds."""

    model_config = ConfigDict(frozen=True)

    type: str = "blob"
    path: str
    """Name of the key's reference object: `<namespace>/<sha256>/<key>-<id>`, beside the content."""
    size: int
    sha256: str
    content_type: str
    codec: str


class Referrer(BaseModel):
    """What a reference object says."""

    model_config = ConfigDict(frozen=True)

    key: str
    codec: str


class BlobStore(Protocol):
    """Named objects of bytes; `testing.blob_suite.BlobSuite` holds each implementation to it.

    A name has two or more parts between slashes. All raise `UnavailableError` when the place cannot be reached or
    used just now, and `AccessDeniedError` or `ConfigError` when the credentials are refused.
    """

    @property
    def place(self) -> str:
        """Where it is, for messages; without secrets."""

    async def put(self, name: str, body: bytes) -> None:
        """Store an object, whole or not at all, in place of what has that name; it gets a mark of its own."""

    async def get(self, name: str) -> bytes | None:
        """Return the bytes; None when there is no such object."""

    async def mark(self, name: str) -> str | None:
        """What changes with every `put` of that name; None when there is no such object."""

    async def delete(self, name: str, *, mark: str | None = None) -> None:
        """Delete an object; one already gone is fine.

        Args:
            name: which.
            mark: only if it bears this mark, checked in the same step; None for whatever is there.
        """

    def list(self, prefix: str) -> AsyncIterator[tuple[str, float]]:
        """Return (name, seconds since it was put) of the objects whose names begin so, in no order.

        Whatever was put before the call is told. The last part of a name begins with `.` where a write was broken off.

        Args:
            prefix: whole parts, with a slash at its end.
        """

    async def close(self) -> None:
        """Give back connections; may be called again."""


class Blobs:
    """The contents of large values, and who refers to them.

    Args:
        store: of the objects; all processes that share the values need the same.
    """

    def __init__(self, store: BlobStore) -> None:
        self._store = store

    async def put(self, key: str, codec: bytes, body: bytes) -> BlobReference:
        """Store the bytes of a key and return the reference to them. Two objects are written.

        Raises:
            UnavailableError: the store cannot be written: no space, no permission, or it cannot be reached.
        """
        digest = await _digest(body)
        folder = f"{_namespace_folder(key.partition(':')[0])}/{digest}"
        # Each write has a reference of its own, so that removing what it replaced harms no other write of the same.
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
        """Return the bytes behind a reference. Two objects are asked for, at the same time.

        Raises:
            NotFoundError: they are gone, or not what was stored.
            UnavailableError: the store cannot be read just now.
        """
        folder = _content_folder(key, reference.path)
        if folder is None:
            raise NotFoundError("blob of key", key, "its reference names no blob of this key; write the value again")
        referred, body = await asyncio.gather(self._store.mark(reference.path), self._store.get(f"{folder}/{_CONTENT}"))
        if referred is None or body is None:
            advice = f"it is not in {self._store.place}; all processes need the same blob_dir or blob_url"
            raise NotFoundError("blob of key", key, advice)
        if len(body) != reference.size or not reference.sha256 == await _digest(body) == folder.rpartition("/")[2]:
            raise NotFoundError("intact blob of key", key, "its content was changed or cut; write the value again")
        return body

    async def remove(self, key: str, path: str) -> None:
        """Remove the reference of a write that its key refers to no more, and the content if it was the last.

        What cannot be removed just now is left to a sweep: it does not matter to the write that replaced it.

        Args:
            key: whose.
            path: as its reference told it. A path that is none of this key's, or already gone, is left alone.
        """
        if (folder := _content_folder(key, path)) is None:
            return
        try:
            await self._store.delete(path)
            await self._collect(folder)
        except SharedMemoryError as error:
            _logger.warning("a blob of key %r stays for a sweep: %s", key, error)

    async def referrers(self, namespace: str, *, older_than_s: float) -> AsyncIterator[tuple[str, str]]:
        """Yield (logical key, path) of the references of a namespace; whether a key still refers so is the caller's to ask.

        Args:
            namespace: whose.
            older_than_s: younger ones may belong to a write that is about to refer to them.

        Raises:
            UnavailableError: the store cannot be reached.
        """
        old = [name for name, age_s in await self._listed(f"{_namespace_folder(namespace)}/") if age_s >= older_than_s]
        for path in filter(_is_reference, old):
            key = _parse_referrer_key(await self._store.get(path) or b"")
            if key is not None and _content_folder(key, path) is not None:
                yield key, path

    async def collect(self, namespace: str, *, older_than_s: float, remove: bool = True) -> int:
        """Find contents without any reference, and writes that were broken off; returns how many.

        Args:
            namespace: where.
            older_than_s: younger ones may belong to a write that is under way.
            remove: whether to remove them, or only to count.

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
        """Remove all references of a namespace and its annex, and the contents with them.

        Raises:
            UnavailableError: the store cannot be reached; call it again to go on.
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
        """Give back the store's connections."""
        await self._store.close()

    async def _collect(self, folder: str) -> None:
        """Delete a content unless a key refers to it, or a writer has just put it again."""
        content = f"{folder}/{_CONTENT}"
        # First the mark, then the look: see the module's story.
        mark = await self._store.mark(content)
        if mark is None:
            return
        if not any(_is_reference(name) for name, _ in await self._listed(f"{folder}/")):
            await self._store.delete(content, mark=mark)

    async def _listed(self, prefix: str) -> list[tuple[str, float]]:
        return [found async for found in self._store.list(prefix)]


def annex_namespace(namespace: str) -> str:
    """Return where lies what a namespace has put away and no key refers to: sweeps of the namespace do not come there.

    It takes the place of a namespace in the names of such contents; no namespace begins with `$`.
    """
    return f"$annex.{namespace}"


def _namespace_folder(namespace: str) -> str:
    # A namespace may be called "..", or as another one on a disk that does not tell capitals apart.
    readable = quote(namespace, safe="").replace(".", "%2E")[:_NAMESPACE_CHARS]
    return f"ns-{readable}-{hashlib.sha256(namespace.encode()).hexdigest()[:12]}"


def _key_digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:32]


def _content_folder(key: str, path: str) -> str | None:
    """Return the content that a path of this key refers to; None when it is no path of this key.

    A raw client can write any path into a reference; only objects that were made for the key itself are ever touched.
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
    except ValidationError:  # removed meanwhile, or damaged: then its content stays
        return None


async def _digest(body: bytes) -> str:
    if len(body) < _DIGEST_ASIDE_BYTES:
        return hashlib.sha256(body).hexdigest()
    return (await asyncio.to_thread(hashlib.sha256, body)).hexdigest()


async def _gather_limited(calls: Iterable[Awaitable[None]]) -> None:
    """Await them, some at once: a far store takes long for each, and must not be asked for thousands together."""
    free = asyncio.Semaphore(_AT_ONCE)

    async def one(call: Awaitable[None]) -> None:
        async with free:
            await call

    outcomes = await asyncio.gather(*(one(call) for call in calls), return_exceptions=True)
    for error in filter(None, outcomes):
        raise error
