"""Whatever is killed, and whatever Redis loses: what was acknowledged to last, lasts; in Cosmos DB."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cosmos_emulator import emulator
from support.crash_rounds import ROUNDS, CrashRound, RoundEnvironment
from support.process_groups import AgentForkServer, AgentPool, RewindableRedis


async def test_what_was_acknowledged_lasts_in_cosmos(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    room = emulator(pytestconfig).room()
    named = {"durable_url": room.emulator.url, "cosmos_key": "a2V5", "cosmos_database": room.database}
    with RewindableRedis("always") as always, RewindableRedis("everysec") as everysec, AgentForkServer() as mother:
        async with AgentPool(mother) as crew:
            ground = RoundEnvironment(
                crew, {"always": always, "everysec": everysec}, named | {"data_dir": str(tmp_path)}
            )
            for seed in range(0, ROUNDS, 5):
                round_ = CrashRound(ground, seed)
                assert await round_.run() == [], round_
