"""What a start may cost: our modules and the CPU of an import, measured against the libraries that we import."""

from __future__ import annotations

import ast
import importlib
import os
import resource
import subprocess
import sys
from pathlib import Path
from statistics import median
from types import ModuleType

import pytest

import sharedmem
import sharedmem.models

ROOT = Path(__file__).resolve().parents[2]

MOST_MODULES = 70
MOST_IMPORT_CPU = 1.6
"""Times the CPU of the baseline."""
MOST_CLI_CPU = 2.0
"""Times the CPU of an import of redis-py alone, for a command that reads one value (`benchmarks/startup.py`)."""
FEWEST_ROUNDS, MOST_ROUNDS = 3, 15

IMPORTS = ("import sharedmem", "from sharedmem import Hub, SharedMemoryStore, Settings")
BASELINE = "import redis.asyncio, pydantic"
CLI_BASELINE = "import redis"


def cpu_s(command: list[str], environment: dict[str, str]) -> float:
    """CPU seconds of one process, in user and system mode; no other child may end meanwhile."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, timeout=60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def assert_within(budget: float, commands: list[list[str]], baseline: list[str], environment: dict[str, str]) -> None:
    """Compare by the median of the ratios of interleaved rounds, after a warm-up.

    A machine under load may spoil some rounds: while a command is above its budget, more are played.
    """
    programs = [baseline, *commands]
    for warmed in programs:
        cpu_s(warmed, environment)
    rounds: list[list[float]] = []
    ratios = [float("inf")]
    while len(rounds) < FEWEST_ROUNDS or (len(rounds) < MOST_ROUNDS and max(ratios) > budget):
        base_s, *used_s = (cpu_s(program, environment) for program in programs)
        rounds.append([used / base_s for used in used_s])
        ratios = [median(of_command) for of_command in zip(*rounds, strict=True)]
    assert max(ratios) <= budget, f"{commands} took {ratios} times the CPU of {baseline}; the budget is {budget}"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment in which all modules are compiled once, whatever the caller's environment says of byte code."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("COV_", "SHAREDMEM_"))}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return kept | {"PYTHONPYCACHEPREFIX": str(tmp_path_factory.mktemp("bytecode")), "PYTHONPATH": str(ROOT)}


@pytest.mark.parametrize("statement", IMPORTS)
def test_an_import_loads_few_of_our_own_modules(statement: str) -> None:
    code = f"{statement}; import sys; print(*sorted(name for name in sys.modules if name.startswith('sharedmem')))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = done.stdout.split()

    assert len(loaded) <= MOST_MODULES, loaded
    rare = ("archive", "durable", "embedded", "memory", "graph", "synthesis", "decisions", "episodes", "blobs.azure")
    assert [name for name in loaded if name.removeprefix("sharedmem.").startswith(rare)] == []


def test_a_command_that_reads_a_value_imports_neither_redis_py_nor_the_durable_tier(
    redis_url: str, tmp_path: Path
) -> None:
    code = "import sys; from sharedmem.faces.cli import run; run(sys.argv[1:]); print(*sys.modules)"
    place = ["--url", redis_url, "--data-dir", str(tmp_path), "--namespace", "budget"]
    program = [sys.executable, "-c", code, *place]
    subprocess.run([*program, "set", "topic", "tides", "--ttl", "600"], cwd=ROOT, capture_output=True, check=True)
    done = subprocess.run([*program, "get", "topic"], cwd=ROOT, capture_output=True, text=True, check=True)
    value, loaded = done.stdout.splitlines()

    assert value == '"tides"'
    assert {"redis", "rich.console", "numpy", "sharedmem.durable"}.isdisjoint(loaded.split())


def test_a_hub_with_a_durable_tier_imports_neither_graphs_nor_what_inspects_the_tier(tmp_path: Path) -> None:
    code = """
import asyncio, sys
from sharedmem import Hub, Settings

async def main():
    async with Hub.open(settings=Settings(data_dir=sys.argv[1])) as hub:
        await hub.store("budget").write("topic", "tides", ttl=600)

asyncio.run(main())
print(*sys.modules)
"""
    program = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())

    assert "sharedmem.durable.tier" in loaded
    assert {"redis", "numpy", "sharedmem.graph.records", "sharedmem.durable.samples"}.isdisjoint(loaded)


def test_an_import_costs_little_more_cpu_than_redis_and_pydantic(environment: dict[str, str]) -> None:
    baseline, *commands = ([sys.executable, "-c", code] for code in (BASELINE, *IMPORTS))

    assert_within(MOST_IMPORT_CPU, commands, baseline, environment)


def test_the_command_line_reads_a_value_for_twice_the_cpu_of_importing_redis_at_most(
    redis_url: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    program = [sys.executable, "-c", "from sharedmem.__main__ import main; main()"]
    place = ["--url", redis_url, "--data-dir", str(tmp_path), "--namespace", "budget"]
    subprocess.run([*program, *place, "set", "topic", "tides", "--ttl", "600"], env=environment, check=True)
    command = [*program, *place, "get", "topic"]

    assert_within(MOST_CLI_CPU, [command], [sys.executable, "-c", CLI_BASELINE], environment)


@pytest.mark.parametrize("package", [sharedmem, sharedmem.models])
def test_a_lazy_name_is_what_type_checkers_take_it_for(package: ModuleType) -> None:
    tree = ast.parse(Path(str(package.__file__)).read_text(encoding="utf-8"))
    for_checkers = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    stated = {alias.name: node.module for node in for_checkers for alias in node.names}

    for name in package.__all__:
        if module := stated.get(name):
            assert getattr(package, name) is getattr(importlib.import_module(str(module)), name)
        else:
            assert vars(package)[name] is getattr(package, name)
    assert set(package.__all__) <= set(dir(package))


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    for package in (sharedmem, sharedmem.models):
        with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'Literal'"):
            package.Literal  # noqa: B018
