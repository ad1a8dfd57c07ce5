"""Keys as a tree: the parts between colons become branches, large branches are cut short."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from sharedmem.faces.cli.output import counted

if TYPE_CHECKING:
    from rich.tree import Tree

_MOST_TWIGS = 30
_DEPTH_STYLES = ("bold", "cyan", "")
Branch: TypeAlias = "dict[str, Branch]"


def branches(keys: list[str]) -> Branch:
    """The keys by their parts."""
    root: Branch = {}
    for key in keys:
        branch = root
        for part in key.split(":"):
            branch = branch.setdefault(part, {})
    return root


def tree_of(keys: list[str]) -> Tree:
    """The picture of it, for a terminal."""
    from rich.text import Text  # noqa: PLC0415  a pipe does not wait for it
    from rich.tree import Tree  # noqa: PLC0415  likewise

    picture = Tree(Text(counted(len(keys), "key"), style="dim"), guide_style="dim")
    _grow(picture, branches(keys), depth=0)
    return picture


def _grow(picture: Tree, branch: Branch, *, depth: int) -> None:
    from rich.text import Text  # noqa: PLC0415  likewise

    style = _DEPTH_STYLES[min(depth, len(_DEPTH_STYLES) - 1)]
    for part, below in list(branch.items())[:_MOST_TWIGS]:
        count = (f"  {_leaves(below):,}", "dim") if below else ("", "")
        _grow(picture.add(Text.assemble((part, style), count)), below, depth=depth + 1)
    if len(branch) > _MOST_TWIGS:
        picture.add(Text(f"... {len(branch) - _MOST_TWIGS:,} more", style="dim"))


def _leaves(branch: Branch) -> int:
    return sum(_leaves(below) for below in branch.values()) if branch else 1
