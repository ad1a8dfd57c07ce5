"""Processes that make notes, for tests that race them or kill them.

`python -m support.synthesis_processes <what> <url> <argument>` runs one of the functions below; it says when it is
ready, and begins when it is told to. `swarm <url> <processes>` runs `add` in many processes at once, and tells what
they told; `phoenix <url> <lives>` works in one process after the other, each of which is killed.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time

from sharedmem import Hub, Settings, SharedMemoryStore
from sharedmem.models import Note, Resolution
from sharedmem.synthesis.evolution import ChainLocks
from sharedmem.synthesis.rule_agents import RuleAgents
from support.contexts import context_of, scope_of
from support.faulty_hubs import persistent_settings
from support.printed_lines import print_line
from support.synthesis_harness import ScriptedAgents, make_synthesis_harness, note_request, numbered_fact

NAMESPACE = "synthesizers"
MODULE = "support.synthesis_processes"
VISIBILITY_S = LEASE_S = 0.5
AT_ONCE = 16
EACH = 2
"""Notes that each process of a swarm asks for."""


def chosen(url: str) -> Settings:
    """The settings of all of them, and of the test that looks on."""
    return persistent_settings(url, embedder="hashing", synthesis_attempts=100)


# -- what a process does ----------------------------------------------------------------------


async def add(store: SharedMemoryStore, count: int) -> None:
    """Ask for some notes of one topic, each with a fact of its own, and work until they are done."""
    bench = make_synthesis_harness(store, ScriptedAgents())
    bench.worker.start()
    requests = [note_request(numbered_fact(os.getpid() * 100 + number)) for number in range(count)]
    tasks = [await bench.intake.put(request) for request in requests]
    for request, task in zip(requests, tasks, strict=True):
        done = await bench.intake.wait(task.task_id, timeout=60)
        print_line(done.status, request.messages[0].content)
    await bench.worker.drain()


async def work(store: SharedMemoryStore, _: int) -> None:
    """Work on tasks for ever, by rules."""
    bench = make_synthesis_harness(store, RuleAgents(), visibility=VISIBILITY_S, concurrency=AT_ONCE)
    await bench.worker.run()


async def agree(store: SharedMemoryStore, says: int) -> None:
    """Work on tasks for ever, put together whatever is near, and say when the first is being judged."""
    panel = ScriptedAgents()

    async def judging(_: Note, resolutions: list[Resolution]) -> list[Resolution]:
        panel.judging = None
        os.write(says, b"!")
        return resolutions

    panel.judging = judging
    chains = ChainLocks(scope_of(store), context_of(store), lease_s=LEASE_S)
    await make_synthesis_harness(store, panel, visibility=VISIBILITY_S, chains=chains).worker.run()


async def stall(store: SharedMemoryStore, _: int) -> None:
    """Take a task, and get stuck in the middle of settling its note."""
    panel = ScriptedAgents()

    async def for_ever(new: Note, resolutions: list[Resolution]) -> list[Resolution]:
        print_line("judging", new.id)
        await asyncio.Event().wait()
        return resolutions

    panel.judging = for_ever
    chains = ChainLocks(scope_of(store), context_of(store), lease_s=LEASE_S)
    await make_synthesis_harness(store, panel, visibility=VISIBILITY_S, chains=chains).worker.run()


_JOBS = {job.__name__: job for job in (work, stall)}


def fork_workers(url: str, processes: int) -> None:
    """Become so many processes: forked, since each that began anew would load everything again."""
    children = []
    for _ in range(processes):
        child = os.fork()
        if not child:
            asyncio.run(_add_at(url))
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


def work_and_die_repeatedly(url: str, lives: int) -> None:
    """Work on tasks as `agree`, and be killed in the middle of it, so many times; the last life lasts."""
    hears, says = os.pipe()
    for _ in range(lives):
        child = os.fork()
        if not child:
            asyncio.run(_agree_at(url, says))
        os.read(hears, 1)
        time.sleep(random.uniform(0, 0.05))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    asyncio.run(_agree_at(url, says))


async def _agree_at(url: str, says: int) -> None:
    async with Hub.open(settings=chosen(url)) as hub:
        await agree(hub.store(NAMESPACE), says)


async def _add_at(url: str) -> None:
    async with Hub.open(settings=chosen(url)) as hub:
        await add(hub.store(NAMESPACE), EACH)


async def _main(what: str, url: str, argument: str = "0") -> None:
    async with Hub.open(settings=chosen(url)) as hub:
        store = hub.store(NAMESPACE)
        print_line("ready")
        await asyncio.to_thread(sys.stdin.readline)
        await _JOBS[what](store, int(argument))


if __name__ == "__main__":
    forks = {"swarm": fork_workers, "phoenix": work_and_die_repeatedly}
    if sys.argv[1] in forks:
        forks[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
    else:
        asyncio.run(_main(*sys.argv[1:]))
