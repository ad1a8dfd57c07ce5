"""What is served is what the sources build; their checks and unit tests pass."""

from __future__ import annotations

import asyncio
import gzip
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
FILES = ROOT / "sharedmem" / "faces" / "rest" / "console_files"
MOST_PACKED_BYTES = 400_000


async def test_the_built_files_are_those_of_the_sources() -> None:
    check = await asyncio.create_subprocess_exec(
        sys.executable, "tools/build_console.py", "--check", cwd=ROOT, stderr=asyncio.subprocess.PIPE
    )
    _, told = await check.communicate()
    assert check.returncode == 0, told.decode()


def test_the_page_is_small() -> None:
    packed = sum(len(gzip.compress(path.read_bytes())) for path in FILES.rglob("*") if path.is_file())
    assert packed <= MOST_PACKED_BYTES
