"""Whatever is killed, and whatever Redis loses: what was acknowledged to last, lasts; in Cosmos DB."""

from __future__ import annotations

from typing import Any

import pytest
from support.cosmos_emulator import emulator
from support.crash_rounds import ROUNDS, CrashRound, RoundEnvironment
from support.process_groups import AgentPool, RewindableRedis

Servers = dict[str, RewindableRedis]


@pytest.fixture(scope="module")
def tier(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    room = emulator(pytestconfig).room()
    named = {"durable_url": room.emulator.url, "cosmos_key": "a2V5", "cosmos_database": room.database}
    return named | {"data_dir": str(tmp_path_factory.mktemp("data"))}


@pytest.mark.parametrize("seed", range(0, ROUNDS, 5))
async def test_what_was_acknowledged_lasts_in_cosmos(servers: Servers, tier: dict[str, Any], seed: int) -> None:
    async with AgentPool() as agents:
        round_ = CrashRound(RoundEnvironment(agents, servers, tier), seed)

        assert await round_.run() == [], round_
