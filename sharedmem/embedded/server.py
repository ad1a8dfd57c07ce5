"""The embedded server: the first process starts it, all share it, the last one stops it."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager, closing, suppress
from enum import Enum, auto
from pathlib import Path
from typing import NamedTuple, Self

from sharedmem.embedded.binaries import MODULES, find_cli, find_server
from sharedmem.embedded.data_dir import PORT, SERVER, DataDir, FileLock, diagnose, from_os_error
from sharedmem.errors import ConfigError, SharedMemoryError, UnavailableError
from sharedmem.models import Record
from sharedmem.redis.address import RedisAddress
from sharedmem.redis.change_stream import text_of
from sharedmem.redis.connect import parse_info, parse_pairs
from sharedmem.redis.multiplexer import MultiplexedConnection
from sharedmem.redis.replies import LostError, ServerError, raise_if_error
from sharedmem.runtime.concurrency import settled

_SPAWN_TIMEOUT_S = 10.0
_LOG_TAIL_BYTES = 8_192
# The graph module would store the last queries of each graph, with texts and vectors, in a stream.
_MODULE_OPTIONS = {"falkordb": ("CMD_INFO", "no")}
_COMPACT_HASHES = {"hash-max-listpack-entries": 128, "hash-max-listpack-value": 4096}
"""A memory or episode with its vector and text is one allocation instead of forty; hashes of many fields are tables."""


class LaunchOptions(NamedTuple):
    """The requested options of the server."""

    modules: frozenset[str]
    fsync: str
    """`always`, `everysec` or `no`."""
    port: int
    """0: no port."""


class Launch:
    """A server that was started and does not reply yet."""

    def __init__(self, home: DataDir, order: LaunchOptions) -> None:
        self._home = home
        self._order = order
        self._server = find_server()
        wanted = order.modules | _data_modules(home)
        self._modules = {name: path for name, path in self._server.modules.items() if name in wanted}
        self._attempt = home.attempt(self._server.path, order.port)
        self._log_begins = home.log.stat().st_size if home.log.exists() else 0

    def begin(self, guard: FileLock) -> None:
        """Start the server with `guard`, the inherited lock that shows that it lives. Blocks for milliseconds.

        It moves to the background by itself, so that no process must reap it. Raises the errors of `diagnose` or
        `from_os_error`.
        """
        command = command_line(self._server.path, self._modules.values(), self._home, self._order)
        try:
            with self._home.log.open("ab") as log:
                ended = subprocess.run(  # noqa: S603 - sharedmem finds the program, the paths are separate arguments
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
        """Return the error for a server that ended before it replied."""
        with self._home.log.open("rb") as log:
            size = log.seek(0, 2)
            log.seek(max(self._log_begins, size - _LOG_TAIL_BYTES))
            tail = log.read().decode(errors="replace")
        return diagnose(tail, exit_code, self._attempt)

    def record_modules(self) -> None:
        """Store the modules that the data needs from now on; modules of a failed start would break the next one."""
        with self._home.translate_os_errors():
            self._home.modules.write_text(" ".join(sorted(self._modules)) + "\n", encoding="ascii")


def command_line(program: Path, modules: Iterable[Path], home: DataDir, order: LaunchOptions) -> list[str]:
    """Return the command line of the server; a pure function."""
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
        **_COMPACT_HASHES,
    }
    words = [str(program)]
    for name, value in options.items():
        words += [f"--{name}", str(value)]
    for module in modules:
        words += ["--loadmodule", str(module), *_MODULE_OPTIONS.get(module.stem, ())]
    return words


def _data_modules(home: DataDir) -> frozenset[str]:
    return frozenset(home.modules.read_text(encoding="ascii").split()) if home.modules.exists() else frozenset()


__all__ = ["EmbeddedServer", "ServerStatus", "find_cli", "hold", "release", "status", "stop"]

_POLL_S = 0.01
_PING_TIMEOUT_S = 1.0
_REPLY_TIMEOUT_S = 5.0
_STOP_TIMEOUT_S = 30.0
_STOP_PAUSE_S = 0.1
_LAST_PORT = 65_535
_FSYNC_BY_STRICTNESS = ("no", "everysec", "always")


class ServerStatus(Record):
    """The state of the server of a data directory, running or not."""

    running: bool
    held: bool
    """Whether it keeps running when the last user leaves (`sharedmem up`)."""
    data_dir: Path
    log: Path
    url: str
    """The URL of its unix socket, even while it does not run."""
    tcp_url: str | None
    """None if it has no TCP port, or does not reply."""
    pid: int | None
    """None if it does not run or does not reply; the same for the fields below."""
    clients: int | None
    """Open connections, except that of this query."""
    server: str | None
    """`redis` or `valkey`."""
    version: str | None
    binary: Path | None
    uptime_s: int | None


class EmbeddedServer:
    """One process's membership in the private server of a data directory.

    `url` connects through its unix socket; `tcp_url` through 127.0.0.1, or None if it has no port.
    """

    def __init__(self, home: DataDir, users: FileLock, tcp_port: int) -> None:
        self._home = home
        self._users = users
        self.url = home.url
        self.tcp_url = _tcp_url(tcp_port)

    @classmethod
    async def join(
        cls,
        data_dir: Path,
        *,
        modules: Collection[str] = ("search", "json"),
        fsync: str = "everysec",
        port: int = 0,
        start_timeout_s: float = 30.0,
    ) -> Self:
        """Join the server of `data_dir`, and start it if it does not run; call `leave` at the end.

        `modules` (of search, json, graph) are loaded if they are installed and this call starts the server; a running
        server is joined as it is, and its powers show missing modules. `fsync` is always, everysec or no: the strictest
        of all members applies. `port` opens 127.0.0.1:port too, without a password, for every user of this machine; a
        server with a port keeps it. If the server still loads its data after `start_timeout_s` seconds, it continues,
        and a later call can join it.

        Raises ConfigError (bad setting, no permission, path too long, port in use, damaged data),
        UnsupportedError (no server program, one for another system, a library missing, data of a newer
        server) and UnavailableError (disk full, not ready in time). Three round trips to a running server.
        """
        order = _check_options(modules=modules, fsync=fsync, port=port)
        home = DataDir.at(data_dir)
        home.check_socket()
        deadline = asyncio.get_running_loop().time() + start_timeout_s
        await asyncio.to_thread(home.prepare)
        async with _hold_start_lock(home, start_timeout_s):
            users = FileLock(home.users_lock)
            try:
                return cls(home, users, await _start_and_join(home, users, order, deadline))
            except BaseException:
                users.close()
                raise

    async def leave(self) -> None:
        """Leave the server; the last member stops it unless it is held. May be called again.

        Raises UnavailableError if the server does not stop; the membership has ended nevertheless.
        """
        if not self._users.is_open():
            return
        try:
            async with _hold_start_lock(self._home, _STOP_TIMEOUT_S):
                await _leave_and_stop(self._home, self._users)
        finally:
            self._users.close()

    def __repr__(self) -> str:
        """Return a text for debugging and tests."""
        state = "joined" if self._users.is_open() else "left"
        return f"<EmbeddedServer {str(self._home.path)!r}, {state}>"


def hold(data_dir: Path) -> None:
    """Keep the server of `data_dir` running when its last user leaves; it need not run yet.

    Raises ConfigError if the directory cannot be written.
    """
    home = DataDir.at(data_dir)
    home.prepare()
    with home.translate_os_errors():
        home.held.touch(mode=0o600)


def release(data_dir: Path) -> None:
    """Undo `hold`: the last member to leave stops the server again; this call itself stops nothing."""
    home = DataDir.at(data_dir)
    with home.translate_os_errors():
        home.held.unlink(missing_ok=True)


async def stop(data_dir: Path) -> bool:
    """Stop the server of `data_dir`, even if others use it; return whether it was running.

    The data is on disk when this returns. A `hold` also applies to the next start; `release` ends it.
    Raises UnavailableError if the server does not stop within 30 seconds.
    """
    home = DataDir.at(data_dir)
    with home.translate_os_errors():
        if not await asyncio.to_thread(home.is_alive):
            return False
    async with _hold_start_lock(home, _STOP_TIMEOUT_S):
        return await _shut_down(home)


async def status(data_dir: Path) -> ServerStatus:
    """Return the state of the server of `data_dir`; start, create and change nothing. Two round trips."""
    home = DataDir.at(data_dir)
    info = await _read_info(home)
    with home.translate_os_errors():
        is_alive, is_held = await asyncio.to_thread(lambda: (home.is_alive(), home.held.exists()))
    known = ServerStatus(
        running=is_alive or bool(info),
        held=is_held,
        data_dir=home.path,
        log=home.log,
        url=home.url,
        tcp_url=None,
        pid=None,
        clients=None,
        server=None,
        version=None,
        binary=None,
        uptime_s=None,
    )
    return known.model_copy(update=_parse_status(info)) if info else known


def _parse_status(info: dict[str, str]) -> dict[str, object]:
    """Return the fields of `ServerStatus` from the server's INFO; a pure function."""
    return {
        "tcp_url": _tcp_url(int(info["tcp_port"])),
        "pid": int(info["process_id"]),
        "clients": int(info["connected_clients"]) - 1,
        "server": info.get("server_name", "redis"),
        "version": info.get("valkey_version", info["redis_version"]),
        "binary": Path(info["executable"]),
        "uptime_s": int(info["uptime_in_seconds"]),
    }


