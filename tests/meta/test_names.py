"""One meaning a name: class names are defined once, files are named after concepts, private members stay in a file."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from support.garbage import no_garbage_collection

PACKAGE = Path(__file__).resolve().parents[2] / "sharedmem"
_GENERATED = {"_generated.py", "memory_pb2.py", "operations.py", "sync_operations.py", "table.py"}
# Class name -> why two modules may define it.
TWICE = {
    "CacheDecorator": "the sync face names its twin alike, as every class of that face",
    "SharedMemoryClient": "the blocking client is imported from its own module, under the same name",
}
# File names in -ing -> why that is the concept's name.
ACTIVITIES = {
    "embedding": "the vector of a text",
    "escaping": "the rules by which a text becomes part of a diagram or page",
    "ranking": "the order of search results",
    "scoring": "the scores of search results",
}


@cache
def modules() -> dict[str, ast.Module]:
    """The syntax trees of the package by path, without what is generated and the kit for tests."""
    paths = (path for path in sorted(PACKAGE.rglob("*.py")) if path.name not in _GENERATED)
    with no_garbage_collection():
        return {
            path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
            for path in paths
            if "testing" not in path.relative_to(PACKAGE).parts
        }


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
    """Every class of the package, with the path of its module."""
    for path, tree in modules().items():
        yield from ((path, node) for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def is_self(node: ast.expr) -> bool:
    """Whether this is the name `self`."""
    return isinstance(node, ast.Name) and node.id == "self"


def own_members(node: ast.ClassDef) -> set[str]:
    """The methods and fields that a class defines, and the attributes that its methods set."""
    methods = {each.name for each in ast.walk(node) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
    targets: list[ast.expr] = [each.target for each in node.body if isinstance(each, ast.AnnAssign)]
    targets += [target for each in node.body if isinstance(each, ast.Assign) for target in each.targets]
    fields = {target.id for target in targets if isinstance(target, ast.Name)}
    attributes = (each for each in ast.walk(node) if isinstance(each, ast.Attribute) and is_self(each.value))
    return methods | fields | {each.attr for each in attributes if isinstance(each.ctx, ast.Store)}


def members_of_bases(node: ast.ClassDef) -> set[str]:
    """Private members that a class uses and does not define."""
    used = {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute) and is_self(each.value)}
    return {name for name in used - own_members(node) if name.startswith("_") and not name.startswith("__")}


def foreign_members(tree: ast.Module) -> dict[str, set[str]]:
    """By class: private members that it takes from a base which is not in its module."""
    here = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    found = {}
    for node in here.values():
        near = [here.get(ast.unparse(base).partition("[")[0]) for base in node.bases]
        names = members_of_bases(node).difference(*(own_members(base) for base in near if base is not None))
        if names and node.bases:
            found[node.name] = names
    return found


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


def test_no_class_uses_private_members_that_another_module_defines() -> None:
    found = {
        f"{path}:{name}": sorted(names)
        for path, tree in modules().items()
        for name, names in foreign_members(tree).items()
    }

    assert found == {}, "compose: give the part its own constructor and public methods"


def test_the_rule_of_private_members_finds_a_reach_into_another_module() -> None:
    near = "class Base:\n    def _look(self): ...\nclass Part(Base):\n    def read(self): return self._look()"
    far = "class Part(Base):\n    def read(self): return self._look()"

    assert foreign_members(ast.parse(near)) == {}
    assert foreign_members(ast.parse(far)) == {"Part": {"_look"}}
