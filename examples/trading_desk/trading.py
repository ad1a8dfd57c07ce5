"""The shared definitions of the trading desk: the names, the terms of the day, and messages."""

from __future__ import annotations

from pathlib import Path

from market import Decision, Series, all_decisions, read_series
from mishaps import Mishap, dealt
from pydantic import BaseModel, ConfigDict

from sharedmem import SharedMemoryStore

NAMESPACE = "trading-desk"
SESSION = "this-run"
"""Session of the plans in the decision log, and of the run's messages."""
QUEUE = "plans"
MOST_ATTEMPTS = 100
"""Most attempts of a task: executors that wait for each other count as attempts, too."""
TERMS = "trading-desk:shared:terms"
PUT = "trading-desk:shared:put"
"""Number of tasks that planners have put."""
DONE = "trading-desk:shared:done"
"""Number of tasks that executors have finished."""
CLOSED = "trading-desk:shared:closed"
"""Written when the planners have ended."""
COUNTS = "trading-desk:shared:counts"
CRASHED = 77
"""Exit code of an executor that died on purpose."""


class _Note(BaseModel):
    model_config = ConfigDict(frozen=True)


class Terms(_Note):
    """The floor's terms, and the speed; times in seconds."""

    prices: str
    exchange: str
    days: int
    seed: int
    naive: bool
    day_s: float
    """Time of a planner for one day."""
    lease_s: float
    """Time until the claim of a dead executor expires."""
    visibility_s: float
    """Time until the queue gives its task to another executor."""
    hang_s: float
    """Length of a simulated hang of the exchange: longer than the queue waits."""

    def series(self) -> Series:
        """Return the traded prices. Reads the file."""
        return read_series(Path(self.prices)).first(self.days)


class Ticket(_Note):
    """An entry of the queue: a decision, and the plan under which it was saved."""

    plan_id: str
    """Empty on a naive desk, which saves no plans."""
    task: str
    """Name of the ticket in the queue."""
    name: str
    """The decision: day, symbol, action."""
    symbol: str
    price: float
    size_usdt: float


def mishaps_of(series: Series, venues: dict[str, str], seed: int) -> dict[str, Mishap]:
    """Return the simulated failures, the same in every process."""
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
