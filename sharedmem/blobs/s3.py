"""S3, and services with its interface, for `CloudBlobStore`: `s3fs` by the extra `s3`.

Each object begins with 16 random bytes: its ETag, which serves as its mark, then differs also for equal contents.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from datetime import datetime
from types import ModuleType
from typing import Any

from sharedmem.clock import new_id
from sharedmem.errors import UnsupportedError

_SALT_BYTES = 16
_CONNECT_TIMEOUT_S, _READ_TIMEOUT_S = 5, 60
_CHANGED = frozenset({"PreconditionFailed", "412", "ConditionalRequestConflict"})
_REFUSED = frozenset({"NoCredentialsError", "PartialCredentialsError", "TokenRetrievalError", "SSOTokenLoadError"})
_LIBRARIES = frozenset({"aiobotocore", "aiohttp", "botocore"})
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
            if _code(error) not in _CHANGED:
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
        return isinstance(error, OSError) or type(error).__module__.partition(".")[0] in _LIBRARIES


def _code(error: OSError) -> str:
    """Return the code of S3 in an error that s3fs has translated."""
    return str(getattr(error.__cause__, "response", {}).get("Error", {}).get("Code", ""))


def _import_s3fs() -> ModuleType:
    try:
        import s3fs  # noqa: PLC0415  # optional
    except ImportError as error:
        raise UnsupportedError("S3 as a store of blobs", "pip install 'sharedmem-hub[s3]'") from error
    module: ModuleType = s3fs
    return module
