"""docs/blobs.md: processes that share a folder put and remove the same contents, and lose none that they hold."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

from support.blob_processes import NAMESPACE

from sharedmem.blobs.blobs import BlobReference, Blobs
from sharedmem.blobs.folder import FolderBlobStore

TESTS = Path(__file__).resolve().parents[1]
AGENTS, ROUNDS = 4, 80
FOR_EVER = 1_000_000
SAID_BEFORE_DEATH = 40


async def agent(folder: Path, name: str, rounds: int) -> Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "support.blob_processes", str(folder), name, str(rounds)),
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        stdout=PIPE,
        stderr=PIPE,
    )


def still_held(said: bytes) -> dict[str, BlobReference]:
    """By path: what the agent held and had not begun to remove; its last line may be cut."""
    held: dict[str, BlobReference] = {}
    for line in said.decode().splitlines(keepends=True):
        word, _, what = line.strip().partition(" ")
        if word == "holds" and line.endswith("\n"):
            reference = BlobReference.model_validate_json(what)
            held[reference.path] = reference
        elif word == "drops":
            held.pop(what, None)
    return held


async def check(folder: Path, held: dict[str, BlobReference]) -> None:
    """Each of them is there, intact, and nothing else after a sweep that takes whatever nobody holds."""
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

    told = await asyncio.gather(*(one.communicate() for one in agents))

    assert [one.returncode for one in agents] == [0] * AGENTS, b"\n".join(error for _, error in told).decode()
    held: dict[str, BlobReference] = {}
    for said, _ in told:
        held |= still_held(said)
    await check(tmp_path, held)


async def test_processes_that_are_killed_leave_nothing_dangling_and_only_what_a_sweep_finds(tmp_path: Path) -> None:
    agents = [await agent(tmp_path, f"a{number}", FOR_EVER) for number in range(AGENTS)]
    held: dict[str, BlobReference] = {}
    for number, one in enumerate(agents):
        assert one.stdout is not None
        said = b"".join([await one.stdout.readline() for _ in range(SAID_BEFORE_DEATH + number)])
        one.send_signal(signal.SIGKILL)
        rest, error = await one.communicate()
        assert not error, error.decode()
        held |= still_held(said + rest)

    await check(tmp_path, held)
