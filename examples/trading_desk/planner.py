"""A planner, a process of its own: processes the days and puts the decisions of the rule into the queue.

    python planner.py planner-1

Two replicas process the same days at the same time. Every decision is saved by `save_if_new`, so one of the two
saves it and the other gets the stored plan. Both then put that plan into the queue under its id, so it is there
even if the one that saved it died in between. A plan that is delivered twice is still executed once.
"""

from __future__ import annotations

import argparse
import asyncio

from market import METHOD, SIZE_USDT, Decision, Series, decisions_on
from trading import MOST_ATTEMPTS, NAMESPACE, PUT, QUEUE, SESSION, TERMS, Terms, Ticket, count, say, ticket

from sharedmem import Hub, SharedMemoryStore


async def careful(store: SharedMemoryStore, decision: Decision) -> Ticket:
    """Save a decision unless it is stored already; return the ticket of the stored plan."""
    result = await store.decisions.save_if_new(
        SESSION, decision.symbol, decision.action, decision.confidence, decision.reasoning, METHOD
    )
    if result.saved:
        await say(store, f"{decision.action} {decision.symbol}: {decision.reasoning}")
    else:
        await count(store, "plans refused as duplicates")
    plan_id = result.plan.plan_id
    return ticket(decision, plan_id=plan_id, task=plan_id, size_usdt=SIZE_USDT)


async def naive(store: SharedMemoryStore, decision: Decision, seen: set[str]) -> Ticket | None:
    """Return the ticket of a decision that this process does not remember."""
    if decision.name in seen:
        return None
    seen.add(decision.name)
    await say(store, f"{decision.action} {decision.symbol}: {decision.reasoning}")
    return ticket(decision, plan_id="", task=f"{store.actor}, {decision.name}", size_usdt=SIZE_USDT)


async def plan(store: SharedMemoryStore, terms: Terms, series: Series) -> None:
    """Process the days."""
    queue = store.queue(QUEUE, max_attempts=MOST_ATTEMPTS)
    seen: set[str] = set()
    for day in range(len(series.days)):
        for decision in decisions_on(series, day):
            decided = await naive(store, decision, seen) if terms.naive else await careful(store, decision)
            if decided is not None:
                await store.sadd(PUT, decided.task)
                await queue.put(decided.model_dump(), id=decided.task)
        await asyncio.sleep(terms.day_s)


async def main(name: str) -> None:
    """Open the store as this planner and process the days."""
    async with Hub.open() as hub:
        store = hub.store(NAMESPACE, actor=name)
        terms = Terms.model_validate(await store.read(TERMS))
        await plan(store, terms, await asyncio.to_thread(terms.series))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="One planner of the trading desk; floor.py starts them all.")
    parser.add_argument("name", help="name of the actor")
    asyncio.run(main(parser.parse_args().name))
