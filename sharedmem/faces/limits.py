"""Limits of callers: rates and quotas of each token through all workers together, and slots for work that takes long.

The buckets of a token are in Redis. A worker takes calls out of its rate in blocks, so that most calls cost no round
trip: a block is what the token may do in a twentieth of a second, and what is left of it after `_BLOCK_LASTS_S` is not
used any more. So a token is never let in more often than its rate; a token that calls less often than it may, through
many workers, never loses more than a block in each of them. A refused caller is refused without a round trip until a
call can have become free.

A quota is CPU time for bulk work. A worker takes it out of the bucket a second at a time, before it is used; a step
that has used more is paid for afterwards. What a worker has left it keeps for the next bulk work of that token.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sharedmem.clock import Clock, SystemClock
from sharedmem.errors import LimitedError
from sharedmem.faces.auth import Bearer, Rate, TokenEntry
from sharedmem.hub import Hub
from sharedmem.hub.hub import token_storage_of
from sharedmem.runtime import CpuMeter, Metered

# -- rates ----------------------------------------------------------------------------------------


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


# -- quotas of CPU time ---------------------------------------------------------------------------


_T = TypeVar("_T")
_HOUR_MS = 3_600_000
_BLOCK_MS = 1000


class QuotaError(LimitedError):
    """The bulk work of a token has used up its CPU time."""

    def __init__(self, quota_s: int, retry_after: float) -> None:
        told = f"the bulk work of this token may take {quota_s} CPU seconds an hour and has done so"
        advice = "what it has done stays; send the rest later, or in smaller parts"
        super().__init__(f"{told}; {advice}", round(retry_after, 3))


@dataclass(slots=True)
class _Account:
    """What one token has used here, and what of it is paid for."""

    meter: CpuMeter = field(default_factory=CpuMeter)
    paid_s: float = 0.0
    paying: asyncio.Lock = field(default_factory=asyncio.Lock)


class CpuQuotas:
    """The CPU time of bulk work, by token.

    Args:
        hub: to the server that has the buckets; its setting `bulk_cpu_s` is the quota. It has to be open when calls
            come.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._accounts: dict[str, _Account] = {}

    async def run(self, bearer: Bearer, work: Coroutine[Any, Any, _T]) -> _T:
        """Do some bulk work of a caller; one round trip for each second of CPU time.

        Raises:
            QuotaError: its CPU time is used up; work that is under way then is cancelled.
            UnavailableError: the bucket cannot be looked into.
        """
        quota_s = self._hub.settings.bulk_cpu_s
        if not isinstance(bearer, TokenEntry) or quota_s == 0:
            return await work
        account = self._account(bearer.sha256)

        async def pay() -> None:
            if account.meter.seconds >= account.paid_s:
                await self._pay(account, bearer, quota_s)

        try:
            await pay()
        except BaseException:
            work.close()
            raise
        return await Metered(work, account.meter, pay)

    async def _pay(self, account: _Account, entry: TokenEntry, quota_s: int) -> None:
        async with account.paying:
            while (owed_s := account.meter.seconds - account.paid_s) >= 0:
                burst_ms = quota_s * 1000
                # More than the whole quota is never in the bucket.
                cost_ms = min(max(_BLOCK_MS, math.ceil(owed_s * 1000)), burst_ms)
                taken = await token_storage_of(self._hub).take(
                    entry.namespace, f"{entry.id}.cpu", limit=burst_ms, per_ms=_HOUR_MS, burst=burst_ms, cost=cost_ms
                )
                if not taken.allowed:
                    raise QuotaError(quota_s, taken.retry_us / 1_000_000)
                account.paid_s += cost_ms / 1000

    def _account(self, digest: str) -> _Account:
        account = self._accounts.get(digest)
        if account is None:
            while len(self._accounts) >= _MOST_KNOWN:
                del self._accounts[next(iter(self._accounts))]
            account = self._accounts[digest] = _Account()
        return account


# -- slots ----------------------------------------------------------------------------------------


class CallerSlots:
    """Slots for work that takes long, such as streams.

    Args:
        what: is done, for the errors of rejected callers.
        most: in this process.
        most_each: for one caller.
        retry_after: seconds after which a refused caller may try again.
    """

    def __init__(self, what: str, *, most: int, most_each: int, retry_after: float) -> None:
        self._what, self._most, self._most_each, self._retry_after = what, most, most_each, retry_after
        self._taken: Counter[str] = Counter()

    def check(self, caller: str) -> None:
        """Refuse a caller for whom no slot is free.

        Raises:
            LimitedError: none is.
        """
        if self._taken[caller] >= self._most_each:
            raise LimitedError(f"too many {self._what} of this token are under way", self._retry_after)
        if self._taken.total() >= self._most:
            raise LimitedError(f"too many {self._what} are under way in this service", self._retry_after)

    @contextmanager
    def taken(self, caller: str) -> Iterator[None]:
        """Take a slot for the length of the block."""
        self._taken[caller] += 1
        try:
            yield
        finally:
            self._taken[caller] -= 1
            if not self._taken[caller]:
                del self._taken[caller]