def _check_options(*, modules: Collection[str], fsync: str, port: int) -> LaunchOptions:
    """Check the options, and return them; a pure function."""
    unknown = sorted(set(modules).difference(MODULES))
    if unknown:
        raise ConfigError(
            "embedded_modules", "argument", f"{unknown[0]!r} is unknown; use some of {', '.join(MODULES)}"
        )
    if fsync not in _FSYNC_BY_STRICTNESS:
        raise ConfigError("embedded_fsync", "argument", f"{fsync!r} is unknown; use always, everysec or no")
    if not 0 <= port <= _LAST_PORT:
        raise ConfigError(*PORT, f"{port} is not a port; use 1 to {_LAST_PORT}, or 0 for no TCP port")
    return LaunchOptions(frozenset(modules), fsync, port)


def _tcp_url(port: int) -> str | None:
    return f"redis://127.0.0.1:{port}/0" if port else None


# From here to the next such line, the caller holds start.lock.


async def _start_and_join(home: DataDir, users: FileLock, order: LaunchOptions, deadline: float) -> int:
    """Join a server that is ready and has the requested options; return its TCP port, 0 without one."""
    if not users.take(shared=True):
        raise UnavailableError(SERVER, f"another program locks {home.users_lock}; end it")
    try:
        phase = await _wait_until_ready(home, order, deadline)
        if phase is _Phase.READY:
            return await _apply_options(home, order)
    except BaseException:
        await _leave_and_stop(home, users)
        raise
    # Not stopped: otherwise a server that needs longer than this caller waits would never start.
    raise _not_ready_error(home, phase)


