"""Commands for the server in use, embedded or not: up, down, status, redis-cli."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sharedmem.clock import SystemClock
from sharedmem.config import Settings, masked
from sharedmem.embedded import server as embedded_server
from sharedmem.embedded.binaries import find_cli
from sharedmem.embedded.server import EmbeddedServer, ServerStatus
from sharedmem.errors import InvalidError
from sharedmem.faces.cli.app import PASS_THROUGH, SERVER, command
from sharedmem.faces.cli.output import (
    capability_name,
    fields_table,
    format_duration,
    format_size,
    print_answer,
    print_note,
    styled_text,
    write_line,
)
from sharedmem.faces.cli.session import Options, open_store, options_of
from sharedmem.hub.composition import check_embedded_allowed
from sharedmem.models import Health, Powers, Record
from sharedmem.redis.address import RedisAddress, parse_address
from sharedmem.redis.client import RedisClient
from sharedmem.redis.connect import open_client, with_current_login
from sharedmem.redis.replies import LostError, Reply, ServerError, public_error

if TYPE_CHECKING:
    from rich.console import RenderableType


class Report(Record):
    """The server in use: the embedded one's files and process, and what the server says if it answers."""

    embedded: ServerStatus | None
    """None when another server is in use."""
    url: str
    health: Health | None
    """None when the embedded server does not run."""
    powers: Powers | None
    namespaces: list[str]


@command("up", SERVER, example="sharedmem up")
def up(
    context: typer.Context,
    port: Annotated[int | None, typer.Option(help="Also listen on this port of 127.0.0.1, without a password.")] = None,
) -> None:
    """Start the embedded server and let it stay until `sharedmem down`."""
    options = options_of(context)
    settings = options.settings()
    status = asyncio.run(_up(settings if port is None else settings.replace(embedded_port=port)))
    print_answer(options, status, lambda: _up_picture(status))
    if settings.redis_url is not None:
        print_note(
            f"other commands use {masked(settings.redis_url)} (from {settings.origin('redis_url')}), not this server"
        )


async def _up(settings: Settings) -> ServerStatus:
    check_embedded_allowed(settings)
    server = await EmbeddedServer.join(
        settings.data_dir,
        modules=settings.embedded_modules,
        fsync=settings.embedded_fsync,
        port=settings.embedded_port,
    )
    try:
        await asyncio.to_thread(embedded_server.hold, settings.data_dir)
        return await embedded_server.status(settings.data_dir)
    finally:
        await server.leave()


@command("down", SERVER, example="sharedmem down")
def down(context: typer.Context) -> None:
    """Stop the embedded server, even if other processes use it; the data stay on disk."""
    options = options_of(context)
    stopped = asyncio.run(_down(options.settings()))
    print_answer(
        options, stopped, lambda: styled_text("stopped; the data stay on disk" if stopped else "it was not running")
    )


async def _down(settings: Settings) -> bool:
    await asyncio.to_thread(embedded_server.release, settings.data_dir)
    return await embedded_server.stop(settings.data_dir)


@command("status", SERVER, example="sharedmem status --json")
def status(context: typer.Context) -> None:
    """Show which server is in use, its state and its capabilities; starts nothing."""
    options = options_of(context)
    report = asyncio.run(_report(options))
    print_answer(options, report, lambda: _report_picture(report))


async def _report(options: Options) -> Report:
    settings = options.settings()
    known = await embedded_server.status(settings.data_dir) if settings.redis_url is None else None
    if known is not None and not known.running:
        return Report(embedded=known, url=known.url, health=None, powers=None, namespaces=[])
    async with open_store(settings) as (hub, _):
        health, namespaces = await hub.health(), await hub.namespaces()
        return Report(embedded=known, url=hub.url, health=health, powers=hub.powers, namespaces=namespaces)


def _up_picture(status: ServerStatus) -> RenderableType:
    rows: list[tuple[str, object]] = [
        ("server", f"{status.server} {status.version}, process {status.pid}"),
        ("data", str(status.data_dir)),
        ("socket", status.url),
        *([("port", status.tcp_url)] if status.tcp_url else []),
        ("Python", "async with Hub.open() as hub: ..."),
        ("shell", "sharedmem set hello world && sharedmem get hello"),
        ("stop", "sharedmem down"),
    ]
    return fields_table(rows, title="The shared memory is up")


