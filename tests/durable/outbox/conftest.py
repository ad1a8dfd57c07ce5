"""What the tests of draining stand on: hubs' ways into one tier, on fakeredis and on the real server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import fakeredis
import pytest
from redis import Redis
from support.outbox_harness import FaultyDurable, OpenOutboxHarness, OutboxHarness, open_outbox_harness

from sharedmem import Settings
from sharedmem.clock import Clock, new_id
from sharedmem.durable.outbox_relay import RelayLimits
from sharedmem.durable.sqlite_store import SqliteDurable
from sharedmem.hub import Connect
from sharedmem.hub.composition import connect as connect_to_server
from sharedmem.testing.fakes import connect_to_fake


@pytest.fixture
def namespace() -> str:
    return f"test-{new_id(8)}"


@pytest.fixture(params=["fakeredis", "real server"])
async def connect(request: pytest.FixtureRequest, namespace: str) -> AsyncIterator[Connect]:
    if request.param == "fakeredis":
        yield connect_to_fake(fakeredis.FakeServer())
        return
    yield connect_to_server
    with Redis.from_url(request.getfixturevalue("redis_url")) as client:
        client.srem("sm:$outboxes", namespace)
        if keys := list(client.scan_iter(f"sm:{{{namespace}}}:*")):
            client.unlink(*keys)


@pytest.fixture
async def durable(tmp_path: Path) -> AsyncIterator[SqliteDurable]:
    store = SqliteDurable(tmp_path / "tier.db")
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def faulty(durable: SqliteDurable) -> FaultyDurable:
    return FaultyDurable(durable)


@pytest.fixture
async def open_shore(
    request: pytest.FixtureRequest, connect: Connect, faulty: FaultyDurable, namespace: str, settings: Settings
) -> AsyncIterator[OpenOutboxHarness]:
    """Opens hubs' ways into the same tier, on the same server."""
    async with AsyncExitStack() as stack:

        async def opened(
            *, clock: Clock | None = None, through: str = "", limit: int = 100_000, pace: RelayLimits | None = None
        ) -> OutboxHarness:
            chosen = settings
            if "redis_url" in request.fixturenames or connect is connect_to_server:
                chosen = settings.replace(redis_url=request.getfixturevalue("redis_url"))
            way = open_outbox_harness(
                connect, faulty, namespace, settings=chosen, clock=clock, through=through, limit=limit, pace=pace
            )
            return await stack.enter_async_context(way)

        yield opened


@pytest.fixture
async def team(open_shore: OpenOutboxHarness) -> OutboxHarness:
    return await open_shore()
