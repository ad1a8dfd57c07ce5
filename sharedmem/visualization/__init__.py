"""Draw knowledge graphs and chains of notes as Mermaid, as Graphviz or as self-contained HTML pages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, time, timedelta
from functools import cache
from html import escape
from importlib.resources import files
from string import Template
from typing import NamedTuple

from sharedmem.errors import InvalidError
from sharedmem.models import (
    DrawnEntity,
    DrawnFact,
    DrawnVersion,
    EvolutionGraph,
    GraphDrawing,
    GraphFormat,
    Note,
    NoteStatus,
)
from sharedmem.models.notes import sort_by_succession
from sharedmem.text.escaping import csp_hash, escape_dot, escape_mermaid, escape_script_json

# -- knowledge graphs -----------------------------------------------------------------------------


_COLOURS = ("#4263eb", "#e67700", "#2b8a3e", "#c2255c", "#0c8599", "#9c36b5", "#a0522d", "#5c940d")


class _DiagramEdge(NamedTuple):
    source: str
    """Its node in the diagram."""
    target: str
    label: str
    """Not escaped."""
    holds: bool


class _DiagramNode(NamedTuple):
    name: str
    """Name in the diagram: `n0`."""
    lines: tuple[str, ...]
    """Lines of its label, not escaped."""
    colour: int


def as_mermaid(drawing: GraphDrawing, at: datetime | None = None) -> str:
    """Return a drawing as a Mermaid flow chart.

    Args:
        drawing: from `graph.drawing`.
        at: only what held then, as known now; None for everything that is known now, with past facts dotted.

    Raises:
        InvalidError: `at` has no time zone.
    """
    nodes, arrows = _content(drawing, at)
    lines = ["flowchart LR"]
    for node in nodes:
        label = "<br/>".join(map(escape_mermaid, node.lines))
        lines.append(f'    {node.name}["{label}"]:::c{node.colour}')
    for arrow in arrows:
        shaft = "-->" if arrow.holds else "-.->"
        lines.append(f'    {arrow.source} {shaft}|"{escape_mermaid(arrow.label)}"| {arrow.target}')
    used = sorted({node.colour for node in nodes})
    lines += [f"    classDef c{number} stroke:{_COLOURS[number]},stroke-width:2px" for number in used]
    return "\n".join(lines) + "\n"


def as_dot(drawing: GraphDrawing, at: datetime | None = None) -> str:
    """Return a drawing as a Graphviz digraph; arguments and errors as for `as_mermaid`."""
    nodes, arrows = _content(drawing, at)
    lines = [
        "digraph graph_of_facts {",
        "    rankdir=LR;",
        '    node [shape=box, style="rounded", fontname="sans-serif"];',
        '    edge [fontname="sans-serif", fontsize=10];',
    ]
    for node in nodes:
        label = "\\n".join(map(escape_dot, node.lines))
        lines.append(f'    {node.name} [label="{label}", color="{_COLOURS[node.colour]}"];')
    for arrow in arrows:
        style = "solid" if arrow.holds else "dashed"
        lines.append(f'    {arrow.source} -> {arrow.target} [label="{escape_dot(arrow.label)}", style={style}];')
    return "\n".join([*lines, "}"]) + "\n"


# -- parts of a diagram ---------------------------------------------------------------------------


def _content(drawing: GraphDrawing, at: datetime | None) -> tuple[list[_DiagramNode], list[_DiagramEdge]]:
    from sharedmem.graph.records import to_stamp  # noqa: PLC0415  # loads numpy; the command line starts without it

    moment = drawing.drawn_at if at is None else at
    to_stamp("at", moment)
    shown = [(fact, version) for fact, version in _known_now(drawing) if at is None or _holds(version, moment)]
    names = {entity.id: f"n{place}" for place, entity in enumerate(drawing.entities)}
    attributes = _attributes([fact for fact, version in shown if _holds(version, moment)])
    types = sorted({entity.type for entity in drawing.entities})
    nodes = [
        _DiagramNode(names[entity.id], _entity_lines(entity, attributes), types.index(entity.type) % len(_COLOURS))
        for entity in drawing.entities
    ]
    arrows = [
        _DiagramEdge(names[fact.source_id], names[fact.target_id], _label(fact, version), _holds(version, moment))
        for fact, version in shown
        if fact.source_id in names and fact.target_id in names
    ]
    return nodes, arrows


def _known_now(drawing: GraphDrawing) -> Iterator[tuple[DrawnFact, DrawnVersion]]:
    for fact in drawing.facts:
        if fact.versions and fact.versions[-1].superseded_at is None:
            yield fact, fact.versions[-1]


def _holds(version: DrawnVersion, moment: datetime) -> bool:
    begun = version.valid_from is None or version.valid_from <= moment
    return begun and (version.valid_to is None or moment < version.valid_to)


def _attributes(facts: list[DrawnFact]) -> dict[str, list[str]]:
    """Return lines of attributes by entity."""
    found: dict[str, list[str]] = {}
    for fact in facts:
        if fact.target_id is None:
            found.setdefault(fact.source_id, []).append(f"{fact.type.removeprefix('@')}: {fact.value}")
    return found


def _entity_lines(entity: DrawnEntity, attributes: dict[str, list[str]]) -> tuple[str, ...]:
    kind = (f"({entity.type})",) if entity.type else ()
    return (entity.name, *kind, *attributes.get(entity.id, ()))


def _label(fact: DrawnFact, version: DrawnVersion) -> str:
    ends = (("since", version.valid_from), ("until", version.valid_to))
    return " ".join([fact.type.replace("_", " "), *(f"{word} {_day(moment)}" for word, moment in ends if moment)])


def _day(moment: datetime) -> str:
    is_midnight = moment.timetz().replace(tzinfo=None) == time.min
    return f"{moment.date()}" if is_midnight else f"{moment.date()} {moment:%H:%M}"


_GRAPH_SCRIPTS = ("times.js", "layout.js", "picture.js", "panel.js", "main.js")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def as_html(drawing: GraphDrawing) -> str:
    """Return a drawing as a self-contained page: search, details with their sources, a slider for each of the times.

    The page can only run its own script: its policy forbids every request and every other script.
    """
    title = f"Graph of {drawing.group_id}"
    return build_page("graph_page_files", _GRAPH_SCRIPTS, title=title, data=_data(drawing))


def _data(drawing: GraphDrawing) -> dict[str, object]:
    return {
        "group_id": drawing.group_id,
        "drawn_at": _milliseconds(drawing.drawn_at),
        "truncated": drawing.truncated,
        "entities": [
            entity.model_dump(exclude={"recorded_at"}) | {"recorded_at": _milliseconds(entity.recorded_at)}
            for entity in drawing.entities
        ],
        "facts": list(map(_fact, drawing.facts)),
        "episodes": {
            episode.id: {"text": episode.text, "source": episode.source, "at": _milliseconds(episode.occurred_at)}
            for episode in drawing.episodes
        },
    }


def _fact(fact: DrawnFact) -> dict[str, object]:
    return {
        "id": fact.id,
        "source": fact.source_id,
        "target": fact.target_id,
        "type": fact.type,
        "fact": fact.fact,
        "versions": list(map(_version, fact.versions)),
        "episodes": fact.episode_ids,
    }


def _version(version: DrawnVersion) -> tuple[float | None, ...]:
    moments = (version.valid_from, version.valid_to, version.recorded_at, version.superseded_at)
    return tuple(map(_milliseconds, moments))


def _milliseconds(moment: datetime | None) -> float | None:
    return None if moment is None else (moment - _EPOCH) / timedelta(milliseconds=1)


# -- chains of notes ------------------------------------------------------------------------------


_CHAIN_SCRIPTS = ("layout.js", "picture.js", "reader.js", "main.js")


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
    return build_page("chain_page_files", _CHAIN_SCRIPTS, title=title, data=content)


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
        label = "<br/>".join(map(escape_mermaid, _note_lines(note)))
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
        label = "\\n".join(map(escape_dot, _note_lines(note)))
        lines.append(f'    n{place} [label="{label}", color="{COLOURS[note.status]}"];')
    for arrow in _arrows(ordered):
        style = "solid" if arrow.points_back else "dashed"
        lines.append(f'    n{arrow.source} -> n{arrow.target} [label="{escape_dot(arrow.label)}", style={style}];')
    return "\n".join([*lines, "}"]) + "\n"


def _note_lines(note: Note) -> tuple[str, ...]:
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


# -- pages ----------------------------------------------------------------------------------------


_SHARED = "page_files"
_SHARED_SCRIPTS = ("elements.js", "view.js")


class _PageFiles(NamedTuple):
    shell: Template
    body: str
    style: str
    script: str
    policy: str


def build_page(folder: str, scripts: tuple[str, ...], *, title: str, data: object) -> str:
    """Return a self-contained page. Its policy forbids every request and every script but its own.

    Args:
        folder: the folder beside this module with `body.html`, `style.css` and the scripts of this kind of page.
        scripts: names of these scripts, in their order; they follow the shared ones.
        title: title of the page, as plain text.
        data: JSON data that the scripts draw.
    """
    parts = _page_files(folder, scripts)
    return parts.shell.substitute(
        policy=parts.policy,
        title=escape(title),
        style=parts.style,
        body=parts.body,
        script=parts.script,
        data=escape_script_json(data),
    )


@cache
def _page_files(folder: str, scripts: tuple[str, ...]) -> _PageFiles:
    package = files(__package__)
    shared, own = package / _SHARED, package / folder
    sources = [(shared / name).read_text(encoding="utf-8") for name in _SHARED_SCRIPTS]
    sources += [(own / name).read_text(encoding="utf-8") for name in scripts]
    script = "(() => {\n" + '"use strict";\n' + "".join(sources) + "})();\n"
    style = (own / "style.css").read_text(encoding="utf-8")
    rules = (
        "default-src 'none'",
        f"script-src {csp_hash(script)}",
        f"style-src {csp_hash(style)}",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    )
    shell = Template((shared / "shell.html").read_text(encoding="utf-8"))
    return _PageFiles(shell, (own / "body.html").read_text(encoding="utf-8"), style, script, "; ".join(rules))
