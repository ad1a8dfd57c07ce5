"""The page: a chain as one HTML file that shows each of its versions and asks nothing of any network."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from html import escape
from importlib.resources import files
from string import Template
from typing import NamedTuple

from sharedmem.knowledge.escaping import permitted, script_data
from sharedmem.models import Note
from sharedmem.synthesis.lineage import evolved

_SCRIPTS = ("layout.js", "picture.js", "reader.js", "main.js")


class _Parts(NamedTuple):
    page: Template
    style: str
    script: str
    policy: str


def as_html(notes: Iterable[Note], *, chosen: str = "") -> str:
    """Notes of a chain as a page with everything in it: a picture, the texts, a slider over the versions.

    It may do nothing but run its own script: a policy in the page forbids every request and every other script.

    Args:
        notes: in any order.
        chosen: id of the note that is shown first; empty for the newest.
    """
    ordered = evolved(notes)
    parts = _parts()
    title = f"Memory {chosen or (ordered[-1].id if ordered else 'without versions')}"
    content = {"title": title, "chosen": chosen, "notes": [_note(note) for note in ordered]}
    return parts.page.substitute(
        policy=parts.policy, title=escape(title), style=parts.style, script=parts.script, data=script_data(content)
    )


@cache
def _parts() -> _Parts:
    folder = files("sharedmem.synthesis") / "page_files"
    read = {name: (folder / name).read_text(encoding="utf-8") for name in ("page.html", "style.css", *_SCRIPTS)}
    script = "(() => {\n" + '"use strict";\n' + "".join(read[name] for name in _SCRIPTS) + "})();\n"
    rules = (
        "default-src 'none'",
        f"script-src {permitted(script)}",
        f"style-src {permitted(read['style.css'])}",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    )
    return _Parts(Template(read["page.html"]), read["style.css"], script, "; ".join(rules))


def _note(note: Note) -> dict[str, object]:
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
        "resolutions": [one.model_dump() for one in note.resolutions],
        "degraded": note.degraded,
        "archived": note.archival_location,
        "messages": [{"who": one.name or one.role, "says": one.content} for one in note.messages],
    }


def _minute(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M}"
