"""Agents as processes that do pieces of work once, for tests that kill and pause them.

`python -m support.once_processes <how> <url> <name> <keys> <seed>` asks for each of so many keys, in an order of
its own, and prints a line for each thing that happens: `began <key> <value> <token>`, `got <key> <value>`,
`lost <key> <value>`, and `ended` at the end.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from itertools import count
from typing import NamedTuple

from sharedmem import ClaimLostError, Hub, SharedMemoryStore
from support.faulty_hubs import persistent_settings
from support.forked_processes import ForkedProcess
from support.printed_lines import print_line

NAMESPACE = "history"
LEASE_S = 0.4
_values = count()


class OnceEvent(NamedTuple):
    """One line of an agent."""

    what: str
    key: str
    value: str
    token: int = 0


# -- what an agent does -----------------------------------------------------------------------------


async def _by_once(store: SharedMemoryStore, key: str, value: str) -> str:
    async def work() -> str:
        print_line("began", key, value, store.once_token())
        await asyncio.sleep(random.uniform(0.1, 0.3))
        return value

    found: str = await store.once(key, work, ttl=600, lease=LEASE_S)
    return found


async def _check_then_run(store: SharedMemoryStore, key: str, value: str) -> str:
    """How it is done without `once`: look, do it, write the result."""
    found: str | None = await store.shared.read(key)
    if found is None:
        print_line("began", key, value, 0)
        await asyncio.sleep(random.uniform(0.1, 0.3))
        await store.shared.write(key, value)
        found = value
    return found


_WAYS: dict[str, Callable[[SharedMemoryStore, str, str], Awaitable[str]]] = {"once": _by_once, "hope": _check_then_run}


async def _main(how: str, url: str, name: str, keys: str, seed: str) -> None:
    random.seed(seed + name)
    wanted = [f"k{number}" for number in range(int(keys))]
    async with Hub.open(settings=persistent_settings(url)) as hub:
        store = hub.store(NAMESPACE, actor=name)
        print_line("ready")
        await asyncio.to_thread(sys.stdin.readline)
        # All go through the keys in much the same order, so that they meet.
        for key in sorted(wanted, key=lambda key: int(key[1:]) + random.uniform(0, 4)):
            value = f"{name}-{next(_values)}"
            try:
                print_line("got", key, await _WAYS[how](store, key, value))
            except ClaimLostError:
                print_line("lost", key, value)
    print_line("ended")


# -- the parent's side ------------------------------------------------------------------------------


class OnceAgent:
    """A running agent, and all that it has said."""

    def __init__(self, name: str, process: ForkedProcess) -> None:
        self.name = name
        self.process = process
        self.events: list[OnceEvent] = []
        self.ended = self.is_gone = False

    @property
    def is_working(self) -> bool:
        """Whether it is in the middle of a piece of work."""
        return bool(self.events) and self.events[-1].what == "began" and not self.is_gone

    async def is_ready(self) -> None:
        assert await self.process.stdout.readline() == b"ready\n"

    def go(self) -> None:
        """Let it begin."""
        self.process.stdin.write(b"go\n")

    def signal(self, number: signal.Signals) -> None:
        """Kill, stop or continue it, if it still runs: it may end before its event loop hears of it."""
        if self.process.returncode is None:
            self.is_gone = self.is_gone or number == signal.SIGKILL
            self.process.send_signal(number)

    async def is_at_work(self) -> None:
        """Return when it has begun something."""
        assert (await self.process.stdout.readline()).startswith(b"began ")

    async def listen(self) -> None:
        """Take down what it says until it ends."""
        while line := await self.process.stdout.readline():
            words = line.decode().split()
            if words == ["ended"]:
                self.ended = True
            elif line.endswith(b"\n"):
                what, key, value, *token = words
                self.events.append(OnceEvent(what, key, value, *map(int, token)))


@asynccontextmanager
async def running_once_agents(
    number: int, how: str, url: str, *, keys: int, seed: int
) -> AsyncIterator[list[OnceAgent]]:
    """So many agents, which begin together; the ones that still run at the end are killed."""
    started = []
    for name in (f"agent{one}" for one in range(number)):
        process = await ForkedProcess.start("support.once_processes", how, url, name, keys, seed)
        started.append(OnceAgent(name, process))
    try:
        for agent in started:
            await agent.is_ready()
        for agent in started:
            agent.go()
        yield started
    finally:
        for agent in started:
            agent.signal(signal.SIGCONT)
            agent.signal(signal.SIGKILL)
            await agent.process.communicate()


# -- what must hold ---------------------------------------------------------------------------------


def once_violations(events: Iterable[OnceEvent]) -> list[str]:
    """What a history of `once` must not hold."""
    begun: defaultdict[str, list[OnceEvent]] = defaultdict(list)
    got: defaultdict[str, set[str]] = defaultdict(set)
    lost: defaultdict[str, set[str]] = defaultdict(set)
    for event in events:
        if event.what == "began":
            begun[event.key].append(event)
        else:
            (got if event.what == "got" else lost)[event.key].add(event.value)
    found = [f"{key}: two results, {sorted(values)}" for key, values in got.items() if len(values) > 1]
    for key, values in got.items():
        found += [f"{key}: {value} was never made" for value in values - {event.value for event in begun[key]}]
        found += [f"{key}: {value} was stored, and its runner told that it was not" for value in values & lost[key]]
    for key, runs in begun.items():
        tokens = [event.token for event in runs]
        if len(set(tokens)) < len(tokens):
            found.append(f"{key}: a token was given twice")
        stored = [event.token for event in runs if event.value in got[key]]
        if stored and stored[0] < max(tokens):
            found.append(f"{key}: a run began after the result was stored")
    return found


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
