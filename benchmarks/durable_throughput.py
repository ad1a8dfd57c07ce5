"""Jobs that move many keys to the durable tier and back, and the memory of an export."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import redis
from harness import Server, WorkerState, percentile
from store_contests import VALUE

from sharedmem import Hub, Settings

NAMESPACE = "voyage"
_BATCH = 500
_READ_AT_MOST = 2_000
_EXPORTER = """
import asyncio, json, resource, sys, time
from sharedmem import Hub, Settings

async def main(url, folder):
    async with Hub.open(settings=Settings(redis_url=url, data_dir=folder, durable_url="none")) as hub:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        begun = time.monotonic()
        exported = await hub.archive.export("bulk", f"{folder}/bulk.jsonl.zst")
        seconds = time.monotonic() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    figures = {"seconds": seconds, "peak_mib": peak / 1024, "before_mib": before / 1024}
    print(json.dumps({"records": exported.keys} | figures))

asyncio.run(main(*sys.argv[1:]))
"""


class ThroughputRow(NamedTuple):
    """The speed of moving keys to a tier and back."""

    tier: str
    keys: int
    kept_per_s: float
    """Keys a second, from the first write to the last key in the tier."""
    restored_per_s: float
    hot_p50_us: float
    """Latency of a read of a value in Redis."""
    cold_p50_us: float
    """Latency of a read of a value that is only in the tier."""

    @property
    def cold_ratio(self) -> float:
        """The latency of a cold read divided by that of a hot one."""
        return self.cold_p50_us / self.hot_p50_us


class Export(NamedTuple):
    """The cost of an export."""

    records: int
    seconds: float
    peak_mib: float
    """Peak memory of the exporting process."""
    before_mib: float
    """Its memory at the beginning."""


async def measure_throughput(_: WorkerState, url: str, settings: Settings, tier: str, keys: int) -> ThroughputRow:
    """Run a job: write, drain, read hot and cold, lose Redis, restore."""
    chosen = settings.replace(redis_url=url, prefix="voyage", kind_rules={f"{NAMESPACE}:*": "knowledge"})
    async with Hub.open(settings=chosen) as hub:
        store = hub.store(NAMESPACE)
        names = [f"finding-{number}" for number in range(keys)]
        begun = time.monotonic()
        for first in range(0, keys, _BATCH):
            await store.write_many(dict.fromkeys(names[first : first + _BATCH], VALUE))
        await hub.durable.drain(timeout=3600)
        kept_s = time.monotonic() - begun
        read = names[:: max(1, keys // _READ_AT_MOST)]
        hot = await _latencies(store.read, read)
        _flush_redis(url)
        begun = time.monotonic()
        restored = await hub.durable.restore(NAMESPACE)
        restored_s = time.monotonic() - begun
        _flush_redis(url)
        cold = await _latencies(store.read, read)
    return ThroughputRow(tier, keys, keys / kept_s, restored / restored_s, percentile(hot, 0.5), percentile(cold, 0.5))


async def _latencies(read: Callable[[str], Awaitable[object]], names: list[str]) -> list[float]:
    """Return microseconds of consecutive reads, in order of size."""
    found = []
    for name in names:
        begun = time.perf_counter()
        assert await read(name) is not None
        found.append((time.perf_counter() - begun) * 1e6)
    return sorted(found)


def _flush_redis(url: str) -> None:
    with redis.Redis.from_url(url) as client:
        client.flushall()


def export_jobs(server: Server, records: int) -> Export:
    """Export so many keys in a process of its own, whose memory is measured."""
    _fill(server.urls["unix"], records)
    with tempfile.TemporaryDirectory(prefix="sm-bench-") as folder:
        words = [sys.executable, "-c", _EXPORTER, server.urls["unix"], folder]
        finished = subprocess.run(words, check=True, capture_output=True, text=True)
    server.empty()
    return Export(**json.loads(finished.stdout))


def _fill(url: str, records: int) -> None:
    """Write keys as the store does, by pipelines: this part is not measured."""
    body = json.dumps(VALUE)
    with redis.Redis.from_url(url) as client:
        first = int(time.time() * 1_000_000)
        client.set("sm:{bulk}:$clock", first + records)
        for start in range(0, records, 10_000):
            pipeline = client.pipeline(transaction=False)
            for number in range(start, min(start + 10_000, records)):
                pipeline.set(f"sm:{{bulk}}:agent:finding-{number}", f"{first + number} agent json\n{body}")
            pipeline.execute()
