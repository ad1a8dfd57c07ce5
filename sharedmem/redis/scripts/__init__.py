"""The Lua scripts: loading them from `lua/` with their includes, sending them, and their typed callers.

The header of a script is its contract; `INCLUDE` names files of `lua/include/` that precede its body. A header with
`keeping` gives two scripts: one that also adds each change to the outbox of the durable tier (`include/kept.lua`), and
one that does not (`include/unkept.lua`). An error of a script names the file and line that it came from, not the line
of the text sent.
"""

from __future__ import annotations

import hashlib
import re
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
    parts: tuple[tuple[str, int], ...]
    """(file, number of lines) of the parts of the source."""

    def with_file_lines(self, text: str) -> str:
        """Return an error text of the server with script lines as `lua/<file>:<line>`."""
        return _LINE.sub(lambda found: self._place(int(found[1])), text)

    def _place(self, line: int) -> str:
        for file, lines in self.parts:
            if line <= lines:
                return f"lua/{file}:{line}"
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
    paths = sorted(lua_directory().glob("*.lua"))
    plain = {path.stem: _read(path, "unkept") for path in paths}
    return plain | {
        path.stem + DURABLE_SUFFIX: _read(path, "kept") for path in paths if _DURABILITY_INCLUDE in _includes(path)
    }


@cache
def by_digest() -> dict[str, Script]:
    """Return every script by its SHA-1 digest."""
    return {script.digest: script for script in scripts().values()}


def _includes(path: Path) -> list[str]:
    named = _INCLUDE.search(path.read_text(encoding="utf-8"))
    return named[1].split() if named else []


def _read(path: Path, keeping: str) -> Script:
    text = path.read_text(encoding="utf-8")
    names = [keeping if name == _DURABILITY_INCLUDE else name for name in _includes(path)]
    files = [path.parent / "include" / f"{name}.lua" for name in names]
    texts = [(file.relative_to(path.parent).as_posix(), file.read_text(encoding="utf-8")) for file in files]
    texts.append((path.name, text))
    source = "".join(part for _, part in texts)
    return Script(
        name=path.stem,
        source=source,
        # Redis names scripts by SHA-1; it has no security purpose.
        digest=hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest(),
        parts=tuple((file, part.count("\n")) for file, part in texts),
    )
