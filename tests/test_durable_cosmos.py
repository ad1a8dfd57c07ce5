"""Cosmos DB keeps records as every durable store must: on the emulator, and on a live account where one is named."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest
from pydantic import SecretStr
from support.cosmos import Room, emulator

from sharedmem.durable.cosmos import CosmosDurable
from sharedmem.durable.cosmos_address import Patience
from sharedmem.testing.durable_suite import DurableSuite

LIVE = os.environ.get("SHAREDMEM_TEST_COSMOS", "")
LIVE_KEY = os.environ.get("SHAREDMEM_TEST_COSMOS_KEY", "")

# Documents may have 2 MB; aiohttp remarks on more than 1 MB.
pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body directly:ResourceWarning")


@pytest.fixture
def room(pytestconfig: pytest.Config) -> Room:
    return emulator(pytestconfig).room()


class TestCosmosDurable(DurableSuite):
    @pytest.fixture
    async def durable(self, room: Room) -> AsyncIterator[CosmosDurable]:
        async with room.opened(patience=Patience()) as store:
            yield store


@pytest.mark.skipif(not LIVE, reason="SHAREDMEM_TEST_COSMOS names no account (docs/cosmos.md)")
class TestLiveCosmosDurable(DurableSuite):
    @pytest.fixture
    async def durable(self) -> AsyncIterator[CosmosDurable]:
        store = CosmosDurable(LIVE, key=SecretStr(LIVE_KEY) if LIVE_KEY else None, database="sharedmem-test")
        await store.open()
        yield store
        await store.close()
