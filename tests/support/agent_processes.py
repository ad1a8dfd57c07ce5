"""Agents as processes of their own, for tests that race them or kill them.

`python -m support.agent_processes <what> <url> [argument]` runs one of the functions below; what an agent has been
told by the store it prints, a line at a time.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Self

from sharedmem import Hub, SharedMemoryStore, VersionConflictError
from support.faulty_hubs import persistent_settings
from support.forked_processes import ForkedProcess
from support.printed_lines import print_line

NAMESPACE = "children"


# -- what a child does ----------------------------------------------------------------------------


async def count(store: SharedMemoryStore, times: int) -> None:
    """Add one to `n`, by `update`, that many times."""
    for _ in range(times):
        await store.update("n", lambda number: (number or 0) + 1)
    print_line("counted", times)


async def append(store: SharedMemoryStore, _: int) -> None:
    """Append 0, 1, 2, ... to a list for ever, each with a counter and a pair that belong together."""
    for number in itertools.count():
        await store.append("list", number)
        await store.incr("count")
        versions = await store.write_many({"left": number, "right": number})
        print_line(number, versions["left"])


async def claim(store: SharedMemoryStore, documents: int) -> None:
    """Claim documents, each by a conditional write."""
    for document in range(documents):
        try:
            await store.write(f"claim-{document}", os.getpid(), if_version=0)
        except VersionConflictError:
            continue
        print_line(document)


async def pop(store: SharedMemoryStore, _: int) -> None:
    """Take members out of a set until it is empty."""
    while (member := await store.spop("tasks")) is not None:
        print_line(member)


_JOBS = {job.__name__: job for job in (count, append, claim, pop)}


async def _main(what: str, url: str, argument: str = "0") -> None:
    async with Hub.open(settings=persistent_settings(url)) as hub:
        store = hub.store(NAMESPACE)
        print_line("ready")
        await asyncio.to_thread(sys.stdin.readline)
        await _JOBS[what](store, int(argument))


# -- the parent's side ----------------------------------------------------------------------------


class AgentProcess:
    """A running agent."""

    def __init__(self, process: ForkedProcess) -> None:
        self._process = process
        self._orders, self._output = process.stdin, process.stdout

    @classmethod
    async def start(cls, module: str, *words: object) -> Self:
        """Start a module of the tests that prints and reads lines."""
        return cls(await ForkedProcess.start(module, *words))

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    async def line(self) -> list[str]:
        """The words of the next line that it prints; none when it has ended."""
        return (await self._output.readline()).decode().split()

    def go(self) -> None:
        """Let it begin."""
        self._orders.write(b"go\n")

    def kill(self) -> None:
        """End it with SIGKILL."""
        self._process.kill()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """It stands still inside the block, and goes on after it."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            if self._process.returncode is None:
                self._process.send_signal(signal.SIGCONT)

    async def rest(self) -> list[list[str]]:
        """The words of every line still to come."""
        return [line.split() for line in (await self._output.read()).decode().splitlines()]

    async def end(self) -> int:
        """Its exit code; it is killed when it still runs."""
        if self._process.returncode is None and not self._output.at_eof():
            self._process.kill()
        await self._process.communicate()
        return self._process.returncode or 0


@asynccontextmanager
async def running_agents(
    number: int, what: str, url: str, argument: int = 0, *, module: str = "support.agent_processes"
) -> AsyncIterator[list[AgentProcess]]:
    """So many agents with open hubs, which begin together; the ones that still run at the end are killed."""
    async with agents_begun_together(module, [(what, url, argument)] * number) as agents:
        yield agents


@asynccontextmanager
async def agents_begun_together(
    module: str, arguments: Iterable[tuple[object, ...]]
) -> AsyncIterator[list[AgentProcess]]:
    """Likewise, an agent for each tuple of arguments of a module that prints `ready` and waits for a line."""
    started = [await AgentProcess.start(module, *words) for words in arguments]
    try:
        for child in started:
            assert await child.line() == ["ready"]
        for child in started:
            child.go()
        yield started
    finally:
        for child in started:
            await child.end()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
