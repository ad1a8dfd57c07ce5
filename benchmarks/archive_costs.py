"""Costs of an export and an import: seconds and memory for a namespace of many small values.

`python benchmarks/archive_costs.py 1000000` prints a line of JSON for each; `measure_archive` is for other benchmarks.
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from sharedmem import Hub, Settings

NAMESPACE = "bench-archive"
_BATCH = 1000
_HERE = Path(__file__).resolve()


class ArchiveCost(NamedTuple):
    """The cost of one direction, in a process of its own."""

    what: str
    documents: int
    seconds: float
    peak_mib: float
    """The largest resident memory of the process; `idle_mib` of it before it began."""
    idle_mib: float
    file_mib: float


def measure_archive(data_dir: Path, count: int) -> list[ArchiveCost]:
    """Fill a namespace of an embedded server, export it, clear it, import it; the server's other data does not change.

    Args:
        data_dir: folder of the embedded server.
        count: number of values.
    """
    with tempfile.TemporaryDirectory(prefix="sm-archive-") as folder:
        file = Path(folder) / "bench.jsonl.zst"
        asyncio.run(_fill(data_dir, count))
        exported = _child("export", data_dir, file)
        asyncio.run(_clear(data_dir))
        imported = _child("import", data_dir, file)
        asyncio.run(_clear(data_dir))
    return [exported, imported]


def _child(what: str, data_dir: Path, file: Path) -> ArchiveCost:
    words = [sys.executable, str(_HERE), what, str(data_dir), str(file)]
    finished = subprocess.run(words, check=True, capture_output=True, text=True)
    return ArchiveCost(**json.loads(finished.stdout))


async def _fill(data_dir: Path, count: int) -> None:
    async with Hub.open(settings=_settings(data_dir)) as hub:
        store = hub.store(NAMESPACE)
        for first in range(0, count, _BATCH):
            rows = range(first, min(first + _BATCH, count))
            await store.write_many({f"key-{n}": {"number": n, "text": "some words of an agent"} for n in rows})


async def _clear(data_dir: Path) -> None:
    async with Hub.open(settings=_settings(data_dir)) as hub:
        await hub.store(NAMESPACE).clear()


async def _take(what: str, data_dir: Path, file: Path) -> ArchiveCost:
    async with Hub.open(settings=_settings(data_dir)) as hub:
        idle, started = _peak_mib(), time.perf_counter()
        if what == "export":
            documents = (await hub.archive.export(NAMESPACE, file)).documents
        else:
            documents = (await hub.archive.import_(file)).documents
        seconds = time.perf_counter() - started
    return ArchiveCost(what, documents, seconds, _peak_mib(), idle, file.stat().st_size / 2**20)  # noqa: ASYNC240  # it is done


def _settings(data_dir: Path) -> Settings:
    return Settings(data_dir=data_dir, durable_url="none")


def _peak_mib() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 1024


def _main(words: list[str]) -> None:
    if words and words[0] in {"export", "import"}:
        print(json.dumps(asyncio.run(_take(words[0], Path(words[1]), Path(words[2])))._asdict()))
        return
    with tempfile.TemporaryDirectory(prefix="sm-bench-", ignore_cleanup_errors=True) as folder:
        for taken in measure_archive(Path(folder) / "d", int(words[0]) if words else 100_000):
            print(json.dumps(taken._asdict()))


if __name__ == "__main__":
    _main(sys.argv[1:])
