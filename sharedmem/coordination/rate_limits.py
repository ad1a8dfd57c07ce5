"""Rate limits shared by all processes: sliding window and token bucket."""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Sequence
from typing import Literal, NamedTuple

from sharedmem.coordination.names import NameAccess, check_seconds, check_wait
from sharedmem.errors import InvalidError, LimitedError, WrongTypeError
from sharedmem.models.coordination import LimitState, Permit
from sharedmem.models.record import of_checked
from sharedmem.redis.keys import Space, Target
from sharedmem.redis.scripts.coordination import LimitDecision, LimitRequest, RateLimitScripts, read_decision
from sharedmem.redis.scripts.data import WriteBatcher
from sharedmem.runtime.concurrency import ProcessBound

Algorithm = Literal["sliding_window", "token_bucket"]

MOST_IN_WINDOW = 10_000
SHORTEST_PER_S = 0.001
LONGEST_PER_S = 366 * 86_400.0
# Up to here the numbers of Lua are exact.
_MOST_PARTS = 1 << 53
_OTHER = {"sliding_window": "token_bucket", "token_bucket": "sliding_window"}


class RateLimits:
    """Rate limits: how often callers may do something."""

    def __init__(self, names: NameAccess) -> None:
        self._limit_names = names
        self._limit_requests = LimitRequests(names)

    def rate_limit(
        self,
        name: str,
        *,
        limit: int,
        per: float,
        algorithm: Algorithm = "sliding_window",
        burst: int | None = None,
    ) -> RateLimit:
        """Return a rate limit that all users of its name share. No round trip.

        Args:
            name: plain (`<namespace>:shared:<name>`) or absolute.
            limit: highest admitted cost, 1 or more; at most 10,000 for `sliding_window`.
            per: period of the limit in seconds, from 0.001 to 366 days.
            algorithm: `sliding_window` never admits more than `limit` in any `per` seconds, and stores each
                admission (about 11 bytes each, `limit` of them). `token_bucket` admits `burst` at once and `limit`
                per `per` seconds in the long run, and uses one small key for any limit.
            burst: size of the token bucket; None: `limit`.

        All processes should give the same numbers. If they differ, each call is checked against its own numbers and
        the admissions of all callers. A window stores admissions for the longest `per` lately used under its name.

        Raises:
            InvalidError: an argument is out of bounds.
            AccessDeniedError: this actor may not use the name.
        """
        target = self._limit_names.scope.common(name, "write")
        per_ms = check_seconds("per", per, least=SHORTEST_PER_S, most=LONGEST_PER_S)
        rule = _make_algorithm(algorithm, _check_count("limit", limit), per_ms * 1000, burst)
        return RateLimit(self._limit_names, self._limit_requests, target, rule)


class LimitRequests:
    """Requests permits for the callers of one store; those of one moment share a call.

    Args:
        names: the names within the actor's rights.
    """

    def __init__(self, names: NameAccess) -> None:
        self.scripts = RateLimitScripts(names.context.executor)
        self._actor = names.actor
        self._ask = names.context.client.read_many
        self._batcher = WriteBatcher[_LimitGroup, LimitRequest](self._take_alike, names.context.background)

    async def take(self, space: Space, algorithm: Algorithm, request: LimitRequest) -> LimitDecision:
        """Request a cost. One round trip, shared with concurrent requests.

        Raises:
            ServerError: the key belongs to another algorithm.
            CorruptionError: another client has written to it.
        """
        reply = await self._batcher.put(_LimitGroup(space, algorithm), request)
        return await read_decision(self._ask, request.key, reply)

    def _take_alike(self, group: _LimitGroup, requests: Sequence[LimitRequest]) -> Awaitable[bytes]:
        is_window = group.algorithm == "sliding_window"
        take = self.scripts.limit_window_take if is_window else self.scripts.limit_bucket_take
        return take(group.space, self._actor, requests)


class _LimitGroup(NamedTuple):
    """What requests of one call have in common."""

    space: Space
    algorithm: Algorithm


