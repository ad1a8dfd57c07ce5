"""Histories of many clients under lost replies, resets and a killed server have an order that explains them."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest
from support.chaos_proxy import ChaosProxy
from support.faulty_hubs import hub_without_ids, persistent_settings
from support.lincheck import Absent, Deleted, Found, History, Refused, Written, violations
from support.random_clients import RandomClient
from support.redis_process import RedisProcess

from sharedmem import Hub

KEYS, HUBS, TASKS_A_HUB, CALLS_A_TASK = 50, 4, 4, 250
CUTS_BEFORE_THE_KILL = 10


@pytest.fixture
def durable_server() -> Iterator[RedisProcess]:
    with RedisProcess(appendonly="yes", appendfsync="always") as server:
        yield server


async def rage(proxy: ChaosProxy, server: RedisProcess) -> None:
    """Lose replies and reset connections for ever; kill the server once."""
    dice = random.Random(7)
    for cut in itertools.count(1):
        proxy.lose_replies(dice.choice([b"EVALSHA", b"GET"]), skip=dice.randrange(60))
        await proxy.cut.wait()
        proxy.cut.clear()
        if cut % 5 == 0:
            proxy.reset_all()
        if cut == CUTS_BEFORE_THE_KILL:
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)


async def recorded(proxy: ChaosProxy, server: RedisProcess, hubs: list[Hub]) -> History:
    """What all clients did and heard while the faults raged."""
    history = History()
    async with AsyncExitStack() as stack:
        stores = [(await stack.enter_async_context(hub)).store("lin") for hub in hubs]
        raging = asyncio.create_task(rage(proxy, server))
        clients = [
            RandomClient(stores[seed % len(stores)], history, seed, keys=KEYS, calls=CALLS_A_TASK)
            for seed in range(HUBS * TASKS_A_HUB)
        ]
        await asyncio.gather(*(client.work() for client in clients))
        raging.cancel()
        await asyncio.wait([raging])
    return history


async def test_fifty_keys_stay_linearizable_under_lost_replies_resets_and_a_killed_server(
    durable_server: RedisProcess,
) -> None:
    async with ChaosProxy(durable_server.url) as proxy:
        hubs = [Hub.open(settings=persistent_settings(proxy.url)) for _ in range(HUBS)]
        history = await recorded(proxy, durable_server, hubs)

    assert violations(history.operations) == []
    assert proxy.cuts > CUTS_BEFORE_THE_KILL, "the server was never killed"
    heard = Counter(type(operation.outcome) for operation in history.operations)
    assert len({operation.key for operation in history.operations}) == KEYS
    assert min(heard[kind] for kind in (Written, Refused, Found, Absent, Deleted)) > 50
    assert heard[type(None)] == 0


async def test_calls_given_up_at_once_have_happened_or_not_but_nothing_in_between(durable_server: RedisProcess) -> None:
    async with ChaosProxy(durable_server.url) as proxy:
        hubs = [Hub.open(settings=persistent_settings(proxy.url, retry_for_s=0.0)) for _ in range(HUBS)]
        history = await recorded(proxy, durable_server, hubs)

    assert violations(history.operations) == []
    assert any(operation.outcome is None for operation in history.operations)


async def test_control_without_operation_ids_the_histories_are_impossible(durable_server: RedisProcess) -> None:
    async with ChaosProxy(durable_server.url) as proxy:
        hubs = [hub_without_ids(persistent_settings(proxy.url)) for _ in range(HUBS)]
        history = await recorded(proxy, durable_server, hubs)

    assert violations(history.operations) != []
