"""One self-contained HTML page of a shell, a body, styles and scripts, and the policy that lets it run nothing else."""

from __future__ import annotations

from functools import cache
from html import escape
from importlib.resources import files
from string import Template
from typing import NamedTuple

from sharedmem.text.escaping import csp_hash, escape_script_json

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