def _report_picture(report: Report) -> RenderableType:
    known, health = report.embedded, report.health
    rows: list[tuple[str, object]] = [("server", _which(report)), ("url", report.url)]
    if known is not None:
        rows += [("data", str(known.data_dir)), ("log", str(known.log)), ("stays", _stays(known))]
    if health is not None:
        rows += [
            ("answers in", f"{health.latency_ms:.2f} ms"),
            ("memory", format_size(health.used_memory_bytes)),
            ("up for", format_duration(health.uptime_s)),
            ("clients", str(health.connected_clients)),
        ]
    if report.powers is not None:
        rows += [("persistence", report.powers.persistence), *_power_rows(report.powers)]
        rows.append(("namespaces", ", ".join(report.namespaces) or "none yet"))
    return fields_table(rows)


def _which(report: Report) -> RenderableType:
    kind = "embedded" if report.embedded else "remote"
    if report.health is None:
        return styled_text(f"{kind}, ", ("does not run", "yellow"), "; the next command starts it")
    version = f"{report.health.server} {report.health.version}"
    mode = f", {report.powers.mode}" if report.powers and not report.embedded else ""
    return styled_text(f"{kind}, ", ("runs", "green"), f": {version}{mode}")


def _stays(known: ServerStatus) -> str:
    if known.held:
        return "until sharedmem down"
    return "until its last user leaves; sharedmem up keeps it" if known.running else "while it is used"


def _power_rows(powers: Powers) -> list[tuple[str, object]]:
    names = ("search", "json_documents", "graph", "vector_sets")
    there = [capability_name(name) for name in names if name not in powers.missing]
    lacking = [capability_name(name) for name in powers.missing]
    rows: list[tuple[str, object]] = [("can", styled_text((", ".join(there) or "plain Redis", "green")))]
    return (
        [*rows, ("cannot", styled_text((", ".join(lacking), "yellow"), "; see sharedmem doctor"))] if lacking else rows
    )


# -- redis-cli ------------------------------------------------------------------------------------


_FAILED, _SIGNALLED = 1, 128
_PATIENCE_S = 60.0
_LEAVING = frozenset({"exit", "quit"})
# Statuses come as texts do; these are what one sees of them.
_STATUSES = frozenset({b"OK", b"PONG", b"QUEUED", b"Background saving started"})
_ENDLESS = {"SUBSCRIBE": "subscribe", "PSUBSCRIBE": "subscribe", "SSUBSCRIBE": "subscribe", "MONITOR": "watch"}


@command("redis-cli", SERVER, example="sharedmem redis-cli DBSIZE", words=PASS_THROUGH)
def redis_cli(
    context: typer.Context,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="One command; without it a prompt.")
    ] = None,
) -> None:
    """Speak to the server in its own words: with redis-cli or valkey-cli where there is one, else a small prompt.

    Keys are spelled sm:{namespace}:scope:identifier. What you change here is not on the change feed.
    """
    code = asyncio.run(_run_command_line(options_of(context).settings(), words or []))
    raise typer.Exit(code)


async def _run_command_line(settings: Settings, words: list[str]) -> int:
    # The hub keeps the embedded server running meanwhile.
    async with open_store(settings) as (hub, _):
        address = parse_address(settings.redis_url or hub.url, settings)
        program = None if address.mode == "sentinel" else await asyncio.to_thread(find_cli)
        if program is not None:
            return await _run_program(program, await with_current_login(address, settings, SystemClock()), words)
        line = open_client(address, settings, SystemClock())
        try:
            return await (_run_one_command(line, words) if words else _prompt(line, address))
        finally:
            await line.close()


async def _run_program(program: Path, address: RedisAddress, words: list[str]) -> int:
    environment = os.environ | ({"REDISCLI_AUTH": address.password} if address.password else {})
    # Ctrl-C is the program's: this process waits for its end. (Ignored, the signal would be ignored there too.)
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        process = await asyncio.create_subprocess_exec(program, *connection_options(address), *words, env=environment)
        code = await process.wait()
    finally:
        signal.signal(signal.SIGINT, before)
    return code if code >= 0 else _SIGNALLED - code


