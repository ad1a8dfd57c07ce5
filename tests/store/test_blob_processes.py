"""docs/blobs.md: processes that share a folder put and remove the same contents, and lose none that they hold."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from support.blob_processes import NAMESPACE
from support.example_budget import example_count
from support.forked_processes import ForkedProcess

from sharedmem.blobs.blobs import BlobReference, Blobs
from sharedmem.blobs.folder import FolderBlobStore

AGENTS, ROUNDS = 4, example_count(40, thorough=80)
FOR_EVER = 1_000_000
LINES_BEFORE_DEATH = example_count(16, thorough=40)


async def agent(folder: Path, name: str, rounds: int) -> ForkedProcess:
    return await ForkedProcess.start("support.blob_processes", folder, name, rounds)


def still_held(printed: bytes) -> dict[str, BlobReference]:
    """By path: what the agent held and had not begun to remove; its last line may be cut."""
    held: dict[str, BlobReference] = {}
    for line in printed.decode().splitlines(keepends=True):
        word, _, what = line.strip().partition(" ")
        if word == "holds" and line.endswith("\n"):
            reference = BlobReference.model_validate_json(what)
            held[reference.path] = reference
        elif word == "drops":
            held.pop(what, None)
    return held


async def check(folder: Path, held: dict[str, BlobReference]) -> None:
    """Each of them is there, intact, and nothing else after a sweep of all content without a reference."""
    blobs = Blobs(FolderBlobStore(folder))
    found = {path: key async for key, path in blobs.referrers(NAMESPACE, older_than_s=-60)}
    for path, key in found.items():
        if path not in held:
            await blobs.remove(key, path)
    await blobs.collect(NAMESPACE, older_than_s=-60)
    for path, reference in held.items():
        await blobs.get(found[path], reference)
    contents = {path.rpartition("/")[0] + "/content" for path in held}
    assert {name async for name, _ in FolderBlobStore(folder).list("")} - {"lock"} == held.keys() | contents


async def test_processes_that_write_and_delete_the_same_contents_lose_none(tmp_path: Path) -> None:
    agents = [await agent(tmp_path, f"a{number}", ROUNDS) for number in range(AGENTS)]

    output = await asyncio.gather(*(one.communicate() for one in agents))

    assert [one.returncode for one in agents] == [0] * AGENTS
    held: dict[str, BlobReference] = {}
    for printed in output:
        held |= still_held(printed)
    await check(tmp_path, held)


async def test_processes_that_are_killed_leave_nothing_dangling_and_only_what_a_sweep_finds(tmp_path: Path) -> None:
    agents = [await agent(tmp_path, f"a{number}", FOR_EVER) for number in range(AGENTS)]
    held: dict[str, BlobReference] = {}
    for number, one in enumerate(agents):
        printed = b"".join([await one.stdout.readline() for _ in range(LINES_BEFORE_DEATH + number)])
        one.kill()
        printed += await one.communicate()
        assert one.returncode == -signal.SIGKILL
        held |= still_held(printed)

    await check(tmp_path, held)
