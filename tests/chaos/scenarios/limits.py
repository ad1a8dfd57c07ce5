"""Rate limits whose callers lose replies and whose server is killed."""

from __future__ import annotations

import asyncio
import itertools
from typing import Literal

from support.chaos_proxy import ChaosProxy

from chaos.faults import kill_server, logging_server, lose_replies, repeat_fault
from chaos.hubs import open_hubs
from chaos.scenario import Scenario, Trial
from sharedmem import Hub

_LIMIT, _CALLERS, _HUBS = 60, 6, 3
_KILL_SERVER_EVERY_S, _FOR_EVER_S = 4.0, 86_400.0
_Algorithm = Literal["sliding_window", "token_bucket"]


class Limits(Scenario):
    """One limit after the other, each used up by all callers together."""

    name = "limits"
    promise = "A rate limit admits exactly what it says, also to callers whose replies are lost."
    fault = "Replies of callers are lost, connections are reset, the server is killed with kill -9."
    work = "Six callers of three hubs take from one limit until it refuses all of them."
    control = "Hubs whose repeated calls carry a new operation id each time: a lost permit is taken twice."

    async def run(self, trial: Trial) -> None:
        with logging_server() as server:
            async with (
                ChaosProxy(server.url) as proxy,
                open_hubs(proxy.url, _HUBS, is_control=trial.is_control) as hubs,
            ):
                rages = (
                    lose_replies(trial, proxy, b"EVALSHA"),
                    kill_server(trial, server, every_s=_KILL_SERVER_EVERY_S),
                )
                async with repeat_fault(*rages):
                    await _rounds(trial, hubs)


async def _rounds(trial: Trial, hubs: list[Hub]) -> None:
    for round_ in itertools.count():
        algorithm: _Algorithm = "token_bucket" if round_ % 2 else "sliding_window"
        trial.judge(await _used_up(trial, hubs, f"limit-{round_}", algorithm))
        if trial.is_over:
            break


async def _used_up(trial: Trial, hubs: list[Hub], name: str, algorithm: _Algorithm) -> list[str]:
    """Take all that a limit admits; what is wrong with the sum."""

    async def take(caller: int) -> int:
        store = hubs[caller % _HUBS].store("limits")
        limit = store.rate_limit(name, limit=_LIMIT, per=_FOR_EVER_S, algorithm=algorithm)
        for admitted in itertools.count():
            trial.did()
            if not await limit.take():
                return admitted
        raise AssertionError

    admitted = sum(await asyncio.gather(*(take(caller) for caller in range(_CALLERS))))
    return [] if admitted == _LIMIT else [f"{name} ({algorithm}) admitted {admitted} instead of {_LIMIT}"]
