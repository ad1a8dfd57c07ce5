"""Processes that make notes, for tests that race them or kill them.

`python -m support.synthesizers <what> <url> <argument>` runs one of the functions below; it says when it is ready, and
begins when it is told to.
"""

from __future__ import annotations

import asyncio
import os
import sys

from sharedmem import Hub, Settings, SharedMemoryStore
from sharedmem.models import Note, Resolution
from sharedmem.synthesis.agents.offline import RuleAgents
from support.faulty_hubs import persistent
from support.synthesis_ground import Panel, ask, bench_of, fact

NAMESPACE = "synthesizers"
MODULE = "support.synthesizers"
VISIBILITY_S = 0.5
AT_ONCE = 16


def chosen(url: str) -> Settings:
    """The settings of all of them, and of the test that looks on."""
    return persistent(url, embedder="hashing")


# -- what a process does ----------------------------------------------------------------------


async def add(store: SharedMemoryStore, count: int) -> None:
    """Ask for so many notes of one topic, each with a fact that nobody else knows, and work until they are done."""
    bench = bench_of(store, Panel())
    bench.worker.start()
    requests = [ask(fact(os.getpid() * 100 + number)) for number in range(count)]
    tasks = [await bench.desk.put(request) for request in requests]
    for request, task in zip(requests, tasks, strict=True):
        done = await bench.desk.wait(task.task_id, timeout=60)
        _say(done.status, request.messages[0].content)
    await bench.worker.drain()


async def work(store: SharedMemoryStore, _: int) -> None:
    """Work on tasks for ever, by rules."""
    bench = bench_of(store, RuleAgents(), visibility=VISIBILITY_S, concurrency=AT_ONCE)
    await bench.worker.run()


async def stall(store: SharedMemoryStore, _: int) -> None:
    """Take a task, and get stuck in the middle of settling its note."""
    panel = Panel()

    async def for_ever(new: Note, said: list[Resolution]) -> list[Resolution]:
        _say("judging", new.id)
        await asyncio.Event().wait()
        return said

    panel.judging = for_ever
    await bench_of(store, panel, visibility=VISIBILITY_S).worker.run()


_JOBS = {job.__name__: job for job in (add, work, stall)}


def _say(*words: object) -> None:
    sys.stdout.write(f"{' '.join(map(str, words))}\n")
    sys.stdout.flush()


async def _main(what: str, url: str, argument: str = "0") -> None:
    async with Hub.open(settings=chosen(url)) as hub:
        store = hub.store(NAMESPACE)
        _say("ready")
        await asyncio.to_thread(sys.stdin.readline)
        await _JOBS[what](store, int(argument))


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
