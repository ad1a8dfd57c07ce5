"""Draw a chain of notes as Mermaid, as Graphviz or as an HTML page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from sharedmem.errors import InvalidError
from sharedmem.models import EvolutionGraph, GraphFormat, Note, NoteStatus
from sharedmem.models.notes import sort_by_succession
from sharedmem.text.escaping import escape_dot, escape_mermaid
from sharedmem.visualization.html_page import build_page

_SCRIPTS = ("layout.js", "picture.js", "reader.js", "main.js")


def chain_as_html(notes: Iterable[Note], *, chosen: str = "") -> str:
    """Return the notes of a chain as a self-contained page: a diagram, the texts, a slider over the versions.

    The page can only run its own script: its policy forbids every request and every other script.

    Args:
        notes: in any order.
        chosen: id of the note that is displayed first; empty for the newest.
    """
    ordered = sort_by_succession(notes)
    title = f"Memory {chosen or (ordered[-1].id if ordered else 'without versions')}"
    content = {"title": title, "chosen": chosen, "notes": [_note_data(note) for note in ordered]}
    return build_page("chain_page_files", _SCRIPTS, title=title, data=content)


def _note_data(note: Note) -> dict[str, object]:
    return {
        "id": note.id,
        "text": note.memory_note,
        "status": note.status,
        "reason": note.status_reason,
        "made": _minute(note.created_at),
        "changed": _minute(note.updated_at),
        "user": note.user_id,
        "session": note.session_id,
        "tags": [*note.tags, *note.keywords],
        "next": note.next_id,
        "sources": note.sources,
        "links": [link.model_dump() for link in note.links],
        "resolutions": [one.model_dump() for one in note.resolutions],
        "degraded": note.degraded,
        "archived": note.archival_location,
        "messages": [{"who": one.name or one.role, "says": one.content} for one in note.messages],
    }


def _minute(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M}"


COLOURS: dict[NoteStatus, str] = {
    "active": "#2b8a3e",
    "conflict_pending": "#e67700",
    "updated": "#4263eb",
    "deleted": "#c2255c",
    "archived": "#868e96",
}
_SHOWN_OF_TEXT = 60
_FORMATS = ("mermaid", "dot", "html")


class _ChainArrow(NamedTuple):
    source: int
    """Position of the note."""
    target: int
    label: str
    points_back: bool
    """Whether both notes have the link; else one of them is damaged."""


def draw_chain(notes: Sequence[Note], format: GraphFormat = "mermaid", *, chosen: str = "") -> EvolutionGraph:  # noqa: A002  # the name users know
    """Return a drawing of a chain. No round trip.

    Args:
        notes: notes of the chain, as `lineage` returns them; in any order.
        format: `mermaid`, `dot` (Graphviz) or `html`, a self-contained page.
        chosen: id of the note that the page displays first; empty for the newest.

    Raises:
        InvalidError: the format is invalid.
    """
    if format not in _FORMATS:
        raise InvalidError("format", format, f"use one of {', '.join(_FORMATS)}")
    if format == "html":
        return EvolutionGraph(format=format, text=chain_as_html(notes, chosen=chosen))
    return EvolutionGraph(format=format, text=chain_as_mermaid(notes) if format == "mermaid" else chain_as_dot(notes))


def chain_as_mermaid(notes: Iterable[Note]) -> str:
    """Return notes as a Mermaid flow chart, oldest first; a link that only one of two notes has is dotted."""
    ordered = sort_by_succession(notes)
    lines = ["flowchart LR"]
    for place, note in enumerate(ordered):
        label = "<br/>".join(map(escape_mermaid, _lines(note)))
        lines.append(f'    n{place}["{label}"]:::{note.status}')
    for arrow in _arrows(ordered):
        shaft = "-->" if arrow.points_back else "-.->"
        lines.append(f'    n{arrow.source} {shaft}|"{escape_mermaid(arrow.label)}"| n{arrow.target}')
    used = dict.fromkeys(note.status for note in ordered)
    lines += [f"    classDef {status} stroke:{COLOURS[status]},stroke-width:2px" for status in used]
    return "\n".join(lines) + "\n"


def chain_as_dot(notes: Iterable[Note]) -> str:
    """Return notes as a Graphviz digraph, oldest first; a link that only one of two notes has is dashed."""
    ordered = sort_by_succession(notes)
    lines = [
        "digraph evolution {",
        "    rankdir=LR;",
        '    node [shape=box, style="rounded", fontname="sans-serif"];',
        '    edge [fontname="sans-serif", fontsize=10];',
    ]
    for place, note in enumerate(ordered):
        label = "\\n".join(map(escape_dot, _lines(note)))
        lines.append(f'    n{place} [label="{label}", color="{COLOURS[note.status]}"];')
    for arrow in _arrows(ordered):
        style = "solid" if arrow.points_back else "dashed"
        lines.append(f'    n{arrow.source} -> n{arrow.target} [label="{escape_dot(arrow.label)}", style={style}];')
    return "\n".join([*lines, "}"]) + "\n"


def _lines(note: Note) -> tuple[str, ...]:
    return note.id, f"{note.status}, {note.created_at:%Y-%m-%d}", _beginning(note.memory_note)


def _beginning(text: str) -> str:
    """Return the first words of a note that are not a heading."""
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), "")
    return first if len(first) <= _SHOWN_OF_TEXT else f"{first[: _SHOWN_OF_TEXT - 1]}…"


def _arrows(ordered: Sequence[Note]) -> list[_ChainArrow]:
    places = {note.id: place for place, note in enumerate(ordered)}
    found: dict[tuple[int, int], _ChainArrow] = {}
    for note in ordered:
        if note.next_id in places:
            source, target = places[note.id], places[note.next_id]
            agree = note.id in ordered[target].sources
            found[source, target] = _ChainArrow(source, target, note.status_reason.replace("_", " "), agree)
        for source in (places[id_] for id_ in note.sources if id_ in places):
            target = places[note.id]
            found.setdefault((source, target), _ChainArrow(source, target, "source", points_back=False))
    return list(found.values())
