"""The operations of rate limits."""

from __future__ import annotations

from sharedmem.coordination.limits import Algorithm, RateLimit
from sharedmem.faces.operations.row import Operation
from sharedmem.models import LimitState, Permit, Record
from sharedmem.store import SharedMemoryStore


class OnLimit(Record):
    """A rate limit with its numbers."""

    name: str
    limit: int
    per: float
    algorithm: Algorithm = "sliding_window"
    burst: int | None = None


class LimitTake(OnLimit):
    """A cost to be admitted."""

    cost: int = 1


def _limit(store: SharedMemoryStore, ask: OnLimit) -> RateLimit:
    return store.rate_limit(ask.name, limit=ask.limit, per=ask.per, algorithm=ask.algorithm, burst=ask.burst)


async def _state(store: SharedMemoryStore, ask: OnLimit) -> LimitState:
    return await _limit(store, ask).state()


async def _take(store: SharedMemoryStore, ask: LimitTake) -> Permit:
    return await _limit(store, ask).take(ask.cost)


LIMIT_STATE = Operation("limit.state", "What is left of a rate limit.", "write", OnLimit, LimitState, _state)
LIMIT_TAKE = Operation(
    "limit.take", "Ask for a permit; a refusal tells when to ask again.", "write", LimitTake, Permit, _take
)

ROWS = (LIMIT_STATE, LIMIT_TAKE)
