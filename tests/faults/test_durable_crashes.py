"""Whatever is killed, and whatever Redis loses: what was acknowledged to last, lasts; in a file as the durable tier.

Each round has a seed; every fifth is played on Cosmos DB (`test_durable_crashes_cosmos`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.crash_rounds import ROUNDS, CrashRound, RoundEnvironment, both_servers
from support.process_groups import AgentPool, RewindableRedis

CONTROLS = 20
Servers = dict[str, RewindableRedis]


@pytest.fixture
async def agents() -> AsyncIterator[AgentPool]:
    async with AgentPool() as pool:
        yield pool


@pytest.fixture(scope="module")
def tier(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return tier_in(tmp_path_factory.mktemp("tier"))


def tier_in(folder: Path) -> dict[str, Any]:
    return {"durable_url": f"sqlite://{folder}/tier.sqlite3", "data_dir": str(folder)}


@pytest.mark.parametrize("seed", [seed for seed in range(ROUNDS) if seed % 5])
async def test_what_was_acknowledged_lasts(
    agents: AgentPool, servers: Servers, tier: dict[str, Any], seed: int
) -> None:
    round_ = CrashRound(RoundEnvironment(agents, servers, tier), seed)

    assert await round_.run() == [], round_


@pytest.mark.parametrize("broken", ["acknowledges before it puts", "keeps what is deleted"])
async def test_control_a_broken_tier_does_not_pass(agents: AgentPool, tmp_path: Path, broken: str) -> None:
    with both_servers() as servers:
        environment = RoundEnvironment(agents, servers, tier_in(tmp_path))
        for seed in range(CONTROLS):
            if await CrashRound(environment, seed, "a_client_and_all", broken, steps=30).run():
                return
    pytest.fail(f"it is not noticed that it {broken}")
