"""Barriers: one suite for every way to a store, and parties that die, hang or go away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import fakeredis
import pytest
from conformance.coordination.barriers import BarrierSuite
from support.backends import OnFakeredis, ThroughTheSyncFace
from support.contexts import context_of
from support.waiting import wait_until

from sharedmem import Arrival, Barrier, Hub, Settings
from sharedmem.testing import ManualClock, fake_hub


class TestBarrierOnFakeredis(OnFakeredis, BarrierSuite):
    """Every promise, on fakeredis."""


class TestBarrierOnARealServer(BarrierSuite):
    """Every promise, on a real server."""


@pytest.mark.nightly
class TestBarrierThroughTheSyncFace(ThroughTheSyncFace, BarrierSuite):
    """Every promise, through the sync face."""


# -- two processes, by a clock that the test turns -----------------------------------------------------


@pytest.fixture
async def hubs(clock: ManualClock) -> AsyncIterator[tuple[Hub, Hub]]:
    """Two processes on one server."""
    server = fakeredis.FakeServer()
    async with fake_hub(clock=clock, server=server) as one, fake_hub(clock=clock, server=server) as other:
        yield one, other


def come(hub: Hub, parties: int) -> asyncio.Task[Arrival]:
    return asyncio.ensure_future(at(hub, parties).wait())


def at(hub: Hub, parties: int) -> Barrier:
    return hub.store("n").barrier("start", parties)


async def have_come(hub: Hub, number: int) -> None:
    async def holds() -> bool:
        return await at(hub, 1).waiting() == number

    await wait_until(holds, description=f"{number} wait at the barrier")


async def test_a_party_that_is_gone_frees_its_place(clock: ManualClock, hubs: tuple[Hub, Hub]) -> None:
    gone = come(hubs[0], 3)
    await have_come(hubs[1], 1)
    clock.forget_sleepers()  # nothing of it is heard any more
    living = [come(hubs[1], 3)]
    await have_come(hubs[1], 2)

    clock.advance(10)
    clock.advance(10)
    await have_come(hubs[1], 2)
    for _ in range(3):
        await clock.until_asleep()
        clock.advance(6)
    await have_come(hubs[1], 1)
    living.append(come(hubs[1], 3))
    await have_come(hubs[1], 2)
    assert not any(arrival.done() for arrival in living)

    last = await at(hubs[1], 3).wait()

    assert [arrival.position for arrival in [*await asyncio.gather(*living), last]] == [0, 1, 2]
    gone.cancel()


async def test_who_goes_on_after_it_had_lapsed_comes_anew(clock: ManualClock, hubs: tuple[Hub, Hub]) -> None:
    hanging = come(hubs[0], 2)
    await have_come(hubs[1], 1)
    clock.shift(31)  # the other process looks first
    await have_come(hubs[1], 0)
    clock.advance(0)
    await have_come(hubs[1], 1)

    assert (await at(hubs[1], 2).wait()).position == 1
    assert (await hanging).position == 0


async def test_a_party_that_is_cancelled_no_longer_counts(hubs: tuple[Hub, Hub]) -> None:
    leaving = come(hubs[0], 2)
    await have_come(hubs[1], 1)

    leaving.cancel()

    await have_come(hubs[1], 0)


async def test_a_call_that_gets_lost_is_made_up_for_by_a_look(
    clock: ManualClock, hubs: tuple[Hub, Hub], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = come(hubs[0], 2)
    await have_come(hubs[1], 1)
    monkeypatch.setattr(context_of(hubs[0]).wait_notifier, "receive", lambda *_: None)
    last = await at(hubs[1], 2).wait()
    assert not first.done()

    clock.advance(11)

    assert (await first).generation == last.generation


async def test_a_thousand_parties_meet(redis_url: str, settings: Settings) -> None:
    async with Hub.open(redis_url, settings=settings) as hub:
        barrier = hub.store("many").barrier("start", 1000)

        arrivals = await asyncio.gather(*(barrier.wait(timeout=60) for _ in range(1000)))

        assert sorted(arrival.position for arrival in arrivals) == list(range(1000))
        assert len({arrival.generation for arrival in arrivals}) == 1
        await hub.store("many").clear()
