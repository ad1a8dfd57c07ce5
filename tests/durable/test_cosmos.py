"""Cosmos DB keeps records as every durable store must: on the emulator, and on a live account where one is named."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import SecretStr
from support import cosmos_fixtures
from support.cosmos_emulator import EmulatedDatabase

from sharedmem import UsageError
from sharedmem.clock import SystemClock
from sharedmem.durable.cosmos.endpoint import CosmosTimeouts
from sharedmem.durable.cosmos.layout import memories_layout, records_layout
from sharedmem.durable.cosmos.record_container import KEPT_AFTER_S
from sharedmem.durable.cosmos.store import CosmosDurable
from sharedmem.models import DurableRecord
from sharedmem.testing.durable_suite import DurableSuite

LIVE = os.environ.get("SHAREDMEM_TEST_COSMOS", "")
LIVE_KEY = os.environ.get("SHAREDMEM_TEST_COSMOS_KEY", "")

pytestmark = cosmos_fixtures.allow_large_bodies
room = cosmos_fixtures.room


class TestCosmosDurable(DurableSuite):
    @pytest.fixture
    async def durable(self, room: EmulatedDatabase) -> AsyncIterator[CosmosDurable]:
        async with room.opened(patience=CosmosTimeouts(), clock=SystemClock()) as store:
            yield store


if LIVE:

    class TestLiveCosmosDurable(DurableSuite):
        @pytest.fixture
        async def durable(self) -> AsyncIterator[CosmosDurable]:
            store = CosmosDurable(LIVE, key=SecretStr(LIVE_KEY) if LIVE_KEY else None, database="sharedmem-test")
            await store.open()
            yield store
            await store.close()


KEY = "research:shared:note"


def value(stamp: int, key: str = KEY, **fields: Any) -> DurableRecord:
    plain = {"key": key, "type": "value", "kind": "knowledge", "version": stamp, "stamp": stamp, "created": stamp}
    return DurableRecord.model_validate(plain | fields)


# -- opening -------------------------------------------------------------------------------------


async def test_the_database_and_its_container_are_made_as_the_layout_says(room: EmulatedDatabase) -> None:
    async with room.opened(memories=memories_layout(256)):
        records, memories = await room.properties("records"), await room.properties("memories")

    assert records["partitionKey"] == {
        "paths": ["/namespace", "/scope", "/key"],
        "kind": "MultiHash",
        "version": 2,
    }
    assert records["indexingPolicy"] == records_layout().indexing
    assert records["defaultTtl"] == memories["defaultTtl"] == -1
    assert memories["partitionKey"]["paths"] == ["/tenant_id", "/thread_id"]
    assert memories["vectorEmbeddingPolicy"] == memories_layout(256).vectors
    assert memories["fullTextPolicy"] == memories_layout(256).full_text
    assert memories["indexingPolicy"]["vectorIndexes"] == [{"path": "/embedding", "type": "quantizedFlat"}]


async def test_hubs_that_open_at_the_same_moment_see_one_store(room: EmulatedDatabase) -> None:
    stores = [room.durable() for _ in range(6)]

    names = await asyncio.gather(*(store.open() for store in stores))

    assert len(set(names)) == 1
    await asyncio.gather(*(store.close() for store in stores))


async def test_a_store_that_is_not_open_says_so(room: EmulatedDatabase) -> None:
    with pytest.raises(UsageError, match="not open"):
        await room.durable().get(KEY)


def test_a_store_shows_where_it_is_and_no_secret(room: EmulatedDatabase) -> None:
    store = room.durable(key=SecretStr("c2VjcmV0"))

    assert repr(store) == f"<CosmosDurable {room.emulator.url} {room.database}/records>"
    assert store.url == room.emulator.url


# -- what the service is asked for ---------------------------------------------------------------


async def test_of_a_batch_each_document_is_sent_once(room: EmulatedDatabase) -> None:
    async with room.opened() as store:
        await room.forget()
        puts = await store.put([value(stamp, body=str(stamp)) for stamp in (3, 1, 9, 7)])

        assert [put.outcome for put in puts] == ["older", "older", "stored", "older"]
        assert await room.calls() == [("create", 201)]


async def test_a_change_of_a_known_document_reads_it_first(room: EmulatedDatabase) -> None:
    async with room.opened() as store:
        await store.put([value(1)])
        await room.forget()

        await store.put([value(2, created=1)])

        assert await room.calls() == [("read", 200), ("replace", 200)]


async def test_requests_and_units_are_counted_by_kind(room: EmulatedDatabase) -> None:
    async with room.opened() as store:
        before = store.charges()

        await asyncio.gather(*(store.put([value(1, f"research:shared:{number}")]) for number in range(20)))
        await store.get("research:shared:7")
        await store.highest("research")
        await room.fault("read", status=429, retryAfterMs=1)
        await store.get("research:shared:8")

        after = store.charges()
    assert after.writes - before.writes == 20
    assert after.reads - before.reads == 3
    assert after.queries - before.queries == 1
    assert (before.throttled, after.throttled) == (0, 1)
    # The emulator charges one unit for anything; the throttled read was not charged.
    assert after.request_units - before.request_units == 23


# -- documents that go by themselves -------------------------------------------------------------


async def test_the_service_removes_tombstones_and_expired_values_after_a_week(room: EmulatedDatabase) -> None:
    now_ms = int(time.time() * 1000)
    mortal = [
        value(1, "research:shared:gone", deleted=True),
        value(2, "research:shared:expired", expires=now_ms + 60_000),
        value(3, "research:shared:field", type="hash", element="x", deleted=True),
    ]
    lasting = [
        value(4, "research:shared:field", type="hash", expires=now_ms + 60_000),
        value(5, "research:shared:field", type="hash", element="y"),
        value(6),
    ]
    async with room.opened(clock=SystemClock()) as store:
        await store.put([*mortal, *lasting])
        try:
            await room.ahead(KEPT_AFTER_S - 60)
            assert len(await store.records("research:shared:field")) == 3
            assert await store.get("research:shared:gone") == mortal[0]

            await room.ahead(KEPT_AFTER_S + 3600)
            left = [record async for page in store.iterate("research") for record in page]
        finally:
            await room.ahead(0)

    assert left == lasting
