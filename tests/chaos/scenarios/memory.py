"""A server that has no memory left for a while."""

from __future__ import annotations

from typing import Any

from support.bare_server import BareServer
from support.faulty_hubs import persistent

from chaos.batches import judged_batches
from chaos.faults import meanwhile, tell
from chaos.hubs import opened
from chaos.scenario import Scenario, Trial
from sharedmem import Hub, SharedMemoryError

_HUBS = 3
_BEFORE_S, _FULL_S = (0.3, 1.0), (0.2, 0.8)


class Memory(Scenario):
    """Phases in which `maxmemory` is below what the server uses."""

    name = "memory"
    promise = "Without memory the server's writes are refused or wait, reads go on, and nothing acknowledged is lost."
    fault = "`maxmemory` falls below what is used (`noeviction`), and is lifted again."
    work = "Clients of three hubs call at random; one hub gives calls up at once; another reads while memory is full."
    control = "A server that evicts (`allkeys-random`)."

    async def run(self, trial: Trial) -> None:
        policy = "allkeys-random" if trial.is_control else "noeviction"
        with BareServer(maxmemory_policy=policy) as server:
            reading = Hub.open(settings=persistent(server.url, retry_for_s=0.0))
            async with opened(server.url, _HUBS, gives_up=True) as hubs, reading:
                if not trial.is_control:
                    await reading.store("reading").write("k", "there")
                async with meanwhile(_fill(trial, server, reading)):
                    await judged_batches(trial, hubs)


async def _fill(trial: Trial, server: BareServer, reading: Hub) -> None:
    while True:
        await trial.pause(*_BEFORE_S)
        told: Any = await tell(server, "MEMORY", "STATS")
        used = dict(zip(told[::2], told[1::2], strict=True)) if isinstance(told, list) else told
        await tell(server, "CONFIG", "SET", "maxmemory", int(used[b"total.allocated"]) - 1)
        try:
            await trial.pause(*_FULL_S)
            if not trial.is_control:
                trial.judge(await _unread(reading))
        finally:
            await tell(server, "CONFIG", "SET", "maxmemory", 0)
        trial.broke()
        if trial.is_over:
            return


async def _unread(reading: Hub) -> list[str]:
    """What is wrong with a read while memory is full."""
    try:
        found = await reading.store("reading").read("k")
    except SharedMemoryError as error:
        return [f"a read was refused while memory was full: {error}"]
    return [] if found == "there" else [f"a read found {found!r} while memory was full"]
