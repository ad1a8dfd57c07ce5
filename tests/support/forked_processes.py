"""Children of the fork server, as tests start, signal and await them."""

from __future__ import annotations

import asyncio
import atexit
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from threading import Lock
from typing import IO, Self

from support.fork_server import send_request

_TESTS = Path(__file__).resolve().parents[1]
_PATIENCE_S = 60


class ForkedChild:
    """A process that another one has forked for the test.

    Args:
        status: where the server says its pid, and later its exit code.
    """

    def __init__(self, status: socket.socket) -> None:
        self._status = status
        self._received = b""
        status.settimeout(_PATIENCE_S)
        self.pid = int(self._read_line())
        self.returncode: int | None = None

    def wait(self, timeout_s: float) -> int:
        """Return its exit code as soon as it has ended: minus the number of a signal that ended it."""
        if self.returncode is None:
            self._status.settimeout(timeout_s)
            self._end_with(self._read_line())
        assert self.returncode is not None
        return self.returncode

    async def ended(self) -> int:
        """Likewise, for tests that wait for several things."""
        self._status.setblocking(False)
        while self.returncode is None:
            self._received += await asyncio.get_running_loop().sock_recv(self._status, 64)
            if self._received.endswith(b"\n"):
                self._end_with(self._received)
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        """Signal it, unless it has ended."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def end(self) -> None:
        """Kill it, and return when it has ended."""
        self.send_signal(signal.SIGKILL)
        self.wait(_PATIENCE_S)

    def _read_line(self) -> bytes:
        while not self._received.endswith(b"\n"):
            more = self._status.recv(1)
            assert more, "the fork server has ended"
            self._received += more
        line, self._received = self._received, b""
        return line

    def _end_with(self, code: bytes) -> None:
        self.returncode = int(code)
        self._status.close()


class _ForkServer:
    def __init__(self) -> None:
        self._lock = Lock()
        self._requests, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "error", "-m", "support.fork_server", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                cwd=_TESTS,
            )
        atexit.register(self._end, os.getpid())

    def fork(
        self, program: tuple[str, ...], streams: list[int], *, cwd: Path, environment: Mapping[str, str]
    ) -> ForkedChild:
        ours, theirs = socket.socketpair()
        request = {"program": program, "cwd": str(cwd), "environment": dict(environment)}
        with theirs, self._lock:
            send_request(self._requests, request, [*streams, theirs.fileno()])
        return ForkedChild(ours)

    def _end(self, owner: int) -> None:
        if os.getpid() == owner:
            with self._requests:
                self._requests.shutdown(socket.SHUT_RDWR)
                self._process.wait(_PATIENCE_S)


# Started when a test first needs it, and once for all tests of this process.
_server = cache(_ForkServer)


def start_child(
    *program: str,
    streams: tuple[int, int, int],
    cwd: Path = _TESTS.parent,
    environment: Mapping[str, str] | None = None,
) -> ForkedChild:
    """Start a module (`-m`, its name) or a file with its arguments, as `python` would.

    Args:
        program: as behind `python`.
        streams: file descriptors of its input, its output and its errors.
        cwd: its folder.
        environment: all of its environment; that of the tests without it.
    """
    return _server().fork(
        program, list(streams), cwd=cwd, environment=os.environ if environment is None else environment
    )


def run_forked(
    *program: str, cwd: Path = _TESTS.parent, environment: Mapping[str, str] | None = None, timeout_s: float = 180
) -> subprocess.CompletedProcess[str]:
    """Run a module or a file to its end, with nothing to read; return what it printed and its exit code."""
    with ExitStack() as stack:
        nothing = stack.enter_context(Path(os.devnull).open("rb"))
        out, err = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(2))
        streams = (nothing.fileno(), out.fileno(), err.fileno())
        child = start_child(*program, streams=streams, cwd=cwd, environment=environment)
        try:
            code = child.wait(timeout_s)
        except TimeoutError:
            child.end()
            raise
        return subprocess.CompletedProcess(program, code, _text_of(out), _text_of(err))


def _text_of(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


class ForkedProcess:
    """A child whose input and output a test writes and reads while it runs.

    Args:
        child: it.
        stdin: what it reads.
        stdout: what it prints; its errors go where those of the tests go.
    """

    def __init__(self, child: ForkedChild, stdin: asyncio.StreamWriter, stdout: asyncio.StreamReader) -> None:
        self._child = child
        self.stdin, self.stdout = stdin, stdout
        self._watching = asyncio.create_task(child.ended())

    @classmethod
    async def start(cls, module: str, *words: object) -> Self:
        """Start a module of the tests."""
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        reading, writing = os.pipe()
        try:
            child = start_child("-m", module, *map(str, words), streams=(theirs.fileno(), writing, 2))
        finally:
            theirs.close()
            os.close(writing)
        stdout = asyncio.StreamReader()
        with ExitStack() as undo:  # who is cancelled here has no process
            undo.callback(child.end)
            undo.callback(ours.close)
            output, _ = await loop.connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(stdout), os.fdopen(reading, "rb")
            )
            undo.callback(output.close)
            _, stdin = await asyncio.open_connection(sock=ours)
            undo.pop_all()
        return cls(child, stdin, stdout)

    @property
    def pid(self) -> int:
        """Its number."""
        return self._child.pid

    @property
    def returncode(self) -> int | None:
        """Its exit code, or minus the number of the signal that ended it; None while it runs."""
        return self._child.returncode

    def send_signal(self, number: signal.Signals) -> None:
        """Signal it, unless it has ended."""
        self._child.send_signal(number)

    def kill(self) -> None:
        """End it with SIGKILL."""
        self.send_signal(signal.SIGKILL)

    async def wait(self) -> int:
        """Return its exit code as soon as it has ended."""
        return await asyncio.shield(self._watching)

    async def communicate(self) -> bytes:
        """Close its input; return what it still prints when it has ended."""
        self.stdin.close()
        rest = await self.stdout.read()
        await self.wait()
        return rest