async def _leave_and_stop(home: DataDir, users: FileLock) -> None:
    """Stop using the server; stop it too if there is no other user and it is not held."""
    with closing(users):
        is_last = users.is_open() and users.take()
        if is_last and not await asyncio.to_thread(home.held.exists):
            await _shut_down(home)


async def _wait_until_ready(home: DataDir, order: LaunchOptions, deadline: float) -> _Phase:
    """Wait until the server replies or the time is over; start one, once, if it does not run."""
    launch: Launch | None = None
    while (phase := await _phase(home)) is not _Phase.READY:
        if asyncio.get_running_loop().time() > deadline:
            return phase
        if phase is _Phase.ABSENT:
            launch = await _launch_once(home, order, launch)
        await asyncio.sleep(_POLL_S)
    if launch is not None:
        await asyncio.to_thread(launch.record_modules)
    return phase


async def _launch_once(home: DataDir, order: LaunchOptions, launch: Launch | None) -> Launch | None:
    """Start a server unless a process lives that does not listen yet, or any more; raise if the started one died."""
    with closing(FileLock(home.server_lock)) as guard:
        if not guard.take():
            return launch
        if launch is not None:
            raise await asyncio.to_thread(launch.exit_error)
        launch = await asyncio.to_thread(Launch, home, order)
        # In a thread, and to its end even if cancelled: it must not be interrupted.
        await settled(asyncio.to_thread(launch.begin, guard))
        return launch


def _not_ready_error(home: DataDir, phase: _Phase) -> UnavailableError:
    if phase is _Phase.LOADING:
        return UnavailableError(SERVER, f"it is still loading the data of {home.path}; try again soon", retry_after=5.0)
    return UnavailableError(SERVER, f"it runs in {home.path} but does not reply; see {home.log} and {home.pidfile}")


async def _apply_options(home: DataDir, order: LaunchOptions) -> int:
    """Apply stricter options of this member to a running server; return its TCP port, 0 without one."""
    async with _admin(home) as server:
        replies = await server.send_each([("CONFIG", "GET", name) for name in ("appendfsync", "port")])
        fsync, port = (text_of(value) for reply in replies for value in parse_pairs(raise_if_error(reply)).values())
        if _FSYNC_BY_STRICTNESS.index(order.fsync) > _FSYNC_BY_STRICTNESS.index(fsync):
            await server.send(("CONFIG", "SET", "appendfsync", order.fsync))
        if int(port) or not order.port:
            return int(port)
        try:
            await server.send(("CONFIG", "SET", "port", order.port))
        except ServerError as error:
            why = f"port {order.port} of 127.0.0.1 cannot be opened ({error}); choose a free one, or 0 for no port"
            raise ConfigError(*PORT, why) from error
        return order.port


