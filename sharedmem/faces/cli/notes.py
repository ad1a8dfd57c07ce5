"""Commands on notes and on tasks of synthesis: notes, evolution, fsck, archive, task."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import orjson
import typer
from pydantic import TypeAdapter, ValidationError

from sharedmem.errors import InvalidError
from sharedmem.faces.cli import graph_output
from sharedmem.faces.cli.app import MEMORY, command, notes, operation_command, tasks
from sharedmem.faces.cli.output import (
    cell,
    confirm,
    dim,
    escape_control,
    fields_table,
    format_count,
    format_size,
    is_interactive,
    list_table,
    print_answer,
    print_note,
    progress,
    rows_table,
    stack,
    styled_text,
    write_line,
)
from sharedmem.faces.cli.session import Options, open_store, options_of, perform, use_store
from sharedmem.models import (
    ArchiveReport,
    ConsolidationReport,
    EraseReport,
    GraphCheck,
    GraphFormat,
    Note,
    NoteCheck,
    NoteHit,
    NoteLink,
    Recall,
    Record,
    SynthesisMessage,
    SynthesisTask,
)
from sharedmem.store import SharedMemoryStore

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

App = Annotated[str, typer.Option("--app", help="The app whose notes they are.")]
MemoryId = Annotated[str, typer.Argument(metavar="ID", help="Id of the note.")]
_LONGEST = 200
_STYLES = {
    "active": "green",
    "conflict_pending": "yellow",
    "updated": "blue",
    "deleted": "red",
    "archived": "dim",
    "done": "green",
    "running": "cyan",
    "failed": "red",
}
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]


class RenderedChain(Record):
    """Where a drawing is."""

    file: str
    format: GraphFormat


class NamespaceCheck(Record):
    """What was found in a whole namespace."""

    notes: tuple[NoteCheck, ...]
    graphs: tuple[GraphCheck, ...]

    @property
    def is_clean(self) -> bool:
        """Whether nothing is left to repair."""
        return all(note.is_clean for note in self.notes) and all(graph.is_clean for graph in self.graphs)


_MESSAGES = TypeAdapter(list[SynthesisMessage])


@command("add", None, group=notes, example="sharedmem notes add talk.json --app shop --user ada")
def notes_add(
    context: typer.Context,
    file: Annotated[
        Path | None, typer.Argument(help="JSON list of messages with role and content; none reads standard input.")
    ] = None,
    *,
    app: App,
    user: Annotated[str, typer.Option(help="Whose conversation it is.")],
    session: Annotated[str | None, typer.Option(help="Which conversation it is.")] = None,
    wait: Annotated[float, typer.Option(help="Seconds to wait for the note; 0 returns the task at once.")] = 60.0,
) -> None:
    """Make a note of a conversation, and settle it with what is known already."""
    options = options_of(context)
    messages = _read_messages(file)

    async def work(store: SharedMemoryStore) -> SynthesisTask:
        task = await store.synthesis.add_memory(app_id=app, user_id=user, session_id=session, messages=messages)
        return await store.synthesis.wait(task.task_id, timeout=wait) if wait else task

    task = use_store(options, work)
    print_answer(options, task, lambda: _task_picture(task))


@operation_command(
    "synthesis.query_memory", "search", group=notes, example='sharedmem notes search "delivery address" --app shop'
)
def notes_search(
    hits: list[NoteHit],
    query: Annotated[str, typer.Argument(help="What is looked for.")],
    *,
    app_id: App,
    user_id: Annotated[str | None, typer.Option("--user", help="Only notes of this user.")] = None,
    session_id: Annotated[str | None, typer.Option("--session", help="Only notes of this session.")] = None,
    n_results: Annotated[int, typer.Option("--limit", help="How many to show.")] = 10,
    recall: Annotated[Recall, typer.Option(help="current; flagged: pending too; all: retired too.")] = "current",
    archived: Annotated[bool, typer.Option("--archived", help="Look into archives, too: slower.")] = False,
) -> RenderableType:
    """Find notes by composite score: relevance first, raised a little by recency and importance."""
    rows = [
        (
            styled_text((f"{hit.composite_score:.3f}", "cyan")),
            f"{hit.similarity_score:.3f}",
            f"{hit.recency_score:.2f}",
            f"{hit.importance_score:.2f}",
            _status(hit.metadata),
            _shorten(hit.memory_note),
            dim(escape_control(hit.metadata.id)),
        )
        for hit in hits
    ]
    return rows_table(rows, "score", "relevance", "recency", "importance", "status", "note", "id", right=["score"])


@operation_command("synthesis.apps", "apps", group=notes, example="sharedmem notes apps")
def notes_apps(names: list[str]) -> RenderableType:
    """Show the apps that have notes; `notes` alone does the same."""
    return list_table(names, first=1)


@operation_command("synthesis.list_memories", "list", group=notes, example="sharedmem notes list --app shop")
def notes_list(
    found: list[Note],
    *,
    app_id: App,
    after: Annotated[str, typer.Option(help="Go on behind the note of this id.")] = "",
    limit: Annotated[int, typer.Option(help="How many to show.")] = 100,
) -> RenderableType:
    """Show the notes of an app, whatever their status, in the order of their ids."""
    rows = [(_status(note), _shorten(note.memory_note), dim(escape_control(note.id))) for note in found]
    return rows_table(rows, "status", "note", "id")


@operation_command("synthesis.get_memory", "get", group=notes, example="sharedmem notes get note-1 --app shop")
def notes_get(note: Note, memory_id: MemoryId, *, app_id: App) -> RenderableType:
    """Show one note, whatever its status."""
    return _note_picture(note)


@operation_command(
    "synthesis.restore_memory", "restore", group=notes, example="sharedmem notes restore note-1 --app shop"
)
def notes_restore(note: Note, memory_id: MemoryId, *, app_id: App) -> RenderableType:
    """Make an earlier version the current one; the present one stays in the chain."""
    return _note_picture(note)


@operation_command(
    "synthesis.unarchive", "unarchive", group=notes, example="sharedmem notes unarchive note-1 --app shop"
)
def notes_unarchive(note: Note, memory_id: MemoryId, *, app_id: App) -> RenderableType:
    """Bring the chain of a note that was put away back."""
    return _note_picture(note)


@operation_command("synthesis.delete_memory", "delete", group=notes, example="sharedmem notes delete note-1 --app shop")
def notes_delete(done: bool, memory_id: MemoryId, *, app_id: App) -> RenderableType:
    """Mark a note as deleted; `notes erase` erases for good."""
    return styled_text(("deleted", "green") if done else ("nothing to delete", "yellow"))


@command("evolution", MEMORY, example="sharedmem evolution note-1 --app shop")
def evolution(
    context: typer.Context,
    memory_id: MemoryId,
    *,
    app: App,
    format_: Annotated[
        Literal["mermaid", "dot", "html"] | None, typer.Option("--format", help="Draw it; none lists the notes.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File to write the drawing to.")] = None,
) -> None:
    """What a note came from and what became of it, as a list or as a picture."""
    options = options_of(context)
    if format_ is None and out is None:
        chain = perform(
            options, "synthesis.traverse_memory_evolution_chain", app_id=app, memory_id=memory_id, direction="both"
        )
        print_answer(options, chain, lambda: _chain_picture(chain))
        return
    form: GraphFormat = format_ or ("html" if out is not None and out.suffix == ".html" else "mermaid")
    if form == "html" and out is None and is_interactive(options):
        raise InvalidError("format", form, "a page is nothing for a terminal; say --out FILE.html, then open it")
    drawing = perform(options, "synthesis.generate_evolution_graph", app_id=app, memory_id=memory_id, format=form)
    if out is None:
        write_line(drawing.text.rstrip("\n"))
        return
    out.write_text(drawing.text, encoding="utf-8")
    done = RenderedChain(file=str(out), format=form)
    print_answer(options, done, lambda: styled_text(("drawn: ", "green"), f"{memory_id} into {out}"))


@command("fsck", MEMORY, example="sharedmem fsck --app shop")
def fsck(
    context: typer.Context,
    *,
    app: Annotated[str | None, typer.Option(help="Only the notes of this app; else all notes and graphs.")] = None,
    repair: Annotated[bool, typer.Option("--repair", help="Mend what is found; no note is removed.")] = False,
) -> None:
    """Check the chains of notes, and the facts of all graphs; exit code 1 if something is wrong.

    Of notes: no message is lost, no chain has two heads, and none leads nowhere. Of graphs: `graph check`.
    """
    options = options_of(context)

    async def work(store: SharedMemoryStore) -> NamespaceCheck | NoteCheck:
        with progress("checking", noun="notes") as told:
            if app is not None:
                return await store.synthesis.fsck(app_id=app, repair=repair, progress=told)
            apps = await store.synthesis.apps()
            notes = [await store.synthesis.fsck(app_id=one, repair=repair, progress=told) for one in apps]
        groups = await store.graph.groups()
        graphs = [await store.graph.check(group_id=group, repair=repair) for group in groups]
        return NamespaceCheck(notes=tuple(notes), graphs=tuple(graphs))

    found = use_store(options, work)
    if isinstance(found, NoteCheck):
        print_answer(options, found, lambda: _check_picture(found))
    else:
        print_answer(options, found, lambda: _checks_picture(found.notes, found.graphs))
    if not found.is_clean:
        raise typer.Exit(1)


@operation_command("synthesis.archive", "archive", MEMORY, example="sharedmem archive --app shop --dry-run")
def archive(report: ArchiveReport, *, app_id: App, dry_run: DryRun = False) -> RenderableType:
    """Archive chains that are older than the threshold and not in use; they can still be read."""
    word = "would be archived: " if report.dry_run else "archived: "
    notes, chains = format_count(len(report.archived), "note"), format_count(report.chains, "chain")
    told = f"{notes} in {chains}, {format_size(report.bytes)}"
    return styled_text((word, "green"), told, (f"; looked at {report.looked_at:,}", "dim"))


@command("erase", None, group=notes, example="sharedmem notes erase --app shop --user ada --dry-run")
def notes_erase(
    context: typer.Context,
    *,
    app: App,
    user: Annotated[str | None, typer.Option(help="Notes of this user; without it all of the app.")] = None,
    dry_run: DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Erase notes, their messages, archives and waiting tasks for good."""
    options = options_of(context)
    if not (yes or dry_run):
        advice = "say --yes, or look first with --dry-run"
        confirm(lambda: _erasure_question(options, app, user), "app", app, otherwise=advice)
    report = perform(options, "synthesis.erase", app_id=app, user_id=user, dry_run=dry_run)
    print_answer(options, report, lambda: _erase_picture(report))


