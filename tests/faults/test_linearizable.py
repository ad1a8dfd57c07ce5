"""Histories of many clients under lost replies, resets and a killed server have an order that explains them."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress

import pytest
from support.bare_server import BareServer
from support.chaos import ChaosProxy
from support.faulty_hubs import hub_without_ids, persistent
from support.lincheck import (
    Absent,
    Action,
    Delete,
    Deleted,
    Found,
    History,
    Outcome,
    Read,
    Refused,
    Write,
    Written,
    violations,
)

from sharedmem import Hub, SharedMemoryStore, UnavailableError, VersionConflictError

KEYS, HUBS, TASKS_A_HUB, CALLS_A_TASK, HOT_KEYS = 50, 4, 4, 250, 5
CUTS_BEFORE_THE_KILL = 10


@pytest.fixture
def durable_server() -> Iterator[BareServer]:
    with BareServer(appendonly="yes", appendfsync="always") as server:
        yield server


class Client:
    """Does random calls and notes what it hears."""

    def __init__(self, store: SharedMemoryStore, history: History, seed: int) -> None:
        self._store = store
        self._history = history
        self._random = random.Random(seed)
        self._values = (f"{seed}.{number}" for number in itertools.count())
        self._seen: dict[str, int] = {}

    async def work(self) -> None:
        for number in range(CALLS_A_TASK):
            # All clients dwell on the same few keys at a time, so that their calls overlap.
            first = number * KEYS // CALLS_A_TASK // HOT_KEYS * HOT_KEYS
            key = f"k{first + self._random.randrange(HOT_KEYS)}"
            action = self._choice(key)
            operation = self._history.call(key, action)
            with suppress(UnavailableError):  # its outcome is unknown
                self._history.answer(operation, await self._do(key, action))

    def _choice(self, key: str) -> Action:
        roll = self._random.random()
        if roll < 0.3:
            return Read()
        if roll < 0.4:
            return Delete()
        return Write(next(self._values), if_version=None if roll < 0.6 else self._seen.get(key, 0))

    async def _do(self, key: str, action: Action) -> Outcome:
        match action:
            case Read():
                return await self._read(key)
            case Delete():
                self._seen[key] = 0
                return Deleted() if await self._store.delete(key) else Absent()
            case Write(value, if_version):
                return await self._write(key, value, if_version)

    async def _read(self, key: str) -> Outcome:
        entry = await self._store.entry(key)
        self._seen[key] = entry.version if entry else 0
        return Found(entry.value, entry.version) if entry else Absent()

    async def _write(self, key: str, value: object, if_version: int | None) -> Outcome:
        try:
            self._seen[key] = version = await self._store.write(key, value, if_version=if_version)
        except VersionConflictError as conflict:
            self._seen[key] = conflict.current
            return Refused(conflict.current)
        return Written(version)


async def rage(proxy: ChaosProxy, server: BareServer) -> None:
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


async def recorded(proxy: ChaosProxy, server: BareServer, hubs: list[Hub]) -> History:
    """What all clients did and heard while the faults raged."""
    history = History()
    async with AsyncExitStack() as stack:
        stores = [(await stack.enter_async_context(hub)).store("lin") for hub in hubs]
        raging = asyncio.create_task(rage(proxy, server))
        clients = [Client(stores[seed % len(stores)], history, seed) for seed in range(HUBS * TASKS_A_HUB)]
        await asyncio.gather(*(client.work() for client in clients))
        raging.cancel()
        await asyncio.wait([raging])
    return history


async def test_fifty_keys_stay_linearizable_under_lost_replies_resets_and_a_killed_server(
    durable_server: BareServer,
) -> None:
    async with ChaosProxy(durable_server.url) as proxy:
        hubs = [Hub.open(settings=persistent(proxy.url)) for _ in range(HUBS)]
        history = await recorded(proxy, durable_server, hubs)

    assert violations(history.operations) == []
    assert proxy.cuts > CUTS_BEFORE_THE_KILL, "the server was never killed"
    heard = Counter(type(operation.outcome) for operation in history.operations)
    assert len({operation.key for operation in history.operations}) == KEYS
    assert min(heard[kind] for kind in (Written, Refused, Found, Absent, Deleted)) > 50
    assert heard[type(None)] == 0


async def test_calls_given_up_at_once_have_happened_or_not_but_nothing_in_between(durable_server: BareServer) -> None:
    async with ChaosProxy(durable_server.url) as proxy:
        hubs = [Hub.open(settings=persistent(proxy.url, retry_for_s=0.0)) for _ in range(HUBS)]
        history = await recorded(proxy, durable_server, hubs)

    assert violations(history.operations) == []
    assert any(operation.outcome is None for operation in history.operations)


async def test_control_without_operation_ids_the_histories_are_impossible(durable_server: BareServer) -> None:
    async with ChaosProxy(durable_server.url) as proxy:
        hubs = [hub_without_ids(persistent(proxy.url)) for _ in range(HUBS)]
        history = await recorded(proxy, durable_server, hubs)

    assert violations(history.operations) != []
