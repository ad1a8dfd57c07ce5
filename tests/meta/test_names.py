"""One meaning a name: class names are defined once, files are named after their concepts."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "sharedmem"
_GENERATED = {"_generated.py", "memory_pb2.py"}
# Class name -> why two modules may define it.
TWICE = {
    "CacheDecorator": "the sync face names its twin alike, as every class of that face",
    "SharedMemoryClient": "the blocking client is imported from its own module, under the same name",
}
# File names in -ing -> why that is the concept's name.
ACTIVITIES = {
    "drawing": "what is drawn of a graph",
    "embedding": "the vector of a text",
    "escaping": "the rules by which a text becomes part of a diagram or page",
    "ranking": "the order of search results",
    "request_binding": "how a request becomes arguments, as web frameworks call it",
    "scoring": "the scores of search results",
}


@cache
def modules() -> dict[str, ast.Module]:
    """The syntax trees of the package by path, without what is generated and the kit for tests."""
    paths = (path for path in sorted(PACKAGE.rglob("*.py")) if path.name not in _GENERATED)
    return {
        path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in paths
        if "testing" not in path.relative_to(PACKAGE).parts
    }


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
    """Every class of the package, with the path of its module."""
    for path, tree in modules().items():
        yield from ((path, node) for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def test_a_class_name_is_defined_in_one_module() -> None:
    where: defaultdict[str, set[str]] = defaultdict(set)
    for path, node in classes():
        where[node.name].add(path)

    twice = {name: sorted(paths) for name, paths in where.items() if len(paths) > 1}

    assert {name: paths for name, paths in twice.items() if name not in TWICE} == {}
    assert TWICE.keys() <= twice.keys(), "TWICE names what is there once"


def test_a_file_is_named_after_its_concept() -> None:
    activities = {Path(path).stem for path in modules() if Path(path).stem.endswith("ing")}

    assert activities == ACTIVITIES.keys()
