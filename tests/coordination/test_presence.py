"""Presence: one suite for every way to a store, and crowds, silence and absence by a clock that the test turns."""

from __future__ import annotations

import asyncio
from typing import cast

import fakeredis
import pytest
from conformance.coordination.presence import PresenceSuite, next_event, next_event_named
from redis import Redis
from support.backends import OnFakeredis, ThroughTheSyncFace

from sharedmem import Hub, Settings
from sharedmem.testing import ManualClock, fake_hub


class TestPresenceOnFakeredis(OnFakeredis, PresenceSuite):
    """Every promise, on fakeredis."""


class TestPresenceOnARealServer(PresenceSuite):
    """Every promise, on a real server."""


@pytest.mark.nightly
class TestPresenceThroughTheSyncFace(ThroughTheSyncFace, PresenceSuite):
    """Every promise, through the sync face."""


# -- by a clock that the test turns ----------------------------------------------------------------


async def test_a_crowd_that_lapses_is_told_of_one_by_one_in_order() -> None:
    clock = ManualClock()
    async with fake_hub(clock=clock) as hub:
        crowd = [f"a{number:03}" for number in range(250)]
        for name in crowd:
            await hub.store("n", actor=name).presence.announce(ttl=10)
            clock.advance(0.001)
        clock.advance(20)
        late = hub.store("n", actor="late")
        await late.presence.announce()

        assert [one.actor for one in await late.presence.list()] == ["late"]
        async with next_event_named(hub.store("n")) as changes:
            joined = await next_event(changes, 250)
            lapsed = await next_event(changes, 250)
            assert await next_event(changes, 1) == [("presence.join", "late")]
    assert joined == [("presence.join", name) for name in crowd]
    assert lapsed == [("presence.lapse", name) for name in crowd]


async def test_several_who_look_at_the_same_time_tell_of_a_lapse_once() -> None:
    clock = ManualClock()
    async with fake_hub(clock=clock) as hub:
        store = hub.store("n")
        await hub.store("n", actor="ada").presence.announce(ttl=1)
        clock.advance(2)

        await asyncio.gather(*(store.presence.list() for _ in range(5)))

        await hub.store("n", actor="bob").presence.announce()
        async with next_event_named(store) as changes:
            assert [name for _, name in await next_event(changes, 3)] == ["ada", "ada", "bob"]


async def test_who_hangs_lapses_and_joins_anew_when_it_goes_on() -> None:
    clock, server = ManualClock(), fakeredis.FakeServer()
    async with fake_hub(clock=clock, server=server) as one, fake_hub(clock=clock, server=server) as other:
        ada, watching = one.store("n", actor="ada"), other.store("n")
        async with ada.presence.here(role="planner"), next_event_named(watching) as changes:
            assert await next_event(changes, 1) == [("presence.join", "ada")]
            (before,) = await watching.presence.list()
            # The other process looks in the moment in which the clock has moved, before this one can.
            clock.shift(16)
            assert await watching.presence.list() == []
            clock.advance(0)

            assert await next_event(changes, 2) == [("presence.lapse", "ada"), ("presence.join", "ada")]
            (after,) = await watching.presence.list()

    assert (after.role, after.since > before.since) == ("planner", True)


async def test_what_a_crowd_leaves_behind_expires(redis_url: str, settings: Settings) -> None:
    async with Hub.open(redis_url, settings=settings) as hub:
        await hub.store("left", actor="ada").presence.announce(ttl=86_400)
        with Redis.from_url(redis_url) as raw:
            lives = [cast("int", raw.pttl(key)) for key in raw.keys("sm:{left}:$presence*")]
        await hub.store("left").clear()

    assert len(lives) == 2
    assert all(86_400_000 < life <= 9 * 86_400_000 for life in lives)
