"""Commands for cron: daily exports with rotation, and restore drills."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sharedmem.archive.daily_exports import (
    DEFAULT_DAILY,
    DEFAULT_WEEKLY,
    KeptExports,
    RotatedExport,
    StoredExport,
    list_exports,
)
from sharedmem.config import Settings
from sharedmem.errors import ConfigError, NotFoundError, SharedMemoryError
from sharedmem.faces.cli import completion
from sharedmem.faces.cli.app import command, exports
from sharedmem.faces.cli.output import empty_text, fields_table, format_age, print_answer, rows_table
from sharedmem.faces.cli.session import options_of, with_operator_access
from sharedmem.hub import Hub
from sharedmem.hub.restore_drill import DrillReport, drill_archive

if TYPE_CHECKING:
    from rich.console import RenderableType

_FAILED = 1
_MOST_SHOWN = 10
_Folder = Annotated[Path | None, typer.Option(help="Where the exports are; default: setting export_dir.")]
_Namespaces = Annotated[
    list[str] | None, typer.Argument(help="Which namespaces; without it all.", autocompletion=completion.namespaces)
]


@command("run", None, group=exports, example="sharedmem exports run --folder exports --daily 7 --weekly 4")
def exports_run(
    context: typer.Context,
    namespaces: _Namespaces = None,
    folder: _Folder = None,
    daily: Annotated[int, typer.Option(help="How many of the newest exports are kept.")] = DEFAULT_DAILY,
    weekly: Annotated[int, typer.Option(help="Of how many of the newest weeks the newest is kept.")] = DEFAULT_WEEKLY,
    plain: Annotated[bool, typer.Option("--plain", help="Do not compress; then no extra is needed.")] = False,
) -> None:
    """Export namespaces that have no export of today (UTC) yet, read each back, and delete outdated exports.

    Exit code 1 when a namespace could not be exported; the others are exported nevertheless.
    """
    options = options_of(context)
    settings = options.settings()
    place = _folder(settings, folder)
    KeptExports(daily, weekly).check()
    failures: list[str] = []

    async def work() -> list[RotatedExport]:
        done = []
        async with Hub.open(settings=with_operator_access(settings)) as hub:
            for name in namespaces or await hub.archive.namespaces():
                try:
                    done.append(
                        await hub.archive.export_daily(name, place, daily=daily, weekly=weekly, compressed=not plain)
                    )
                except SharedMemoryError as error:
                    failures.append(f"{name}: {error}")
        return done

    done = asyncio.run(work())
    print_answer(options, done, lambda: _run_picture(done))
    for why in failures:
        sys.stderr.write(f"sharedmem: not exported: {why}\n")
    if failures:
        raise typer.Exit(_FAILED)


@command("list", None, group=exports, example="sharedmem exports list --folder exports")
def exports_list(context: typer.Context, folder: _Folder = None) -> None:
    """Show the exports of a folder, newest first, and when a restore of each was rehearsed."""
    options = options_of(context)
    found = list_exports(_folder(options.settings(), folder))
    print_answer(options, found, lambda: _list_picture(found))


@command("drill", None, group=exports, example="sharedmem exports drill research --folder exports")
def exports_drill(
    context: typer.Context,
    namespaces: _Namespaces = None,
    folder: _Folder = None,
    server: Annotated[
        str | None,
        typer.Option("--to", help="Redis URL of a server to restore into; default: a private one, which is deleted."),
    ] = None,
) -> None:
    """Rehearse a restore of the newest export of each namespace: restore it elsewhere, compare, and delete the copy.

    Exit code 1 when something did not come back.
    """
    options = options_of(context)
    settings = options.settings()
    newest = _newest_exports(_folder(settings, folder), namespaces or [])

    async def work() -> list[DrillReport]:
        return [await drill_archive(one.file, settings=settings, server=server) for one in newest]

    done = asyncio.run(work())
    print_answer(options, done, lambda: _drill_picture(done))
    if not all(report.ok for report in done):
        raise typer.Exit(_FAILED)


def _folder(settings: Settings, given: Path | None) -> Path:
    chosen = given or settings.export_dir
    if chosen is None:
        problem = "it is not set; give --folder, or set it to the folder of the exports"
        raise ConfigError("export_dir", settings.origin("export_dir"), problem)
    return chosen


def _newest_exports(folder: Path, namespaces: list[str]) -> list[StoredExport]:
    """The newest export of each namespace; an error if one has none."""
    newest: dict[str, StoredExport] = {}
    for one in list_exports(folder):
        newest.setdefault(one.namespace, one)
    wanted = namespaces or sorted(newest)
    for name in wanted or ["*"]:
        if name not in newest:
            raise NotFoundError("export", name, f"{folder} has none of it; run `sharedmem exports run` first")
    return [newest[name] for name in wanted]


def _run_picture(done: list[RotatedExport]) -> RenderableType:
    if not done:
        return empty_text()
    rows = [
        (one.namespace, one.file, one.exported.keys if one.exported else "there already", one.kept, len(one.deleted))
        for one in done
    ]
    return rows_table(rows, "namespace", "file", "keys", "kept", "deleted", right=["keys", "kept", "deleted"])


def _list_picture(found: list[StoredExport]) -> RenderableType:
    if not found:
        return empty_text()
    rows = [
        (
            one.namespace,
            one.day,
            one.bytes,
            format_age(one.written),
            format_age(one.drilled) if one.drilled else "never",
        )
        for one in found
    ]
    return rows_table(rows, "namespace", "day", "bytes", "written", "restore rehearsed", right=["bytes"])


def _drill_picture(done: list[DrillReport]) -> RenderableType:
    if len(done) > 1:
        rows = [
            (
                one.namespace,
                "ok" if one.ok else "FAILED",
                one.keys,
                one.missing,
                one.changed,
                one.unexpected,
                one.seconds,
            )
            for one in done
        ]
        titles = ("keys", "missing", "changed", "unexpected", "seconds")
        return rows_table(rows, "namespace", "outcome", *titles, right=titles)
    (one,) = done
    wrong = [*list(one.differences.items())[:_MOST_SHOWN], *list(one.left_out.reasons.items())[:_MOST_SHOWN]]
    return fields_table(
        [
            ("namespace", one.namespace),
            ("outcome", _outcome(one)),
            ("file", one.file),
            ("exported", one.exported),
            ("keys", one.keys),
            ("documents", one.documents),
            ("expired since", one.expired),
            ("missing, changed, unexpected", f"{one.missing}, {one.changed}, {one.unexpected}"),
            ("seconds of the import", one.seconds),
            *wrong,
        ]
    )


def _outcome(report: DrillReport) -> str:
    return "everything came back" if report.ok else "FAILED"


def _drill_age(one: StoredExport) -> str:
    return "never" if one.drilled is None else format_age(one.drilled)
