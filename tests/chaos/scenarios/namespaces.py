"""A namespace that is cleared again and again while others write to it."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress

from support.chaos_proxy import ChaosProxy
from support.faulty_hubs import persistent_settings
from support.lincheck import Delete, Emptied, History, violations
from support.random_clients import RandomClient

from chaos.faults import kill_server, logging_server, lose_replies, repeat_fault
from chaos.hubs import open_hubs
from chaos.scenario import Scenario, Trial
from sharedmem import Hub, SharedMemoryStore, UnavailableError

_CLIENTS, _HUBS, _CALLS, _KEYS = 4, 2, 80, 10
_KILL_SERVER_EVERY_S = 5.0


class Namespaces(Scenario):
    """Batches of calls, each in a namespace of its own, which is cleared meanwhile."""

    name = "namespaces"
    promise = "When `clear` returns, nothing that was written before is left, and nothing written after is lost."
    fault = "The namespace is cleared all the time; replies are lost, the server is killed with kill -9."
    work = "Four clients of two hubs read, write, delete and write under conditions."
    control = "A clear that returns before it has done its work."

    async def run(self, trial: Trial) -> None:
        with logging_server() as server:
            async with ChaosProxy(server.url) as proxy, open_hubs(proxy.url, _HUBS, is_control=False) as hubs:
                rages = (
                    lose_replies(trial, proxy, b"EVALSHA", b"GET"),
                    kill_server(trial, server, every_s=_KILL_SERVER_EVERY_S),
                )
                async with repeat_fault(*rages), Hub.open(settings=persistent_settings(server.url)) as clearing:
                    await _batches(trial, hubs, clearing)


async def _batches(trial: Trial, hubs: list[Hub], clearing: Hub) -> None:
    for number in itertools.count():
        history, namespace = History(), f"batch-{number}"
        clients = [
            RandomClient(hub.store(namespace), history, trial.dice.randrange(10**9), keys=_KEYS, calls=_CALLS)
            for hub in itertools.islice(itertools.cycle(hubs), _CLIENTS)
        ]
        async with repeat_fault(_clear(trial, clearing.store(namespace), history)):
            await asyncio.gather(*(client.work() for client in clients))
        trial.did(len(history.operations))
        trial.judge([str(violation) for violation in await asyncio.to_thread(violations, history.operations)])
        if trial.is_over:
            break


async def _clear(trial: Trial, store: SharedMemoryStore, history: History) -> None:
    """Clear for ever; for each key that is a deletion, whatever it found."""
    later: set[asyncio.Task[int]] = set()
    while True:
        await asyncio.sleep(trial.dice.uniform(0.02, 0.3))
        operations = [history.call(f"k{number}", Delete()) for number in range(_KEYS)]
        if trial.is_control:
            later.add(asyncio.create_task(_clear_late(store)))
        else:
            try:
                await store.clear()
            except UnavailableError:
                continue  # some of it may have been cleared
        for operation in operations:
            history.answer(operation, Emptied())
        trial.broke()


async def _clear_late(store: SharedMemoryStore) -> int:
    await asyncio.sleep(0.05)
    with suppress(UnavailableError):
        return await store.clear()
    return 0
