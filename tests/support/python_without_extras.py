"""Python without extras: a finder hides what the distribution's extras would install.

`python -m support.python_without_extras` is one such process: it forks a child for every task it reads from its
arguments (JSON: the extras that are there, and command lines or a program to run), and writes what each
child found out as a line of JSON.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import pkgutil
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib import metadata
from pathlib import PurePosixPath
from types import ModuleType
from typing import Any

from packaging.requirements import Requirement

DISTRIBUTION = "sharedmem-hub"
TOGETHER = frozenset({"all", "dev"})
"""Extras that only gather others."""
# What takes long to load and needs no extra (tests/meta/test_house.py); several children inherit it.
_LOADED_ONCE = (
    "sharedmem",
    "orjson",
    "pydantic",
    "redis.asyncio",
    "yaml",
)


@cache
def extras() -> list[str]:
    """The extras of the distribution that install something of their own, and are installed here."""
    named = set(metadata.metadata(DISTRIBUTION).get_all("Provides-Extra") or ()) - TOGETHER
    return sorted(extra for extra in named if _distributions([extra]) - _distributions([]) or extra == "embedded")


@cache
def brought_by(extra: str) -> set[str]:
    """The extras whose packages this one installs, itself among them."""
    required = [Requirement(text) for text in metadata.requires(DISTRIBUTION) or ()]

    def packages(of: str) -> set[str]:
        return {_canonical_name(one.name) for one in required if one.marker and _applies(one, frozenset({of}))}

    return {other for other in extras() if packages(other) <= packages(extra)}


def _distributions(extras: Iterable[str]) -> frozenset[str]:
    """The installed distributions that the extras and the required packages bring."""
    found: set[tuple[str, frozenset[str]]] = set()
    waiting = [(DISTRIBUTION, frozenset(extras))]
    while waiting:
        one = waiting.pop()
        if one in found:
            continue
        with contextlib.suppress(metadata.PackageNotFoundError):
            requirements = map(Requirement, metadata.requires(one[0]) or ())
            waiting += [(_canonical_name(r.name), frozenset(r.extras)) for r in requirements if _applies(r, one[1])]
            found.add(one)
    return frozenset(name for name, _ in found)


def _applies(requirement: Requirement, extras: frozenset[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in (*extras, ""))


def _canonical_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def _modules_by_distribution() -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for distribution in metadata.distributions():
        paths = [path for path in distribution.files or () if path.suffix in {".py", ".so"}]
        found[_canonical_name(distribution.name)] = frozenset(filter(None, map(_module, paths)))
    return found


def _module(path: PurePosixPath) -> str:
    parts = [*path.parent.parts, path.name.partition(".")[0]]
    return ".".join(parts).removesuffix(".__init__") if all(map(str.isidentifier, parts)) else ""


class _HidingFinder:
    """A finder of modules that does not find some of them."""

    def __init__(self, finder: Any, names: frozenset[str]) -> None:
        self._finder, self._names = finder, names

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> Any:
        return None if name in self._names else self._finder.find_spec(name, path, target)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._finder, name)


def _hide_all_but(extras: Iterable[str]) -> None:
    there = _distributions(extras)
    owned = _modules_by_distribution()
    kept = frozenset().union(*(names for distribution, names in owned.items() if distribution in there))
    absent = frozenset().union(*(names for distribution, names in owned.items() if distribution not in there)) - kept
    sys.meta_path[:] = [_HidingFinder(finder, absent) for finder in sys.meta_path]


def _import_all_modules() -> dict[str, str]:
    """Every module of the package, and the error with which its import ended."""
    import sharedmem

    found = {}
    for module in pkgutil.walk_packages(sharedmem.__path__, "sharedmem.", onerror=lambda _: None):
        found[module.name] = ""
        try:
            importlib.import_module(module.name)
        except Exception as error:  # noqa: BLE001  # whatever it is, the test judges it
            found[module.name] = f"{type(error).__name__}: {error}"
    return found


def _run_all_helps() -> dict[str, str]:
    """Every command, and what went wrong when it was asked for help."""
    try:
        import typer.main
    except ImportError:
        return {}

    from sharedmem.faces.cli.app import app, load_commands

    load_commands()
    found = {}
    tree = typer.main.get_command(app)
    for words in _commands(tree, ()):
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            try:
                code = tree([*words, "--help"], prog_name="sharedmem", standalone_mode=False)
            except Exception as error:  # noqa: BLE001  # likewise
                code = f"{type(error).__name__}: {error}"
        found[" ".join(words)] = "" if not code and "Usage:" in output.getvalue() else f"{code}: {output.getvalue()}"
    return found


def _commands(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    yield words
    for name, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, (*words, name))


def _run_command_lines(lines: Sequence[Sequence[str]]) -> list[tuple[int, str]]:
    """The exit code of each command line, and what it said to people."""
    from sharedmem.faces.cli import run

    found = []
    for line in lines:
        errors = io.StringIO()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
            code = run(line)
        found.append((code, errors.getvalue()))
    return found


def _run_program(program: str) -> str:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})
    return output.getvalue()


def _run_task(task: dict[str, Any]) -> dict[str, Any]:
    _hide_all_but(task["extras"])
    if "lines" in task:
        return {"ran": _run_command_lines(task["lines"])}
    if "program" in task:
        return {"printed": _run_program(task["program"])}
    return {"imported": _import_all_modules(), "helped": _run_all_helps()}


def _main(tasks: Sequence[str]) -> None:
    for name in _LOADED_ONCE if len(tasks) > 1 else ():
        importlib.import_module(name)
    _modules_by_distribution()
    for task in map(json.loads, tasks):
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            continue
        print(json.dumps(_run_task(task)), flush=True)  # noqa: T201  # its answer
        sys.exit()


if __name__ == "__main__":
    _main(sys.argv[1:])
