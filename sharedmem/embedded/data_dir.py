"""The files of a data directory, including the locks that coordinate the processes of its server, and its log.

No lock becomes stale, because the kernel releases a lock when its last holder dies. `start.lock` belongs to the process
that starts or stops the server. `users.lock` is shared by all processes that joined. The server itself inherits
`server.lock`, and holds it as long as it lives. The log explains why a server did not start: it becomes an error with a
remedy.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import platform
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Self
from urllib.parse import quote

from sharedmem.errors import ConfigError, SharedMemoryError, UnavailableError, UnsupportedError

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


# -- why a server did not start -------------------------------------------------------------------


SERVER = "the embedded server"
DATA_DIR = ("data_dir", "SHAREDMEM_DATA_DIR or its default")
PORT = ("embedded_port", "argument")

_EBADARCH = 86  # macOS: "Bad CPU type in executable"; Python's errno module has no name for it
_WRONG_PROCESSOR = frozenset({errno.ENOEXEC, _EBADARCH})
_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_NO_DIRECTORY = frozenset({errno.ENOTDIR, errno.EEXIST})
_LINE_LIMIT = 300
_DEBIAN_PACKAGES = {
    "libgomp.so.1": "libgomp1",
    "libssl.so.3": "libssl3",
    "libcrypto.so.3": "libssl3",
    "libstdc++.so.6": "libstdc++6",
    "libgcc_s.so.1": "libgcc-s1",
}
_MODULE_TYPES = {"graphdata": "graph", "scdtype00": "search", "ft_index0": "search", "ReJSON-RL": "json"}
_MODULE_COMMANDS = {"GRAPH": "graph", "FT": "search", "JSON": "json"}


class LaunchAttempt(NamedTuple):
    """A launch of the server, for error messages."""

    binary: Path
    data_dir: Path
    log: Path
    port: int


def diagnose(tail: str, exit_code: int | None, attempt: LaunchAttempt) -> SharedMemoryError:
    """Return the error for a server that ended during its start; a pure function.

    `tail` is the log of this start, `exit_code` the code of the program, or None if the server already ran in the
    background (its code is then lost, but the log has the details).
    """
    for pattern, explain in _RULES:
        found = pattern.search(tail)
        if found is not None:
            return explain(found, attempt)
    code = "" if exit_code is None else f" with exit code {exit_code}"
    line = _last_line(tail)
    return UnavailableError(
        SERVER,
        f"{attempt.binary} ended{code} while it started; "
        + (f"its log {attempt.log} ends with: {line}" if line else f"it wrote nothing to its log {attempt.log}"),
    )


def from_os_error(error: OSError, attempt: LaunchAttempt) -> SharedMemoryError:
    """Return the error for a refusal of the operating system during preparation or start; a pure function."""
    about = error.filename if error.filename is not None else attempt.data_dir
    if error.errno in _WRONG_PROCESSOR:
        return _wrong_processor(attempt)
    if error.errno in _DISK_FULL:
        return _disk_full(attempt)
    if error.errno in _FORBIDDEN:
        return ConfigError(
            *DATA_DIR,
            f"no permission for {about} ({error.strerror}); change its owner, or set SHAREDMEM_DATA_DIR to a"
            " directory that you may write",
        )
    if error.errno in _NO_DIRECTORY:
        return ConfigError(*DATA_DIR, f"{about} is a file, not a directory; move it or set SHAREDMEM_DATA_DIR")
    return UnavailableError(SERVER, f"{error.strerror or error} ({about})")


def _last_line(tail: str) -> str:
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    return lines[-1][-_LINE_LIMIT:] if lines else ""


def _wrong_processor(attempt: LaunchAttempt) -> SharedMemoryError:
    return UnsupportedError(
        f"the server program {attempt.binary}",
        f"it is built for another processor than this machine's ({platform.machine()}); install a matching one"
        " (pip install --force-reinstall 'sharedmem-hub[embedded]') or set SHAREDMEM_REDIS_URL",
    )


def _disk_full(attempt: LaunchAttempt) -> SharedMemoryError:
    return UnavailableError(
        SERVER,
        f"the disk of {attempt.data_dir} is full; free some space there, or set SHAREDMEM_DATA_DIR to a directory"
        " on another disk",
        retry_after=60.0,
    )


def _missing_library(found: re.Match[str], attempt: LaunchAttempt) -> SharedMemoryError:
    module, library = found["module"], found["library"]
    package = _DEBIAN_PACKAGES.get(library)
    get = f"install it (Debian, Ubuntu: apt-get install {package})" if package else "install the package that has it"
    return UnsupportedError(
        _failed_component(module, attempt), f"the system library {library} is missing; {get}{_alternative(module)}"
    )


def _old_libc(found: re.Match[str], attempt: LaunchAttempt) -> SharedMemoryError:
    module, library = found["module"], found["library"]
    newer = f"it needs {library}, which is newer than this system's; use a newer system or container"
    return UnsupportedError(_failed_component(module, attempt), f"{newer}{_alternative(module)}")


def _module_not_loaded(found: re.Match[str], attempt: LaunchAttempt) -> SharedMemoryError:
    module = found["module"]
    return UnsupportedError(_failed_component(module, attempt), f"{found['why']}{_alternative(module)}")


def _failed_component(module: str | None, attempt: LaunchAttempt) -> str:
    return f"the server module {Path(module).name}" if module else f"the server program {attempt.binary}"


def _alternative(module: str | None) -> str:
    return ", or request fewer modules" if module else ", or set SHAREDMEM_REDIS_URL to a server of your own"


def _port_not_open(found: re.Match[str], attempt: LaunchAttempt) -> SharedMemoryError:
    why = found["why"] or "see the log"
    return ConfigError(
        *PORT, f"port {attempt.port} of 127.0.0.1 cannot be opened ({why}); choose a free one, or 0 for no port"
    )


def _socket_not_made(found: re.Match[str], attempt: LaunchAttempt) -> SharedMemoryError:
    return ConfigError(
        *DATA_DIR,
        f"no unix socket can be created in {attempt.data_dir} ({found['why']}); set SHAREDMEM_DATA_DIR to a"
        " directory on a local disk",
    )


def _disk_full_in_log(_: re.Match[str], attempt: LaunchAttempt) -> SharedMemoryError:
    return _disk_full(attempt)


def _unknown_data_format(found: re.Match[str], attempt: LaunchAttempt) -> SharedMemoryError:
    return UnsupportedError(
        f"reading the data in {attempt.data_dir}",
        f"a newer server than {attempt.binary} wrote it, or another product, Redis or Valkey ({found[0].strip()});"
        " install the one that wrote it (pip install 'sharedmem-hub[embedded]' for Redis 8), or set"
        " SHAREDMEM_DATA_DIR to another directory",
    )


def _module_missing(found: re.Match[str], attempt: LaunchAttempt) -> SharedMemoryError:
    word = found["word"]
    module = _MODULE_TYPES.get(word) or _MODULE_COMMANDS.get(word.partition(".")[0].upper())
    needed = f"the module {module!r}" if module else f"a module that supports {word!r}"
    return UnsupportedError(
        f"reading the data in {attempt.data_dir}",
        f"it was written with {needed}, which {attempt.binary} did not load; request that module with"
        " pip install 'sharedmem-hub[embedded]' in place, or set SHAREDMEM_DATA_DIR to another directory",
    )


def _damaged_data(found: re.Match[str], attempt: LaunchAttempt) -> SharedMemoryError:
    files = attempt.data_dir / "redis" / "appendonlydir"
    line = found[0].strip()
    return ConfigError(
        *DATA_DIR,
        f"the append-only file in {files} is damaged ({line}; see {attempt.log}); copy that directory away, then"
        f" repair it with: redis-check-aof --fix {files / 'appendonly.aof.manifest'}",
    )


def _no_memory(_: re.Match[str], attempt: LaunchAttempt) -> SharedMemoryError:
    return UnavailableError(
        SERVER, f"this machine has too little free memory for the data in {attempt.data_dir}; free some", retry_after=60
    )


def _no_permission(found: re.Match[str], attempt: LaunchAttempt) -> SharedMemoryError:
    return ConfigError(
        *DATA_DIR,
        f"the server has no permission for its files in {attempt.data_dir} ({found[0].strip()}; see {attempt.log});"
        " change their owner, or set SHAREDMEM_DATA_DIR",
    )


_LOADING = r"(?:Module (?P<module>.+?) failed to load: |error while loading shared libraries: |: )"
_ErrorBuilder = Callable[[re.Match[str], LaunchAttempt], SharedMemoryError]

# The first matching rule wins: causes are listed before their consequences, which the log shows later.
_RULES: tuple[tuple[re.Pattern[str], _ErrorBuilder], ...] = tuple(
    (re.compile(pattern), explain)
    for pattern, explain in (
        (_LOADING + r"(?P<library>[^\s:]+\.so[^\s:]*): cannot open shared object file", _missing_library),
        (_LOADING + r".*version `(?P<library>[^']+)' not found", _old_libc),
        (r"Module (?P<module>.+?) failed to load: (?P<why>.+)", _module_not_loaded),
        (r"(?:bind: (?P<why>.+)\n.*)?Failed listening on port \d+", _port_not_open),
        (r"Failed opening Unix socket: (?P<why>.+)", _socket_not_made),
        (r"No space left on device|Disk quota exceeded", _disk_full_in_log),
        (r"Can't handle RDB format version \d+", _unknown_data_format),
        # A crash cannot truncate a base file: repairing it would empty it.
        (r"Bad file format reading the append only file [^\s:]+\.base\.rdb", _unknown_data_format),
        (r"no matching module(?: type)? '(?P<word>[^']+)'", _module_missing),
        (r"Unknown command '(?P<word>[^']+)' reading the append only file", _module_missing),
        (r"Bad file format reading the append only file [^\s:]+", _damaged_data),
        (
            r"Unexpected end of file reading the append only file|Invalid AOF manifest.*|AOF loading aborted",
            _damaged_data,
        ),
        (r"Unable to obtain the AOF file \S+|Internal error in RDB reading.*|Wrong signature.*", _damaged_data),
        (r"Out Of Memory|Cannot allocate memory", _no_memory),
        (r".*Permission denied", _no_permission),
    )
)
