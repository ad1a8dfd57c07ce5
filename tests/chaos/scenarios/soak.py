"""A hub that does a bit of everything for long, and whether it grows."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import socket
import sys
from pathlib import Path
from typing import Any, NamedTuple

from support.chaos_proxy import ChaosProxy
from support.faulty_hubs import persistent_settings
from support.redis_process import RedisProcess

from chaos.faults import logging_server, repeat_fault
from chaos.scenario import Scenario, SkippedError, Trial
from sharedmem import Hub, SharedMemoryStore

_CALLERS, _SAMPLES_A_SECOND, _KEPT_CHANGES = 4, 4, 100
_RESET_EVERY_S, _TTL_S = 1.0, 1.0
_LEAST_SAMPLES = 12


class Sample(NamedTuple):
    """What a process and its server use at a moment."""

    memory_kib: int
    tasks: int
    descriptors: int
    keys: int
    server_kib: int


GROWTH_ALLOWED = Sample(memory_kib=6_000, tasks=10, descriptors=6, keys=60, server_kib=2_000)
"""What the last third may have more than the one before: pools breathe, buffers double."""


class Soak(Scenario):
    """Samples are taken all the time; the first third of them warms up."""

    name = "soak"
    promise = "A hub that works for long grows neither in memory, keys, asyncio tasks nor file descriptors."
    fault = "Connections are reset each second."
    work = "Values with a ttl, counters, tasks of a queue, locks, limits, once, messages and watchers, over and over."
    control = "The same, where each round leaves a task, a socket, memory and keys."

    async def run(self, trial: Trial) -> None:
        if not sys.platform.startswith("linux"):
            raise SkippedError("what a process uses is read from /proc")
        leaks: list[object] = []
        samples: list[Sample] = []
        with logging_server(auto_aof_rewrite_percentage=0) as server:
            async with ChaosProxy(server.url) as proxy:
                settings = persistent_settings(proxy.url, change_log_length=_KEPT_CHANGES)
                async with Hub.open(settings=settings) as hub:
                    rages = (_reset(trial, proxy), _measure(server, samples))
                    async with repeat_fault(*rages):
                        callers = (
                            _work(trial, hub.store("soak", actor=f"a{caller}"), leaks, samples)
                            for caller in range(_CALLERS)
                        )
                        await asyncio.gather(*callers)
        _end(leaks)
        trial.judge(find_growth(samples))


async def _work(trial: Trial, store: SharedMemoryStore, leaks: list[object], samples: list[Sample]) -> None:
    queue = store.queue("jobs", result_ttl=_TTL_S)
    for number in itertools.count():
        key = f"k{number % 50}"
        await store.write(key, "x" * (number % 500), ttl=_TTL_S)
        await store.read(key)
        await store.incr("count", ttl=60)
        await queue.put(number)
        if (task := await queue.claim()) is not None:
            await queue.ack(task)
        async with store.lock("it", lease=5.0):
            await store.append("list", number, max_length=10, ttl=_TTL_S)
        await store.rate_limit("calls", limit=100, per=1.0).take()
        await store.once(f"once-{number % 20}", lambda: "done", ttl=_TTL_S)
        unsubscribe = await store.subscribe("news", _consume_messages)
        await store.publish("news", number)
        await unsubscribe()
        trial.did(12)
        if trial.is_control:
            leaks += [asyncio.create_task(asyncio.sleep(3600)), socket.socket(), "x" * 200_000]
            await asyncio.gather(*(store.write(f"leak-{number}-{one}", one) for one in range(20)))
        # On a busy machine the samples that are judged take longer than the trial.
        if trial.is_over and len(samples) >= _LEAST_SAMPLES:
            return


def _consume_messages(_: object) -> None:
    """Listen, and do nothing."""


async def _reset(trial: Trial, proxy: ChaosProxy) -> None:
    while True:
        await asyncio.sleep(trial.dice.uniform(0.5, 1.5) * _RESET_EVERY_S)
        trial.broke(proxy.reset_all())


async def _measure(server: RedisProcess, samples: list[Sample]) -> None:
    while True:
        await asyncio.sleep(1 / _SAMPLES_A_SECOND)
        gc.collect()
        samples.append(await asyncio.to_thread(_sampled, server, len(asyncio.all_tasks())))


def _sampled(server: RedisProcess, tasks: int) -> Sample:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    told = dict(line.split(":", 1) for line in server.info("memory").decode().splitlines() if ":" in line)
    with server.client() as client:
        space: Any = client.info("keyspace")
    held = space.get("db0", {"keys": 0, "expires": 0})
    return Sample(
        memory_kib=pages * (os.sysconf("SC_PAGE_SIZE") // 1024),
        tasks=tasks,
        descriptors=sum(1 for _ in Path("/proc/self/fd").iterdir()),
        # Keys that expire end by themselves: how many there are says how fast the callers are.
        keys=held["keys"] - held["expires"],
        server_kib=int(told["used_memory"]) // 1024,
    )


def _end(leaks: list[object]) -> None:
    for leak in leaks:
        if isinstance(leak, asyncio.Task):
            leak.cancel()
        elif isinstance(leak, socket.socket):
            leak.close()


def find_growth(samples: list[Sample]) -> list[str]:
    """What has more in the last third of the samples than in the third before, beyond what is allowed.

    The least of each third counts: on a busy machine connections are opened anew for long, by tasks that end.
    """
    if len(samples) < _LEAST_SAMPLES:
        return []
    third = len(samples) // 3
    found = []
    for name, allowed in GROWTH_ALLOWED._asdict().items():
        before, after = (
            min(getattr(sample, name) for sample in part) for part in (samples[third:-third], samples[-third:])
        )
        if after > before + allowed:
            found.append(f"{name} grew from {before} to {after}")
    return found
