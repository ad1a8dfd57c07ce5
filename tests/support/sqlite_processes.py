"""Processes that use one SQLite file: `python -m support.sqlite_processes <what> <file>`."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from contextlib import closing
from itertools import count
from pathlib import Path

from sharedmem.durable.sqlite_store import SqliteDurable
from sharedmem.testing.durable_suite.base import element, head

PARTS = 3
"""Elements of each key."""


async def write_for_ever(file: Path) -> None:
    """Put keys of several documents each, many at a time; print each key that is acknowledged."""
    durable = SqliteDurable(file)
    await durable.open()
    numbers = count()

    async def write() -> None:
        for number in numbers:
            key = f"ns:{os.getpid()}-{number:06}"
            await durable.put([head(key, number), *(element(key, str(part), number) for part in range(PARTS))])
            os.write(1, f"{key} {number}\n".encode())

    await asyncio.gather(*(write() for _ in range(8)))


def lock_until_the_input_ends(file: Path) -> None:
    """Hold the write lock until the input ends."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        os.write(1, b"locked\n")
        sys.stdin.read()


if __name__ == "__main__":
    if sys.argv[1] == "locker":
        lock_until_the_input_ends(Path(sys.argv[2]))
    else:
        asyncio.run(write_for_ever(Path(sys.argv[2])))
