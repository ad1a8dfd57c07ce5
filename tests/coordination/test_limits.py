"""Rate limits: one suite for every way to a store, and exactness against what was admitted when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from fractions import Fraction
from typing import Any, cast

import pytest
from conformance.coordination.limits import LimitSuite
from hypothesis import HealthCheck, given
from hypothesis import settings as efforts
from hypothesis import strategies as st
from redis import Redis
from support.backends import OnFakeredis, ThroughTheSyncFace
from support.example_budget import example_count

from sharedmem import CorruptionError, Hub, Permit, RateLimit, Settings
from sharedmem.testing import ManualClock, fake_hub


class TestLimitOnFakeredis(OnFakeredis, LimitSuite):
    """Every promise, on fakeredis."""


class TestLimitOnARealServer(LimitSuite):
    """Every promise, on a real server."""


@pytest.mark.nightly
class TestLimitThroughTheSyncFace(ThroughTheSyncFace, LimitSuite):
    """Every promise, through the sync face."""


# -- exactness, by a clock that the test turns ------------------------------------------------------

MS = 1_000
STEPS = st.lists(st.tuples(st.integers(0, 700), st.integers(1, 4)), max_size=40)
quick = efforts(max_examples=example_count(20, thorough=60), deadline=None, suppress_health_check=list(HealthCheck))


def now_us(clock: ManualClock) -> int:
    """The time that the fake server tells."""
    return round(clock.now().timestamp() * 1_000_000)


class Log:
    """A sliding window as a list of (time, cost)."""

    def __init__(self) -> None:
        self.admitted: list[tuple[int, int]] = []

    def used(self, now: int, per: int) -> int:
        return sum(cost for at, cost in self.admitted if at > now - per)

    def most_in_a_window(self, per: int) -> int:
        begins = [at for at, _ in self.admitted]
        return max((sum(cost for at, cost in self.admitted if x <= at < x + per) for x in begins), default=0)


@given(limit=st.integers(1, 6), per_ms=st.sampled_from([1, 50, 1_000, 2_345]), steps=STEPS)
@quick
def test_a_sliding_window_never_lets_more_through_and_refuses_nothing_that_fits(
    limit: int, per_ms: int, steps: list[tuple[int, int]]
) -> None:
    async def play() -> None:
        clock, log = ManualClock(), Log()
        async with fake_hub(clock=clock) as hub:
            window = hub.store("n").rate_limit("api", limit=limit, per=per_ms / 1000)
            for step_ms, wanted in steps:
                clock.advance(step_ms / 1000)
                now, cost = now_us(clock), min(wanted, limit)
                left = limit - log.used(now, per_ms * MS)
                assert (await window.state()).remaining == left
                permit = await window.take(cost)
                assert permit.allowed is (cost <= left)
                if permit:
                    log.admitted.append((now, cost))
                    assert permit.remaining == left - cost
                else:
                    then = now + round(permit.retry_after * 1_000_000)
                    assert log.used(then, per_ms * MS) + cost <= limit
                    assert log.used(then - 1, per_ms * MS) + cost > limit
            assert log.most_in_a_window(per_ms * MS) <= limit

    asyncio.run(play())


@given(
    limit=st.integers(1, 7),
    per_ms=st.sampled_from([1, 50, 1_000, 2_345]),
    burst=st.integers(1, 9),
    steps=STEPS,
)
@quick
def test_a_token_bucket_counts_exactly(limit: int, per_ms: int, burst: int, steps: list[tuple[int, int]]) -> None:
    async def play() -> None:
        clock = ManualClock()
        level, last = Fraction(burst), 0
        async with fake_hub(clock=clock) as hub:
            bucket = hub.store("n").rate_limit(
                "api", limit=limit, per=per_ms / 1000, algorithm="token_bucket", burst=burst
            )
            for step_ms, wanted in steps:
                clock.advance(step_ms / 1000)
                now, cost = now_us(clock), min(wanted, burst)
                level = min(level + Fraction((now - last) * limit, per_ms * MS), Fraction(burst))
                last = now
                permit = await bucket.take(cost)
                assert permit.allowed is (cost <= level)
                level -= cost if permit else 0
                assert permit.remaining == int(level)
                if not permit:
                    lacking = (cost - level) * per_ms * MS / limit
                    assert 0 <= round(permit.retry_after * 1_000_000) - lacking < 1
                assert (await bucket.state()).remaining == int(level)

    asyncio.run(play())


@given(steps=st.lists(st.tuples(st.integers(0, 900), st.integers(0, 1)), max_size=60))
@quick
def test_callers_with_other_numbers_never_get_more_than_their_own_from_the_first_call_of_the_longest_on(
    steps: list[tuple[int, int]],
) -> None:
    numbers = [(3, 1_000), (5, 4_000)]

    async def play() -> None:
        clock, log = ManualClock(), Log()
        async with fake_hub(clock=clock) as hub:
            limits = [hub.store("n").rate_limit("api", limit=most, per=ms / 1000) for most, ms in numbers]
            for step_ms, who in [(0, 1), *steps]:
                clock.advance(step_ms / 1000)
                most, ms = numbers[who]
                fits = log.used(now_us(clock), ms * MS) < most
                permit = await limits[who].take()
                assert permit.allowed is fits
                if permit:
                    log.admitted.append((now_us(clock), 1))

    asyncio.run(play())


@pytest.mark.parametrize("algorithm", ["sliding_window", "token_bucket"])
async def test_a_limit_that_is_whole_again_leaves_nothing_behind(
    redis_url: str, settings: Settings, algorithm: Any
) -> None:
    async with Hub.open(redis_url, settings=settings) as hub:
        limit = hub.store("traces").rate_limit("api", limit=10, per=1, algorithm=algorithm)
        await limit.take(10)
        with Redis.from_url(redis_url) as raw:
            (key,) = raw.keys("sm:{traces}:$limit:*")
            assert 0 < cast("int", raw.pttl(key)) <= 1_010
        await limit.acquire(10)
        await hub.store("traces").clear()


async def test_the_log_takes_no_more_than_its_limit_says(redis_url: str, settings: Settings) -> None:
    """docs/agreement.md: about 11 bytes an admission."""
    async with Hub.open(redis_url, settings=settings) as hub:
        limit = hub.store("size").rate_limit("api", limit=10_000, per=0.5)
        await limit.take(10_000)
        with Redis.from_url(redis_url) as raw:
            (key,) = raw.keys("sm:{size}:$limit:*")
            full = cast("int", raw.memory_usage(key))
            await limit.acquire(5_000)
            again = cast("int", raw.memory_usage(key))
        await hub.store("size").clear()

    assert full < 125_000
    assert again <= full


@pytest.mark.parametrize("algorithm", ["sliding_window", "token_bucket"])
async def test_a_servers_clock_that_is_set_back_lets_nothing_more_through(algorithm: Any) -> None:
    clock = ManualClock()
    async with fake_hub(clock=clock) as hub:
        limit = hub.store("n").rate_limit("api", limit=2, per=10, algorithm=algorithm)
        await limit.take(2)
        clock.shift(-60)

        assert not await limit.take()
        assert (await limit.state()).remaining == 0


@given(counts=st.lists(st.integers(1, 30), min_size=1, max_size=12))
@quick
def test_however_many_leave_the_window_at_once_exactly_those_are_forgotten(counts: list[int]) -> None:
    async def play() -> None:
        clock, log = ManualClock(), Log()
        async with fake_hub(clock=clock) as hub:
            window = hub.store("n").rate_limit("api", limit=400, per=1)
            for number, cost in enumerate(counts):
                clock.advance(0.1 + 0.05 * (number % 5))
                log.admitted.append((now_us(clock), cost))
                permit = await window.take(cost)
                assert permit.remaining == 400 - log.used(now_us(clock), 1_000 * MS)

    asyncio.run(play())


async def test_who_is_refused_sleeps_until_it_can_succeed_instead_of_asking_again_and_again() -> None:
    clock = ManualClock()
    async with fake_hub(clock=clock) as hub:
        limit = hub.store("n").rate_limit("api", limit=1, per=100)
        await limit.take()
        waiting = asyncio.ensure_future(limit.acquire())
        await clock.until_asleep()

        clock.advance(99)
        await asyncio.sleep(0)
        assert not waiting.done()
        while not waiting.done():
            clock.advance(50)  # the jitter may be as long as the interval
            for _ in range(20):
                await asyncio.sleep(0)

        assert (await waiting).allowed


def test_a_limit_says_what_it_is(limit_of_five: RateLimit) -> None:
    assert repr(limit_of_five) == "<RateLimit n:shared:api, 5 in 60 s>"


@pytest.fixture
async def limit_of_five() -> AsyncIterator[RateLimit]:
    async with fake_hub() as hub:
        yield hub.store("n").rate_limit("api", limit=5, per=60)


# -- requests of one moment ------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["sliding_window", "token_bucket"])
async def test_of_requests_of_one_moment_only_the_damaged_one_fails(
    hub: Hub, namespace: str, algorithm: Any, redis_url: str
) -> None:
    store = hub.store(namespace)
    good, bad = (store.rate_limit(name, limit=3, per=60, algorithm=algorithm) for name in ("good", "bad"))
    with Redis.from_url(redis_url) as other:
        key = f"sm:{{{namespace}}}:$limit:shared:bad"
        if algorithm == "sliding_window":
            other.rpush(key, "60000000", "junk")
        else:
            other.set(key, "junk")

    await good.take()  # calls of a hub that is busy share their way
    replies = await asyncio.gather(*(limit.take() for limit in (good, bad, good, good, bad)), return_exceptions=True)

    assert [isinstance(reply, CorruptionError) for reply in replies] == [False, True, False, False, True]
    assert [reply.allowed for reply in replies if isinstance(reply, Permit)] == [True, True, False]


async def test_requests_of_one_moment_share_a_call(hub: Hub, namespace: str, redis_url: str) -> None:
    store = hub.store(namespace)
    limits = [store.rate_limit(f"l{number % 5}", limit=100, per=60) for number in range(40)]
    with Redis.from_url(redis_url) as other:
        await limits[0].take()
        before = calls_of_scripts(other)

        await asyncio.gather(*(limit.take() for limit in limits))

        assert calls_of_scripts(other) - before <= 4


def calls_of_scripts(other: Redis) -> int:
    stats: Any = other.info("commandstats")
    return int(stats["cmdstat_evalsha"]["calls"])
