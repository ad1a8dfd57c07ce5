"""What a type checker sees: `once` and `update` return what their functions make, `read` the type asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
from sharedmem import Hub
from sharedmem.sync import Hub as SyncHub

async def make() -> int:
    return 1

async def add(before: int) -> float:
    return before + 1.0

async def use(hub: Hub) -> None:
    store = hub.store("team")
    reveal_type(await store.once("a", make, ttl=1))
    reveal_type(await store.once("b", lambda: "text", ttl=1))
    reveal_type(await store.update("n", add))
    reveal_type(await store.update("n", lambda before: [before]))

def use_in_threads(hub: SyncHub) -> None:
    store = hub.store("team")
    reveal_type(store.once("a", lambda: 1, ttl=1))
    reveal_type(store.update("n", lambda before: "text"))
"""

READS = """
from dataclasses import dataclass
from typing import TypedDict

from pydantic import BaseModel

from sharedmem import SharedMemoryStore
from sharedmem.sync import SharedMemoryStore as SyncStore

class Model(BaseModel):
    size: int

@dataclass
class Point:
    x: int

class Row(TypedDict):
    name: str

async def use(store: SharedMemoryStore) -> None:
    reveal_type(await store.read("a"))
    reveal_type(await store.read("a", as_=Model))
    reveal_type(await store.read("a", 0, as_=Model))
    reveal_type(await store.read("a", None, as_=Point))
    reveal_type(await store.read("a", as_=Row))
    reveal_type(await store.read("a", as_=list[int]))
    reveal_type(await store.read("a", as_=int | str))
    reveal_type(await store.read_many(["a"]))
    reveal_type(await store.read_many(["a"], as_=Model))
    (await store.read("a", as_=Model)).size

def use_in_threads(store: SyncStore) -> None:
    reveal_type(store.read("a"))
    reveal_type(store.read("a", as_=Model))
    reveal_type(store.read("a", Point(1), as_=Point))
    reveal_type(store.read_many(["a"], as_=int))
"""


def checked(program: str, folder: Path) -> str:
    pytest.importorskip("mypy")
    file = folder / "program.py"
    file.write_text(program)
    command = [sys.executable, "-m", "mypy", "--strict", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def revealed_types(output: str) -> list[str]:
    revealed = [line.partition('Revealed type is "')[2].rstrip('"') for line in output.splitlines()]
    return [found.replace("builtins.", "").replace("program.", "") for found in revealed if found]


def test_the_result_has_the_type_that_the_function_returns(tmp_path: Path) -> None:
    output = checked(PROGRAM, tmp_path)

    assert revealed_types(output) == ["int", "str", "float", "list[Any]", "int", "str"], output


def test_a_read_has_the_type_that_the_caller_asks_for(tmp_path: Path) -> None:
    output = checked(READS, tmp_path)

    assert revealed_types(output) == [
        "Any",
        "Model | None",
        "Model | int",
        "Point | None",
        "TypedDict(Row, {'name': str}) | None",
        "list[int] | None",
        "Any",
        "dict[str, Any]",
        "dict[str, Model]",
        "Any",
        "Model | None",
        "Point",
        "dict[str, int]",
    ], output
    assert "Found 1 error" in output, output
    assert '"None" of "Model | None" has no attribute "size"' in output
