"""Costs of large namespaces: the memory of a key, and the latency of others while a million keys are deleted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple

import orjson
from harness import Fleet, Server, WorkerState, percentile
from store_contests import bare_client

from sharedmem import Hub, Settings

VALUE_BYTES = 1024
MANY = 1000
_NAMESPACE, _ACTOR = "bench-bulk", "agent"
_BYSTANDER = "bystander"
_EVERY_MS = 1.0
_QUIET_S = 2.0


class KeyMemory(NamedTuple):
    """Bytes of a key, service keys included, and of a bare SET."""

    keys: int
    ours_bytes: float
    bare_bytes: float

    @property
    def ratio(self) -> float:
        """Our bytes as a multiple of the bare ones."""
        return self.ours_bytes / self.bare_bytes


class Clearing(NamedTuple):
    """Latencies of another client's GET, in ms, before and while a namespace was cleared."""

    keys: int
    seconds: float
    p99_quiet_ms: float
    p99_ms: float
    worst_ms: float
    calls: int


def measure_memory(fleet: Fleet, server: Server, keys: int) -> KeyMemory:
    """Fill an empty server with values of 1 KB, once by us and once by SET."""
    used = []
    for fill in (fill_ours, fill_bare):
        server.empty()
        before = server.memory_bytes()
        fleet.ask(1, fill, server.urls["unix"], keys, VALUE_BYTES)
        used.append((server.memory_bytes() - before) / keys)
    server.empty()
    return KeyMemory(keys, *used)


def measure_clear(fleet: Fleet, server: Server, keys: int) -> Clearing:
    """Clear a namespace while another process, on its own connection, reads one key every millisecond."""
    url = server.urls["unix"]
    server.empty()
    fleet.ask(1, fill_ours, url, keys, 64)
    quiet = _measure_bystander(fleet, server, lambda: time.sleep(_QUIET_S))
    begun = time.monotonic()
    latencies = _measure_bystander(fleet, server, lambda: fleet.ask(1, clear, url))
    seconds = time.monotonic() - begun
    server.empty()
    return Clearing(keys, seconds, percentile(quiet, 0.99), percentile(latencies, 0.99), latencies[-1], len(latencies))


def _measure_bystander(fleet: Fleet, server: Server, meanwhile: Callable[[], object]) -> list[float]:
    finish = fleet.begin(1, read_until_gone, server.urls["unix"])
    meanwhile()
    server.delete(_BYSTANDER)
    return finish()


async def fill_ours(_: WorkerState, url: str, keys: int, size: int) -> None:
    """Run a job: write that many keys with values of `size` bytes."""
    value = _value(size)
    async with Hub.open(settings=Settings(redis_url=url)) as hub:
        store = hub.store(_NAMESPACE, actor=_ACTOR)
        for start in range(0, keys, MANY):
            await store.write_many({f"finding-{number}": value for number in range(start, min(start + MANY, keys))})


async def fill_bare(_: WorkerState, url: str, keys: int, size: int) -> None:
    """Run a job: the same by SET."""
    payload = orjson.dumps(_value(size))
    async with bare_client(url) as client:
        for start in range(0, keys, MANY):
            pipeline = client.pipeline(transaction=False)
            for number in range(start, min(start + MANY, keys)):
                pipeline.set(f"{_NAMESPACE}:{_ACTOR}:finding-{number}", payload)
            await pipeline.execute()


async def clear(_: WorkerState, url: str) -> int:
    """Run a job: clear the namespace; return how many keys it had."""
    async with Hub.open(settings=Settings(redis_url=url)) as hub:
        return await hub.store(_NAMESPACE).clear()


async def read_until_gone(_: WorkerState, url: str) -> list[float]:
    """Run a job: read a key every millisecond until it is deleted; return latencies in ms, in order of size.

    A blocked read counts also for the reads that other clients would have sent meanwhile: one a millisecond,
    each waiting as long as was left.
    """
    latencies: list[float] = []
    async with bare_client(url) as client:
        await client.set(_BYSTANDER, b"here")
        found = True
        while found:
            await asyncio.sleep(_EVERY_MS / 1000)
            begun = time.monotonic()
            found = await client.get(_BYSTANDER) is not None
            took = (time.monotonic() - begun) * 1000
            latencies += (took - later * _EVERY_MS for later in range(1 + int(took / _EVERY_MS)))
    return sorted(latencies)


def _value(size: int) -> dict[str, str]:
    return {"text": "x" * (size - len(orjson.dumps({"text": ""})))}
