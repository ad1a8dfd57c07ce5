"""Clients that call a store at random and note what they hear, inside of a test or as processes of their own.

As a process (`support.agent_processes` with other work) a client prints its history as it grows, so that what one
did before it was killed is known.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import pickle
import random
import sys
import time
from collections.abc import Iterable
from typing import ClassVar

from sharedmem import Hub, SharedMemoryStore, UnavailableError, VersionConflictError
from support.agent_processes import NAMESPACE
from support.faulty_hubs import persistent_settings
from support.lincheck import (
    Absent,
    Action,
    Append,
    Counted,
    Delete,
    Deleted,
    Found,
    History,
    Increment,
    Operation,
    Outcome,
    Read,
    Refused,
    Write,
    Written,
)

HOT_KEYS = 5
KEYS, CALLS = 20, 300


class RandomClient:
    """Does random calls and notes what it hears.

    Args:
        store: where.
        history: what it did and heard.
        seed: of its choices; unique, since its values are named after it.
        keys: how many keys there are, a multiple of `HOT_KEYS`.
        calls: how many calls it makes.
    """

    _initial: ClassVar = "k"

    def __init__(self, store: SharedMemoryStore, history: History, seed: int, *, keys: int, calls: int) -> None:
        self._store = store
        self._history = history
        self._keys, self._calls = keys, calls
        self._random = random.Random(seed)
        self._values = (f"{seed}.{number}" for number in itertools.count())
        self._seen: dict[str, int] = {}

    async def work(self) -> None:
        for number in range(self._calls):
            # All clients dwell on the same few keys at a time, so that their calls overlap.
            first = number * self._keys // self._calls // HOT_KEYS * HOT_KEYS
            key = f"{self._initial}{first + self._random.randrange(HOT_KEYS)}"
            action = self._choice(key)
            operation = self._history.call(key, action)
            try:
                self._history.answer(operation, await self._do(key, action))
            except UnavailableError as error:
                # A server without memory refuses before it does anything; of other failures the outcome is unknown.
                if "out of memory" in str(error):
                    self._history.withdraw(operation)

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
        raise AssertionError(action)

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


class CheckThenActClient(RandomClient):
    """The control: it looks at the version first, and then writes whatever has happened in between."""

    async def _write(self, key: str, value: object, if_version: int | None) -> Outcome:
        entry = await self._store.entry(key)
        current = entry.version if entry else 0
        if if_version is not None and if_version != current:
            self._seen[key] = current
            return Refused(current)
        await asyncio.sleep(0.001)
        return await super()._write(key, value, None)


class CountingClient(RandomClient):
    """Increments numbers and appends to lists, under keys of its own kind."""

    _initial: ClassVar = "c"

    def _choice(self, key: str) -> Action:
        roll = self._random.random()
        if roll < 0.3:
            return Read()
        if roll < 0.35:
            return Delete()
        return Append(next(self._values)) if _is_list(key) else Increment(self._random.randrange(1, 10))

    async def _do(self, key: str, action: Action) -> Outcome:
        match action:
            case Increment(by):
                return Counted(await self._store.incr(key, by))
            case Append(item):
                return Counted(await self._store.append(key, item))
            case Delete():
                return Deleted() if await self._store.delete(key) else Absent()
        found = tuple(await self._store.read_list(key)) if _is_list(key) else await self._store.read(key)
        return Found(found) if found else Absent()


def _is_list(key: str) -> bool:
    return int(key[1:]) % 2 == 1


class PrintedHistory(History):
    """A history that is printed, call by call and answer by answer."""

    def call(self, key: str, action: Action) -> Operation:
        operation = super().call(key, action)
        _print_pickled(len(self.operations), operation.called_ns, key, action)
        return operation

    def answer(self, operation: Operation, outcome: Outcome) -> None:
        super().answer(operation, outcome)
        # A client of one process makes one call at a time.
        _print_pickled(len(self.operations), operation.returned_ns, outcome)


def parse_history(lines: Iterable[list[str]]) -> list[Operation]:
    """What one process has record; a last line that was cut short is left out."""
    operations: dict[int, Operation] = {}
    for line in lines:
        try:
            number, at_ns, *record = pickle.loads(base64.b64decode(line[0], validate=True))
        except (ValueError, EOFError, pickle.UnpicklingError):
            break
        if len(record) > 1:
            operations[number] = Operation(record[0], record[1], at_ns)
        else:
            operations[number].returned_ns, operations[number].outcome = at_ns, record[0]
    return list(operations.values())


def _print_pickled(*record: object) -> None:
    sys.stdout.write(base64.b64encode(pickle.dumps(record)).decode() + "\n")
    sys.stdout.flush()


async def _main(what: str, url: str, _: str) -> None:
    async with Hub.open(settings=persistent_settings(url)) as hub:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.readline)
        kind = {"careful": RandomClient, "careless": CheckThenActClient}[what]
        client = kind(hub.store(NAMESPACE), PrintedHistory(), time.monotonic_ns(), keys=KEYS, calls=CALLS)
        await client.work()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
