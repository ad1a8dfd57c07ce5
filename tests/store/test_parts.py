"""The store is a flat facade: its parts do not know each other, and no two define a member of one name."""

from __future__ import annotations

import ast
import inspect
from collections import defaultdict

import pytest

from sharedmem.runtime.concurrency import ProcessBound
from sharedmem.store import SharedMemoryStore
from sharedmem.testing import fake_hub

PARTS = tuple(part for part in SharedMemoryStore.__bases__ if part is not ProcessBound)


def _members(part: type) -> set[str]:
    """The names that a class defines, and the names that it gives its objects."""
    (tree,) = ast.parse(inspect.getsource(part)).body
    given = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
    return given | {name for name in vars(part) if not (name.startswith("__") and name.endswith("__"))}


def test_no_two_parts_define_the_same_member() -> None:
    owners = defaultdict(list)
    for part in (*PARTS, SharedMemoryStore):
        for name in _members(part):
            owners[name].append(part.__name__)

    assert {name: parts for name, parts in owners.items() if len(parts) > 1} == {}


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_a_part_has_no_base_and_uses_its_own_members_only(part: type) -> None:
    used = {
        node.attr
        for node in ast.walk(ast.parse(inspect.getsource(part)))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    }

    assert part.__bases__ == (object,)
    assert used <= _members(part)


async def test_an_object_of_the_store_has_the_members_of_its_parts_alone() -> None:
    async with fake_hub() as hub:
        store = hub.store("team")

    expected = set().union(*map(_members, (*PARTS, SharedMemoryStore)))
    assert set(vars(store)) <= expected
