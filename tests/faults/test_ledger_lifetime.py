"""What the server remembers of a call lives longer than the call may be repeated."""

from __future__ import annotations

import fakeredis
import pytest

from sharedmem import Settings
from sharedmem.testing import fake_hub

# A ledger is prolonged by the first call after this time, so that it may be that much older.
BETWEEN_PROLONGATIONS_S = 30


@pytest.mark.parametrize("retry_for_s", [0, 10, 600, 3600])
async def test_the_ledger_outlives_the_time_in_which_a_call_may_be_repeated(retry_for_s: int) -> None:
    server = fakeredis.FakeServer()
    async with fake_hub(server=server, settings=Settings(retry_for_s=retry_for_s)) as hub:
        await hub.store("research").incr("visits")

        async with fakeredis.aioredis.FakeRedis(server=server) as raw:
            (ledger,) = [key async for key in raw.scan_iter("*$ops*")]
            life_s = await raw.ttl(ledger)

    assert life_s > retry_for_s + BETWEEN_PROLONGATIONS_S
