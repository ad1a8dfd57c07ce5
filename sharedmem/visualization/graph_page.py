"""Draw a graph as one self-contained HTML page with sliders for both times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from html import escape
from importlib.resources import files
from string import Template
from typing import NamedTuple

from sharedmem.models import DrawnFact, DrawnVersion, GraphDrawing
from sharedmem.text.escaping import csp_hash, escape_script_json

_SCRIPTS = ("times.js", "layout.js", "picture.js", "panel.js", "main.js")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _GraphPageParts(NamedTuple):
    page: Template
    style: str
    script: str
    policy: str


def as_html(drawing: GraphDrawing) -> str:
    """A drawing as a page with everything in it: search, details with their sources, a slider for each of the times.

    It may do nothing but run its own script: a policy in the page forbids every request and every other script.
    """
    parts = _parts()
    return parts.page.substitute(
        policy=parts.policy,
        title=escape(f"Graph of {drawing.group_id}"),
        style=parts.style,
        script=parts.script,
        data=_data(drawing),
    )


@cache
def _parts() -> _GraphPageParts:
    folder = files("sharedmem.visualization") / "graph_page_files"
    read = {name: (folder / name).read_text(encoding="utf-8") for name in ("page.html", "style.css", *_SCRIPTS)}
    script = "(() => {\n" + '"use strict";\n' + "".join(read[name] for name in _SCRIPTS) + "})();\n"
    rules = (
        "default-src 'none'",
        f"script-src {csp_hash(script)}",
        f"style-src {csp_hash(read['style.css'])}",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    )
    return _GraphPageParts(Template(read["page.html"]), read["style.css"], script, "; ".join(rules))


def _data(drawing: GraphDrawing) -> str:
    content = {
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
    return escape_script_json(content)


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