class RateLimit(ProcessBound):
    """One rate limit, shared by all users of its name. Created by `rate_limit`."""

    def __init__(self, names: NameAccess, requests: LimitRequests, target: Target, rule: _LimitAlgorithm) -> None:
        self._names = names
        self._requests = requests
        self._target = target
        self._rule = rule
        self._where = names.part(target, "limit")

    @property
    def name(self) -> str:
        """The absolute name."""
        return self._target.key

    async def take(self, cost: int = 1) -> Permit:
        """Request a permit; a refusal is a result, not an error. One round trip, shared with concurrent requests.

        Args:
            cost: cost of the request; admitted as a whole or not at all.

        Returns:
            A `Permit`, true if the cost was admitted; otherwise try again after `retry_after` seconds.

        Raises:
            InvalidError: the cost is under 1 or over the limit; or other callers use another algorithm with this name.
            UnavailableError: as `write`.
        """
        taken = await self._judged(self._checked(cost))
        retry_after = taken.retry_us / 1_000_000
        return of_checked(Permit, {"allowed": taken.allowed, "remaining": taken.remaining, "retry_after": retry_after})

    async def acquire(self, cost: int = 1, *, wait: float | None = None) -> Permit:
        """Wait until a cost is admitted. One round trip an attempt; attempts are made when they can succeed.

        Args:
            cost: as in `take`.
            wait: longest wait in seconds; 0: do not wait; None: no limit.

        Raises:
            LimitedError: the wait would be longer; raised at once, with `retry_after`.
            InvalidError, UnavailableError: as `take`.
        """
        patience = check_wait(wait)
        clock = self._names.context.clock
        deadline = math.inf if patience is None else clock.monotonic() + patience
        spread = self._rule.interval
        while not (permit := await self.take(cost)):
            left = deadline - clock.monotonic()
            if permit.retry_after > left:
                raise LimitedError(f"rate limit {self.name!r} ({self._rule}) is used up", permit.retry_after)
            # Many callers may wait for the same moment: a caller that is refused again gets more jitter.
            jitter = random.uniform(0, spread)  # noqa: S311  # no secret depends on it
            spread = min(spread * 2, self._rule.per)
            await clock.sleep(min(permit.retry_after + jitter, left))
        return permit

    async def state(self) -> LimitState:
        """Return the remaining limit, without using any of it. One round trip.

        Raises:
            InvalidError, UnavailableError: as `take`.
        """
        seen = await self._read(self._rule.look(self._requests.scripts, self._where))
        return LimitState(
            name=self.name,
            algorithm=self._rule.algorithm,
            limit=self._rule.limit,
            per=self._rule.per,
            burst=self._rule.burst,
            remaining=seen.remaining,
            retry_after=seen.retry_us / 1_000_000,
        )

    async def _judged(self, cost: int) -> LimitDecision:
        request = LimitRequest(self._where, self._rule.numbers(cost))
        return await self._read(self._requests.take(self._target.space, self._rule.algorithm, request))

    async def _read(self, call: Awaitable[LimitDecision]) -> LimitDecision:
        try:
            return await self._names.explained(self._target, call)
        except WrongTypeError as error:
            theirs = _OTHER[self._rule.algorithm]
            advice = f"other callers use {theirs} with the name {self.name!r}; use the same, or another name"
            raise InvalidError("algorithm", self._rule.algorithm, advice) from error

    def _checked(self, cost: int) -> int:
        if _check_count("cost", cost) > self._rule.burst:
            advice = f"rate limit {self.name!r} never admits more than {self._rule.burst} at once"
            raise InvalidError("cost", cost, advice)
        return cost

    def __repr__(self) -> str:
        return f"<RateLimit {self.name}, {self._rule}>"


# -- the algorithms -------------------------------------------------------------------------------


class _LimitAlgorithm(ABC):
    """An algorithm with its numbers."""

    algorithm: Algorithm

    def __init__(self, limit: int, per_us: int, burst: int) -> None:
        self.limit = limit
        self.burst = burst
        self.per = per_us / 1_000_000
        self.interval = self.per / limit
        """Average seconds between admissions of cost 1."""

    @abstractmethod
    def numbers(self, cost: int) -> tuple[int, ...]:
        """Return the numbers of a request for a cost."""

    @abstractmethod
    async def look(self, scripts: RateLimitScripts, where: bytes) -> LimitDecision:
        """Return the decision for a cost of one, without using it."""

    def __str__(self) -> str:
        return f"{self.limit} in {self.per:g} s"


class _SlidingWindow(_LimitAlgorithm):
    """Stores each admission for as long as it counts."""

    algorithm = "sliding_window"

    def __init__(self, limit: int, per_us: int) -> None:
        super().__init__(limit, per_us, limit)
        self._window_us = per_us

    def numbers(self, cost: int) -> tuple[int, ...]:
        return self.limit, self._window_us, cost

    async def look(self, scripts: RateLimitScripts, where: bytes) -> LimitDecision:
        return await scripts.limit_window_look(where, limit=self.limit, window_us=self._window_us)


class _TokenBucket(_LimitAlgorithm):
    """Divides a token into so many parts that each microsecond adds a whole number of them."""

    algorithm = "token_bucket"

    def __init__(self, limit: int, per_us: int, burst: int) -> None:
        super().__init__(limit, per_us, burst)
        common = math.gcd(limit, per_us)
        self._unit, self._rate = per_us // common, limit // common
        if max(burst * self._unit, self._rate * 1_000_000) > _MOST_PARTS:
            advice = f"with {limit} in {self.per:g} s the numbers would no longer be exact; use smaller or rounder ones"
            raise InvalidError("burst", burst, advice)

    def numbers(self, cost: int) -> tuple[int, ...]:
        return self.burst, self._unit, self._rate, cost

    async def look(self, scripts: RateLimitScripts, where: bytes) -> LimitDecision:
        return await scripts.limit_bucket_look(where, burst=self.burst, unit=self._unit, rate=self._rate)


def _make_algorithm(algorithm: str, limit: int, per_us: int, burst: int | None) -> _LimitAlgorithm:
    if algorithm == "token_bucket":
        return _TokenBucket(limit, per_us, limit if burst is None else _check_count("burst", burst))
    if algorithm != "sliding_window":
        raise InvalidError("algorithm", algorithm, "give 'sliding_window' or 'token_bucket'")
    if burst is not None:
        raise InvalidError("burst", burst, "a sliding window has no burst; use the algorithm token_bucket")
    if limit > MOST_IN_WINDOW:
        advice = f"a sliding window stores each admission, at most {MOST_IN_WINDOW}; use the algorithm token_bucket"
        raise InvalidError("limit", limit, advice)
    return _SlidingWindow(limit, per_us)


def _check_count(field: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST_PARTS:
        raise InvalidError(field, value, "give a whole number, 1 or more")
    return value
