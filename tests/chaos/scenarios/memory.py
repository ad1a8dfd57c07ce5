"""A server that has no memory left for a while."""

from __future__ import annotations

from typing import Any

from support.faulty_hubs import persistent_settings
from support.redis_process import RedisProcess

from chaos.faults import repeat_fault, send_server_command
from chaos.hubs import open_hubs
from chaos.judged_batches import run_judged_batches
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
        with RedisProcess(maxmemory_policy=policy) as server:
            reading = Hub.open(settings=persistent_settings(server.url, retry_for_s=0.0))
            async with open_hubs(server.url, _HUBS, gives_up=True) as hubs, reading:
                if not trial.is_control:
                    await reading.store("reading").write("k", "there")
                async with repeat_fault(_fill(trial, server, reading)):
                    await run_judged_batches(trial, hubs)


async def _fill(trial: Trial, server: RedisProcess, reading: Hub) -> None:
    while True:
        await trial.pause(*_BEFORE_S)
        stats: Any = await send_server_command(server, "MEMORY", "STATS")
        used = dict(zip(stats[::2], stats[1::2], strict=True)) if isinstance(stats, list) else stats
        await send_server_command(server, "CONFIG", "SET", "maxmemory", int(used[b"total.allocated"]) - 1)
        try:
            await trial.pause(*_FULL_S)
            if not trial.is_control:
                trial.judge(await _unread(reading))
        finally:
            await send_server_command(server, "CONFIG", "SET", "maxmemory", 0)
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
