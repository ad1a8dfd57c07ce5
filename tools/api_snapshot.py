"""Write or check tests/meta/public_api.txt: every public name with its signature, one a line."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator

from generated import ROOT, settle
from introspect import (
    bases,
    constructor,
    is_ours,
    members,
    origin,
    public_modules,
    public_names,
    signature,
    way_to_call,
)

SNAPSHOT = ROOT / "tests" / "meta" / "public_api.txt"
REMEDY = "if the public API was meant to change, add a CHANGELOG line, then run make generate"


def render() -> str:
    """Return the whole snapshot."""
    modules = public_modules()
    offered = {f"{module.__name__}.{name}": thing for module in modules for name, thing in public_names(module).items()}
    classes = frozenset(thing for thing in offered.values() if isinstance(thing, type) and is_ours(thing))
    lines = (line for name, thing in offered.items() for line in _described(name, thing, offered, classes))
    return "".join(f"{line}\n" for line in lines)


def _described(name: str, thing: object, offered: dict[str, object], classes: frozenset[type]) -> Iterator[str]:
    home = origin(thing)
    if home != name and home in offered:
        yield f"{name} = {home}"
    elif isinstance(thing, type):
        yield from _class_lines(name, thing, classes)
    elif inspect.isfunction(thing):
        yield f"{way_to_call(thing)} {name}{signature(thing)}".lstrip()
    else:
        yield f"{name}: {type(thing).__name__}"


def _class_lines(name: str, cls: type, classes: frozenset[type]) -> Iterator[str]:
    parents = ", ".join(bases(cls))
    yield f"class {name}({parents})" if parents else f"class {name}"
    if (call := constructor(cls)) is not None:
        yield f"    {cls.__name__}{call}"
    for member in sorted(members(cls, classes - {cls})):
        mark = {"field": ": ", "property": ": ", "value": " = "}.get(member.kind, "")
        yield "    " + f"{member.kind} {member.name}{mark}{member.signature}".lstrip()


if __name__ == "__main__":
    sys.exit(settle(SNAPSHOT, render, remedy=REMEDY))
