"""Whatever is killed, and whatever Redis loses: what was acknowledged to last, lasts; in a file as the durable tier.

Each round has a seed; every fifth is played on Cosmos DB (`test_durable_crashes_cosmos`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from support.crash_rounds import ROUNDS, CrashRound, RoundEnvironment
from support.process_groups import AgentForkServer, AgentPool, RewindableRedis

CONTROLS = 20


@pytest.fixture
def servers() -> Iterator[dict[str, RewindableRedis]]:
    with RewindableRedis("always") as always, RewindableRedis("everysec") as everysec:
        yield {"always": always, "everysec": everysec}


@pytest.fixture
async def ground(servers: dict[str, RewindableRedis], tmp_path: Path) -> AsyncIterator[RoundEnvironment]:
    with AgentForkServer() as mother:
        async with AgentPool(mother) as crew:
            yield RoundEnvironment(
                crew, servers, {"durable_url": f"sqlite://{tmp_path}/tier.sqlite3", "data_dir": str(tmp_path)}
            )


async def test_what_was_acknowledged_lasts(ground: RoundEnvironment) -> None:
    for seed in (seed for seed in range(ROUNDS) if seed % 5):
        round_ = CrashRound(ground, seed)
        assert await round_.run() == [], round_


@pytest.mark.parametrize("broken", ["acknowledges before it puts", "keeps what is deleted"])
async def test_control_a_broken_tier_does_not_pass(ground: RoundEnvironment, broken: str) -> None:
    for seed in range(CONTROLS):
        if await CrashRound(ground, seed, "a_client_and_all", broken, steps=30).run():
            return
    pytest.fail(f"nobody notices that it {broken}")
