"""S3 and Google Cloud Storage as stores of blobs, through fsspec (`s3fs`, `gcsfs`).

Needs the extra `s3` or `gcs`. The libraries find credentials by themselves, and retry failed requests. The services
differ in how an object is marked, and deleted under its mark. Each object in S3 begins with 16 random bytes: its ETag,
which serves as its mark, then differs also for equal contents. In Google Cloud Storage the generation of an object is
its mark.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from types import ModuleType
from typing import Any, Protocol
from urllib.parse import quote, unquote

from sharedmem.clock import new_id
from sharedmem.errors import AccessDeniedError, SharedMemoryError, UnavailableError, UnsupportedError


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


# -- S3 -------------------------------------------------------------------------------------------


_SALT_BYTES = 16
_CONNECT_TIMEOUT_S, _READ_TIMEOUT_S = 5, 60
_CHANGED = frozenset({"PreconditionFailed", "412", "ConditionalRequestConflict"})
_REFUSED = frozenset({"NoCredentialsError", "PartialCredentialsError", "TokenRetrievalError", "SSOTokenLoadError"})
_S3_LIBRARIES = frozenset({"aiobotocore", "aiohttp", "botocore"})
_NO_MARK = '"00000000000000000000000000000000"'


class S3Service:
    """S3 as a `CloudService`, which documents its methods."""

    title = "S3"
    login = "give AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role, with rights on the bucket"

    async def open(self) -> Any:
        """Return a file system; credentials, region and endpoint come from the AWS configuration."""
        # Importing the library takes too long for the event loop.
        library = await asyncio.to_thread(_import_s3fs)
        files = library.S3FileSystem(
            asynchronous=True,
            skip_instance_cache=True,
            use_listings_cache=False,
            config_kwargs={"connect_timeout": _CONNECT_TIMEOUT_S, "read_timeout": _READ_TIMEOUT_S},
        )
        await files.set_session()
        return files

    async def close(self, files: Any) -> None:
        """Close the session."""
        session = await files.set_session()
        await session.close()

    async def check_writable(self, files: Any, folder: str) -> None:
        """Put an object, and try to delete it under a mark that it does not have. Three requests."""
        path = f"{folder}/check/.{new_id()}"
        await self.put(files, path, b"")
        await self.delete(files, path, _NO_MARK)
        try:
            await self.mark(files, path)
        except FileNotFoundError:
            advice = "use one whose DeleteObject honours If-Match, such as Amazon S3"
            raise UnsupportedError("an S3 service without conditional deletes", advice) from None
        await files._rm_file(path)  # noqa: SLF001  # likewise

    async def put(self, files: Any, path: str, body: bytes) -> None:
        """Store an object, its bytes after random ones."""
        await files._pipe_file(path, os.urandom(_SALT_BYTES) + body)  # noqa: SLF001  # fsspec's asynchronous form

    async def get(self, files: Any, path: str) -> bytes:
        """Return the bytes of an object, without the random ones."""
        stored: bytes = await files._cat_file(path)  # noqa: SLF001  # likewise
        return stored[_SALT_BYTES:]

    async def mark(self, files: Any, path: str) -> str:
        """Return the ETag of an object."""
        bucket, _, key = path.partition("/")
        return str((await files._call_s3("head_object", Bucket=bucket, Key=key))["ETag"])  # noqa: SLF001  # no public call has it

    async def delete(self, files: Any, path: str, mark: str) -> None:
        """Delete an object if it has the ETag."""
        bucket, _, key = path.partition("/")
        try:
            await files._call_s3("delete_object", Bucket=bucket, Key=key, IfMatch=mark)  # noqa: SLF001  # likewise
        except OSError as error:
            if _s3_code(error) not in _CHANGED:
                raise

    def modified(self, details: Mapping[str, Any]) -> datetime:
        """Return when an object in a list was put."""
        moment: datetime = details["LastModified"]
        return moment

    def is_refusal(self, error: Exception) -> bool:
        """Return whether an error says that the log-in is missing or lacks a right."""
        return isinstance(error, PermissionError) or type(error).__name__ in _REFUSED

    def is_failure(self, error: Exception) -> bool:
        """Return whether an error comes from the network or the service."""
        return isinstance(error, OSError) or type(error).__module__.partition(".")[0] in _S3_LIBRARIES


def _s3_code(error: OSError) -> str:
    """Return the code of S3 in an error that s3fs has translated."""
    return str(getattr(error.__cause__, "response", {}).get("Error", {}).get("Code", ""))


def _import_s3fs() -> ModuleType:
    try:
        import s3fs  # noqa: PLC0415  # optional
    except ImportError as error:
        raise UnsupportedError("S3 as a store of blobs", "pip install 'sharedmem-hub[s3]'") from error
    module: ModuleType = s3fs
    return module


# -- Google Cloud Storage -------------------------------------------------------------------------


_TIMEOUT_S = 60
_UNAUTHORIZED = 401
_GCS_LIBRARIES = frozenset({"aiohttp", "gcsfs", "google", "requests"})
# Longer bodies would block the event loop. The service wants a multiple of 256 KiB.
_CHUNK_BYTES = 3 << 18
_BOUNDARY = b"--==0=="


class GcsService:
    """Google Cloud Storage as a `CloudService`, which documents its methods."""

    title = "Google Cloud Storage"
    login = "give GOOGLE_APPLICATION_CREDENTIALS, or `gcloud auth application-default login`, with rights on the bucket"

    async def open(self) -> Any:
        """Return a file system; credentials and project come from the Google Cloud configuration."""
        # Importing the library takes too long for the event loop, as does looking for credentials.
        library = await asyncio.to_thread(_import_gcsfs)
        files = await asyncio.to_thread(_file_system, library, asyncio.get_running_loop())
        await files._set_session()  # noqa: SLF001  # no public call opens it
        return files

    async def close(self, files: Any) -> None:
        """Close the session."""
        session = await files._set_session()  # noqa: SLF001  # likewise
        await session.close()

    async def check_writable(self, files: Any, folder: str) -> None:
        """Do nothing: the service deletes under conditions."""

    async def put(self, files: Any, path: str, body: bytes) -> None:
        """Store an object: each put gives another generation."""
        # gcsfs sends a short body between fixed boundaries, which the bytes must not contain; others go in chunks.
        chunk = min(len(body), _CHUNK_BYTES) if _BOUNDARY in body else _CHUNK_BYTES
        await files._pipe_file(path, body, chunksize=chunk)  # noqa: SLF001  # fsspec's asynchronous form

    async def get(self, files: Any, path: str) -> bytes:
        """Return the bytes of an object."""
        stored: bytes = await files._cat_file(path)  # noqa: SLF001  # likewise
        return stored

    async def mark(self, files: Any, path: str) -> str:
        """Return the generation of an object."""
        bucket, _, key = path.partition("/")
        details = await files._call("GET", "b/{}/o/{}", bucket, key, json_out=True)  # noqa: SLF001  # no public call has it
        return str(details["generation"])

    async def delete(self, files: Any, path: str, mark: str) -> None:
        """Delete an object if it has the generation."""
        if not mark.isdigit():
            return
        bucket, _, key = path.partition("/")
        try:
            await files._call("DELETE", "b/{}/o/{}", bucket, key, ifGenerationMatch=mark)  # noqa: SLF001  # likewise
        except FileExistsError:
            return  # it has another generation: gcsfs spells 412 so

    def modified(self, details: Mapping[str, Any]) -> datetime:
        """Return when an object in a list was put."""
        moment: datetime = details["mtime"]
        return moment

    def is_refusal(self, error: Exception) -> bool:
        """Return whether an error says that the log-in is missing or lacks a right."""
        is_forbidden = type(error) is OSError and str(error).startswith("Forbidden")
        return is_forbidden or _gcs_code(error) == _UNAUTHORIZED or type(error).__module__.startswith("google.auth")

    def is_failure(self, error: Exception) -> bool:
        """Return whether an error comes from the network or the service."""
        is_bad_request = type(error) is ValueError and str(error).startswith("Bad Request")
        is_of_library = type(error).__module__.partition(".")[0] in _GCS_LIBRARIES
        return isinstance(error, OSError) or is_of_library or is_bad_request


def _gcs_code(error: Exception) -> int:
    """Return the HTTP status in an error of gcsfs; 0 for other errors."""
    code = str(getattr(error, "code", ""))
    return int(code) if code.isdigit() else 0


def _file_system(library: ModuleType, loop: asyncio.AbstractEventLoop) -> Any:
    return library.GCSFileSystem(
        asynchronous=True,
        loop=loop,
        skip_instance_cache=True,
        use_listings_cache=False,
        access="read_write",
        consistency="md5",
        requests_timeout=_TIMEOUT_S,
    )


def _import_gcsfs() -> ModuleType:
    try:
        import gcsfs.core  # noqa: PLC0415  # optional
    except ImportError as error:
        raise UnsupportedError(
            "Google Cloud Storage as a store of blobs", "pip install 'sharedmem-hub[gcs]'"
        ) from error
    # Its file system without the probes and the gRPC of zonal buckets.
    module: ModuleType = gcsfs.core
    return module
