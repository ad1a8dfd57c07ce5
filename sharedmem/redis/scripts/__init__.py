"""The Lua scripts: loading them from `lua/` with their includes, sending them, and their typed callers.

The header of a script is its contract; `INCLUDE` names files of `lua/include/` that precede its body, or, further down,
take the place of that line: functions that most calls do not need, and which are created only when a call gets there. A
header with `keeping` gives two scripts: one that also adds each change to the outbox of the durable tier
(`include/kept.lua`), and one that does not (`include/unkept.lua`). An error of a script names the file and line that it
came from, not the line of the text sent.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sharedmem.errors import InternalError

_PACKAGE = Path(__file__).resolve().parent.parent.parent
_PLACES = (_PACKAGE / "lua", _PACKAGE.parent / "lua")
_INCLUDE = re.compile(r"^-- INCLUDE (.+)$", re.MULTILINE)
_LINE = re.compile(r"@?user_script:(\d+)")
_DURABILITY_INCLUDE = "keeping"
DURABLE_SUFFIX = ".kept"
"""Suffix of the names of scripts that add their changes to the outbox."""


@dataclass(frozen=True)
class Script:
    """One script in its sent form."""

    name: str
    source: str
    digest: str
    parts: tuple[tuple[str, int, int], ...]
    """(file, its line before the part, number of lines) of the parts of the source."""

    def with_file_lines(self, text: str) -> str:
        """Return an error text of the server with script lines as `lua/<file>:<line>`."""
        return _LINE.sub(lambda found: self._place(int(found[1])), text)

    def _place(self, line: int) -> str:
        for file, before, lines in self.parts:
            if line <= lines:
                return f"lua/{file}:{before + line}"
            line -= lines
        return f"lua/{self.name}.lua"


def lua_directory() -> Path:
    """Return the folder of the scripts: inside the installed package, or beside it in a checkout.

    Raises:
        InternalError: the installation lacks them.
    """
    for place in _PLACES:
        if (place / "include").is_dir():
            return place
    raise InternalError(f"the Lua scripts are missing beside {_PACKAGE}; install sharedmem-hub again")


@cache
def scripts() -> dict[str, Script]:
    """Return every script by its name."""
    folder = lua_directory()
    texts = {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.lua"))}
    parts = {path.stem: path.read_text(encoding="utf-8") for path in (folder / "include").glob("*.lua")}
    plain = {name.removesuffix(".lua"): _build(name, text, parts, "unkept") for name, text in texts.items()}
    return plain | {
        name.removesuffix(".lua") + DURABLE_SUFFIX: _build(name, text, parts, "kept")
        for name, text in texts.items()
        if _DURABILITY_INCLUDE in _includes(text)
    }


@cache
def by_digest() -> dict[str, Script]:
    """Return every script by its SHA-1 digest."""
    return {script.digest: script for script in scripts().values()}


def _includes(text: str) -> list[str]:
    named = _INCLUDE.search(text)
    return named[1].split() if named else []


def _build(name: str, text: str, parts: Mapping[str, str], keeping: str) -> Script:
    """Return the script of a file.

    Args:
        name, text: of the file.
        parts: texts of the files that it may include, by their names there.
        keeping: what is included for `keeping`.
    """
    pieces: list[tuple[str, int, str]] = []
    at = 0
    for number, included in enumerate(_INCLUDE.finditer(text)):
        if number:
            pieces.append((name, text.count("\n", 0, at), text[at : included.start()]))
            at = included.end() + 1
        names = [keeping if one == _DURABILITY_INCLUDE else one for one in included[1].split()]
        pieces += [(f"include/{one}.lua", 0, parts[one]) for one in names]
    pieces.append((name, text.count("\n", 0, at), text[at:]))
    source = "".join(piece for _, _, piece in pieces)
    return Script(
        name=name.removesuffix(".lua"),
        source=source,
        # Redis names scripts by SHA-1; it has no security purpose.
        digest=hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest(),
        parts=tuple((file, before, piece.count("\n")) for file, before, piece in pieces),
    )
