"""Commands for the embedded server and whatever server is in use: up, down, status."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from sharedmem.config import Settings, masked
from sharedmem.embedded import server as embedded_server
from sharedmem.embedded.server import EmbeddedServer, ServerStatus
from sharedmem.faces.cli.app import SERVER, command
from sharedmem.faces.cli.output import (
    capability_name,
    fields_table,
    format_duration,
    format_size,
    print_answer,
    print_note,
    styled_text,
)
from sharedmem.faces.cli.session import Options, open_store, options_of
from sharedmem.hub.composition import check_embedded_allowed
from sharedmem.models import Health, Powers, Record

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
