"""What hubs spend on the durable tier is known for all hubs of a server, and for one search."""

from __future__ import annotations

import logging
from datetime import timedelta
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support import cosmos_fixtures, embedded_fixtures
from support.contexts import client_of, tier_of
from support.cosmos_emulator import EmulatedDatabase
from support.durable_graphs import drain_and_flush

from sharedmem import Hub, Settings
from sharedmem.durable.outbox_relay import TierSpending
from sharedmem.faces.metrics import Exporter, monthly_cost
from sharedmem.providers.local_embedders import HashingEmbedder
from sharedmem.runtime.telemetry import ChargedUnits, charge

room = cosmos_fixtures.room
data_dir = embedded_fixtures.data_dir


@pytest.fixture
def settings(room: EmulatedDatabase, data_dir: Path) -> Settings:
    return Settings(data_dir=data_dir, durable_url=room.emulator.url, cosmos_key="a2V5", cosmos_database=room.database)


def open_hub(settings: Settings) -> Hub:
    return Hub.open(settings=settings, embedder=HashingEmbedder())


def spending_of(hub: Hub) -> TierSpending:
    return tier_of(hub).relay.spending


async def test_the_units_of_all_hubs_of_a_server_add_up(settings: Settings) -> None:
    async with open_hub(settings) as writer, open_hub(settings) as exporting:
        for number in range(3):
            await writer.store("research").write(f"note-{number}", number, kind="knowledge")
        await writer.durable.drain()
        least = sum(tier_of(hub).store.charges().request_units for hub in (writer, exporting))
        await spending_of(writer).report()
        exporter = Exporter(exporting)
        await exporter.refresh()
        spent = (await exporting.durable.status()).spent
        most = sum(tier_of(hub).store.charges().request_units for hub in (writer, exporting))
        told = {
            sample.name: sample.value
            for family in text_string_to_metric_families(exporter.text())
            for sample in family.samples
        }

    assert 3 < least <= spent.request_units <= most
    assert spent.since is not None
    assert 0 < told["sharedmem_request_units_total"] <= spent.request_units
    assert told["sharedmem_estimated_monthly_dollars"] > 0


async def test_what_a_hub_spent_last_is_reported_when_it_closes(settings: Settings) -> None:
    async with open_hub(settings) as staying:
        before = (await staying.durable.status()).spent.request_units
        async with open_hub(settings) as hub:
            await hub.store("research").write("note", 1, kind="knowledge")
            store = tier_of(hub).store
        left = (await staying.durable.status()).spent.request_units

    assert left - before >= store.charges().request_units


async def test_nothing_is_sent_while_nothing_is_spent(data_dir: Path) -> None:
    async with open_hub(Settings(data_dir=data_dir)) as hub:
        await hub.store("research").write("note", 1, kind="knowledge")
        await hub.durable.drain()
        spent = (await hub.durable.status()).spent

    assert (spent.request_units, spent.since) == (0, None)


async def test_a_foreign_value_under_the_key_stops_the_reports_and_nothing_else(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_hub(settings) as hub:
        await client_of(hub).call("SET", "sm:$durable.spent", "mine")
        with caplog.at_level(logging.WARNING, logger="sharedmem.durable"):
            await spending_of(hub).report()
            await spending_of(hub).report()
            status = await hub.durable.status()

    assert status.spent.request_units == 0
    assert [record.message for record in caplog.records if "request units of this hub" in record.message] != []
    assert len([record for record in caplog.records if "request units of this hub" in record.message]) == 1


async def test_a_search_that_asks_the_tier_says_what_that_cost(settings: Settings) -> None:
    async with open_hub(settings) as hub:
        memory = hub.store("research").memory
        await memory.add("the harbour master owns the tide table")
        near = await memory.search("tide table", explain=True)
        await drain_and_flush(hub)
        restored = await memory.search("tide table", explain=True)

    assert near.cost.request_units == 0
    assert restored.cost.request_units > 0
    assert restored[0].why is not None
    assert restored[0].why.cost.request_units == restored.cost.request_units


def test_units_are_charged_to_the_innermost_block() -> None:
    charge(1)
    with ChargedUnits() as outer:
        charge(2)
        with ChargedUnits() as inner:
            charge(4)
        charge(8)

    assert (outer.units, inner.units) == (10, 4)


def test_a_pace_of_less_than_a_minute_is_taken_as_one_minute() -> None:
    month_s = timedelta(days=30).total_seconds()

    assert monthly_cost(1_000_000, month_s) == pytest.approx(0.25)
    assert monthly_cost(60, 0) == monthly_cost(60, 60)
