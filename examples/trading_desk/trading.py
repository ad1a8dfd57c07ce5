"""What the processes of the trading desk share: the names, the terms of the day, and how they tell what they do."""

from __future__ import annotations

from pathlib import Path

from market import Decision, Series, all_decisions, read_series
from mishaps import Mishap, dealt
from pydantic import BaseModel, ConfigDict

from sharedmem import SharedMemoryStore

NAMESPACE = "trading-desk"
SESSION = "this-run"
"""Of the plans in the decision log, and of the episode that tells what happened."""
QUEUE = "plans"
MOST_ATTEMPTS = 100
"""Of a task: executors that wait for each other count as attempts, too."""
TERMS = "trading-desk:shared:terms"
PUT = "trading-desk:shared:put"
"""The tasks that planners have put."""
DONE = "trading-desk:shared:done"
"""The tasks that executors are done with."""
CLOSED = "trading-desk:shared:closed"
"""Written when the planners have gone home."""
COUNTS = "trading-desk:shared:counts"
CRASHED = 77
"""Exit code of an executor that died as it was meant to."""


class _Note(BaseModel):
    model_config = ConfigDict(frozen=True)


class Terms(_Note):
    """What the floor asks for, and how fast; times in seconds."""

    prices: str
    exchange: str
    days: int
    seed: int
    naive: bool
    day_s: float
    """What a day takes the planner."""
    lease_s: float
    """Until the claim of an executor that died is over."""
    visibility_s: float
    """Until the queue hands its task to another."""
    hang_s: float
    """How long the exchange hangs when it does: longer than the queue waits."""

    def series(self) -> Series:
        """Return the prices that are traded. Reads the file."""
        return read_series(Path(self.prices)).first(self.days)


class Ticket(_Note):
    """What travels through the queue: a decision, and the plan under which it was saved."""

    plan_id: str
    """Empty on a naive desk, which saves no plans."""
    task: str
    """Names the ticket in the queue."""
    name: str
    """What was decided: day, symbol, action."""
    symbol: str
    price: float
    size_usdt: float


def mishaps_of(series: Series, venues: dict[str, str], seed: int) -> dict[str, Mishap]:
    """Return what will go wrong, the same for every process that asks."""
    return dealt(all_decisions(series), venues, seed=seed)


def ticket(decision: Decision, *, plan_id: str, task: str, size_usdt: float) -> Ticket:
    """Return the ticket of a decision."""
    return Ticket(
        plan_id=plan_id,
        task=task,
        name=decision.name,
        symbol=decision.symbol,
        price=decision.price,
        size_usdt=round(size_usdt * decision.confidence, 2),
    )


async def say(store: SharedMemoryStore, text: str) -> None:
    """Add a line to the episode of this run. One round trip."""
    await store.episodes.append_event(SESSION, {"by": store.actor or "floor", "text": text})


async def count(store: SharedMemoryStore, what: str) -> None:
    """Count something for the summary. One round trip."""
    await store.hincrby(COUNTS, what)