def _erasure_question(options: Options, app: str, user: str | None) -> str:
    found = perform(options, "synthesis.erase", app_id=app, user_id=user, dry_run=True)
    whose = "every user" if user is None else user
    return f"Erase {format_count(found.notes, 'note')} of {whose} in app {app} for good?"


def _read_messages(file: Path | None) -> list[SynthesisMessage]:
    if file is None and sys.stdin.isatty():
        raise InvalidError("file", None, "name a JSON file, or pipe one in")
    try:
        text = sys.stdin.buffer.read() if file is None else file.read_bytes()
    except OSError as error:
        raise InvalidError("file", str(file), f"it cannot be read: {error.strerror}") from error
    try:
        return _MESSAGES.validate_python(orjson.loads(text))
    except orjson.JSONDecodeError as error:
        raise InvalidError("file", str(file or "-"), f"it is no JSON: {error}") from error
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the whole"
        raise InvalidError("file", str(file or "-"), f"{place}: {first['msg']}") from error


TaskId = Annotated[str, typer.Argument(metavar="ID", help="Task id that adding printed.")]


@command("get", None, group=tasks, example="sharedmem task get 01J9 --wait 30")
def task_get(
    context: typer.Context,
    task_id: TaskId,
    wait: Annotated[float, typer.Option(help="Seconds to wait until it is done or has failed.")] = 0.0,
) -> None:
    """How far a task is, and what came out of it."""
    options = options_of(context)
    found = use_store(options, lambda store: store.synthesis.wait(task_id, timeout=wait))
    print_answer(options, found, lambda: _task_picture(found))


