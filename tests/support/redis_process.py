"""A real Redis of a test's own, as its users would run it: started, killed, frozen and restarted at will."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from sharedmem.embedded.binaries import find_server

_PATIENCE_S = 60.0


class RedisProcess:
    """A `redis-server` on a unix socket, in a directory that it keeps over restarts.

    Args:
        options: words of its configuration by name, with `_` for `-`, e.g. `appendfsync="always"`.
        tcp: whether it listens on a loopback port as well.
        password: what clients have to log in with.
    """

    def __init__(self, *, tcp: bool = False, password: str | None = None, **options: object) -> None:
        self.home = Path(tempfile.mkdtemp(dir="/tmp", prefix="smb"))
        self.data = self.home / "data"
        self.data.mkdir()
        self._process: subprocess.Popen[bytes] | None = None
        self._has_answered = False
        self._password = password
        self.port = free_port() if tcp else 0
        secret = {} if password is None else {"requirepass": password, "masterauth": password}
        self._options = {"save": "", "port": self.port, "bind": "127.0.0.1", **secret, **options}

    @property
    def url(self) -> str:
        """Where clients connect; the password is theirs to give."""
        return f"redis://127.0.0.1:{self.port}/0" if self.port else f"unix://{self.home}/s?db=0"

    @property
    def bus_port(self) -> int:
        """Where the other servers of its cluster reach it."""
        return int(str(self._options["cluster_port"]))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        shutil.rmtree(self.home, ignore_errors=True)

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.launch()
        deadline = time.monotonic() + _PATIENCE_S
        while not self._answers():
            if self._process is not None and self._process.poll() is not None and self._has_lost_a_port():
                self.launch()
            if time.monotonic() > deadline:
                self.kill()
                raise AssertionError((self.home / "log").read_text())
            time.sleep(0.01)
        self._has_answered = True

    def _has_lost_a_port(self) -> bool:
        """Whether another process took a port before the first start; then it has other ones."""
        log = self.home / "log"
        if self._has_answered or "Address already in use" not in log.read_text():
            return False
        log.write_text("")
        ports = {"port"} if self.port else set()
        for name in ports | (self._options.keys() & {"cluster_port"}):
            self._options[name] = free_port()
        self.port = int(str(self._options["port"]))
        return True

    def launch(self) -> None:
        """Start it, and do not wait for it."""
        words = [str(find_server().path), "--dir", str(self.data), "--unixsocket", str(self.home / "s")]
        for name, value in self._options.items():
            words += [f"--{name.replace('_', '-')}", str(value)]
        with (self.home / "log").open("ab") as log:
            # A file that may not grow is an error to it, as a full disk is, and not a signal that ends it.
            self._process = subprocess.Popen(words, stdout=log, stderr=log, restore_signals=False)

    def kill(self) -> None:
        """End it as a power cut of the process would: SIGKILL, no farewell."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait(_PATIENCE_S)
            self._process = None

    def force_to_disk(self) -> None:
        """Return when everything that was written before is on the disk."""
        with self.client() as client:
            client.set("forced", 1)
            client.execute_command("WAITAOF", 1, 0, 10_000)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """It hangs inside the block, with its connections open, and goes on after it."""
        self._signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._signal(signal.SIGCONT)

    @property
    def is_running(self) -> bool:
        """Whether its process is there."""
        return self._process is not None and self._process.poll() is None

    def limit_files(self, most_bytes: int | None) -> None:
        """Let its files grow no longer than this, as if the disk were full; None lifts the limit."""
        if self._process is not None and self.is_running:
            most = resource.RLIM_INFINITY if most_bytes is None else most_bytes
            resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))

    def longest_file(self) -> int:
        """Bytes of the longest of its files."""
        return max((file.stat().st_size for file in self.data.rglob("*") if file.is_file()), default=0)

    def break_disk(self) -> None:
        """Take its directory away under it, so that it can save nothing."""
        shutil.rmtree(self.data)

    def client(self, password: str | None = None) -> Redis:
        """A plain client without retries, which the caller closes; it logs in with the password given at first."""
        return Redis(
            unix_socket_path=str(self.home / "s"),
            password=password or self._password,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
            socket_timeout=300,
        )

    def info(self, section: str) -> bytes:
        """One section of INFO as the server tells it."""
        with self.client() as client:
            client.response_callbacks.clear()
            told = client.execute_command("INFO", section)
            assert isinstance(told, bytes)
            return told

    def tell(self, *words: str | int) -> object:
        """Send one command as an administrator would."""
        with self.client() as client:
            return client.execute_command(*words)

    def _answers(self) -> bool:
        with suppress(RedisError, OSError):
            return bool(self.tell("PING"))
        return False

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            os.kill(self._process.pid, number)


def free_port() -> int:
    """A loopback port on which no process listens now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
