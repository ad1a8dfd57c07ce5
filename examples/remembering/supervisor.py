"""A supervisor distributes work in shared memory; workers claim it, and the supervisor receives every risk at once.

There is no polling: a standing query notifies the supervisor of each new memory about a risk.

python examples/remembering/supervisor.py
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from sharedmem import Hub, MemoryEvent, SharedMemoryStore

PARTS = {
    "roof": "The roof leaks: there is a high risk of water damage in the attic.",
    "cellar": "The cellar is dry and clean.",
    "wiring": "The wiring dates from 1961: a fire risk, it must be renewed.",
    "garden": "The garden is large, with three apple trees.",
}


async def hand_out(store: SharedMemoryStore, house: str) -> None:
    """Put the plan into memory: every worker finds it there, and it stays if a worker dies."""
    await store.memory.add_many(
        [
            {
                "memory": f"Inspect the {part} of house {house}",
                "thread_id": f"house {house}",
                "category": "assignment",
                "memory_type": "short-term",
                "metadata": {"part": part},
            }
            for part in PARTS
        ],
        dedup=False,
    )


async def work(store: SharedMemoryStore, house: str) -> int:
    """Do assignments until none is left, each of them once among all workers; return how many."""
    done = 0
    of_house = {"category": "assignment", "thread_id": f"house {house}"}
    for item in await store.memory.list(of_house, limit=100):
        part = str(item.metadata["part"])
        if not await store.shared.sadd(f"taken-{house}", part):
            continue
        await store.memory.add(PARTS[part], category="finding", thread_id=f"house {house}", importance="high")
        done += 1
    return done


async def receive(risks: AsyncIterator[MemoryEvent], count: int) -> list[str]:
    """Return so many risks, each received as soon as it is remembered."""
    received: list[str] = []
    async with asyncio.timeout(10):
        async for event in risks:
            if event.item is not None:
                received.append(event.item.memory)
                print(f"received at once: {event.item.memory}")
            if len(received) == count:
                return received
    return received


async def main() -> None:
    """Run two workers and one supervisor who subscribes."""
    async with Hub.open() as hub:
        await hub.store("inspection").clear()
        supervisor = hub.store("inspection", actor="supervisor")
        workers = [hub.store("inspection", actor=f"worker-{number}") for number in (1, 2)]
        of_findings = {"category": "finding"}
        async with supervisor.memory.subscribe("risk of damage or fire", threshold=0.25, filters=of_findings) as risks:
            await hand_out(supervisor, "17")
            done = await asyncio.gather(*(work(worker, "17") for worker in workers))
            print(f"{sum(done)} of {len(PARTS)} parts inspected, none twice")
            received = await receive(risks, 2)
        findings = await supervisor.memory.list(of_findings, limit=10)
        print(f"read in all: {len(received)} of {len(findings)} findings; without memory: every report of every worker")


if __name__ == "__main__":
    asyncio.run(main())
