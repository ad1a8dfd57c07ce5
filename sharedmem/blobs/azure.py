"""Azure Blob Storage as a store of blobs, through the official client.

Needs the extra `azure-blobs`. The client retries failed requests; every call here may be repeated, since objects are
replaced as a whole and deleted by their ETag.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from sharedmem.errors import AccessDeniedError, ConfigError, UnavailableError, UnsupportedError

if TYPE_CHECKING:
    from azure.core.exceptions import HttpResponseError
    from azure.identity.aio import DefaultAzureCredential
    from azure.storage.blob.aio import ContainerClient

_EXPECTED_URL = "give azure://ACCOUNT.blob.core.windows.net/CONTAINER"
_EXPECTED_EMULATOR_URL = "give azure+http://127.0.0.1:PORT/ACCOUNT/CONTAINER"
_CONNECT_TIMEOUT_S, _READ_TIMEOUT_S = 5, 60
_RETRIES = 3
# Larger parts would block the event loop, and be sent again as a whole after a network failure.
_CHUNK_BYTES, _CONCURRENT_CHUNKS = 1 << 20, 4


class _ContainerAddress(NamedTuple):
    endpoint: str
    account: str
    container: str


class AzureBlobStore:
    """Named objects in a container (a `BlobStore`, which documents its methods).

    Args:
        url: `azure://account.blob.core.windows.net/container`, or `azure+http://127.0.0.1:port/account/container` for
            an emulator. The first write creates the container if it is missing.
        key: the account's key; None: log in with Entra ID (`DefaultAzureCredential`), which needs the right to read and
            write blobs.
        folder: name prefix of all objects, so that several data sets share a container.
        tries_again: number of retries of a failed request, about a second apart.

    Raises:
        ConfigError: the URL or the key is invalid.
    """

    def __init__(self, url: str, *, key: str | None = None, folder: str, tries_again: int = _RETRIES) -> None:
        self._url = url
        self._at = _parse_url(url)
        self._key = key
        self._folder = folder
        self._tries_again = tries_again
        self._client: ContainerClient | None = None
        self._identity: DefaultAzureCredential | None = None
        self._opening = asyncio.Lock()
        _check_key(url, key)

    @property
    def place(self) -> str:
        """The container's URL."""
        return f"Azure Blob Storage {self._url}"

    async def put(self, name: str, body: bytes) -> None:
        """Store an object, and replace an existing one. One request a MiB, and one more for several.

        Raises:
            UnavailableError: the store cannot be reached, or cannot write now.
            AccessDeniedError: the log-in may not write there.
            ConfigError: the log-in is rejected.
            UnsupportedError: the client is not installed.
        """
        try:
            await self._put(name, body)
        except _ContainerMissingError:
            await self._make_container()
            await self._put(name, body)

    async def get(self, name: str) -> bytes | None:
        """Return the bytes; None if the object does not exist. One request up to 32 MiB. Raises as `put`."""
        client = await self._opened()
        with self._translate_errors("read"), _ignore_missing():
            stream = await client.download_blob(self._folder + "/" + name)
            return await stream.readall()
        return None

    async def mark(self, name: str) -> str | None:
        """Return the object's ETag; None if the object does not exist. One request. Raises as `put`."""
        client = await self._opened()
        with self._translate_errors("read"), _ignore_missing():
            properties = await client.get_blob_client(self._folder + "/" + name).get_blob_properties()
            return str(properties.etag)
        return None

    async def delete(self, name: str, *, mark: str | None = None) -> None:
        """Delete an object, if it has the mark; it need not exist. One request. Raises as `put`."""
        client = await self._opened()
        from azure.core import MatchConditions  # noqa: PLC0415  # optional: `_opened` reports what to install
        from azure.core.exceptions import ResourceModifiedError  # noqa: PLC0415

        blob = client.get_blob_client(self._folder + "/" + name)
        with self._translate_errors("delete"), _ignore_missing(), suppress(ResourceModifiedError):
            if mark is None:
                await blob.delete_blob()
            else:
                await blob.delete_blob(etag=mark, match_condition=MatchConditions.IfNotModified)

    async def list(self, prefix: str) -> AsyncIterator[tuple[str, float]]:
        """Yield (name, seconds since it was put) of objects with a prefix. A request for 5,000. Raises as `put`."""
        client = await self._opened()
        now = datetime.now(UTC)
        with self._translate_errors("list"), _ignore_missing():
            async for blob in client.list_blobs(name_starts_with=f"{self._folder}/{prefix}"):
                yield blob.name.removeprefix(self._folder + "/"), (now - blob.last_modified).total_seconds()

    async def close(self) -> None:
        """Close connections; may be called again."""
        client, self._client = self._client, None
        identity, self._identity = self._identity, None
        if client is not None:
            await client.close()
        if identity is not None:
            await identity.close()

    async def _put(self, name: str, body: bytes) -> None:
        client = await self._opened()
        from azure.core.exceptions import ResourceNotFoundError  # noqa: PLC0415  # optional

        with self._translate_errors("write"):
            try:
                await client.upload_blob(
                    self._folder + "/" + name, body, overwrite=True, max_concurrency=_CONCURRENT_CHUNKS
                )
            except ResourceNotFoundError as error:
                raise _ContainerMissingError from error

    async def _make_container(self) -> None:
        client = await self._opened()
        from azure.core.exceptions import ResourceExistsError  # noqa: PLC0415  # optional

        with self._translate_errors("create the container"), suppress(ResourceExistsError):
            await client.create_container()

    async def _opened(self) -> ContainerClient:
        async with self._opening:
            if self._client is None:
                # Importing the client takes too long for the event loop.
                await asyncio.to_thread(_import_azure)
                self._client = self._made()
            return self._client

    def _made(self) -> ContainerClient:
        from azure.core.credentials import AzureNamedKeyCredential  # noqa: PLC0415  # optional
        from azure.identity.aio import DefaultAzureCredential  # noqa: PLC0415
        from azure.storage.blob.aio import ContainerClient, LinearRetry  # noqa: PLC0415

        if self._key is None:
            self._identity = DefaultAzureCredential()
        return ContainerClient(
            self._at.endpoint,
            self._at.container,
            credential=self._identity or AzureNamedKeyCredential(self._at.account, self._key or ""),
            retry_policy=LinearRetry(backoff=1, retry_total=self._tries_again, random_jitter_range=1),
            connection_timeout=_CONNECT_TIMEOUT_S,
            read_timeout=_READ_TIMEOUT_S,
            max_single_put_size=_CHUNK_BYTES,
            max_block_size=_CHUNK_BYTES,
        )

    @contextmanager
    def _translate_errors(self, need: str) -> Iterator[None]:
        """Translate the client's errors into errors of sharedmem, without their long texts."""
        from azure.core.exceptions import (  # noqa: PLC0415  # optional
            AzureError,
            ClientAuthenticationError,
            HttpResponseError,
        )

        try:
            yield
        except ClientAuthenticationError as error:
            raise self._login_error(_error_code(error)) from error
        except HttpResponseError as error:
            raise self._refusal(error, need) from error
        except AzureError as error:
            raise UnavailableError(self.place, "it cannot be reached; check blob_url and the network") from error

    def _refusal(self, error: HttpResponseError, need: str) -> Exception:
        code = _error_code(error)
        if error.status_code == 403:
            by_role = "assign it the role Storage Blob Data Contributor, or set blob_key"
            advice = by_role if self._key is None else "check blob_key, and the network rules of the account"
            return AccessDeniedError(self._at.account, self._at.container, need, f"{self.place} says {code}; {advice}")
        wait_s = str(getattr(error.response, "headers", {}).get("Retry-After", ""))
        return UnavailableError(
            self.place,
            f"it replies {error.status_code} {code}; try again later",
            retry_after=float(wait_s) if wait_s.isdigit() else 1.0,
        )

    def _login_error(self, why: str) -> ConfigError:
        if self._key is None:
            problem = f"Entra ID rejects the log-in at {self._url} ({why}); log in, such as with `az login`"
            return ConfigError("blob_key", "default", problem)
        return ConfigError("blob_key", "settings", f"{self._url} rejects it ({why}); give the account's present key")

    def __repr__(self) -> str:
        return f"<AzureBlobStore {self._url}>"


