"""Build the package `sharedmem_client` of the modules of `sharedmem` that its HTTP client needs."""

from __future__ import annotations

import ast
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE, PACKAGE = "sharedmem", "sharedmem_client"
CLIENT = f"{SOURCE}.client"
ROOTS = (CLIENT, f"{CLIENT}.sync")
"""What users import; everything that these modules import comes along."""
FILES = ("py.typed", "visualization/page_files", "visualization/chain_page_files")
"""What the modules read beside themselves."""


class ClientBuildHook(BuildHookInterface[Any]):
    """Add the package to what is built: copied from the hub's sources, or as the source distribution holds it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make the package, unless this is a source distribution, which has it already."""
        self._folder = Path(tempfile.mkdtemp(prefix="sharedmem-client-"))
        if Path(self.root, "PKG-INFO").is_file():
            return
        write_package(Path(self.root).parents[1] / SOURCE, self._folder / PACKAGE)
        included = "force_include_editable" if version == "editable" else "force_include"
        build_data[included][str(self._folder / PACKAGE)] = PACKAGE

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002  # hatchling gives them
        """Remove what was made."""
        shutil.rmtree(self._folder)


def write_package(source: Path, package: Path) -> None:
    """Copy what the client needs.

    Args:
        source: folder of the package `sharedmem`.
        package: folder to make.
    """
    needed = needed_modules(source)
    parts = "|".join(sorted({name.split(".")[1] for name in needed}))
    # Other parts of the hub keep their name where a text speaks of them.
    own_name = re.compile(rf"\b{SOURCE}(?=\.(?:{parts})\b)|(?<=^from ){SOURCE}(?= import )", re.MULTILINE)
    for name in needed:
        path = module_path(source, name)
        target = package / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(own_name.sub(PACKAGE, path.read_text(encoding="utf-8")), encoding="utf-8")
    # Packages whose own names are never used: their `__init__` may import what is not needed.
    for folder in {above for path in package.rglob("*.py") for above in path.relative_to(package).parents}:
        init = package / folder / "__init__.py"
        if not init.exists():
            init.write_text(_docstring(source / folder / "__init__.py"), encoding="utf-8")
    shutil.copyfile(package / "client" / "__init__.py", package / "__init__.py")
    shutil.copyfile(source.parent / "LICENSE", package / "LICENSE")
    for name in FILES:
        copy = shutil.copytree if (source / name).is_dir() else shutil.copyfile
        copy(source / name, package / name)


def needed_modules(source: Path) -> list[str]:
    """The dotted names of the modules that the client imports, and that these import."""
    found: set[str] = set()
    waiting = [*ROOTS]
    while waiting:
        name = waiting.pop()
        if name not in found and name != SOURCE and module_path(source, name).is_file():
            found.add(name)
            waiting.extend(_imports(module_path(source, name)))
    return sorted(found)


def module_path(source: Path, name: str) -> Path:
    """The file of a module; it need not exist."""
    path = source.parent.joinpath(*name.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _imports(path: Path) -> Iterator[str]:
    """Names of `sharedmem` that a module imports; some are modules, others in modules."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == SOURCE:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _docstring(path: Path) -> str:
    return f'"""{ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))}"""\n'
