"""S3 and Google Cloud Storage as stores of blobs, through fsspec (`s3fs`, `gcsfs`).

Needs the extra `s3` or `gcs`. The libraries find credentials by themselves, and retry failed requests. What the
services have in common is here; how an object is marked, and deleted under its mark, differs (`blobs.s3`, `blobs.gcs`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Protocol
from urllib.parse import quote, unquote

from sharedmem.blobs.gcs import GcsService
from sharedmem.blobs.s3 import S3Service
from sharedmem.errors import AccessDeniedError, SharedMemoryError, UnavailableError


class CloudService(Protocol):
    """What the services have each in their own way. Missing objects are `FileNotFoundError`."""

    title: str
    """Its name, for messages."""
    login: str
    """How to log in, for messages."""

    async def open(self) -> Any:
        """Return its asynchronous file system, with a session.

        Raises:
            UnsupportedError: the library is not installed.
        """

    async def close(self, files: Any) -> None:
        """Close the session."""

    async def check_writable(self, files: Any, folder: str) -> None:
        """Check that the service can delete an object under its mark. Called before the first write.

        Raises:
            UnsupportedError: it cannot.
        """

    async def put(self, files: Any, path: str, body: bytes) -> None:
        """Store an object so that each put gives another mark."""

    async def get(self, files: Any, path: str) -> bytes:
        """Return the bytes of an object. One request."""

    async def mark(self, files: Any, path: str) -> str:
        """Return the mark of an object. One request."""

    async def delete(self, files: Any, path: str, mark: str) -> None:
        """Delete an object if it has the mark, checked by the service in the same step. One request."""

    def modified(self, details: Mapping[str, Any]) -> datetime:
        """Return when an object in a list was put."""

    def is_refusal(self, error: Exception) -> bool:
        """Return whether an error says that the log-in is missing or lacks a right."""

    def is_failure(self, error: Exception) -> bool:
        """Return whether an error comes from the network or the service, and not from a mistake in the program."""


def open_bucket(url: str, *, folder: str) -> CloudBlobStore:
    """Return the store in a bucket; the session is opened by the first call.

    Args:
        url: `s3://bucket` or `gs://bucket`, without credentials.
        folder: name prefix of all objects.
    """
    service: CloudService = S3Service() if url.startswith("s3://") else GcsService()
    return CloudBlobStore(url, service, folder=folder)


class CloudBlobStore:
    """Named objects in a bucket (a `BlobStore`, which documents its methods).

    Args:
        url: `s3://bucket` or `gs://bucket`, without credentials.
        service: the service.
        folder: name prefix of all objects, so that several data sets share a bucket.
    """

    def __init__(self, url: str, service: CloudService, *, folder: str) -> None:
        self._url = url
        self._service = service
        self._root = f"{url.partition('://')[2].strip('/')}/{quote(folder, safe='')}"
        self._files: Any = None
        self._opening = asyncio.Lock()
        self._is_checked = False

    @property
    def place(self) -> str:
        """The bucket's URL."""
        return f"{self._service.title} {self._url}"

    async def put(self, name: str, body: bytes) -> None:
        """Store an object, and replace an existing one.

        In S3 one request, and three more before the first; in Google Cloud Storage one for every 768 KiB, and one more
        for several.

        Raises:
            UnavailableError: the bucket does not exist, cannot be reached, or cannot be written now.
            AccessDeniedError: the log-in is missing, or may not write there.
            UnsupportedError: the library is not installed, or the service cannot delete under conditions.
        """
        with self._translated("write"):
            files = await self._opened()
            if not self._is_checked:
                await self._service.check_writable(files, self._root)
                self._is_checked = True
            await self._service.put(files, self._path(name), body)

    async def get(self, name: str) -> bytes | None:
        """Return the bytes; None if the object does not exist. One request. Raises as `put`."""
        with self._translated("read"):
            files = await self._opened()
            try:
                return await self._service.get(files, self._path(name))
            except FileNotFoundError:
                return None

    async def mark(self, name: str) -> str | None:
        """Return the object's mark; None if the object does not exist. One request. Raises as `put`."""
        with self._translated("read"):
            files = await self._opened()
            try:
                return await self._service.mark(files, self._path(name))
            except FileNotFoundError:
                return None

    async def delete(self, name: str, *, mark: str | None = None) -> None:
        """Delete an object, if it has the mark; it need not exist. One request. Raises as `put`."""
        with self._translated("delete"):
            files = await self._opened()
            try:
                if mark is None:
                    await files._rm_file(self._path(name))  # noqa: SLF001  # fsspec's asynchronous form
                else:
                    await self._service.delete(files, self._path(name), mark)
            except FileNotFoundError:
                return

    async def list(self, prefix: str) -> AsyncIterator[tuple[str, float]]:
        """Yield (name, seconds since it was put) of objects with a prefix. A request for 1,000. Raises as `put`."""
        with self._translated("list"):
            files = await self._opened()
            try:
                found = await files._find(self._path(prefix.rstrip("/")), detail=True)  # noqa: SLF001  # likewise
            except FileNotFoundError:
                found = {}
        now = datetime.now(UTC)
        for path, details in found.items():
            name = unquote(path.removeprefix(f"{self._root}/"))
            if name.startswith(prefix):
                yield name, (now - self._service.modified(details)).total_seconds()

    async def close(self) -> None:
        """Close the session; may be called again."""
        files, self._files = self._files, None
        if files is not None:
            await self._service.close(files)

    def _path(self, name: str) -> str:
        # Quoted: `?`, `#` and others have a meaning of their own in paths of fsspec.
        return f"{self._root}/{quote(name, safe='/')}"

    async def _opened(self) -> Any:
        async with self._opening:
            if self._files is None:
                self._files = await self._service.open()
            return self._files

    @contextmanager
    def _translated(self, need: str) -> Iterator[None]:
        """Translate errors of the libraries into errors of sharedmem, without their long texts."""
        try:
            yield
        except SharedMemoryError:
            raise
        except FileNotFoundError as error:
            raise UnavailableError(self.place, "the bucket does not exist; create it, or correct blob_url") from error
        except Exception as error:
            if self._service.is_refusal(error):
                why = f"{self.place} refuses the log-in; {self._service.login}"
                bucket = self._root.partition("/")[0]
                raise AccessDeniedError(f"{self._service.title} log-in", bucket, need, why) from error
            if not self._service.is_failure(error):
                raise
            why = f"it cannot be reached ({type(error).__name__}); check blob_url and the network, and try again"
            raise UnavailableError(self.place, why) from error

    def __repr__(self) -> str:
        return f"<CloudBlobStore {self._url}>"
