"""Draw a graph as one self-contained HTML page with sliders for both times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sharedmem.models import DrawnFact, DrawnVersion, GraphDrawing
from sharedmem.visualization.html_page import build_page

_SCRIPTS = ("times.js", "layout.js", "picture.js", "panel.js", "main.js")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def as_html(drawing: GraphDrawing) -> str:
    """A drawing as a page with everything in it: search, details with their sources, a slider for each of the times.

    It may do nothing but run its own script: a policy in the page forbids every request and every other script.
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
