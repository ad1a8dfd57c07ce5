"""Agents that remember, as processes: `python -m support.memory_processes <url> <namespace> <number> <what>`."""

from __future__ import annotations

import asyncio
import random
import sys

from sharedmem import Hub, Settings
from support.forked_processes import ForkedProcess

FACTS = 500
_THINGS = ("bridge", "harbour", "library", "market", "garden", "station", "theatre", "museum", "bakery", "school")
_TOWNS = ("Aarhus", "Bergen", "Cadiz", "Dresden", "Essen", "Faro", "Ghent", "Hull", "Izmir", "Jena")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")


def distinct_facts() -> list[str]:
    """Five hundred facts that differ."""
    return [f"The {thing} of {town} closes on {day}" for thing in _THINGS for town in _TOWNS for day in _DAYS]


def paraphrases() -> list[str]:
    """One fact in several words, near enough to each other for the hashing embedder."""
    return [
        f"The quiet old harbour of Bergen opens its gates early in the morning{end}" for end in (".", "!", " .", " !!")
    ]


async def add_all_facts(url: str, namespace: str, number: int, what: str) -> None:
    """Add all facts, in an order of one's own, half of them one by one."""
    settings = Settings(embedder="hashing")
    chosen = distinct_facts() if what == "facts" else paraphrases()
    random.Random(number).shuffle(chosen)
    async with Hub.open(url, settings=settings) as hub:
        memory = hub.store(namespace, actor=f"agent-{number}").memory
        half = len(chosen) // 2
        await memory.add_many(chosen[:half])
        await asyncio.gather(*(memory.add(fact) for fact in chosen[half:]))
    sys.stdout.write("done\n")


async def race_processes(url: str, namespace: str, *, processes: int, what: str = "facts") -> None:
    """Let that many processes add the same at the same time."""
    started = [
        await ForkedProcess.start("support.memory_processes", url, namespace, number, what)
        for number in range(processes)
    ]
    try:
        for process in started:
            out = await process.communicate()
            assert out == b"done\n", f"a process has failed: {out!r}"
    finally:
        for process in started:
            process.kill()
            await process.communicate()


if __name__ == "__main__":
    asyncio.run(add_all_facts(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]))
