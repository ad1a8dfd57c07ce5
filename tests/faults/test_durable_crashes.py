"""Whatever is killed, and whatever Redis loses: what was acknowledged to last, lasts."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from support.crash_rounds import Crew, Ground, LosingServer, Round

ROUNDS = int(os.environ.get("SHAREDMEM_CRASH_ROUNDS", "200"))


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, LosingServer]]:
    with LosingServer("always") as always, LosingServer("everysec") as everysec:
        yield {"always": always, "everysec": everysec}


@pytest.fixture
async def crew() -> AsyncIterator[Crew]:
    async with Crew() as crew:
        yield crew


async def test_what_was_acknowledged_lasts_in_a_file(
    servers: dict[str, LosingServer], crew: Crew, tmp_path: Path
) -> None:
    ground = Ground(crew, servers, {"durable_url": f"sqlite://{tmp_path}/tier.sqlite3", "data_dir": str(tmp_path)})
    import time

    for seed in range(ROUNDS):
        t = time.time()
        round_ = Round(ground, seed)
        v = await round_.run()
        print(round_, round(time.time() - t, 3), len(round_.acknowledged()), v, flush=True)
