"""Terminal output of notes: status, scores of hits, version chains, tasks and reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sharedmem.faces.cli.graph_output import check_picture as graph_check_picture
from sharedmem.faces.cli.graph_output import problem_row
from sharedmem.faces.cli.output import (
    cell,
    dim,
    escape_control,
    fields_table,
    format_count,
    format_size,
    rows_table,
    stack,
    styled_text,
)
from sharedmem.models import ArchiveReport, EraseReport, GraphCheck, Note, NoteCheck, NoteHit, SynthesisTask

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

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


def note_picture(note: Note) -> RenderableType:
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
    rows += [("degraded", reason) for reason in note.degraded]
    return stack(fields_table(rows), "", cell(note.memory_note))


def hits_picture(hits: Sequence[NoteHit]) -> RenderableType:
    """Hits with the parts of their scores, best first."""
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


def chain_picture(chain: Sequence[Note]) -> RenderableType:
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


def task_picture(task: SynthesisTask) -> Table:
    """A task, and what came out of it."""
    rows: list[tuple[str, object]] = [("task", task.task_id), ("status", _state(task.status))]
    rows += [(name.replace("_", " "), value) for name, value in (task.result or {}).items() if value not in (None, [])]
    rows += [("error", task.error)] if task.error else []
    return fields_table(rows)


def tasks_picture(tasks: Sequence[SynthesisTask]) -> RenderableType:
    """Tasks, a line each."""
    rows = [(task.task_id, _state(task.status), f"{task.attempts:,}", task.error or "") for task in tasks]
    return rows_table(rows, "task", "status", "attempts", "error", right=["attempts"])


def check_picture(check: NoteCheck) -> RenderableType:
    """What fsck has found."""
    seen = f"{format_count(check.notes, 'note')} in {format_count(check.chains, 'chain')}"
    if not check.problems:
        return styled_text(("clean: ", "green"), seen)
    rows = [problem_row(one, one.note_id) for one in check.problems]
    return stack(rows_table(rows, "problem", "note", "what", "repair"), dim(seen))


def checks_picture(notes: Sequence[NoteCheck], graphs: Sequence[GraphCheck]) -> RenderableType:
    """What fsck has found in a namespace."""
    if not notes and not graphs:
        return styled_text(("clean: ", "green"), "there are no notes and no graphs")
    return stack(*map(check_picture, notes), *map(graph_check_picture, graphs))


def archive_picture(report: ArchiveReport) -> Text:
    """What was put away."""
    word = "would be archived: " if report.dry_run else "archived: "
    notes, chains = format_count(len(report.archived), "note"), format_count(report.chains, "chain")
    told = f"{notes} in {chains}, {format_size(report.bytes)}"
    return styled_text((word, "green"), told, (f"; looked at {report.looked_at:,}", "dim"))


def erase_picture(report: EraseReport) -> RenderableType:
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
