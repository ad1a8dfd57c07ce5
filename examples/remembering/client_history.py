"""Two agents share a borrower's history from spring to autumn, and never read another borrower's file.

python examples/remembering/client_history.py
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from sharedmem import Hub, SharedMemoryStore
from sharedmem.models import MemoryItem, MemoryMessage

TALKS = {
    ("ines", "2026-03-02"): [
        ("Ines", "I would like to borrow 240,000 euros for a house in Vale Street."),
        ("Agent", "What do you earn, and since when?"),
        ("Ines", "3,900 a month as a nurse at St. Anne's, since 2019."),
        ("Agent", "Do you have other debts?"),
        ("Ines", "A car loan, 210 a month until next summer."),
    ],
    ("ines", "2026-06-19"): [
        ("Ines", "We have a baby now, and I work half time until January."),
        ("Agent", "Congratulations. How much is it for the time being?"),
        ("Ines", "2,050 a month, and my husband earns 2,700 as a carpenter."),
    ],
    ("otto", "2026-04-11"): [
        ("Otto", "I need a loan of 80,000 for a bakery in Vale Street."),
        ("Agent", "What do you earn?"),
        ("Otto", "About 5,200 a month, it varies with the season."),
    ],
}
QUESTIONS = (
    "What does Ines earn?",
    "Who else earns money in the household?",
    "Are there other debts?",
    "For which house is the loan?",
)


async def remember_talks(store: SharedMemoryStore) -> None:
    """Add each talk as a thread of the client, and each sentence as a turn."""
    for (client, day), turns in TALKS.items():
        at = datetime.fromisoformat(day).replace(tzinfo=UTC)
        await store.memory.within(user_id=client, thread_id=f"{client} {day}").add_many(
            [
                MemoryItem(
                    memory=text,
                    timestamp=at,
                    messages=(MemoryMessage(role="agent" if name == "Agent" else "user", name=name, content=text),),
                )
                for name, text in turns
            ],
            dedup=False,
        )


async def main() -> None:
    """Add the talks of spring and summer; in autumn another agent decides."""
    async with Hub.open() as hub:
        await hub.store("loans").clear()
        await remember_talks(hub.store("loans", actor="agent-spring"))

        autumn = hub.store("loans", actor="agent-autumn")
        of_ines = autumn.memory.within(user_id="ines")
        for question in QUESTIONS:
            print(question)
            for hit in await of_ines.search(question, limit=2):
                day = hit.item.timestamp.date() if hit.item.timestamp else ""
                print(f"    {day} {hit.item.author}: {hit.item.memory}")

        strange = [hit.item.user_id for hit in await of_ines.search("bakery in Vale Street", limit=10)]
        print(f"\nfiles of others that were opened: {sum(user != 'ines' for user in strange)}")
        (others,) = await autumn.memory.within(user_id="otto").search("bakery", limit=1)
        print(f"Otto's memory by its id, asked for Ines: {await of_ines.get(others.item.id)}")
        stats = await of_ines.thread_stats("ines 2026-03-02")
        who = ", ".join(f"{one.name} {one.turns}" for one in stats.participants)
        print(f"spring: {stats.turn_count} turns ({who}); without memory the autumn agent asks all of it again")


if __name__ == "__main__":
    asyncio.run(main())
