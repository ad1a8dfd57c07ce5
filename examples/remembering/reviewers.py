"""Reviewers of house appraisals use the same criteria, and never judge the same case twice.

Each reviewer is an actor with a shared memory: before it calls its (here simulated) model, it checks whether a
colleague has an answer, and recalls the judgements on similar cases.

python examples/remembering/reviewers.py            with memory
python examples/remembering/reviewers.py --without  the same reviewers, each alone
"""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import dataclass, field
from typing import Any

from sharedmem import ActorContext, Hub, RemembersMixin

CRITERIA = {
    "roof": "Is the roof sound and expected to last ten years?",
    "flood": "Is the house safe from floods of the river?",
    "comparables": "Do three comparable sales support the value?",
}
HOUSES = [
    {"id": "A1", "kind": "farmhouse by the river", "roof": "thatched, 30 years old", "sales": 2},
    {"id": "A2", "kind": "farmhouse by the river", "roof": "thatched, 30 years old", "sales": 2},
    {"id": "A3", "kind": "flat in the old town", "roof": "slate, renewed last year", "sales": 7},
    {"id": "A4", "kind": "farmhouse by the river", "roof": "slate, renewed last year", "sales": 3},
    {"id": "A5", "kind": "flat in the old town", "roof": "slate, renewed last year", "sales": 7},
]


@dataclass
class Review:
    """The result of a review."""

    criterion: str
    kind: str
    verdict: str
    because: str


@dataclass
class Reviewer(RemembersMixin):
    """Judges houses by one criterion."""

    criterion: str
    context: ActorContext | None = None
    asked: int = 0
    known: int = 0
    precedents: list[str] = field(default_factory=list)

    def extract_memory(self, output: Any) -> str:
        """Return the text of a review for colleagues."""
        return f"{output.criterion} of a {output.kind}: {output.verdict}, because {output.because}"

    async def review(self, house: dict[str, Any]) -> str:
        """Return the verdict on a house: from a colleague, or from the model with memories of similar cases."""
        question = f"{CRITERIA[self.criterion]} {house['kind']}, {house['roof']}, {house['sales']} sales"
        if answered := await self.check_cache(question, key=self.criterion):
            self.known += 1
            return str(answered.response)
        alike = await self.recall(f"{self.criterion} of a {house['kind']}", limit=2)
        self.precedents += [hit.item.memory for hit in alike]
        review = self.ask_model(house)
        await self.remember_output(review, "high" if review.verdict == "fail" else "medium", category="review")
        if self.context and self.context.store:
            await self.context.store.cache.put(question, review.verdict, key=self.criterion, cost=0.02, tokens=900)
        return review.verdict

    def ask_model(self, house: dict[str, Any]) -> Review:
        """Simulate a call of a language model, which takes seconds and costs money."""
        self.asked += 1
        sound = {
            "roof": ("slate" in house["roof"], house["roof"]),
            "flood": ("river" not in house["kind"], "the river rose in 2021"),
            "comparables": (house["sales"] >= 3, f"{house['sales']} sales were found"),
        }
        passes, because = sound[self.criterion]
        return Review(self.criterion, house["kind"], "pass" if passes else "fail", because)


async def main(*, with_memory: bool) -> None:
    """Review all houses and print the effect of memory."""
    async with Hub.open() as hub:
        store = hub.store("appraisals", actor="reviewers")
        await hub.store("appraisals").clear()
        reviewers = [
            Reviewer(name, ActorContext(store, actor_id=f"reviewer-{name}", actor_type="reviewer", enabled=with_memory))
            for name in CRITERIA
        ]
        for house in HOUSES:
            verdicts = [await reviewer.review(house) for reviewer in reviewers]
            print(f"{house['id']} {house['kind']:24}", dict(zip(CRITERIA, verdicts, strict=True)))
        asked, known = sum(one.asked for one in reviewers), sum(one.known for one in reviewers)
        print(f"\nmodel calls: {asked}, answers that a colleague had: {known}")
        print(f"precedents read before judging: {sum(len(one.precedents) for one in reviewers)}")
        if with_memory:
            print(f"saved: {(await store.cache.stats()).saved_cost:.2f} dollars")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--without", action="store_true", help="work without memory")
    asyncio.run(main(with_memory=not parser.parse_args().without))
