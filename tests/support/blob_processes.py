"""Processes that put and remove the same few contents in one folder, for tests that race them or kill them.

`python -m support.blob_processes <folder> <name> <rounds>`; an agent says `holds <path>` when a reference is its key's,
and `drops <path>` before it removes it.
"""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

from sharedmem.blobs.blobs import BlobReference, Blobs
from sharedmem.blobs.folder import FolderBlobStore

NAMESPACE = "agents"
CONTENTS = [bytes([number]) * (1000 + number) for number in range(2)]


async def run_blob_agent(folder: Path, name: str, rounds: int) -> None:
    """Write and delete keys of its own, and read back what it holds, again and again."""
    blobs, choice = Blobs(FolderBlobStore(folder)), random.Random(name)
    held: dict[str, tuple[BlobReference, bytes]] = {}
    for _ in range(rounds):
        key = f"{NAMESPACE}:{name}:{choice.randrange(2)}"
        replaced = held.pop(key, None)
        if choice.random() < 0.6:
            body = choice.choice(CONTENTS)
            held[key] = (await blobs.put(key, b"json", body), body)
            print_line("holds", held[key][0].model_dump_json())
        if replaced is not None:
            print_line("drops", replaced[0].path)
            await blobs.remove(key, replaced[0].path)
        for of, (reference, body) in held.items():
            assert await blobs.get(of, reference) == body


def print_line(word: str, what: str) -> None:
    sys.stdout.write(f"{word} {what}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(run_blob_agent(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
