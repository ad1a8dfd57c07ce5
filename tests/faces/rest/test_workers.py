"""Several processes answer at one port: one that dies is replaced, and none outlives the command that began them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
from support.redis_process import RedisProcess
from support.waiting import wait_until

_COMMAND = "from sharedmem.faces.cli import main; main()"


@asynccontextmanager
async def crew(redis: RedisProcess) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """`sharedmem serve rest --workers 2`, and where it answers."""
    words = ["--json", "--url", redis.url, "serve", "rest", "--port", "0", "--workers", "2"]
    command = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _COMMAND, *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        assert command.stdout is not None
        yield command, json.loads(await command.stdout.read(4096))["url"]
    finally:
        if command.returncode is None:
            command.kill()
            await command.wait()


async def answers(url: str) -> bool:
    async with httpx2.AsyncClient(base_url=url, timeout=30) as calling:
        return (await calling.get("/health/live")).status_code == 200


def members_of(pid: int) -> set[int]:
    return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


def are_gone(members: set[int]) -> bool:
    return not any(Path(f"/proc/{member}").exists() for member in members)


async def test_a_process_that_is_killed_is_replaced_and_none_outlives_the_command() -> None:
    with RedisProcess(tcp=True) as redis:
        async with crew(redis) as (command, url):
            assert await answers(url)
            before = members_of(command.pid)
            os.kill(min(before), signal.SIGKILL)
            await wait_until(lambda: bool(members_of(command.pid) - before), description="another one took its place")
            assert await answers(url)

            members = before | members_of(command.pid)
            command.kill()
            await command.wait()

            await wait_until(lambda: are_gone(members), description="the others have ended too")
