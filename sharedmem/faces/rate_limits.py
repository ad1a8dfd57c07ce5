"""Rate limits: how often each token may call, through all workers together.

The bucket is in Redis. A worker takes calls out of it in blocks, so that most calls cost no round trip: a block is
what the token may do in a twentieth of a second, and what is left of it after `_BLOCK_LASTS_S` is not used any more.
So a token is never let in more often than its rate; who comes slower than it may, through many workers, never loses
more than a block in each of them. A refused caller is refused without a round trip until a call can have become free.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field

from sharedmem.clock import Clock, SystemClock
from sharedmem.errors import LimitedError
from sharedmem.faces.auth import Bearer, Rate, TokenEntry
from sharedmem.hub import Hub
from sharedmem.hub.hub import token_storage_of

_BLOCKS_A_SECOND = 20
_BLOCK_LASTS_S = 1.0
_MOST_KNOWN = 10_000


class RateLimitedError(LimitedError):
    """A token calls more often than it may."""

    def __init__(self, standing: RateLimitStatus, retry_after: float) -> None:
        super().__init__(f"this token may call {standing.rate} and has done so", round(retry_after, 3))
        self.headers = standing.headers()


@dataclass(frozen=True, slots=True)
class RateLimitStatus:
    """How a token stands with its rate."""

    rate: Rate
    remaining: int
    """Calls that it has left, as far as this worker knows."""

    def headers(self) -> dict[str, str]:
        """`RateLimit-Policy` and `RateLimit`, as the IETF's draft for HTTP has them."""
        refill_s = math.ceil((self.rate.size - self.remaining) * self.rate.per / self.rate.limit)
        return {
            "ratelimit-policy": f'"token";q={self.rate.limit};w={self.rate.per}',
            "ratelimit": f'"token";r={self.remaining};t={refill_s}',
        }


@dataclass(slots=True)
class _LocalTokens:
    """What this worker has in hand for one token."""

    calls: int = 0
    good_until_s: float = -math.inf
    left_there: int = 0
    """Calls in the bucket when it was last looked into."""
    refused_until_s: float = -math.inf
    filling: asyncio.Lock = field(default_factory=asyncio.Lock)


class TokenRateLimiter:
    """Counts the calls of tokens.

    Args:
        hub: to the server that has the buckets; it has to be open when calls come.
        clock: source of the time.
    """

    def __init__(self, hub: Hub, *, clock: Clock | None = None) -> None:
        self._hub = hub
        self._clock = clock or SystemClock()
        self._purses: dict[str, _LocalTokens] = {}

    async def take(self, bearer: Bearer) -> RateLimitStatus | None:
        """Count one call; at most one or two round trips a block of calls.

        Returns:
            How the token stands; None for one without a rate.

        Raises:
            RateLimitedError: it calls too often.
            UnavailableError: the bucket cannot be looked into.
        """
        if not isinstance(bearer, TokenEntry) or bearer.rate is None:
            return None
        rate, purse = bearer.rate, self._purse(bearer.sha256)
        if not self._spend(purse):
            # One caller asks; callers that come in the meantime use what it gets.
            async with purse.filling:
                while not self._spend(purse):
                    await self._fill(purse, bearer, rate)
        return RateLimitStatus(rate, min(rate.size, purse.calls + purse.left_there))

    def _spend(self, purse: _LocalTokens) -> bool:
        if purse.calls < 1 or purse.good_until_s < self._clock.monotonic():
            return False
        purse.calls -= 1
        return True

    async def _fill(self, purse: _LocalTokens, entry: TokenEntry, rate: Rate) -> None:
        now_s = self._clock.monotonic()
        if now_s < purse.refused_until_s:
            raise RateLimitedError(RateLimitStatus(rate, 0), purse.refused_until_s - now_s)
        for wanted in _block_sizes(rate):
            taken = await token_storage_of(self._hub).take(
                entry.namespace,
                entry.id,
                limit=rate.limit,
                per_ms=rate.per * 1000,
                burst=rate.size,
                cost=wanted,
            )
            if taken.allowed:
                purse.calls, purse.left_there = wanted, taken.remaining
                purse.good_until_s = self._clock.monotonic() + _BLOCK_LASTS_S
                return
        purse.refused_until_s = self._clock.monotonic() + taken.retry_us / 1_000_000
        raise RateLimitedError(RateLimitStatus(rate, 0), taken.retry_us / 1_000_000)

    def _purse(self, digest: str) -> _LocalTokens:
        purse = self._purses.get(digest)
        if purse is None:
            while len(self._purses) >= _MOST_KNOWN:
                del self._purses[next(iter(self._purses))]
            purse = self._purses[digest] = _LocalTokens()
        return purse


def _block_sizes(rate: Rate) -> tuple[int, ...]:
    """How many calls to ask for: a block, and if there are not so many, one."""
    block = min(int(rate.limit / rate.per / _BLOCKS_A_SECOND), rate.size)
    return (block, 1) if block > 1 else (1,)
