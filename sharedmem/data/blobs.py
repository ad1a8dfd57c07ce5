"""Large values on the file system: Redis holds a reference, a folder holds the bytes.

Each blob lies in a folder of its key, beside a file that names the key, so that a sweep can ask
Redis whether the blob is still in use. A blob is written before the key refers to it and removed after
the key no longer does: a crash leaves an orphan for the sweep, never a reference to nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict

from sharedmem.clock import new_id
from sharedmem.errors import NotFoundError, UnavailableError

_KEY_FILE = "key"


class BlobReference(BaseModel):
    """What the key of a large value holds."""

    model_config = ConfigDict(frozen=True)

    type: str = "blob"
    path: str
    """Relative to the blob folder."""
    size: int
    sha256: str
    content_type: str
    codec: str


class FileBlobs:
    """Blobs in a folder that all processes using them can reach.

    Args:
        root: the folder; made when the first blob is written.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    async def put(self, key: str, codec: bytes, body: bytes) -> BlobReference:
        """Store bytes for a key and return the reference to them.

        Raises:
            UnavailableError: the folder cannot be written: no space, or no permission.
        """
        try:
            return await asyncio.to_thread(self._put, key, codec, body)
        except OSError as error:
            raise UnavailableError(
                f"blob folder {self.root}", f"{error.strerror}; free space or set blob_dir"
            ) from error

    async def get(self, key: str, reference: BlobReference) -> bytes:
        """The bytes behind a reference.

        Raises:
            NotFoundError: they are gone, or not what was stored.
        """
        file = self._file(key, reference.path)
        if file is None:
            raise NotFoundError("blob of key", key, "its reference names no file of this key; write the value again")
        try:
            body = await asyncio.to_thread(file.read_bytes)
        except OSError as error:
            advice = f"this process cannot read it under {self.root}; all processes need the same blob_dir"
            raise NotFoundError("blob of key", key, advice) from error
        if hashlib.sha256(body).hexdigest() != reference.sha256:
            raise NotFoundError("intact blob of key", key, "its file was changed or cut; write the value again")
        return body

    async def remove(self, key: str, path: str) -> None:
        """Remove a blob that its key refers to no more; one already gone is fine."""
        if file := self._file(key, path):
            await asyncio.to_thread(self._remove, file)

    async def orphan_candidates(self, namespace: str | None, older_than_s: float) -> list[tuple[str, str]]:
        """(logical key, path) of every blob older than that; whether its key still refers to it is the caller's to ask.

        Args:
            namespace: only of this one; None for all.
            older_than_s: younger blobs may be about to be referred to.
        """
        return await asyncio.to_thread(lambda: list(self._older(namespace, time.time() - older_than_s)))

    def _put(self, key: str, codec: bytes, body: bytes) -> BlobReference:
        folder = self._folder(key)
        folder.mkdir(parents=True, exist_ok=True)
        named = folder / _KEY_FILE
        if not named.exists():
            _write_safely(named, key.encode())
        path = folder / new_id(24)
        _write_safely(path, body)
        return BlobReference(
            path=path.relative_to(self.root).as_posix(),
            size=len(body),
            sha256=hashlib.sha256(body).hexdigest(),
            content_type="application/json" if codec == b"json" else "application/x-msgpack",
            codec=codec.decode(),
        )

    def _folder(self, key: str) -> Path:
        return self.root / _folder_name(key.partition(":")[0]) / hashlib.sha256(key.encode()).hexdigest()[:32]

    def _file(self, key: str, path: str) -> Path | None:
        # A raw client can write any path into a reference; only files of the key itself are ever touched.
        file = self.root / path
        return file if file.parent == self._folder(key) and file.name not in {"..", _KEY_FILE} else None

    def _remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        folder = path.parent
        if {file.name for file in folder.glob("*")} <= {_KEY_FILE}:
            (folder / _KEY_FILE).unlink(missing_ok=True)
            with suppress(OSError):  # a writer of the same key may just have put a new blob here
                folder.rmdir()

    def _older(self, namespace: str | None, limit: float) -> Iterator[tuple[str, str]]:
        pattern = f"{_folder_name(namespace) if namespace else '*'}/*/{_KEY_FILE}"
        for named in self.root.glob(pattern):
            key = named.read_text()
            for blob in named.parent.iterdir():
                if blob.name != _KEY_FILE and blob.stat().st_mtime <= limit:
                    yield key, blob.relative_to(self.root).as_posix()


def _folder_name(namespace: str) -> str:
    # A namespace may be called "..", or what a file system reads otherwise.
    return "ns-" + quote(namespace, safe="")


def _write_safely(path: Path, body: bytes) -> None:
    """Write so that the file is whole or absent, whenever the machine stops."""
    unfinished = path.with_name(f".{path.name}.{new_id(6)}")
    try:
        with unfinished.open("wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
