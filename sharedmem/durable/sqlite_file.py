"""One SQLite file: creation, checks and opening, a thread per connection, and its errors."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, unquote

from pydantic import ValidationError

from sharedmem.clock import new_id
from sharedmem.durable.sqlite_rows import APPLICATION_ID, LAYOUT, MAKE
from sharedmem.errors import ConfigError, InvalidError, NotFoundError, SharedMemoryError, UnavailableError

T = TypeVar("T")

_SCHEME = "sqlite://"
# Closing a file releases all locks of this process on it, also the ones of SQLite's own connections. So no thread
# connects to a file while another thread creates it.
_create_lock = threading.Lock()
_PAUSE_S = 0.02
_CACHE_KIB = 16_000
# 16 MB: with SQLite's 4 MB, random writes moved the same pages again and again, and were slower.
_WAL_PAGES = 4_000
_WAL_BYTES = 64 * 1024 * 1024

# Primary result code -> (message, seconds after which to try again).
_FAULTS = {
    sqlite3.SQLITE_BUSY: ("another process has held its lock for too long; let it finish, or end it", 1.0),
    sqlite3.SQLITE_FULL: ("its disk is full; free some space", 10.0),
    sqlite3.SQLITE_READONLY: (
        "this process may not write it; allow that (chown, chmod), folder included",
        10.0,
    ),
    sqlite3.SQLITE_CANTOPEN: ("it cannot be opened; check its folder, and the rights of this process there", 10.0),
    sqlite3.SQLITE_CORRUPT: ("it is damaged; stop all hubs, and put a backup in its place", 60.0),
    sqlite3.SQLITE_NOTADB: ("it is damaged; stop all hubs, and put a backup in its place", 60.0),
    sqlite3.SQLITE_IOERR: ("its disk fails; check its health, its quota and the limits of this process", 10.0),
}


def path_of(url: str) -> Path:
    """Return the file of a `sqlite:///path/file.db`; percent signs are read as in any URL.

    Raises:
        ConfigError: the URL names no absolute path.
    """
    # Other tools write an absolute path with four slashes.
    path = Path("/" + unquote(url.removeprefix(_SCHEME)).lstrip("/"))
    if not url.startswith(f"{_SCHEME}/"):
        problem = "write it with three slashes and an absolute path: sqlite:///path/file.db"
        raise ConfigError("durable_url", url, problem)
    return path


def url_of(path: Path) -> str:
    """Return the URL of a file; the inverse of `path_of`."""
    return f"{_SCHEME}{quote(str(path))}"


def explain_fault(name: str, error: Exception) -> UnavailableError:
    """Return the error for a fault of SQLite or of the file system, with a remedy."""
    if isinstance(error, OSError):
        return UnavailableError(name, f"{error.strerror}; check its folder and its disk", retry_after=10)
    if isinstance(error, ValidationError):
        return UnavailableError(name, "it has a row that is not a document; another program changed it", retry_after=60)
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    why, retry_after = _FAULTS.get(code & 0xFF, ("check it with `sharedmem durable status`", 10.0))
    return UnavailableError(name, f"{why} (SQLite says: {error})", retry_after=retry_after)


class SqliteFile:
    """The file and its state; independent of any event loop.

    Args:
        path: path of the file.
        patience_s: seconds to wait for the lock of another process.
    """

    def __init__(self, path: Path, patience_s: float) -> None:
        self.path = path.expanduser().absolute()
        self._patience_s = patience_s
        self._inode: tuple[int, int] | None = None

    @property
    def name(self) -> str:
        """Its name in errors."""
        return f"durable file {self.path}"

    def open(self, identity: str, made: str, *, create: bool) -> str:
        """Create the file if it is missing, and check that it belongs to sharedmem.

        Args:
            identity: its id, if it is created.
            made: time of creation, if it is created.
            create: whether to create it.

        Returns:
            The id that it got when it was created.

        Raises:
            NotFoundError: the file is missing or empty, and `create` is false.
            ConfigError: it belongs to another program, or to a newer version of sharedmem.
            UnavailableError: it cannot be opened or written.
        """
        with self.faults():
            with _create_lock:
                self._make_empty(create=create)
            self._inode = _inode(self.path)
            with self._only_sqlite(), closing(self.connect()) as connection:
                return self._recognised(connection, identity, made, create=create)

    def connect(self) -> sqlite3.Connection:
        """Return a connection, for one thread at a time; transactions are begun explicitly."""
        connection = sqlite3.connect(
            f"file:{quote(str(self.path))}?mode=rw",
            uri=True,
            timeout=self._patience_s,
            isolation_level=None,
            check_same_thread=False,
        )
        # FULL: a commit has reached the disk before it is acknowledged, and survives a power failure.
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
        return connection

    def other(self, path: Path) -> Path:
        """Return an absolute path. Raises InvalidError if it is this file."""
        whole = path.expanduser().absolute()
        if whole.resolve() == self.path.resolve():
            raise InvalidError("path", str(path), "it is the file itself; name another one")
        return whole

    def check_in_place(self) -> None:
        """Raise if the path names another file by now: writes to the old one would be lost."""
        if _inode(self.path) != self._inode:
            raise UnavailableError(
                self.name, "it was moved, deleted or replaced; put it back, or restart its processes", retry_after=10
            )

    @contextmanager
    def faults(self) -> Iterator[None]:
        """Translate errors inside the block into errors of sharedmem."""
        try:
            yield
        except (sqlite3.Error, ValidationError, OSError) as error:
            if isinstance(error, SharedMemoryError):
                raise
            raise explain_fault(self.name, error) from error

    def _make_empty(self, *, create: bool) -> None:
        if self.path.is_dir():
            raise ConfigError("durable_url", url_of(self.path), "it is a folder; name a file in it")
        if not self.path.exists():
            self._create(create=create)
        elif not (_may_write(self.path) and _may_write(self.path.parent)):
            # SQLite would open it for reading, and raise only at the first write.
            raise UnavailableError(self.name, _FAULTS[sqlite3.SQLITE_READONLY][0], retry_after=10)

    def _create(self, *, create: bool) -> None:
        if not create:
            raise NotFoundError("durable file", str(self.path), "check durable_url")
        if not self.path.parent.is_dir():
            raise UnavailableError(self.name, f"there is no folder {self.path.parent}; create it, or check durable_url")
        # SQLite gives its log the rights of the file. The file may exist by now: another process may create it too.
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        _sync_folder(self.path.parent)

    def _recognised(self, connection: sqlite3.Connection, identity: str, made: str, *, create: bool) -> str:
        with transaction(connection, "DEFERRED"):
            # Inside the transaction, since another process may be creating it now.
            is_ours = self._is_ours(connection)
        if not is_ours:
            if not create:
                raise NotFoundError("database in durable file", str(self.path), "it is empty; check durable_url")
            self._make(connection, identity, made)
        self._use_wal(connection)
        ((found,),) = connection.execute("SELECT value FROM meta WHERE name = 'id'")
        return str(found)

    def _is_ours(self, connection: sqlite3.Connection) -> bool:
        """Return whether the tables of sharedmem are there; False if the file is empty.

        Raises:
            ConfigError: other tables are there.
        """
        application, layout, tables = _signature(connection)
        if (application, layout, tables) == (0, 0, 0):
            return False
        if application != APPLICATION_ID:
            raise self._foreign("it has tables of another program")
        if layout != LAYOUT:
            newer = f"its layout {layout} is newer than {LAYOUT}, which this sharedmem supports; upgrade sharedmem"
            raise ConfigError("durable_url", url_of(self.path), newer)
        return True

    @contextmanager
    def _only_sqlite(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_NOTADB:
                raise
            raise self._foreign("it is not a SQLite file, or its beginning is damaged") from error

    def _foreign(self, problem: str) -> ConfigError:
        return ConfigError("durable_url", url_of(self.path), f"{problem}; name another file")

    def _make(self, connection: sqlite3.Connection, identity: str, made: str) -> None:
        with transaction(connection):
            # Another process may have been faster.
            if _signature(connection)[0] != APPLICATION_ID:
                for statement in MAKE:
                    connection.execute(statement)
                connection.executemany("INSERT INTO meta VALUES (?, ?)", [("id", identity), ("made", made)])

    def _use_wal(self, connection: sqlite3.Connection) -> None:
        """Let readers and the writer not block each other; the mode is stored in the file."""
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                ((mode,),) = connection.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError:
                # SQLite does not wait for other connections that change the mode.
                if time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE_S)
        if mode != "wal":
            problem = "its file system has no shared memory, which several processes need; put it on a local disk"
            raise ConfigError("durable_url", url_of(self.path), problem)


class SqliteThread:
    """A thread with its own connection, which runs one job after the other.

    Args:
        file: the file; the thread connects to it for its first job.
        name: name of the thread.
    """

    def __init__(self, file: SqliteFile, name: str) -> None:
        self._file = file
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._connection: sqlite3.Connection | None = None
        self.waiting = 0
        """Number of unfinished jobs."""

    async def run(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """Run a job, and return its result.

        Raises:
            UnavailableError: the file cannot be used now.
        """
        self.waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._do, job)
        finally:
            self.waiting -= 1

    async def close(self) -> None:
        """Finish the queued jobs, and close the file."""
        await asyncio.to_thread(self._close)

    def _do(self, job: Callable[[sqlite3.Connection], T]) -> T:
        with self._file.faults():
            self._file.check_in_place()
            try:
                self._connection = self._connection or self._file.connect()
                result = job(self._connection)
            except sqlite3.Error:
                # Closing rolls back; a connection after a fault is not used again.
                self._let_go()
                raise
            # Writes to a file that was moved or deleted by now must not count as done.
            self._file.check_in_place()
            return result

    def _close(self) -> None:
        self._thread.shutdown()
        self._let_go()

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()


@contextmanager
def transaction(connection: sqlite3.Connection, mode: str = "IMMEDIATE") -> Iterator[None]:
    """Run the block as a transaction: all of it is written, or nothing.

    Args:
        connection: a connection that nothing else uses during the block.
        mode: `DEFERRED` for a block that only reads.
    """
    connection.execute(f"BEGIN {mode}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def back_up(source: sqlite3.Connection, path: Path, progress: Callable[[int, int], object]) -> None:
    """Copy the committed data into a new file, which is created completely or not at all.

    Args:
        source: connection to copy from; writers continue during the copy.
        path: the new file; it replaces an existing one.
        progress: called with the number of copied pages and of all pages.

    Raises:
        UnavailableError: the file cannot be written, or the source cannot be read.
    """
    unfinished = path.with_name(f".{path.name}.{new_id(6)}")
    try:
        _copy(source, unfinished, progress)
        unfinished.replace(path)
        _sync_folder(path.parent)
    except (sqlite3.Error, OSError) as error:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise explain_fault(f"backup {path}", error) from error


def _copy(source: sqlite3.Connection, path: Path, progress: Callable[[int, int], object]) -> None:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    # In a transaction, so that a writer does not restart the copy.
    with closing(sqlite3.connect(path, isolation_level=None)) as target, transaction(source, "DEFERRED"):
        source.execute("SELECT count(*) FROM meta").fetchone()
        source.backup(target, pages=1000, sleep=0, progress=lambda _, left, pages: progress(pages - left, pages))


def _signature(connection: sqlite3.Connection) -> tuple[int, int, int]:
    """Return (application id, layout, number of tables and indexes) of a file."""
    ((application,),) = connection.execute("PRAGMA application_id")
    ((layout,),) = connection.execute("PRAGMA user_version")
    ((tables,),) = connection.execute("SELECT count(*) FROM sqlite_master")
    return application, layout, tables


def _may_write(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _sync_folder(folder: Path) -> None:
    """Sync a folder, so that its names survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
