"""Agents of a cluster agree as on one server: waiters are notified across its servers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from conformance.coordination.barriers import BarrierSuite
from conformance.coordination.leases import LeaseSuite
from conformance.coordination.limits import LimitSuite
from conformance.coordination.once import OnceSuite
from conformance.coordination.presence import PresenceSuite
from conformance.coordination.queues import QueueSuite
from support.topologies import RedisCluster

from sharedmem import Hub, Settings


@pytest.fixture
async def hub(cluster: RedisCluster, tmp_path: Path) -> AsyncIterator[Hub]:
    async with Hub.open(cluster.url, settings=Settings(data_dir=tmp_path)) as hub:
        yield hub


@pytest.mark.nightly
class TestBarriersOnCluster(BarrierSuite):
    """Every promise of a barrier."""


@pytest.mark.nightly
class TestLeasesOnCluster(LeaseSuite):
    """Every promise of a lease."""


@pytest.mark.nightly
class TestLimitsOnCluster(LimitSuite):
    """Every promise of a rate limit."""


@pytest.mark.nightly
class TestOnceOnCluster(OnceSuite):
    """Every promise of work that is done once."""


@pytest.mark.nightly
class TestPresenceOnCluster(PresenceSuite):
    """Every promise of presence."""


@pytest.mark.nightly
class TestQueuesOnCluster(QueueSuite):
    """Every promise of a queue."""
