"""What rate limits promise on every backend."""

# a test's name is its sentence

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sharedmem.errors import AccessDeniedError, InvalidError, LimitedError
from sharedmem.store import SharedMemoryStore
from sharedmem.testing.store_fixtures import StoreFixtures

ALGORITHMS = ("sliding_window", "token_bucket")
each_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS)


class LimitSuite(StoreFixtures):
    """`rate_limit`, by both algorithms."""

    @each_algorithm
    async def test_so_many_are_admitted_and_the_next_one_is_told_when(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore, algorithm: Any
    ) -> None:
        limits = [one.rate_limit("api", limit=4, per=60, algorithm=algorithm) for one in (ada, bob)]

        permits = [await limits[number % 2].take() for number in range(5)]

        assert [permit.allowed for permit in permits] == [True] * 4 + [False]
        assert [permit.remaining for permit in permits] == [3, 2, 1, 0, 0]
        assert [permit.retry_after for permit in permits[:4]] == [0] * 4
        assert 0 < permits[4].retry_after <= 60
        assert permits[0]
        assert not permits[4]

    @each_algorithm
    async def test_racing_callers_never_get_more_than_the_limit(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore, algorithm: Any
    ) -> None:
        limits = [one.rate_limit("api", limit=10, per=600, algorithm=algorithm) for one in (ada, bob)]

        permits = await asyncio.gather(*(limits[number % 2].take() for number in range(50)))

        assert sum(permit.allowed for permit in permits) == 10

    @each_algorithm
    async def test_a_cost_is_admitted_whole_or_not_at_all(self, ada: SharedMemoryStore, algorithm: Any) -> None:
        limit = ada.rate_limit("tokens", limit=1500, per=600, algorithm=algorithm)

        permits = [await limit.take(cost) for cost in (1200, 301, 300)]

        assert [(permit.allowed, permit.remaining) for permit in permits] == [(True, 300), (False, 300), (True, 0)]

    @each_algorithm
    async def test_what_was_refused_is_admitted_after_the_time_that_was_told(
        self, ada: SharedMemoryStore, algorithm: Any
    ) -> None:
        limit = ada.rate_limit("api", limit=2, per=0.2, algorithm=algorithm)
        await limit.take(2)

        refused = await limit.take()
        permit = await limit.acquire()

        assert not refused
        assert permit.allowed

    @each_algorithm
    async def test_who_cannot_wait_so_long_is_told_at_once(self, ada: SharedMemoryStore, algorithm: Any) -> None:
        limit = ada.rate_limit("api", limit=1, per=600, algorithm=algorithm)
        await limit.acquire(wait=0)

        with pytest.raises(LimitedError, match=r"api.*1 in 600 s") as refused:
            await limit.acquire(wait=5)

        assert 5 < refused.value.retry_after <= 600

    @each_algorithm
    async def test_many_who_wait_all_come_through(self, ada: SharedMemoryStore, algorithm: Any) -> None:
        limit = ada.rate_limit("api", limit=5, per=0.1, algorithm=algorithm)

        permits = await asyncio.gather(*(limit.acquire() for _ in range(15)))

        assert all(permits)

    @each_algorithm
    async def test_looking_takes_nothing(self, ada: SharedMemoryStore, namespace: str, algorithm: Any) -> None:
        limit = ada.rate_limit("api", limit=2, per=60, algorithm=algorithm)
        before = await limit.state()
        await limit.take()
        between = await limit.state()
        await limit.take()
        after = await limit.state()

        assert (before.name, before.algorithm, before.limit, before.per) == (
            f"{namespace}:shared:api",
            algorithm,
            2,
            60,
        )
        assert [before.remaining, between.remaining, after.remaining] == [2, 1, 0]
        assert [before.retry_after, between.retry_after] == [0, 0]
        assert 0 < after.retry_after <= 60

    async def test_a_bucket_holds_more_than_comes_in_a_second_if_told_so(self, ada: SharedMemoryStore) -> None:
        limit = ada.rate_limit("api", limit=1, per=600, algorithm="token_bucket", burst=3)

        assert [bool(await limit.take()) for _ in range(4)] == [True, True, True, False]
        assert (await limit.state()).burst == 3

    async def test_limits_of_different_names_do_not_touch(self, ada: SharedMemoryStore) -> None:
        first, second = (ada.rate_limit(name, limit=1, per=60) for name in ("a", "b"))

        assert await first.take()
        assert await second.take()

    @pytest.mark.parametrize(("mine", "theirs"), [ALGORITHMS, ALGORITHMS[::-1]])
    async def test_two_algorithms_under_one_name_are_told_apart(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore, mine: Any, theirs: Any
    ) -> None:
        await bob.rate_limit("api", limit=1, per=60, algorithm=theirs).take()

        limit = ada.rate_limit("api", limit=1, per=60, algorithm=mine)
        with pytest.raises(InvalidError, match=theirs):
            await limit.take()
        with pytest.raises(InvalidError, match=theirs):
            await limit.state()

    @each_algorithm
    async def test_callers_with_other_numbers_each_keep_their_own(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore, algorithm: Any
    ) -> None:
        wide = ada.rate_limit("api", limit=5, per=600, algorithm=algorithm)
        narrow = bob.rate_limit("api", limit=2, per=60, algorithm=algorithm)

        assert [bool(await narrow.take()) for _ in range(3)] == [True, True, False]
        assert [bool(await wide.take()) for _ in range(4)] == [True, True, True, False]
        assert not await narrow.take()
        assert (await narrow.state()).remaining == 0

    @pytest.mark.parametrize(
        "bad",
        [
            {"limit": 0},
            {"limit": -1},
            {"limit": 1.5},
            {"limit": True},
            {"limit": 10_001},
            {"per": 0},
            {"per": float("nan")},
            {"per": 1e9},
            {"algorithm": "guess"},
            {"burst": 5},
            {"algorithm": "token_bucket", "burst": 0},
            {"algorithm": "token_bucket", "limit": 7, "per": 31_536_000, "burst": 1_000_000},
            {"name": ""},
        ],
    )
    async def test_bad_numbers_are_refused(self, ada: SharedMemoryStore, bad: dict[str, Any]) -> None:
        chosen: dict[str, Any] = {"name": "api", "limit": 5, "per": 60} | bad

        with pytest.raises(InvalidError):
            ada.rate_limit(chosen.pop("name"), **chosen)

    @pytest.mark.parametrize("cost", [0, -1, 1.5, True, 6])
    async def test_a_cost_that_can_never_be_admitted_is_refused(self, ada: SharedMemoryStore, cost: Any) -> None:
        limit = ada.rate_limit("api", limit=5, per=60)

        with pytest.raises(InvalidError):
            await limit.take(cost)
        with pytest.raises(InvalidError):
            await limit.acquire(cost)
        with pytest.raises(InvalidError):
            await limit.acquire(wait=-1)

        assert (await limit.state()).remaining == 5

    async def test_an_actor_shares_only_limits_it_may_write(self, ada: SharedMemoryStore, namespace: str) -> None:
        with pytest.raises(AccessDeniedError):
            ada.rate_limit(f"{namespace}:bob:api", limit=1, per=1)
