"""What the server remembers of a call lives longer than the call may be repeated."""

from __future__ import annotations

import fakeredis
import pytest

from sharedmem import Settings
from sharedmem.testing import ManualClock, fake_hub

LONGEST_TIME_BETWEEN_PROLONGATIONS_S = 30


@pytest.mark.parametrize("retry_for_s", [0, 10, 600, 3600])
async def test_the_ledger_outlives_the_time_in_which_a_call_may_be_repeated(retry_for_s: int) -> None:
    server, clock = fakeredis.FakeServer(), ManualClock()
    async with fake_hub(server=server, clock=clock, settings=Settings(retry_for_s=retry_for_s)) as hub:
        store = hub.store("research")
        await store.incr("visits")
        clock.advance(LONGEST_TIME_BETWEEN_PROLONGATIONS_S)
        await store.incr("visits")
        clock.advance(retry_for_s)

        ledgers = [key async for key in fakeredis.aioredis.FakeRedis(server=server).scan_iter("*$ops*")]

        assert len(ledgers) == 1
        assert await store.incr("visits") == 3
