"""A rulebook for agents: found by meaning and by paragraph number, with every former wording kept.

python examples/remembering/rulebook.py
"""

from __future__ import annotations

import asyncio

from sharedmem import Hub, SharedMemoryStore
from sharedmem.models import MemoryItem

RULES = {
    "R-101": "An appraisal must name at least three comparable sales of the last twelve months.",
    "R-102": "Comparable sales must lie within five kilometres, in the country within twenty.",
    "R-110": "Photographs must show every room, the roof and the street side.",
    "R-204": "A house in a flood zone needs proof of insurance against water.",
    "R-205": "The appraiser must state the flood zone by the map of the water authority.",
    "R-310": "An appraiser must not value a house that a relative buys or sells.",
    "R-311": "The fee must not depend on the value that is found.",
    "R-402": "Corrections are added to a report; nothing in it may be deleted.",
    "R-403": "Reports are kept for seven years.",
}
QUESTIONS = {
    "may my brother buy the house that I value?": "R-310",
    "how long do we keep reports?": "R-403",
    "what does R-204 ask for?": "R-204",
    "which pictures do we need?": "R-110",
    "can the fee rise with the value?": "R-311",
}


async def load(store: SharedMemoryStore) -> None:
    """Put the rules into memory; a second call changes nothing."""
    items = [
        MemoryItem(
            memory=text, content=f"{number}: {text}", category="rule", metadata={"number": number}, tags=("rule",)
        )
        for number, text in RULES.items()
    ]
    results = await store.memory.add_many(items)
    print(f"loaded: {sum(not one.merged for one in results)} new, {sum(one.merged for one in results)} known")


async def ask(store: SharedMemoryStore) -> int:
    """Ask every question; return how many had the right rule among the first three results."""
    right = 0
    for question, expected in QUESTIONS.items():
        hits = await store.memory.search(question, limit=3, filters={"category": "rule"})
        numbers = [hit.item.metadata["number"] for hit in hits]
        right += expected in numbers
        print(f"{'found' if expected in numbers else 'MISSED':7}{question:46} {', '.join(numbers)}")
    return right


async def amend(store: SharedMemoryStore) -> None:
    """Change a rule: searches find the new wording, the history keeps the former one, and `undo` restores it."""
    (hit, *_) = await store.memory.search("how long are reports kept", filters={"metadata": {"number": "R-403"}})
    wording = "Reports are kept for ten years."
    await store.memory.update(hit.item.id, memory=wording, content=f"R-403: {wording}")
    for version in await store.memory.history(hit.item.id):
        print(f"R-403 {version.change:8} {version.item.memory}")
    restored = await store.memory.undo(hit.item.id)
    print(f"R-403 put back: {restored.memory}")


async def main() -> None:
    """Load, ask, amend."""
    async with Hub.open() as hub:
        await hub.store("rulebook").clear()
        store = hub.store("rulebook", actor="librarian")
        await load(store)
        await load(store)
        right = await ask(store)
        found = f"{right} of {len(QUESTIONS)} questions found their rule"
        print(f"\n{found}; without memory every agent reads all {len(RULES)}")
        await amend(store)


if __name__ == "__main__":
    asyncio.run(main())
