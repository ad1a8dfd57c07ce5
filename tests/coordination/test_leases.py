"""One suite for leases everywhere, and what only the async face and a turned clock can show."""

from __future__ import annotations

import asyncio

import pytest
from conformance.coordination.leases import LeaseSuite
from support.backends import OnFakeredis, ThroughTheSyncFace

from sharedmem.store import SharedMemoryStore
from sharedmem.testing.store_fixtures import StoreFixtures


class TestLeasesOnFakeredis(OnFakeredis, LeaseSuite):
    """Every promise, on fakeredis."""


class TestLeasesOnRedis(LeaseSuite):
    """Every promise, on a real server."""


@pytest.mark.nightly
class TestLeasesThroughTheSyncFace(ThroughTheSyncFace, LeaseSuite):
    """Every promise, through the sync face."""


class TestCancelledRequests(OnFakeredis, StoreFixtures):
    """Requests of one moment, some of which are cancelled."""

    async def test_who_gives_up_before_the_request_is_sent_holds_nothing(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore
    ) -> None:
        tasks = [asyncio.create_task(ada.lease_acquire(f"job-{number}")) for number in range(6)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

        for number in range(0, 6, 2):
            async with bob.lock(f"job-{number}", wait=10):
                pass
        holders = [(await bob.lease_state(f"job-{number}")).holders[0] for number in (1, 3, 5)]
        first = holders[0].token
        # Nothing was asked for between them: each request that is made has a token.
        assert [(one.actor, one.token) for one in holders] == [("ada", first + more) for more in range(3)]
