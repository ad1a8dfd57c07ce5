"""Drawing: a chain as text for Mermaid or Graphviz, and what every picture of a chain shows of its notes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sharedmem.errors import InvalidError
from sharedmem.knowledge.escaping import dot_text, mermaid_text
from sharedmem.models import EvolutionGraph, GraphFormat, Note, NoteStatus
from sharedmem.synthesis.lineage import evolved
from sharedmem.synthesis.page import as_html

COLOURS: dict[NoteStatus, str] = {
    "active": "#2b8a3e",
    "conflict_pending": "#e67700",
    "updated": "#4263eb",
    "deleted": "#c2255c",
    "archived": "#868e96",
}
_SHOWN_OF_TEXT = 60
_FORMATS = ("mermaid", "dot", "html")


class _Arrow(NamedTuple):
    source: int
    """Place of the note."""
    target: int
    label: str
    points_back: bool
    """Whether both notes say so; else one of them is damaged."""


def drawn(notes: Sequence[Note], format: GraphFormat = "mermaid", *, chosen: str = "") -> EvolutionGraph:  # noqa: A002  # the name users know
    """A chain as a picture. No round trip.

    Args:
        notes: of the chain, as `lineage` answers them; any order.
        format: `mermaid`, `dot` (Graphviz) or `html`, a page that needs nothing else.
        chosen: id of the note that the page shows first; empty for the newest.

    Raises:
        InvalidError: there is no such format.
    """
    if format not in _FORMATS:
        raise InvalidError("format", format, f"use one of {', '.join(_FORMATS)}")
    if format == "html":
        return EvolutionGraph(format=format, text=as_html(notes, chosen=chosen))
    return EvolutionGraph(format=format, text=as_mermaid(notes) if format == "mermaid" else as_dot(notes))


def as_mermaid(notes: Iterable[Note]) -> str:
    """Notes as a flow chart of Mermaid, oldest first; what only one of two notes says is dotted."""
    ordered = evolved(notes)
    lines = ["flowchart LR"]
    for place, note in enumerate(ordered):
        label = "<br/>".join(map(mermaid_text, _lines(note)))
        lines.append(f'    n{place}["{label}"]:::{note.status}')
    for arrow in _arrows(ordered):
        shaft = "-->" if arrow.points_back else "-.->"
        lines.append(f'    n{arrow.source} {shaft}|"{mermaid_text(arrow.label)}"| n{arrow.target}')
    used = dict.fromkeys(note.status for note in ordered)
    lines += [f"    classDef {status} stroke:{COLOURS[status]},stroke-width:2px" for status in used]
    return "\n".join(lines) + "\n"


def as_dot(notes: Iterable[Note]) -> str:
    """Notes as a digraph of Graphviz, oldest first; what only one of two notes says is dashed."""
    ordered = evolved(notes)
    lines = [
        "digraph evolution {",
        "    rankdir=LR;",
        '    node [shape=box, style="rounded", fontname="sans-serif"];',
        '    edge [fontname="sans-serif", fontsize=10];',
    ]
    for place, note in enumerate(ordered):
        label = "\\n".join(map(dot_text, _lines(note)))
        lines.append(f'    n{place} [label="{label}", color="{COLOURS[note.status]}"];')
    for arrow in _arrows(ordered):
        style = "solid" if arrow.points_back else "dashed"
        lines.append(f'    n{arrow.source} -> n{arrow.target} [label="{dot_text(arrow.label)}", style={style}];')
    return "\n".join([*lines, "}"]) + "\n"


def _lines(note: Note) -> tuple[str, ...]:
    return note.id, f"{note.status}, {note.created_at:%Y-%m-%d}", _beginning(note.memory_note)


def _beginning(text: str) -> str:
    """The first words of a note that are no heading."""
    said = (line.strip() for line in text.splitlines())
    first = next((line for line in said if line and not line.startswith("#")), "")
    return first if len(first) <= _SHOWN_OF_TEXT else f"{first[: _SHOWN_OF_TEXT - 1]}…"


def _arrows(ordered: Sequence[Note]) -> list[_Arrow]:
    places = {note.id: place for place, note in enumerate(ordered)}
    found: dict[tuple[int, int], _Arrow] = {}
    for note in ordered:
        if note.next_id in places:
            source, target = places[note.id], places[note.next_id]
            agree = note.id in ordered[target].sources
            found[source, target] = _Arrow(source, target, note.status_reason.replace("_", " "), agree)
        for source in (places[id_] for id_ in note.sources if id_ in places):
            target = places[note.id]
            found.setdefault((source, target), _Arrow(source, target, "source", points_back=False))
    return list(found.values())
