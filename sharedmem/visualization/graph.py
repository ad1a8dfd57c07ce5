"""Draw a knowledge graph as Mermaid, as Graphviz or as an HTML page."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from typing import NamedTuple

from sharedmem.models import DrawnEntity, DrawnFact, DrawnVersion, GraphDrawing
from sharedmem.text.escaping import escape_dot, escape_mermaid
from sharedmem.visualization.html_page import build_page

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
        _DiagramNode(names[entity.id], _lines(entity, attributes), types.index(entity.type) % len(_COLOURS))
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


def _lines(entity: DrawnEntity, attributes: dict[str, list[str]]) -> tuple[str, ...]:
    kind = (f"({entity.type})",) if entity.type else ()
    return (entity.name, *kind, *attributes.get(entity.id, ()))


def _label(fact: DrawnFact, version: DrawnVersion) -> str:
    ends = (("since", version.valid_from), ("until", version.valid_to))
    return " ".join([fact.type.replace("_", " "), *(f"{word} {_day(moment)}" for word, moment in ends if moment)])


def _day(moment: datetime) -> str:
    is_midnight = moment.timetz().replace(tzinfo=None) == time.min
    return f"{moment.date()}" if is_midnight else f"{moment.date()} {moment:%H:%M}"


_SCRIPTS = ("times.js", "layout.js", "picture.js", "panel.js", "main.js")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def as_html(drawing: GraphDrawing) -> str:
    """Return a drawing as a self-contained page: search, details with their sources, a slider for each of the times.

    The page can only run its own script: its policy forbids every request and every other script.
    """
    title = f"Graph of {drawing.group_id}"
    return build_page("graph_page_files", _SCRIPTS, title=title, data=_data(drawing))


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
