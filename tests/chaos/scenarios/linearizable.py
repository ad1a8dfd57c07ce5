"""Values, counters and lists while replies are lost and the server is killed."""

from __future__ import annotations

from support.chaos_proxy import ChaosProxy

from chaos.faults import kill_server, logging_server, lose_replies, repeat_fault
from chaos.hubs import open_hubs
from chaos.judged_batches import run_judged_batches
from chaos.scenario import Scenario, Trial

_HUBS = 3
_KILL_EVERY_S = 4.0


class Linearizable(Scenario):
    """One batch of calls after the other, each judged by itself."""

    name = "linearizable"
    promise = "Writes, conditional writes, reads, deletions, increments and appends take effect once, in one order."
    fault = "Replies are lost, connections are reset, the server is killed with kill -9 (append-only file, always)."
    work = "Clients of three hubs call at random; one hub gives calls up at once, so that outcomes stay unknown."
    control = "Hubs whose repeated calls carry a new operation id each time."
    weight = 1.5

    async def run(self, trial: Trial) -> None:
        with logging_server() as server:
            async with (
                ChaosProxy(server.url) as proxy,
                open_hubs(proxy.url, _HUBS, is_control=trial.is_control, gives_up=True) as hubs,
            ):
                rages = (
                    lose_replies(trial, proxy, b"EVALSHA", b"GET"),
                    kill_server(trial, server, every_s=_KILL_EVERY_S),
                )
                async with repeat_fault(*rages):
                    await run_judged_batches(trial, hubs)
