"""Google Cloud Storage for `CloudBlobStore`: `gcsfs` by the extra `gcs`. The generation of an object is its mark."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from types import ModuleType
from typing import Any

from sharedmem.errors import UnsupportedError

_TIMEOUT_S = 60
_UNAUTHORIZED = 401
_LIBRARIES = frozenset({"aiohttp", "gcsfs", "google", "requests"})
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
        return is_forbidden or _code(error) == _UNAUTHORIZED or type(error).__module__.startswith("google.auth")

    def is_failure(self, error: Exception) -> bool:
        """Return whether an error comes from the network or the service."""
        is_bad_request = type(error) is ValueError and str(error).startswith("Bad Request")
        is_of_library = type(error).__module__.partition(".")[0] in _LIBRARIES
        return isinstance(error, OSError) or is_of_library or is_bad_request


def _code(error: Exception) -> int:
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
