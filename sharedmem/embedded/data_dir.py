"""The files of a data directory, including the locks that coordinate the processes of its server.

No lock becomes stale, because the kernel releases a lock when its last holder dies. `start.lock` belongs to the process
that starts or stops the server. `users.lock` is shared by all processes that joined. The server itself inherits
`server.lock`, and holds it as long as it lives.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Self
from urllib.parse import quote

from sharedmem.embedded.diagnosis import DATA_DIR, SERVER, LaunchAttempt, from_os_error
from sharedmem.errors import ConfigError, UnsupportedError

_SOCKET_PATH_BYTES = 103 if sys.platform == "darwin" else 107


class DataDir(NamedTuple):
    """The files of one embedded server."""

    path: Path

    @classmethod
    def at(cls, path: Path) -> Self:
        """Return the files at `path`; without any access. Raises UnsupportedError on systems without a server."""
        if importlib.util.find_spec("fcntl") is None:
            raise UnsupportedError(
                SERVER,
                "it needs the file locks and sockets of Linux or macOS; on Windows use WSL, or run"
                " docker run -p 6379:6379 redis:8 and set SHAREDMEM_REDIS_URL=redis://localhost:6379",
            )
        # Links are not resolved: a short link solves the problem of a path that is too long for a socket.
        return cls(path.expanduser().absolute())

    @property
    def socket(self) -> Path:
        """The socket of the server."""
        return self.path / "redis.sock"

    @property
    def url(self) -> str:
        """The URL of the socket."""
        return f"unix://{quote(str(self.socket))}?db=0"

    @property
    def start_lock(self) -> Path:
        """The lock of the process that starts or stops the server."""
        return self.path / "start.lock"

    @property
    def users_lock(self) -> Path:
        """The lock that all joined processes share."""
        return self.path / "users.lock"

    @property
    def server_lock(self) -> Path:
        """The lock of the server."""
        return self.path / "server.lock"

    @property
    def held(self) -> Path:
        """A file that exists while the server must run without users."""
        return self.path / "held"

    @property
    def modules(self) -> Path:
        """The modules of the last start: a server without them rejects the data, even if it is empty."""
        return self.path / "modules"

    @property
    def data(self) -> Path:
        """The server's working directory, with the append-only file."""
        return self.path / "redis"

    @property
    def log(self) -> Path:
        """The log of the server."""
        return self.path / "redis.log"

    @property
    def pidfile(self) -> Path:
        """A file that the server writes for people; sharedmem never relies on it."""
        return self.path / "redis.pid"

    def attempt(self, binary: Path | None = None, port: int = 0) -> LaunchAttempt:
        """Return the description of a launch, for errors."""
        return LaunchAttempt(binary=binary or self.path, data_dir=self.path, log=self.log, port=port)

    def check_socket(self) -> None:
        """Raise ConfigError if the path is too long for a socket."""
        length = len(os.fsencode(self.socket))
        if length > _SOCKET_PATH_BYTES:
            raise ConfigError(
                *DATA_DIR,
                f"the socket {self.socket} has a path of {length} bytes, but sockets allow {_SOCKET_PATH_BYTES};"
                " set SHAREDMEM_DATA_DIR to a shorter path",
            )

    def prepare(self) -> None:
        """Create the directories, with access for their owner only. Raises ConfigError or UnavailableError."""
        with self.translate_os_errors():
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.data.mkdir(mode=0o700, exist_ok=True)
            for lock in (self.start_lock, self.users_lock, self.server_lock):
                FileLock(lock).close()

    def is_alive(self) -> bool:
        """Return whether a server process lives, even one that does not reply; checks the lock, not a process id."""
        if not self.server_lock.exists():
            return False
        probe = FileLock(self.server_lock)
        try:
            return not probe.take(shared=True)
        finally:
            probe.close()

    @contextmanager
    def translate_os_errors(self) -> Iterator[None]:
        """Translate errors of the operating system into errors with a remedy."""
        try:
            yield
        except OSError as error:
            raise from_os_error(error, self.attempt()) from error


class FileLock:
    """A lock on a file, which the kernel releases when the last process with this open file ends."""

    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def is_open(self) -> bool:
        """Return whether the file is still open here."""
        return self.descriptor >= 0

    def take(self, *, shared: bool = False) -> bool:
        """Take the lock, or change its mode, without waiting; return whether that worked."""
        import fcntl  # noqa: PLC0415 - not on Windows; DataDir.at() has rejected it before

        try:
            fcntl.flock(self.descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        """Release the lock, unless another process inherited it; may be called again."""
        if self.is_open():
            os.close(self.descriptor)
            self.descriptor = -1
