"""Whatever is killed, and whatever Redis loses: what was acknowledged to last, lasts; in a file as the durable tier.

Each round has a seed; every fifth is played on Cosmos DB (`test_durable_crashes_cosmos`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from support.crash_rounds import ROUNDS, Ground, Round
from support.crews import Crew, LosingServer, Mother

CONTROLS = 20


@pytest.fixture
def servers() -> Iterator[dict[str, LosingServer]]:
    with LosingServer("always") as always, LosingServer("everysec") as everysec:
        yield {"always": always, "everysec": everysec}


@pytest.fixture
async def ground(servers: dict[str, LosingServer], tmp_path: Path) -> AsyncIterator[Ground]:
    with Mother() as mother:
        async with Crew(mother) as crew:
            yield Ground(crew, servers, {"durable_url": f"sqlite://{tmp_path}/tier.sqlite3", "data_dir": str(tmp_path)})


async def test_what_was_acknowledged_lasts(ground: Ground) -> None:
    for seed in (seed for seed in range(ROUNDS) if seed % 5):
        round_ = Round(ground, seed)
        assert await round_.run() == [], round_


@pytest.mark.parametrize("broken", ["acknowledges before it puts", "keeps what is deleted"])
async def test_control_a_broken_tier_does_not_pass(ground: Ground, broken: str) -> None:
    for seed in range(CONTROLS):
        if await Round(ground, seed, "a_client_and_all", broken, steps=30).run():
            return
    pytest.fail(f"nobody notices that it {broken}")
