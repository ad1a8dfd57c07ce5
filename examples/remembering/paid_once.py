"""Eight agents have the same questions at once: the model is called once for each, and findings are stored once.

python examples/remembering/paid_once.py
"""

from __future__ import annotations

import asyncio

from sharedmem import Hub

PRICE = 0.03
QUESTIONS = (
    "Which flood zone is Vale Street 17 in?",
    "which flood zone is Vale Street 17 in?  ",
    "Which flood zone is Vale Street 71 in?",
    "How old is the roof of Vale Street 17?",
)
FINDINGS = (
    "The roof of Vale Street 17 was renewed in 2019.",
    "the roof of Vale Street 17 was renewed in 2019.",
    "The roof of Vale Street 17 was renewed in 2009.",
    "The roof of Vale Street 17 was not renewed in 2019.",
)
AGENTS = 8


async def main() -> None:
    """Ask and remember, all at once, and count."""
    async with Hub.open() as hub:
        await hub.store("agency").clear()
        calls: list[str] = []
        stores = [hub.store("agency", actor=f"agent-{number}") for number in range(AGENTS)]

        @stores[0].cache.cached(cost=PRICE)
        async def ask_model(prompt: str) -> str:
            """Simulate a call of a language model."""
            calls.append(prompt)
            return f"answer {len(calls)}"

        answers: list[str] = await asyncio.gather(*(ask_model(question) for _ in stores for question in QUESTIONS))
        asked = len(answers)
        print(
            f"{asked} questions, {len(calls)} calls of the model: {(asked - len(calls)) * PRICE:.2f} dollars not paid"
        )
        print(f"the house numbers 17 and 71 have answers of their own: {answers[0] != answers[2]}")

        results = await asyncio.gather(*(store.memory.add(text) for store in stores for text in FINDINGS))
        kept = {result.id for result in results}
        print(f"{len(results)} findings remembered, {len(kept)} memories: years and `not` distinguish the others")
        for id_ in sorted(kept):
            item = await stores[0].memory.get(id_)
            if item is not None:
                print(f"    {item.occurrences:2} times  {item.memory}")
        stats = await stores[0].memory.stats()
        print(f"duplicates merged: {stats.duplicates_merged}; without memory: {len(results)} rows, {asked} calls")


if __name__ == "__main__":
    asyncio.run(main())
