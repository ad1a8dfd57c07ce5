"""Azurite, the emulator of Azure Blob Storage: installed once from `support/azurite`, a process of its own.

`npm ci` brings about 220 packages of 120 MB in about 15 s, into pytest's cache.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, NoReturn

import pytest

from support.missing_services import skip_or_fail

_HERE = Path(__file__).resolve().parent / "azurite"
_PROGRAM = "node_modules/azurite/dist/src/blob/main.js"
# On a machine with much other work it takes minutes.
_INSTALLING_S = 900
_ACCOUNT = "sharedmemtests"


class Azurite(NamedTuple):
    """A running emulator."""

    url: str
    """With the account, without a container: `azure+http://127.0.0.1:<port>/<account>`."""
    key: str


@pytest.fixture(scope="session")
def azurite(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """The emulator, for the whole session; a test takes a container of its own."""
    if pytestconfig.getoption("--quick"):
        pytest.skip("it needs a server: make test")
    if missing := [tool for tool in ("node", "npm") if shutil.which(tool) is None]:
        _skip_or_fail(f"{missing[0]} is not installed")
    assert pytestconfig.cache is not None
    program = _installed(pytestconfig.cache.mkdir("sharedmem-azurite"))
    with running(program, tmp_path_factory.mktemp("azurite")) as emulator:
        yield emulator


@contextmanager
def running(program: Path, folder: Path) -> Iterator[Azurite]:
    """An emulator that forgets everything at its end."""
    key = base64.b64encode(secrets.token_bytes(64)).decode()
    process = subprocess.Popen(
        [
            *("node", str(program), "--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck", "--silent"),
            *("--blobHost", "127.0.0.1", "--blobPort", "0"),
        ],
        cwd=folder,
        env=os.environ | {"AZURITE_ACCOUNTS": f"{_ACCOUNT}:{key}"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Azurite(f"azure+http://127.0.0.1:{_port(process)}/{_ACCOUNT}", key)
    finally:
        process.kill()
        process.communicate()


def _port(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    for line in process.stdout:
        if told := re.search(r"listens on http://127\.0\.0\.1:(\d+)", line):
            return int(told[1])
    raise AssertionError("Azurite ended before it listened")


def _installed(folder: Path) -> Path:
    lock = (_HERE / "package-lock.json").read_bytes()
    # Renamed into place when it is whole; another lock file is another folder.
    home = folder / hashlib.sha256(lock).hexdigest()[:12]
    with (folder / "lock").open("ab") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # the processes of one test run install it once
        if not home.exists():
            unfinished = folder / "unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            shutil.copytree(_HERE, unfinished, ignore=shutil.ignore_patterns("node_modules"))
            _install(unfinished)
            unfinished.replace(home)
    return home / _PROGRAM


def _install(folder: Path) -> None:
    command = ["npm", "ci", "--no-audit", "--no-fund", "--silent", "--omit=optional", "--ignore-scripts"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=_INSTALLING_S)
    except subprocess.TimeoutExpired:
        _skip_or_fail(f"npm did not install it within {_INSTALLING_S} s")
    if done.returncode != 0:
        _skip_or_fail(f"npm cannot install it: {(done.stderr or done.stdout).strip()[-200:]}")


def _skip_or_fail(why: str) -> NoReturn:
    skip_or_fail(f"no emulator of Azure Blob Storage: {why}")
