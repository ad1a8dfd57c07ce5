"""Values, counters and lists while replies are lost and the server is killed."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import AsyncExitStack

from support.chaos import ChaosProxy
from support.clients import Client, CountingClient
from support.faulty_hubs import hub_without_ids, persistent
from support.lincheck import History, violations

from chaos.faults import kill_server, logging_server, lose_replies, meanwhile
from chaos.scenario import Scenario, Trial
from sharedmem import Hub

_HUBS, _CLIENTS, _CALLS, _KEYS = 3, 6, 120, 15
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
            async with ChaosProxy(server.url) as proxy:
                rages = (
                    lose_replies(trial, proxy, b"EVALSHA", b"GET"),
                    kill_server(trial, server, every_s=_KILL_EVERY_S),
                )
                async with meanwhile(*rages):
                    await _batches(trial, proxy.url)


async def _batches(trial: Trial, url: str) -> None:
    for number in itertools.count():
        await _batch(trial, url, f"batch-{number}")
        if trial.is_over:
            break


async def _batch(trial: Trial, url: str, namespace: str) -> None:
    history, clients = History(), list[Client]()
    async with AsyncExitStack() as stack:
        hubs = [await stack.enter_async_context(_hub(trial, url, number)) for number in range(_HUBS)]
        for number in range(_CLIENTS):
            make = (Client, CountingClient)[number % 2]
            store = hubs[number % _HUBS].store(namespace)
            clients.append(make(store, history, trial.dice.randrange(10**9), keys=_KEYS, calls=_CALLS))
        await asyncio.gather(*(client.work() for client in clients))
    trial.did(len(history.operations))
    trial.judge([str(violation) for violation in await asyncio.to_thread(violations, history.operations)])


def _hub(trial: Trial, url: str, number: int) -> Hub:
    if trial.is_control:
        return hub_without_ids(persistent(url))
    # The last one repeats nothing: its calls have happened or not, and nobody knows.
    return Hub.open(settings=persistent(url, **({"retry_for_s": 0.0} if number == _HUBS - 1 else {})))