def connection_options(address: RedisAddress) -> list[str]:
    """The options with which redis-cli finds an address; it gets the password by its environment."""
    host, port = address.hosts[0] if address.hosts else ("", 0)
    place = ["-s", address.path] if address.path else ["-h", host, "-p", str(port)]
    login = ["--user", address.username] if address.username else []
    database = ["-n", str(address.database)] if address.database else []
    cluster = ["-c"] if address.mode == "cluster" else []
    return [*place, *login, *database, *cluster, *_tls(address)]


def _tls(address: RedisAddress) -> Iterable[str]:
    if not address.tls:
        return
    yield "--tls"
    if not address.tls_verify:
        yield "--insecure"
    files = {"--cacert": address.tls_ca_file, "--cert": address.tls_cert_file, "--key": address.tls_key_file}
    for option, file in files.items():
        if file:
            yield from (option, file)


# -- the prompt of our own ------------------------------------------------------------------------


async def _run_one_command(line: RedisClient, words: list[str]) -> int:
    reply = await _execute(line, words)
    _print_reply(reply)
    return _FAILED if isinstance(reply, ServerError) else 0


async def _prompt(line: RedisClient, address: RedisAddress) -> int:
    print_note("no redis-cli or valkey-cli on PATH; this is a small prompt instead, exit leaves it")
    while (text := await asyncio.to_thread(_read_line, f"{address}> ")) is not None:
        try:
            words = shlex.split(text)
        except ValueError:
            write_line("Invalid argument(s)")
            continue
        if words[:1] and words[0].lower() in _LEAVING:
            break
        if words:
            _print_reply(await _execute(line, words))
    return 0


def _read_line(prompt: str) -> str | None:
    """One line, or None at the end."""
    if not sys.stdin.isatty():
        return sys.stdin.readline() or None
    import readline  # noqa: F401, PLC0415  importing it gives input() its history and editing

    try:
        return input(prompt)
    except EOFError:
        return None


async def _execute(line: RedisClient, words: list[str]) -> Reply:
    own = _ENDLESS.get(words[0].upper())
    if own is not None:
        raise InvalidError("command", words[0], f"its answers never end; use sharedmem {own}")
    try:
        # Once and never again: whether a command may be repeated, only its author knows.
        return await line.block(*words, wait_s=_PATIENCE_S)
    except ServerError as error:
        return error
    except LostError as error:
        raise public_error(error, line.address) from error


def _print_reply(reply: Reply) -> None:
    if sys.stdout.isatty():
        write_line(format_reply(reply))
    else:
        sys.stdout.buffer.write(raw_reply(reply) + b"\n")
        sys.stdout.buffer.flush()


def format_reply(reply: Reply, indent: str = "") -> str:
    """A reply as redis-cli shows it on a terminal."""
    match reply:
        case None:
            return "(nil)"
        case int():
            return f"(integer) {reply}"
        case ServerError():
            return f"(error) {reply.text}"
        case bytes():
            return reply.decode() if reply in _STATUSES else quote_bytes(reply)
    if not reply:
        return "(empty array)"
    width = len(str(len(reply)))
    below = indent + " " * (width + 2)
    lines = [f"{number:>{width}}) {format_reply(item, below)}" for number, item in enumerate(reply, start=1)]
    return f"\n{indent}".join(lines)


def raw_reply(reply: Reply) -> bytes:
    """A reply as redis-cli writes it to a pipe."""
    match reply:
        case None:
            return b""
        case int():
            return str(reply).encode()
        case ServerError():
            return reply.text.encode()
        case bytes():
            return reply
    return b"\n".join(map(raw_reply, reply))


def quote_bytes(raw: bytes) -> str:
    """Bytes in quotes; what cannot be shown is escaped, letters of all scripts stay as they are."""
    return '"' + "".join(map(_escape_character, raw.decode(errors="surrogateescape"))) + '"'


def _escape_character(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable():
        return character
    byte = ord(character) - 0xDC00
    return f"\\x{byte:02x}" if byte >= 0x80 else repr(character)[1:-1]
