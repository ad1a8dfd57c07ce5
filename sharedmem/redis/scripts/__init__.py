"""The Lua scripts: building them from `lua/` with their includes, sending them, and their typed callers.

The header of a script is its contract; `INCLUDE` names files of `lua/include/` that precede its body, or, further down,
take the place of that line: functions that most calls do not need, and which are created only when a call gets there. A
header with `keeping` gives two scripts: one that also adds each change to the outbox of the durable tier
(`include/kept.lua`), and one that does not (`include/unkept.lua`). Functions of the includes that a script does not use
are left out, since each one takes time in every call.

A script is named by its digest. `lua/digests.json` has them all (`make generate`), so that a process builds only those
scripts that its server lacks. An error of a script names the file and line that it came from, not the line of the text
sent.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import orjson

from sharedmem.errors import InternalError

DIGESTS = "digests.json"
DURABLE_SUFFIX = ".kept"
"""Suffix of the names of scripts that add their changes to the outbox."""
_PACKAGE = Path(__file__).resolve().parent.parent.parent
_PLACES = (_PACKAGE / "lua", _PACKAGE.parent / "lua")
_INCLUDE = re.compile(r"^-- INCLUDE (.+)$", re.MULTILINE)
# Functions of a file's top level begin and end in the first column.
_FUNCTION = re.compile(r"^local function (\w+)(\(.*\bend$|\(.*\n(?:.*\n)*?end$)", re.MULTILINE)
_WORD = re.compile(r"[A-Za-z_]\w*")
_COMMENT = re.compile(r"--.*")
_LINE = re.compile(r"@?user_script:(\d+)")
_DURABILITY_INCLUDE = "keeping"


@dataclass(frozen=True)
class Script:
    """One script."""

    name: str
    digest: str
    """By which the server knows it."""

    @property
    def source(self) -> str:
        """Its text, as it is sent.

        Raises:
            InternalError: the list of digests is older than the script.
        """
        source = build(self.name).source
        if _digest_of(source) != self.digest:
            raise InternalError(f"lua/{DIGESTS} is older than script {self.name!r}; run make generate")
        return source

    def with_file_lines(self, text: str) -> str:
        """Return an error text of the server with script lines as `lua/<file>:<line>`."""
        return _LINE.sub(lambda found: build(self.name).place(int(found[1])), text)


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
    listed: dict[str, str] = orjson.loads((lua_directory() / DIGESTS).read_bytes())
    return {name: Script(name, digest) for name, digest in listed.items()}


@cache
def by_digest() -> dict[str, Script]:
    """Return every script by its SHA-1 digest."""
    return {script.digest: script for script in scripts().values()}


def build_digests() -> dict[str, str]:
    """Return the digest of every script by its name, from the files."""
    names: list[str] = []
    for path in sorted(lua_directory().glob("*.lua")):
        is_durable = _DURABILITY_INCLUDE in _includes(path.read_text(encoding="utf-8"))
        names += [path.stem, path.stem + DURABLE_SUFFIX] if is_durable else [path.stem]
    return {name: _digest_of(build(name).source) for name in names}


def _digest_of(source: str) -> str:
    # Redis names scripts by SHA-1; it has no security purpose.
    return hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()


# -- building ------------------------------------------------------------------------------------


class _Excerpt(NamedTuple):
    """A file, or a part of it."""

    file: str
    """Its path below `lua/`."""
    before: int
    """Number of its lines before the excerpt."""
    text: str


class _Block(NamedTuple):
    """A function of a file's top level, or the text between two of them."""

    function: str
    """Name of the function; empty: no function."""
    text: str
    words: frozenset[str]
    """The words in it, without comments."""


class BuiltScript(NamedTuple):
    """The text of a script, and what it was built from."""

    source: str
    excerpts: Sequence[_Excerpt]

    def place(self, line: int) -> str:
        """Return the file and line that a line of the text came from."""
        for file, before, text in self.excerpts:
            lines = text.count("\n")
            if line <= lines:
                return f"lua/{file}:{before + line}"
            line -= lines
        return f"lua/{self.excerpts[-1].file}"


@cache
def build(name: str) -> BuiltScript:
    """Build a script from its files.

    Args:
        name: of the script.
    """
    file = name.removesuffix(DURABLE_SUFFIX) + ".lua"
    text = (lua_directory() / file).read_text(encoding="utf-8")
    keeping = "unkept" if name + ".lua" == file else "kept"
    excerpts: list[_Excerpt] = []
    at = 0
    for number, included in enumerate(_INCLUDE.finditer(text)):
        if number:
            excerpts.append(_Excerpt(file, text.count("\n", 0, at), text[at : included.start()]))
            at = included.end() + 1
        for one in included[1].split():
            path = f"include/{keeping if one == _DURABILITY_INCLUDE else one}.lua"
            excerpts.append(_Excerpt(path, 0, _read(path)))
    excerpts.append(_Excerpt(file, text.count("\n", 0, at), text[at:]))
    return BuiltScript(
        _without_unused_functions([block for excerpt in excerpts for block in _blocks_of(excerpt.text)]), excerpts
    )


@cache
def _read(path: str) -> str:
    return (lua_directory() / path).read_text(encoding="utf-8")


def _includes(text: str) -> list[str]:
    named = _INCLUDE.search(text)
    return named[1].split() if named else []


@cache
def _blocks_of(text: str) -> list[_Block]:
    # Texts between functions, and in turn the functions: name and rest.
    first, *others = _FUNCTION.split(text)
    blocks = [_block("", first)]
    for name, rest, between in zip(others[::3], others[1::3], others[2::3], strict=True):
        blocks += [_block(name, f"local function {name}{rest}"), _block("", between)]
    return blocks


def _block(function: str, text: str) -> _Block:
    return _Block(function, text, frozenset(_WORD.findall(_COMMENT.sub("", text))))


def _without_unused_functions(blocks: Sequence[_Block]) -> str:
    """Return the text of blocks, with empty lines in place of the functions that nothing uses."""
    functions: defaultdict[str, list[_Block]] = defaultdict(list)
    for block in blocks:
        functions[block.function].append(block)
    used = {""}
    waiting = [""]
    while waiting:
        for block in functions[waiting.pop()]:
            new = [word for word in block.words if word in functions and word not in used]
            used.update(new)
            waiting += new
    return "".join(block.text if block.function in used else "\n" * block.text.count("\n") for block in blocks)
