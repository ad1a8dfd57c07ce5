"""A folder as a store of blobs: on this machine's disk, or on one that several machines share.

Objects are files, written under a temporary name and moved into place. Atomic steps (replace a file; delete a file if
it is unchanged) run under the lock of the folder, which is held only briefly.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from sharedmem.clock import new_id
from sharedmem.errors import UnavailableError, UnsupportedError

_T = TypeVar("_T")
_LOCK = "lock"
_PATIENCE_S = 10.0
_PAUSE_S = 0.002


class FolderBlobStore:
    """A `BlobStore` in a folder.

    Args:
        root: the folder; created with the first object.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def place(self) -> str:
        """The folder's path."""
        return f"blob folder {self._root}"

    async def put(self, name: str, body: bytes) -> None:
        """See `BlobStore`. The file is on the disk when this returns."""
        await self._done(lambda: self._put(name, body))

    async def get(self, name: str) -> bytes | None:
        """See `BlobStore`."""
        return await self._done(lambda: _unless_missing((self._root / name).read_bytes))

    async def mark(self, name: str) -> str | None:
        """See `BlobStore`."""
        return await self._done(lambda: _mark(self._root / name))

    async def delete(self, name: str, *, mark: str | None = None) -> None:
        """See `BlobStore`."""
        await self._done(lambda: self._delete(self._root / name, mark))

    async def list(self, prefix: str) -> AsyncIterator[tuple[str, float]]:
        """See `BlobStore`."""
        for found in await self._done(lambda: list(self._files(prefix))):
            yield found

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""

    async def _done(self, work: Callable[[], _T]) -> _T:
        try:
            return await asyncio.to_thread(work)
        except OSError as error:
            why = f"{error.strerror or error}; free space, correct its permissions, or set blob_dir"
            raise UnavailableError(self.place, why) from error

    def _put(self, name: str, body: bytes) -> None:
        path = self._root / name
        folder = self._root / name.partition("/")[0]
        _make_folder(folder)
        unfinished = folder / f".{new_id()}"
        try:
            _write_file(unfinished, body)
            with self._locked():
                _make_folder(path.parent)
                unfinished.replace(path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)

    def _delete(self, path: Path, mark: str | None) -> None:
        if not path.exists():
            return
        with self._locked():
            if mark is None or _mark(path) == mark:
                path.unlink(missing_ok=True)
                with suppress(OSError):  # it is not empty
                    path.parent.rmdir()

    def _files(self, prefix: str) -> Iterator[tuple[str, float]]:
        now = time.time()
        for folder, _, names in os.walk(self._root / prefix, onerror=_raise_unless_missing):
            for name in names:
                path = Path(folder, name)
                if (status := _unless_missing(path.stat)) is not None:
                    yield path.relative_to(self._root).as_posix(), now - status.st_mtime

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Run the block with the lock of the folder, exclusive among all threads and processes."""
        try:
            import fcntl  # noqa: PLC0415  # not on Windows
        except ImportError as error:
            raise UnsupportedError("a folder of blobs", "Windows lacks its locks; set blob_url") from error
        with (self._root / _LOCK).open("ab") as file:
            deadline = time.monotonic() + _PATIENCE_S
            while not _try_lock(lambda: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)):
                if time.monotonic() > deadline:
                    raise OSError(errno.EAGAIN, f"another process has held its lock for {_PATIENCE_S:g} s")
                time.sleep(_PAUSE_S)
            yield  # closing the file releases the lock


def _try_lock(lock: Callable[[], None]) -> bool:
    try:
        lock()
    except BlockingIOError:
        return False
    return True


def _unless_missing(work: Callable[[], _T]) -> _T | None:
    try:
        return work()
    except FileNotFoundError:
        return None


def _raise_unless_missing(error: OSError) -> None:
    # A folder that cannot be listed must not be treated as empty.
    if not isinstance(error, FileNotFoundError):
        raise error


def _mark(path: Path) -> str | None:
    status = _unless_missing(path.stat)
    return status and f"{status.st_ino}.{status.st_mtime_ns}"


def _make_folder(folder: Path) -> None:
    """Create a folder that survives a power failure."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    _sync_folder(folder.parent)


def _write_file(path: Path, body: bytes) -> None:
    with path.open("wb") as file:
        file.write(body)
        file.flush()
        # The clock of the file system is too coarse to distinguish two writes.
        os.utime(file.fileno(), ns=(time.time_ns(),) * 2)
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = _unless_missing(lambda: os.open(folder, os.O_RDONLY))
    if descriptor is None:  # emptied and deleted by others in between
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
