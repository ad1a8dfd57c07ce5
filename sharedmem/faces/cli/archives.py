"""Commands that take whole namespaces into files and back, elsewhere, and in from foreign records; each day by cron."""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from sharedmem.archive.archives import Archives
from sharedmem.archive.backfill import Backfilled
from sharedmem.archive.daily_exports import (
    DEFAULT_DAILY,
    DEFAULT_WEEKLY,
    KeptExports,
    RotatedExport,
    StoredExport,
    list_exports,
)
from sharedmem.archive.transfer import Copied, Exported, Imported, LeftOut, Progress, ProgressStep
from sharedmem.clock import SystemClock
from sharedmem.config import Settings, masked
from sharedmem.config.settings import DURABLE_SCHEMES
from sharedmem.durable.tier import durable_store_at
from sharedmem.errors import ConfigError, InvalidError, NotFoundError, SharedMemoryError
from sharedmem.faces.cli import completion
from sharedmem.faces.cli.app import DURABLE, command, exports
from sharedmem.faces.cli.output import (
    console,
    empty_text,
    fields_table,
    format_age,
    format_count,
    is_interactive,
    print_answer,
    print_note,
    rows_table,
    stack,
)
from sharedmem.faces.cli.session import options_of, with_operator_access
from sharedmem.hub import Hub
from sharedmem.hub.archives import build_durable_archives
from sharedmem.hub.restore_drill import DrillReport, drill_archive

if TYPE_CHECKING:
    from rich.console import RenderableType


_T = TypeVar("_T")
_NOTHING_COPIED = 1

_NamespaceName = Annotated[str, typer.Argument(help="Name of the namespace.", autocompletion=completion.namespaces)]
_Replace = Annotated[
    bool,
    typer.Option("--replace", help="Replace existing structures and counters; values are compared by version."),
]


@command("export", DURABLE, example="sharedmem export research research.jsonl.zst --replace")
def export(
    context: typer.Context,
    namespace: _NamespaceName,
    file: Annotated[Path, typer.Argument(help="Where to; .zst at its end compresses it.")],
    replace: Annotated[bool, typer.Option("--replace", help="Let a file of that name give way.")] = False,
) -> None:
    """Write a namespace into an archive, with versions, authors and times; go on where it was stopped."""
    options = options_of(context)

    async def work(told: Progress | None) -> Exported:
        async with Hub.open(settings=with_operator_access(options.settings())) as hub:
            return await hub.archive.export(namespace, file, replace=replace, progress=told)

    done = _run_with_progress(work)
    print_answer(options, done, lambda: _export_picture(done))
    _report_left_out(done.left_out)


@command("import", DURABLE, example="sharedmem import research.jsonl.zst")
def import_(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="The archive.")],
    replace: _Replace = False,
) -> None:
    """Put an archive back; what is there already and as new stays, a damaged file changes nothing."""
    options = options_of(context)

    async def work(told: Progress | None) -> Imported:
        async with Hub.open(settings=with_operator_access(options.settings())) as hub:
            return await hub.archive.import_(file, namespace=options.namespace, replace=replace, progress=told)

    done = _run_with_progress(work)
    print_answer(options, done, lambda: _import_picture(done))
    _report_left_out(done.left_out)


@command("copy", DURABLE, example="sharedmem copy --from redis://old:6379 --to redis://new:6379 research")
def copy(
    context: typer.Context,
    namespaces: Annotated[
        list[str] | None, typer.Argument(help="Which namespaces; without it all.", autocompletion=completion.namespaces)
    ] = None,
    source: Annotated[
        str | None, typer.Option("--from", help="Where from: a Redis or durable URL; without it the server in use.")
    ] = None,
    target: Annotated[
        str | None, typer.Option("--to", help="Where to: a Redis or durable URL; without it the server in use.")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="File that keeps how far it has come; without it one in the data folder.")
    ] = None,
    replace: _Replace = False,
) -> None:
    """Stream namespaces into another server or durable store, as export and import do; go on where it was stopped.

    Exit code 1 when there was nothing to copy.
    """
    options = options_of(context)
    settings = options.settings()
    beside = checkpoint or _default_checkpoint(settings, source, target, namespaces or [])

    async def work(told: Progress | None) -> list[Copied]:
        async with AsyncExitStack() as stack:
            ends = [
                await stack.enter_async_context(_open_end(settings, url, new=new))
                for url, new in _check_ends(source, target)
            ]
            return await ends[0].copy_to(ends[1], namespaces or None, checkpoint=beside, replace=replace, progress=told)

    done = _run_with_progress(work)
    print_answer(options, done, lambda: _copy_picture(done))
    for one in done:
        _report_left_out(one.left_out)
    if not any(one.documents for one in done):
        asked = f"holds nothing of {', '.join(namespaces)}" if namespaces else "holds no namespace with data"
        sys.stderr.write(f"sharedmem: nothing was copied: {_masked_url(source)} {asked}\n")
        raise typer.Exit(_NOTHING_COPIED)


