"""A server whose disk is full for a while."""

from __future__ import annotations

import sys
from typing import Any

from support.bare_server import BareServer

from chaos.batches import judged_batches
from chaos.faults import meanwhile, restart
from chaos.hubs import opened
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
        with BareServer(auto_aof_rewrite_percentage=0, **log) as server:
            async with opened(server.url, _HUBS, gives_up=True) as hubs, meanwhile(_fill(trial, server)):
                await judged_batches(trial, hubs)


async def _fill(trial: Trial, server: BareServer) -> None:
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
