"""What a type checker sees: `once` and `update` return what their functions make, in both faces."""

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


def test_the_result_has_the_type_that_the_function_returns(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)

    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(program)], capture_output=True, text=True, check=False
    )

    revealed = [line.partition('Revealed type is "')[2].rstrip('"') for line in checked.stdout.splitlines()]
    assert [found.replace("builtins.", "") for found in revealed if found] == [
        "int",
        "str",
        "float",
        "list[Any]",
        "int",
        "str",
    ], checked.stdout