@operation_command("synthesis.list_tasks", "list", group=tasks, example="sharedmem task list")
def task_list(
    found: list[SynthesisTask], limit: Annotated[int, typer.Option(help="How many of each state.")] = 100
) -> RenderableType:
    """List the running, waiting and failed tasks."""
    rows = [(task.task_id, _state(task.status), f"{task.attempts:,}", task.error or "") for task in found]
    return rows_table(rows, "task", "status", "attempts", "error", right=["attempts"])


@operation_command("synthesis.retry_task", "retry", group=tasks, example="sharedmem task retry 01J9")
def task_retry(done: bool, task_id: TaskId) -> RenderableType:
    """Try a task that has failed again."""
    return styled_text(("waits again", "green") if done else ("no such failed task", "yellow"))


@command("work", None, group=tasks, example="sharedmem task work")
def task_work(context: typer.Context) -> None:
    """Work on the tasks of the namespace until Ctrl-C; tasks under way may end."""
    settings = options_of(context).settings()

    async def work() -> None:
        async with open_store(settings) as (_, store):
            loop, told = asyncio.get_running_loop(), asyncio.Event()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, told.set)
            store.synthesis.start()
            print_note(
                f"working on {settings.namespace}, {settings.synthesis_concurrency} tasks at a time; Ctrl-C ends it"
            )
            await told.wait()
            await store.synthesis.drain()

    asyncio.run(work())


