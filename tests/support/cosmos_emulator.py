"""The emulator of Cosmos DB behind our shim: installed once, one process a test session, failing on demand."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from azure.cosmos.aio import CosmosClient

from sharedmem.clock import new_id
from sharedmem.durable.cosmos.endpoint import CosmosTimeouts
from sharedmem.durable.cosmos.store import CosmosDurable
from sharedmem.testing.clock import ManualClock
from support.missing_services import skip_or_fail

HERE = Path(__file__).resolve().parent / "cosmos"
# On a machine with much other work the installation takes minutes.
INSTALLING_S, STARTING_S, TELLING_S = 900, 30, 10
_RUNNING = pytest.StashKey["CosmosEmulator"]()
_MISSING = pytest.StashKey[str]()
# With a clock that passes pauses by itself: some repetitions, and then the error.
SHORT_RETRIES = CosmosTimeouts(request_s=2.0, total_s=1.5)


def emulator(config: pytest.Config) -> CosmosEmulator:
    """The emulator of this test session, started when it is first asked for; without it the test is skipped.

    Where `CI` is set, nothing may be skipped: then the test fails.
    """
    if config.stash.get(_MISSING, ""):
        skip_or_fail(config.stash[_MISSING])
    if _RUNNING not in config.stash:
        try:
            config.stash[_RUNNING] = installed_emulator()
        except OSError as error:
            config.stash[_MISSING] = f"no emulator of Cosmos DB: {error}"
            skip_or_fail(config.stash[_MISSING])
        config.add_cleanup(config.stash[_RUNNING].stop)
    return config.stash[_RUNNING]


def installed_emulator() -> CosmosEmulator:
    """An emulator of one's own, which the caller stops; its packages are installed when they are missing.

    Raises:
        OSError: this machine has no Node, or its packages cannot be had.
    """
    _install()
    return CosmosEmulator()


def _install() -> None:
    if missing := [tool for tool in ("node", "npm") if shutil.which(tool) is None]:
        raise OSError(f"{missing[0]} is not installed")
    wanted = hashlib.sha256((HERE / "package-lock.json").read_bytes()).hexdigest()
    installed = HERE / "node_modules" / ".installed"
    with _install_lock():
        if not installed.exists() or installed.read_text() != wanted:
            _npm_ci()
            installed.write_text(wanted)


@contextmanager
def _install_lock() -> Iterator[None]:
    """One of the processes that run tests side by side."""
    with (HERE / "package.json").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _npm_ci() -> None:
    command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--silent"]
    try:
        done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False, timeout=INSTALLING_S)
    except subprocess.TimeoutExpired:
        raise OSError(f"npm did not install its packages within {INSTALLING_S} s") from None
    if done.returncode != 0:
        raise OSError(f"npm cannot install its packages: {(done.stderr or done.stdout).strip()[-300:]}")


class CosmosEmulator:
    """A running shim."""

    def __init__(self) -> None:
        # It ends with its standard input, hence also when this process is killed.
        self._process = subprocess.Popen(
            ["node", str(HERE / "shim.js")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise OSError("node does not start the shim")
        self.port: int = json.loads(line)["port"]

    @property
    def url(self) -> str:
        """As `durable_url` takes it."""
        return f"cosmos+http://127.0.0.1:{self.port}"

    def room(self) -> EmulatedDatabase:
        """A database of one test alone."""
        return EmulatedDatabase(self, f"test-{new_id(8)}")

    def stop(self) -> None:
        """End it."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(STARTING_S)
        finally:
            process.kill()
            process.stdout.close()

    def tell(self, order: str, body: Any = None) -> Any:
        """Give the shim an order (see shim.js)."""
        data = None if body is None else json.dumps(body).encode()
        with urlopen(Request(f"http://127.0.0.1:{self.port}/-/{order}", data), timeout=TELLING_S) as answer:
            return json.load(answer)


class EmulatedDatabase:
    """A database of one test on the emulator, with faults and a log of its own."""

    def __init__(self, emulator: CosmosEmulator, database: str) -> None:
        self.emulator = emulator
        self.database = database

    def durable(self, **choice: Any) -> CosmosDurable:
        """A store in it, not opened yet."""
        usual: dict[str, Any] = {"database": self.database, "patience": SHORT_RETRIES, "clock": ManualClock()}
        return CosmosDurable(self.emulator.url, **(usual | choice))

    @asynccontextmanager
    async def opened(self, **choice: Any) -> AsyncIterator[CosmosDurable]:
        """An open store in it."""
        store = self.durable(**choice)
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    async def fault(self, call: str = "any", **fault: Any) -> None:
        """Let requests to it fail (see shim.js); those to make the database itself have no path of it."""
        await asyncio.to_thread(self.emulator.tell, "faults", {"within": f"/{self.database}/", "call": call, **fault})

    async def ahead(self, seconds: float) -> None:
        """Let what has a time to live be older by so much, for everybody."""
        await asyncio.to_thread(self.emulator.tell, "ahead", {"seconds": seconds})

    async def calls(self) -> list[tuple[str, int | None]]:
        """(call, status) of the requests for documents that were carried out or refused, in order."""
        log = await asyncio.to_thread(self.emulator.tell, "log")
        mine = [one for one in log if f"/{self.database}/" in one["path"] and one["call"] != "other"]
        return [(one["call"], one["status"]) for one in mine]

    async def properties(self, container: str) -> dict[str, Any]:
        """A container as the service describes it."""
        async with self.client() as client:
            return await client.get_database_client(self.database).get_container_client(container).read()

    def client(self) -> CosmosClient:
        """The SDK itself, to look closer than we do, or to make what we would not."""
        url = self.emulator.url.removeprefix("cosmos+")
        return CosmosClient(url, "a2V5", enable_endpoint_discovery=False)

    async def forget(self) -> None:
        """Forget faults and log."""
        await asyncio.to_thread(self.emulator.tell, "reset", {"within": f"/{self.database}/"})
