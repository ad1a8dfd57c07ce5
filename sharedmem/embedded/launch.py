"""Starts a server on a data directory: its command line, its modules, and the error when it exits early."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from sharedmem.embedded.binaries import find_server
from sharedmem.embedded.data_dir import DataDir, FileLock
from sharedmem.embedded.diagnosis import SERVER, diagnose, from_os_error
from sharedmem.errors import SharedMemoryError, UnavailableError

_SPAWN_TIMEOUT_S = 10.0
_LOG_TAIL_BYTES = 8_192
# The graph module would keep the last queries of each graph, texts and vectors in them, in a stream beside it.
_MODULE_OPTIONS = {"falkordb": ("CMD_INFO", "no")}


class LaunchOptions(NamedTuple):
    """What is asked of the server."""

    modules: frozenset[str]
    fsync: str
    """`always`, `everysec` or `no`."""
    port: int
    """0 for none."""


class Launch:
    """A server that was started and has yet to answer."""

    def __init__(self, home: DataDir, order: LaunchOptions) -> None:
        self._home = home
        self._order = order
        self._server = find_server()
        wanted = order.modules | _data_modules(home)
        self._modules = {name: path for name, path in self._server.modules.items() if name in wanted}
        self._attempt = home.attempt(self._server.path, order.port)
        self._log_begins = home.log.stat().st_size if home.log.exists() else 0

    def begin(self, guard: FileLock) -> None:
        """Start the server and let it inherit `guard`, the lock that says that it lives. Blocks for milliseconds.

        It leaves for the background by itself, so that no process has to reap it. Raises what `diagnose`
        or `from_os_error` make of a refusal.
        """
        command = command_line(self._server.path, self._modules.values(), self._home, self._order)
        try:
            with self._home.log.open("ab") as log:
                ended = subprocess.run(  # noqa: S603 - the program is found by us, the paths are arguments of their own
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(guard.descriptor,),
                    start_new_session=True,
                    timeout=_SPAWN_TIMEOUT_S,
                    check=False,
                )
        except OSError as error:
            raise from_os_error(error, self._attempt) from error
        except subprocess.TimeoutExpired as error:
            raise UnavailableError(SERVER, f"{self._server.path} does not start as a server; is it one?") from error
        if ended.returncode:
            raise self.exit_error(ended.returncode)

    def exit_error(self, exit_code: int | None = None) -> SharedMemoryError:
        """The error for a server that ended before it answered."""
        with self._home.log.open("rb") as log:
            size = log.seek(0, 2)
            log.seek(max(self._log_begins, size - _LOG_TAIL_BYTES))
            tail = log.read().decode(errors="replace")
        return diagnose(tail, exit_code, self._attempt)

    def record_modules(self) -> None:
        """Note the modules that the data needs from now on; those of a failed start would spoil the next."""
        with self._home.translate_os_errors():
            self._home.modules.write_text(" ".join(sorted(self._modules)) + "\n", encoding="ascii")


def command_line(program: Path, modules: Iterable[Path], home: DataDir, order: LaunchOptions) -> list[str]:
    """The words that start the server; pure."""
    options = {
        "daemonize": "yes",
        "pidfile": home.pidfile,
        "logfile": home.log,
        "dir": home.data,
        "unixsocket": home.socket,
        "unixsocketperm": "700",
        "port": order.port,
        "bind": "127.0.0.1",
        "protected-mode": "yes",
        "appendonly": "yes",
        "appendfsync": order.fsync,
        "save": "",
        "maxmemory-policy": "noeviction",
    }
    words = [str(program)]
    for name, value in options.items():
        words += [f"--{name}", str(value)]
    for module in modules:
        words += ["--loadmodule", str(module), *_MODULE_OPTIONS.get(module.stem, ())]
    return words


def _data_modules(home: DataDir) -> frozenset[str]:
    return frozenset(home.modules.read_text(encoding="ascii").split()) if home.modules.exists() else frozenset()