@command("backfill", DURABLE, example="sharedmem backfill articles.jsonl --mapping mapping.yaml --dry-run")
def backfill(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="Foreign records, a JSON object a line; may end in .zst.")],
    mapping: Annotated[Path, typer.Option(help="YAML or JSON file that says how a record becomes a key.")],
    rejects: Annotated[Path | None, typer.Option(help="File for lines that cannot be used, with the reasons.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing; show the first few.")] = False,
) -> None:
    """Take foreign records in through a mapping; what is there already is not written again."""
    options = options_of(context)
    settings = options.settings()

    async def work(told: Progress | None) -> Backfilled:
        async with Hub.open(settings=with_operator_access(settings)) as hub:
            return await hub.archive.backfill(
                file, mapping, namespace=settings.namespace, rejects=rejects, dry_run=dry_run, progress=told
            )

    done = _run_with_progress(work)
    print_answer(options, done, lambda: _backfill_picture(done, dry_run=dry_run))
    if done.rejected and not is_interactive(options):
        number, why = next(iter(done.reasons.items()))
        print_note(f"{format_count(done.rejected, 'line')} could not be used; line {number}: {why}")


# -- how a command runs ---------------------------------------------------------------------------


def _run_with_progress(work: Callable[[Progress | None], Coroutine[Any, Any, _T]]) -> _T:
    """Run it with a bar for the person at the terminal; an interrupted run prints how to continue."""
    try:
        with _progress_bar() as told:
            return asyncio.run(work(told))
    except (KeyboardInterrupt, typer.Abort):
        sys.stderr.write("sharedmem: stopped; nothing is lost, the same command goes on from here\n")
        raise


@contextmanager
def _progress_bar() -> Iterator[Progress | None]:
    """A bar on standard error with rate and remaining time; None without a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import (  # noqa: PLC0415  a pipe does not wait for it
        BarColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bars  # noqa: PLC0415  likewise

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} {task.fields[unit]}"),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        TimeElapsedColumn(),
    )
    with Bars(*columns, console=console(beside=True), transient=True) as bars:
        tasks = dict[str, Any]()

        def told(step: ProgressStep) -> None:
            title = f"{step.doing} {step.what}"
            if title not in tasks:
                tasks[title] = bars.add_task(title, unit=step.unit, rate="", total=step.total)
            task = tasks[title]
            speed = next(one.speed for one in bars.tasks if one.id == task)
            bars.update(task, completed=step.done, total=step.total, rate=f"{speed:,.0f}/s" if speed else "")

        yield told


@asynccontextmanager
async def _open_end(settings: Settings, url: str | None, *, new: bool) -> AsyncIterator[Archives]:
    """One end of a copy: a hub, or a durable store alone.

    Args:
        settings: of this command.
        url: which; None for the server in use.
        new: whether a durable store may be made.
    """
    if url is None or url.partition("://")[0] not in DURABLE_SCHEMES:
        chosen = settings if url is None else settings.replace(redis_url=url, durable_url=None)
        async with Hub.open(settings=with_operator_access(chosen)) as hub:
            yield hub.archive
        return
    clock = SystemClock()
    store = durable_store_at(url, settings, clock)
    try:
        await store.open(create=new)
        yield build_durable_archives(store, clock)
    finally:
        await store.close()


def _masked_url(source: str | None) -> str:
    return "the server in use" if source is None else masked(source)


def _check_ends(source: str | None, target: str | None) -> tuple[tuple[str | None, bool], tuple[str | None, bool]]:
    if source == target:
        raise InvalidError("--to", target, "name two places: --from URL --to URL; without one it is the server in use")
    return (source, False), (target, True)


def _default_checkpoint(settings: Settings, source: str | None, target: str | None, namespaces: list[str]) -> Path:
    name = hashlib.sha256(repr((source, target, sorted(namespaces))).encode()).hexdigest()[:16]
    folder = settings.data_dir / "copies"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}.json"


def _report_left_out(left_out: LeftOut) -> None:
    if left_out.count:
        key, why = next(iter(left_out.reasons.items()))
        sys.stderr.write(f"sharedmem: {format_count(left_out.count, 'key')} left out; {key}: {why}\n")


# -- pictures -------------------------------------------------------------------------------------


def _export_picture(done: Exported) -> RenderableType:
    rows = [("namespace", done.namespace), ("file", done.file), ("keys", done.keys), ("documents", done.documents)]
    return fields_table([*rows, ("digest", done.digest)])


def _import_picture(done: Imported) -> RenderableType:
    rows = [("namespace", done.namespace), ("documents", done.documents), ("imported", done.imported)]
    return fields_table([*rows, ("as new there", done.older), ("skipped", done.skipped)])


def _copy_picture(done: list[Copied]) -> RenderableType:
    numbers = ("documents", "imported", "as new there", "skipped")
    rows = [(one.namespace, one.documents, one.imported, one.older, one.skipped) for one in done]
    return rows_table(rows, "namespace", *numbers, right=numbers)


def _backfill_picture(done: Backfilled, *, dry_run: bool) -> RenderableType:
    written = "would be written" if dry_run else "written"
    parts: list[RenderableType] = [
        fields_table(
            [("lines", done.lines), (written, done.written), ("unchanged", done.unchanged), ("rejected", done.rejected)]
        )
    ]
    if done.preview:
        rows = [(one.line, one.key, one.type, one.kind, one.value) for one in done.preview]
        parts += ["", rows_table(rows, "line", "key", "type", "kind", "value", right=["line"])]
    if done.reasons:
        reasons = [(int(number), why) for number, why in list(done.reasons.items())[:10]]
        parts += ["", rows_table(reasons, "line", "why it cannot be used", right=["line"])]
    return stack(*parts)


# -- daily exports --------------------------------------------------------------------------------


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
