"""A server whose disk is full for a while."""

from __future__ import annotations

import sys
from typing import Any

from support.redis_process import RedisProcess

from chaos.faults import repeat_fault, restart
from chaos.hubs import open_hubs
from chaos.judged_batches import run_judged_batches
from chaos.scenario import Scenario, SkippedError, Trial

_HUBS, _MOST_LEFT_BYTES = 3, 40_000
_BEFORE_S, _FULL_S = (0.3, 1.0), (0.2, 1.0)


class Disk(Scenario):
    """Phases in which the append-only file may not grow."""

    name = "disk"
    promise = "A call that was acknowledged before, while or after the disk is full has taken effect once, for good."
    fault = "The server's files may not grow (a limit of their size): it refuses writes, or ends; then there is room \
again, and it is restarted where it has ended."
    work = "Clients of three hubs call at random; one hub gives calls up at once."
    control = "A server without an append-only file, which is restarted."

    async def run(self, trial: Trial) -> None:
        if not sys.platform.startswith("linux"):
            raise SkippedError("the size of another process's files can be limited on Linux only")
        fsync = trial.dice.choice(("always", "everysec"))
        log: dict[str, Any] = {"appendonly": "no"} if trial.is_control else {"appendonly": "yes", "appendfsync": fsync}
        with RedisProcess(auto_aof_rewrite_percentage=0, **log) as server:
            async with open_hubs(server.url, _HUBS, gives_up=True) as hubs, repeat_fault(_fill(trial, server)):
                await run_judged_batches(trial, hubs)


async def _fill(trial: Trial, server: RedisProcess) -> None:
    while True:
        await trial.pause(*_BEFORE_S)
        try:
            server.limit_files(server.longest_file() + trial.dice.randrange(_MOST_LEFT_BYTES))
            await trial.pause(*_FULL_S)
        finally:
            server.limit_files(None)
        if trial.is_control or not server.is_running:
            await restart(server)
        trial.broke()
        if trial.is_over:
            return
