"""In a new environment one worker compiles the tests while the others wait: else each of them would compile all."""

from __future__ import annotations

import fcntl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def compiled_by_one(folder: Path) -> Iterator[None]:
    """Inside the block the tests are collected; the first worker to come has the block to itself.

    Args:
        folder: where the compiled tests go; later runs find a mark there, and nothing waits any more.
    """
    mark = folder / "collected"
    if sys.dont_write_bytecode or mark.exists():
        yield
        return
    folder.mkdir(exist_ok=True)
    with (folder / "collecting").open("w") as turn:
        try:
            fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(turn, fcntl.LOCK_SH)
        yield
        mark.touch()
