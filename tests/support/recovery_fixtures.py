"""Fixtures of two hubs in front of one durable store, on fakeredis and on the real server.

A module takes them by assignment, with all that they need: `tier, connect, where = fixtures.tier, ...`. It may define
`limits` itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import fakeredis
import pytest

from sharedmem import Settings
from sharedmem.clock import new_id
from sharedmem.durable.loss_detection import JoinLimits
from sharedmem.durable.sqlite_store import SqliteDurable
from sharedmem.hub.composition import Connect
from sharedmem.hub.composition import connect as connect_to_real
from sharedmem.testing.fakes import connect_to_fake
from support.recovery_harness import (
    JOIN_LIMITS,
    PausableDurable,
    PauseAtCall,
    RecoveryHarness,
    delete_namespace,
    open_recovery_harness,
)


@pytest.fixture
async def tier(tmp_path: Path) -> AsyncIterator[PausableDurable]:
    durable = SqliteDurable(tmp_path / "tier.db")
    await durable.open()
    yield PausableDurable(durable)
    await durable.close()


@pytest.fixture(params=["fake", "real"])
def connect(request: pytest.FixtureRequest) -> Connect:
    return connect_to_fake(fakeredis.FakeServer()) if request.param == "fake" else connect_to_real


@pytest.fixture
def where(request: pytest.FixtureRequest, connect: Connect, tmp_path: Path) -> Settings:
    is_real = connect is connect_to_real
    return Settings(redis_url=request.getfixturevalue("redis_url") if is_real else None, data_dir=tmp_path / "data")


@pytest.fixture
def limits() -> JoinLimits:
    return JOIN_LIMITS


@pytest.fixture
async def hub(
    connect: Connect, where: Settings, tier: PausableDurable, limits: JoinLimits
) -> AsyncIterator[RecoveryHarness]:
    async with open_recovery_harness(connect, tier, f"test-{new_id(8)}", settings=where, limits=limits) as made:
        yield made
        tier.before = PauseAtCall("nothing")
        await delete_namespace(made)


@pytest.fixture
async def other(
    connect: Connect, where: Settings, tier: PausableDurable, hub: RecoveryHarness, limits: JoinLimits
) -> AsyncIterator[RecoveryHarness]:
    """A second hub in front of the same namespace."""
    async with open_recovery_harness(connect, tier, hub.namespace, settings=where, limits=limits) as made:
        yield made
