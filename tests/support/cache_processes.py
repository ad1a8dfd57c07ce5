"""Agents as processes that ask the same question, for tests that race them or kill them.

`python -m support.cache_processes <url> <namespace> <seconds> <lease>` says `ready`, waits for a line, asks, and prints
`computing` when it computes and `got <answer>` in the end.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from sharedmem import Hub, Settings
from sharedmem.providers.local_embedders import HashingEmbedder
from support.forked_processes import ForkedProcess
from support.printed_lines import print_line

PREFIX = "askers"


async def _main(url: str, namespace: str, seconds: str, lease: str) -> None:
    async with Hub(url, settings=Settings(prefix=PREFIX), embedder=HashingEmbedder()) as hub:
        cache = hub.store(namespace, actor=f"asker-{os.getpid()}").cache

        @cache.cached(key="asked", lease=float(lease))
        async def ask(prompt: str) -> str:
            print_line("computing")
            await asyncio.sleep(float(seconds))
            return f"{prompt} {os.getpid()}"

        print_line("ready")
        await asyncio.to_thread(sys.stdin.readline)
        print_line("got", await ask("what is it?"))


class CacheProcess:
    """The parent's side of one process."""

    def __init__(self, process: ForkedProcess) -> None:
        self.process = process

    async def line(self) -> str:
        """What it says next."""
        return (await self.process.stdout.readline()).decode().strip()

    def go(self) -> None:
        """Let it ask."""
        self.process.stdin.write(b"go\n")

    async def rest(self) -> list[str]:
        """All that it says until its end."""
        return (await self.process.communicate()).decode().splitlines()


@asynccontextmanager
async def running_cache_processes(
    leases: Sequence[float], url: str, namespace: str, *, seconds: float
) -> AsyncIterator[list[CacheProcess]]:
    """Processes that are ready to ask, each with its lease in seconds; `seconds` is how long an answer takes."""
    started = [
        CacheProcess(await ForkedProcess.start("support.cache_processes", url, namespace, seconds, lease))
        for lease in leases
    ]
    try:
        for asker in started:
            assert await asker.line() == "ready"
        yield started
    finally:
        for asker in started:
            asker.process.kill()
            await asker.process.communicate()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