async def _shut_down(home: DataDir) -> bool:
    """Stop the server and wait until it has ended; return whether it was running."""
    deadline = asyncio.get_running_loop().time() + _STOP_TIMEOUT_S
    was_alive = await asyncio.to_thread(home.is_alive)
    while await asyncio.to_thread(home.is_alive):
        if asyncio.get_running_loop().time() > deadline:
            why = f"it does not stop (process id in {home.pidfile}); see the end of {home.log}"
            raise UnavailableError(SERVER, why)
        # Not listening yet, no longer, or rejecting commands for now: the lock and the deadline decide.
        # It answers by ending.
        with suppress(LostError, ServerError):
            async with _connection(home, _REPLY_TIMEOUT_S) as server:
                await server.send(("SHUTDOWN",))
        await _wait_until_stopped(home, _STOP_PAUSE_S)
    return was_alive


async def _wait_until_stopped(home: DataDir, patience_s: float) -> None:
    """Wait until the server has ended, or the time is over."""
    with suppress(TimeoutError):
        async with asyncio.timeout(patience_s):
            while await asyncio.to_thread(home.is_alive):  # noqa: ASYNC110 - the kernel sends no notice of a freed lock
                await asyncio.sleep(_POLL_S)


# Access to the locks and the server.


@asynccontextmanager
async def _hold_start_lock(home: DataDir, patience_s: float) -> AsyncIterator[None]:
    """Hold start.lock: be the only process that starts or stops the server."""
    with closing(FileLock(home.start_lock)) as lock:
        try:
            async with asyncio.timeout(patience_s):
                while not lock.take():  # noqa: ASYNC110 - a wait inside flock could not be cancelled
                    await asyncio.sleep(_POLL_S)
        except TimeoutError as error:
            why = f"another process has been starting or stopping it in {home.path} for {patience_s:g} s"
            raise UnavailableError(SERVER, why) from error
        yield


class _Phase(Enum):
    """The reply of a server to PING."""

    READY = auto()
    LOADING = auto()
    SILENT = auto()
    ABSENT = auto()


async def _phase(home: DataDir) -> _Phase:
    try:
        async with asyncio.timeout(_PING_TIMEOUT_S):
            reply = await _ping(home)
    except (FileNotFoundError, ConnectionRefusedError):
        return _Phase.ABSENT
    except OSError:
        return _Phase.SILENT
    if reply.startswith(b"-LOADING"):
        return _Phase.LOADING
    # Any other reply means ready, even that it requires a password; no reply means that it will end soon.
    return _Phase.READY if reply else _Phase.SILENT


async def _ping(home: DataDir) -> bytes:
    """Return the reply to a plain PING; the driver's handshake would hide the reason of a rejection."""
    reader, writer = await asyncio.open_unix_connection(home.socket)
    try:
        writer.write(b"PING\r\n")
        return await reader.readline()
    finally:
        writer.close()


async def _read_info(home: DataDir) -> dict[str, str]:
    """Return the server's `INFO`; empty when it does not reply."""
    try:
        async with _connection(home, _PING_TIMEOUT_S) as server:
            replies = await server.send_each((("INFO", "server"), ("INFO", "clients")))
    except (LostError, ServerError):
        return {}
    return {name: value for reply in replies for name, value in parse_info(reply).items()}


@asynccontextmanager
async def _admin(home: DataDir) -> AsyncIterator[MultiplexedConnection]:
    """Yield a connection to a server that is ready; translate its errors."""
    try:
        async with _connection(home, _REPLY_TIMEOUT_S) as server:
            yield server
    except (LostError, ServerError) as error:
        raise UnavailableError(SERVER, f"{error} ({home.socket}); see {home.log}") from error


@asynccontextmanager
async def _connection(home: DataDir, patience_s: float) -> AsyncIterator[MultiplexedConnection]:
    """Yield a connection to the server, which its first call opens."""
    address = RedisAddress("standalone", path=str(home.socket))
    connection = MultiplexedConnection(address, connect_timeout_s=patience_s, response_timeout_s=patience_s)
    try:
        yield connection
    finally:
        await connection.close()