# -- pictures -------------------------------------------------------------------------------------


def _note_picture(note: Note) -> RenderableType:
    """A whole note."""
    rows: list[tuple[str, object]] = [
        ("id", note.id),
        ("status", _status(note)),
        ("user", note.user_id),
        ("created", f"{note.created_at:%Y-%m-%d %H:%M}"),
        ("messages", len(note.messages)),
    ]
    rows += [("made of", ", ".join(note.sources))] if note.sources else []
    rows += [("became", note.next_id)] if note.next_id else []
    rows += [("archived at", note.archival_location)] if note.archival_location else []
    rows += [("resembles", _link_line(link)) for link in note.links]
    rows += [("merged", _consolidation_line(note.consolidation))] if note.consolidation else []
    rows += [("degraded", reason) for reason in note.degraded]
    return stack(fields_table(rows), "", cell(note.memory_note))


def _link_line(link: NoteLink) -> str:
    """A link, in a line."""
    strength = None if link.link_strength is None else f"strength {link.link_strength:.3f}"
    kind = link.relationship_type and link.relationship_type.replace("_", " ")
    return ", ".join(filter(None, (link.memory_id, strength, kind)))


def _consolidation_line(report: ConsolidationReport) -> str:
    """What a consolidation did, in a line."""
    adds = f", {report.new_information_added} new information" if report.new_information_added else ""
    dropped = format_count(report.deduplication_count, "repetition")
    line = f"{report.memories_merged} notes{adds}, {dropped} dropped, check: {report.quality_check}. {report.notes}"
    return line.strip()


def _chain_picture(chain: Sequence[Note]) -> RenderableType:
    """The notes of a chain in their order."""
    rows = [
        (
            f"{note.created_at:%Y-%m-%d %H:%M}",
            _status(note),
            _shorten(note.memory_note),
            dim(escape_control(note.id)),
            dim(escape_control(note.next_id or "-")),
        )
        for note in chain
    ]
    return rows_table(rows, "created", "status", "note", "id", "became")


def _task_picture(task: SynthesisTask) -> Table:
    """A task, and what came out of it."""
    rows: list[tuple[str, object]] = [("task", task.task_id), ("status", _state(task.status))]
    rows += [(name.replace("_", " "), value) for name, value in (task.result or {}).items() if value not in (None, [])]
    rows += [("error", task.error)] if task.error else []
    return fields_table(rows)


def _check_picture(check: NoteCheck) -> RenderableType:
    """What fsck has found."""
    seen = f"{format_count(check.notes, 'note')} in {format_count(check.chains, 'chain')}"
    if not check.problems:
        return styled_text(("clean: ", "green"), seen)
    rows = [graph_output.problem_row(one, one.note_id) for one in check.problems]
    return stack(rows_table(rows, "problem", "note", "what", "repair"), dim(seen))


def _checks_picture(notes: Sequence[NoteCheck], graphs: Sequence[GraphCheck]) -> RenderableType:
    """What fsck has found in a namespace."""
    if not notes and not graphs:
        return styled_text(("clean: ", "green"), "there are no notes and no graphs")
    return stack(*map(_check_picture, notes), *map(graph_output.check_picture, graphs))


def _erase_picture(report: EraseReport) -> RenderableType:
    """What was erased."""
    word = "would be erased" if report.dry_run else "erased"
    rows: list[tuple[str, object]] = [
        (name, f"{getattr(report, name):,}") for name in ("notes", "messages", "archives", "tasks")
    ]
    return fields_table(rows, title=f"{word} of {report.user_id or 'every user'} in {report.app_id}")


def _status(note: Note) -> Text:
    return styled_text((note.status, _STYLES.get(note.status, "")), (f" {note.status_reason}", "dim"))


def _state(status: str) -> Text:
    return styled_text((status, _STYLES.get(status, "yellow")))


def _shorten(text: str) -> str:
    flat = " ".join(line for line in text.splitlines() if line and not line.startswith("## "))
    return flat if len(flat) <= _LONGEST else f"{flat[: _LONGEST - 3]}..."