def _error_code(error: HttpResponseError) -> str:
    code = getattr(error, "error_code", None)
    return str(getattr(code, "value", code) or error.reason or "no credential was found")


class _ContainerMissingError(Exception):
    """The container does not exist yet."""


def _parse_url(url: str) -> _ContainerAddress:
    parts = urlsplit(url)
    names = parts.path.strip("/").split("/")
    if parts.scheme == "azure" and len(names) == 1 and names[0]:
        return _ContainerAddress(f"https://{parts.netloc}", (parts.hostname or "").partition(".")[0], names[0])
    if parts.scheme == "azure+http" and len(names) == 2 and all(names):
        return _ContainerAddress(f"http://{parts.netloc}/{names[0]}", *names)
    wanted = _EXPECTED_EMULATOR_URL if parts.scheme == "azure+http" else _EXPECTED_URL
    raise ConfigError("blob_url", "settings", f"{url!r} names no container; {wanted}")


def _check_key(url: str, key: str | None) -> None:
    if key is None:
        if not url.startswith("azure://"):
            raise ConfigError("blob_key", "default", "an emulator needs its key: Entra ID is used over TLS only")
        return
    try:
        base64.b64decode(key, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ConfigError("blob_key", "settings", "it is not an account key, which is base64 text") from error


def _import_azure() -> None:
    try:
        import azure.identity.aio  # noqa: PLC0415
        import azure.storage.blob.aio  # noqa: F401, PLC0415
        from azure.core.pipeline.transport import AioHttpTransport  # noqa: F401, PLC0415  # it needs aiohttp
    except ImportError as error:
        raise UnsupportedError("Azure Blob Storage", "pip install 'sharedmem-hub[azure-blobs]'") from error


@contextmanager
def _ignore_missing() -> Iterator[None]:
    """Ignore a missing object or container."""
    from azure.core.exceptions import ResourceNotFoundError  # noqa: PLC0415  # optional

    with suppress(ResourceNotFoundError):
        yield
