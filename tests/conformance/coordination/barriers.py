"""What barriers promise on every backend."""

# a test's name is its sentence

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sharedmem.errors import AccessDeniedError, BarrierError, ConflictError, InvalidError
from sharedmem.store import SharedMemoryStore
from sharedmem.testing.store_fixtures import StoreFixtures, eventually

_LONG = 60.0


async def has_arrived(store: SharedMemoryStore, number: int) -> bool:
    """Whether so many wait."""
    return await store.barrier("start", 2).waiting() == number


class BarrierSuite(StoreFixtures):
    """`barrier`."""

    async def test_no_party_continues_before_all_have_arrived(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore, team: SharedMemoryStore
    ) -> None:
        early = [asyncio.ensure_future(one.barrier("start", 3).wait()) for one in (ada, bob)]
        await eventually(lambda: has_arrived(team, 2))
        assert not any(arrival.done() for arrival in early)

        last = await team.barrier("start", 3).wait(timeout=_LONG)
        arrivals = [*await asyncio.gather(*early), last]

        assert sorted(arrival.position for arrival in arrivals) == [0, 1, 2]
        assert last.position == 2
        assert len({arrival.generation for arrival in arrivals}) == 1

    async def test_it_closes_again_and_its_generation_rises(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore
    ) -> None:
        barriers = [ada.barrier("round", 2), bob.barrier("round", 2)]

        rounds = [await asyncio.gather(*(one.wait(timeout=_LONG) for one in barriers)) for _ in range(4)]

        generations = [arrivals[0].generation for arrivals in rounds]
        assert generations == sorted(set(generations))
        assert all(first.generation == second.generation for first, second in rounds)

    async def test_a_barrier_for_one_is_open(self, ada: SharedMemoryStore) -> None:
        assert (await ada.barrier("alone", 1).wait(timeout=0)).position == 0

    async def test_four_tasks_meet_ten_times(self, ada: SharedMemoryStore, bob: SharedMemoryStore) -> None:
        here = [0] * 10

        async def walk(store: SharedMemoryStore) -> None:
            barrier = store.barrier("walk", 4)
            for step in range(10):
                here[step] += 1
                await barrier.wait(timeout=_LONG)
                assert here[step] == 4

        await asyncio.gather(*(walk(store) for store in (ada, bob) * 2))

    async def test_who_waits_in_vain_leaves_and_no_longer_counts(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore
    ) -> None:
        with pytest.raises(BarrierError, match="1 of 2") as closed:
            await ada.barrier("start", 2).wait(timeout=0.02)
        with pytest.raises(BarrierError):
            await bob.barrier("start", 2).wait(timeout=0)

        assert (closed.value.came, closed.value.parties) == (1, 2)

    async def test_parties_who_disagree_are_told_both_numbers(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore
    ) -> None:
        waiting = asyncio.ensure_future(ada.barrier("start", 2).wait(timeout=_LONG))
        await eventually(lambda: has_arrived(bob, 1))
        with pytest.raises(ConflictError) as refused:
            await bob.barrier("start", 3).wait(timeout=0)

        assert "3 parties" in str(refused.value)
        assert "2 parties" in str(refused.value)
        await bob.barrier("start", 2).wait(timeout=_LONG)
        assert (await waiting).position == 0

    async def test_a_barrier_that_was_left_by_all_takes_another_number(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore
    ) -> None:
        with pytest.raises(BarrierError):
            await ada.barrier("start", 5).wait(timeout=0)

        pair = [one.barrier("start", 2).wait(timeout=_LONG) for one in (ada, bob)]
        assert len(await asyncio.gather(*pair)) == 2

    @pytest.mark.parametrize(
        ("parties", "named"),
        [(0, {}), (-1, {}), (1.5, {}), (True, {}), (1001, {}), (2, {"lease": 0}), (2, {"lease": float("inf")})],
    )
    async def test_bad_numbers_are_refused(self, ada: SharedMemoryStore, parties: Any, named: dict[str, Any]) -> None:
        with pytest.raises(InvalidError):
            ada.barrier("start", parties, **named)
        with pytest.raises(InvalidError):
            ada.barrier("", 2)
        with pytest.raises(InvalidError):
            await ada.barrier("start", 2).wait(timeout=-1)

    async def test_an_actor_goes_only_to_barriers_it_may_write(self, ada: SharedMemoryStore, namespace: str) -> None:
        with pytest.raises(AccessDeniedError):
            ada.barrier(f"{namespace}:bob:start", 2)
