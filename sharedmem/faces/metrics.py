"""Metrics for Prometheus: counters and timings of one process, and totals of what a whole team shares.

The exporter reads the totals every few seconds. Needs `prometheus-client`: pip install 'sharedmem-hub[metrics]'
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import TypeAlias
from wsgiref.simple_server import WSGIServer

from pydantic import Field

from sharedmem.archive.daily_exports import list_exports
from sharedmem.errors import ConfigError, SharedMemoryError, UnsupportedError
from sharedmem.hub import Hub
from sharedmem.models import CacheStats, DurableStatus, Health, IndexStatus, MemoryStats, Record
from sharedmem.runtime import Count, Counters, Gauge, Histogram, get_logger

try:
    from prometheus_client import CollectorRegistry, generate_latest, start_http_server
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.registry import Collector
except ImportError as error:
    raise UnsupportedError("the Prometheus exporter", "pip install 'sharedmem-hub[metrics]'") from error

_log = get_logger("metrics")


class Exporter:
    """Serves `/metrics` of one hub until it is closed.

    Args:
        hub: an open hub that may read every namespace.
        host: address to listen at.
        port: 0 takes a free one.
    """

    def __init__(self, hub: Hub, *, host: str = "127.0.0.1", port: int = 9001) -> None:
        self._hub = hub
        self._host = host
        self._port = port
        self._latest: Totals | None = None
        self._first: Totals | None = None
        self._server: WSGIServer | None = None

    @property
    def address(self) -> str:
        """Where Prometheus finds it."""
        port = self._server.server_port if self._server is not None else self._port
        return f"http://{self._host}:{port}/metrics"

    async def open(self) -> None:
        """Read once, then listen.

        Raises:
            ConfigError: the address cannot be listened at.
            UnavailableError: the server cannot be reached.
        """
        self._latest = self._first = await read_totals(self._hub)
        try:
            self._server, _ = start_http_server(self._port, self._host, self._registry())
        except OSError as error:
            raise ConfigError(
                "port", "argument", f"{self._host}:{self._port} cannot be listened at: {error}"
            ) from error

    def text(self) -> str:
        """Return the text that Prometheus would receive."""
        return generate_latest(self._registry()).decode()

    async def refresh(self) -> None:
        """Read again; while the server stays away `sharedmem_up` is 0."""
        try:
            self._latest = await read_totals(self._hub)
        except SharedMemoryError as error:
            _log.warning("the server does not answer: %s", error)
            self._latest = None

    async def run(self, *, every_s: float) -> None:
        """Read again every so many seconds, until cancelled."""
        while True:
            await asyncio.sleep(every_s)
            await self.refresh()

    def _registry(self) -> CollectorRegistry:
        registry = CollectorRegistry()
        registry.register(HubCollector(self._hub.counters))
        registry.register(TotalsCollector(lambda: self._latest, lambda: self._first))
        return registry

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()


# -- collectors -----------------------------------------------------------------------------------


# A price of Cosmos DB without a reservation, in dollars for a million request units (serverless, 2026).
DOLLARS_PER_MILLION_RU = 0.25
_SECONDS_PER_MONTH = 30 * 86_400
_SHORTEST_PACE_S = 60.0


class Totals(Record):
    """What was found at one time."""

    health: Health
    memories: dict[str, MemoryStats]
    """By namespace."""
    caches: dict[str, CacheStats]
    """By namespace."""
    indexes: list[IndexStatus]
    durable: DurableStatus | None
    read_at: datetime
    exports: dict[str, datetime] = Field(default_factory=dict)
    """When the newest daily export of each namespace was written; empty without the setting `export_dir`."""
    drills: dict[str, datetime] = Field(default_factory=dict)
    """When a restore drill of each namespace last succeeded, likewise."""
    failed: tuple[str, ...] = ()
    """What could not be read, in sentences."""


async def read_totals(hub: Hub) -> Totals:
    """Read everything. A few round trips a namespace that has memories.

    Args:
        hub: an open hub that may read every namespace.

    Raises:
        UnavailableError: the server cannot be reached at all.
    """
    health = await hub.health()
    memories: dict[str, MemoryStats] = {}
    caches: dict[str, CacheStats] = {}
    failed: list[str] = []
    for namespace in await hub.namespaces():
        store = hub.store(namespace)
        try:
            memories[namespace] = await store.memory.stats()
            caches[namespace] = await store.cache.stats()
        except SharedMemoryError as error:
            failed.append(f"{namespace}: {error}")
    exports, drills = await _read_exports(hub.settings.export_dir, failed)
    return Totals(
        health=health,
        memories={name: found for name, found in memories.items() if found.count},
        caches={name: found for name, found in caches.items() if found.entries or found.hits or found.misses},
        indexes=await hub.index.all(),
        durable=await _durable_status(hub),
        read_at=datetime.now(UTC),
        exports=exports,
        drills=drills,
        failed=tuple(failed),
    )


async def _read_exports(folder: Path | None, failed: list[str]) -> tuple[dict[str, datetime], dict[str, datetime]]:
    """Return when each namespace was last exported, and when a drill of it last succeeded."""
    if folder is None:
        return {}, {}
    try:
        newest_first = await asyncio.to_thread(list_exports, folder)
    except SharedMemoryError as error:
        failed.append(str(error))
        return {}, {}
    oldest_first = newest_first[::-1]
    drilled = {one.namespace: one.drilled for one in oldest_first if one.drilled is not None}
    return {one.namespace: one.written for one in oldest_first}, drilled


def monthly_cost(request_units: float, over_s: float) -> float:
    """Dollars a month if request units go on being spent as they were.

    Args:
        request_units: that were spent.
        over_s: in so many seconds; a shorter time than a minute counts as a minute.
    """
    return request_units / max(over_s, _SHORTEST_PACE_S) * _SECONDS_PER_MONTH / 1_000_000 * DOLLARS_PER_MILLION_RU


async def _durable_status(hub: Hub) -> DurableStatus | None:
    try:
        return await hub.durable.status()
    except UnsupportedError:
        return None


Metric: TypeAlias = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily

METRICS = {
    "sharedmem_up": "1 while the server replies to the exporter.",
    "sharedmem_server_memory_bytes": "Memory that Redis uses.",
    "sharedmem_memories": "Memories by namespace (tenant) and type.",
    "sharedmem_memories_by_category": "Memories by namespace and category.",
    "sharedmem_memory_bytes": "Bytes of the memories by namespace.",
    "sharedmem_duplicates_merged": "Additions that were merged into a memory that was there, by namespace.",
    "sharedmem_cache_entries": "Answers in the semantic cache by namespace.",
    "sharedmem_cache_hits": "Checks of the semantic cache that found an answer, by namespace and tier.",
    "sharedmem_cache_misses": "Checks that found none, by namespace.",
    "sharedmem_cache_false_hits": "Answers that were reported to be wrong, by namespace.",
    "sharedmem_cache_guarded": "Near prompts that a guard refused, by namespace.",
    "sharedmem_cache_saved_dollars": "Cost of the answers that need not be computed again, by namespace.",
    "sharedmem_cache_saved_tokens": "Tokens of those answers, by namespace.",
    "sharedmem_index_documents": "Documents by search index.",
    "sharedmem_index_failures": "Documents that the server could not index, by search index.",
    "sharedmem_index_bytes": "Bytes by search index.",
    "sharedmem_durable_up": "1 while the durable tier answers.",
    "sharedmem_durable_waiting": "Changes that wait for the durable tier, by namespace.",
    "sharedmem_durable_oldest_seconds": "Age of the oldest of them, by namespace.",
    "sharedmem_durable_dead_letters": "Changes that the durable tier refused, by namespace.",
    "sharedmem_export_newest_timestamp_seconds": "When the newest daily export was written, by namespace.",
    "sharedmem_export_drilled_timestamp_seconds": "When a restore drill last succeeded, by namespace.",
    "sharedmem_request_units": "Request units of Cosmos DB that all hubs of the server have spent.",
    "sharedmem_estimated_monthly_dollars": "What these would cost a month at the pace since the exporter began.",
    "sharedmem_operation_seconds": "How long calls took in this process, by operation.",
    "sharedmem_operations_under_way": "Calls that run in this process now, by operation.",
    "sharedmem_search_seconds": "How long searches of memory took in this process, by mode.",
    "sharedmem_memory_additions": "Memories that this process added or merged into an existing one, by outcome.",
    "sharedmem_memory_guarded": "Added memories that a guard kept apart from a near duplicate, by guard.",
    "sharedmem_batch_operations": "Batches of this process, by operation.",
    "sharedmem_batch_size": "Items in a batch of this process, by operation.",
    "sharedmem_connection_pool_size": "Open connections of this process to Redis, by kind.",
    "sharedmem_connection_pool_active": "Calls of this process that wait for a reply of Redis, by kind of connection.",
    "sharedmem_near_cache_hits": "Reads of this process that were answered by a copy in it.",
    "sharedmem_near_cache_misses": "Reads of stores with copies that went to the server.",
    "sharedmem_near_cache_invalidations": "Messages of the server that keys with copies may have changed.",
    "sharedmem_near_cache_copies": "Copies of values in this process.",
    "sharedmem_near_cache_bytes": "Approximate memory of these copies.",
    "sharedmem_plans": "Plans of this process, by outcome: saved, or not, as duplicates of a saved one.",
    "sharedmem_execution_claims": "Claims of executions by this process: started, or refused to prevent a second one.",
    "sharedmem_executions": "Executions whose end this process recorded, by state.",
    "sharedmem_episode_events": "Events that this process appended to episodes.",
    "sharedmem_grpc_seconds": "How long calls over gRPC took in this process, by method.",
    "sharedmem_grpc_requests": "Calls over gRPC to this process, by method and status.",
    "sharedmem_synthesis_notes": "Notes that this process created or changed, by event.",
    "sharedmem_operation_failures": "Calls that failed in this process, by operation and code.",
}
"""What the exporter tells, without the suffixes that Prometheus adds; the counters of a process come beside them."""


class HubCollector(Collector):
    """The counters and timings of one process, for the registry of an application.

    `REGISTRY.register(HubCollector(hub.counters))`

    Args:
        counters: of an open hub.
    """

    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    def collect(self) -> Iterator[Metric]:
        """Each counter, gauge and histogram, as they stand."""
        yield from _counter_families(self._counters.snapshot())
        yield from _gauge_families(self._counters.gauges())
        yield from _histogram_families(self._counters.histograms())


class TotalsCollector(Collector):
    """What a team shares, as it was last read.

    Args:
        latest: gives it; None when the server did not answer.
        first: gives what was read first, with the pace since then; None: the pace since the first charge.
    """

    def __init__(self, latest: Callable[[], Totals | None], first: Callable[[], Totals | None]) -> None:
        self._latest = latest
        self._first = first

    def collect(self) -> Iterator[Metric]:
        """Every family that has something to tell."""
        totals = self._latest()
        yield _gauge("sharedmem_up", [], [((), float(totals is not None))])
        if totals is None:
            return
        yield _gauge("sharedmem_server_memory_bytes", [], [((), totals.health.used_memory_bytes)])
        yield from _of_memories(totals)
        yield from _of_caches(totals)
        yield from _of_indexes(totals)
        yield from _of_tier(totals.durable)
        yield from _of_exports(totals)
        yield from self._spending(totals)

    def _spending(self, totals: Totals) -> Iterator[Metric]:
        status = totals.durable
        if status is None:
            return
        spent = status.spent
        yield _counter("sharedmem_request_units", [], [((), spent.request_units)])
        first = self._first()
        before = None if first is None or first.durable is None else first.durable.spent
        # The total begins anew where Redis has lost it.
        if first is not None and before is not None and before.request_units <= spent.request_units:
            units, since = spent.request_units - before.request_units, first.read_at
        else:
            units, since = spent.request_units, spent.since or totals.read_at
        over_s = (totals.read_at - since).total_seconds()
        yield _gauge("sharedmem_estimated_monthly_dollars", [], [((), monthly_cost(units, over_s))])


Samples: TypeAlias = list[tuple[tuple[str, ...], float]]


def _gauge(name: str, labels: list[str], samples: Samples) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, METRICS[name], labels=labels)
    for values, number in samples:
        family.add_metric(values, number)
    return family


def _counter(name: str, labels: list[str], samples: Samples) -> CounterMetricFamily:
    family = CounterMetricFamily(name, METRICS[name], labels=labels)
    for values, number in samples:
        family.add_metric(values, number)
    return family


def _of_memories(totals: Totals) -> Iterator[Metric]:
    found = totals.memories.items()
    by_type: Samples = [((name, kind), count) for name, stats in found for kind, count in stats.by_type.items()]
    by_category: Samples = [((name, kind), count) for name, stats in found for kind, count in stats.by_category.items()]
    yield _gauge("sharedmem_memories", ["namespace", "type"], by_type)
    yield _gauge("sharedmem_memories_by_category", ["namespace", "category"], by_category)
    yield _gauge("sharedmem_memory_bytes", ["namespace"], [((name,), stats.bytes) for name, stats in found])
    merged: Samples = [((name,), stats.duplicates_merged) for name, stats in found]
    yield _counter("sharedmem_duplicates_merged", ["namespace"], merged)


def _of_caches(totals: Totals) -> Iterator[Metric]:
    found = totals.caches.items()
    hits: Samples = []
    for name, stats in found:
        hits += [((name, "exact"), stats.exact_hits), ((name, "semantic"), stats.hits - stats.exact_hits)]
    yield _gauge("sharedmem_cache_entries", ["namespace"], [((name,), stats.entries) for name, stats in found])
    yield _counter("sharedmem_cache_hits", ["namespace", "tier"], hits)
    yield _counter("sharedmem_cache_misses", ["namespace"], [((name,), stats.misses) for name, stats in found])
    yield _counter("sharedmem_cache_false_hits", ["namespace"], [((name,), stats.false_hits) for name, stats in found])
    yield _counter("sharedmem_cache_guarded", ["namespace"], [((name,), stats.guarded) for name, stats in found])
    saved: Samples = [((name,), stats.saved_cost) for name, stats in found]
    yield _counter("sharedmem_cache_saved_dollars", ["namespace"], saved)
    tokens: Samples = [((name,), stats.saved_tokens) for name, stats in found]
    yield _counter("sharedmem_cache_saved_tokens", ["namespace"], tokens)


def _of_indexes(totals: Totals) -> Iterator[Metric]:
    for name, numbers in (
        ("sharedmem_index_documents", [index.documents for index in totals.indexes]),
        ("sharedmem_index_failures", [index.failures for index in totals.indexes]),
        ("sharedmem_index_bytes", [index.bytes for index in totals.indexes]),
    ):
        named = zip(totals.indexes, numbers, strict=True)
        samples: Samples = [((index.name, index.family), number) for index, number in named]
        yield _gauge(name, ["index", "family"], samples)


def _of_tier(status: DurableStatus | None) -> Iterator[Metric]:
    if status is None:
        return
    yield _gauge("sharedmem_durable_up", [], [((), float(status.reachable))])
    lags = status.namespaces
    yield _gauge("sharedmem_durable_waiting", ["namespace"], [((lag.namespace,), lag.waiting) for lag in lags])
    yield _gauge("sharedmem_durable_oldest_seconds", ["namespace"], [((lag.namespace,), lag.oldest) for lag in lags])
    yield _gauge("sharedmem_durable_dead_letters", ["namespace"], [((lag.namespace,), lag.dead) for lag in lags])


def _of_exports(totals: Totals) -> Iterator[Metric]:
    for name, moments in (
        ("sharedmem_export_newest_timestamp_seconds", totals.exports),
        ("sharedmem_export_drilled_timestamp_seconds", totals.drills),
    ):
        if moments:
            yield _gauge(name, ["namespace"], [((one,), at.timestamp()) for one, at in sorted(moments.items())])


def _counter_families(counts: list[Count]) -> Iterator[Metric]:
    families: dict[tuple[str, tuple[str, ...]], CounterMetricFamily] = {}
    for count in counts:
        labels = tuple(label for label, _ in count.labels)
        family = families.get((count.name, labels))
        if family is None:
            told = METRICS.get(count.name, "Counted by this process.")
            family = families[count.name, labels] = CounterMetricFamily(count.name, told, labels=labels)
        family.add_metric([value for _, value in count.labels], count.value)
    yield from families.values()


def _gauge_families(gauges: list[Gauge]) -> Iterator[Metric]:
    families: dict[str, GaugeMetricFamily] = {}
    for gauge in gauges:
        family = families.get(gauge.name)
        if family is None:
            labels = [label for label, _ in gauge.labels]
            family = families[gauge.name] = GaugeMetricFamily(gauge.name, METRICS[gauge.name], labels=labels)
        family.add_metric([value for _, value in gauge.labels], gauge.value)
    yield from families.values()


def _histogram_families(histograms: list[Histogram]) -> Iterator[Metric]:
    families: dict[str, HistogramMetricFamily] = {}
    for found in histograms:
        family = families.get(found.name)
        if family is None:
            labels = [label for label, _ in found.labels]
            told = METRICS.get(found.name, "Timed by this process.")
            family = families[found.name] = HistogramMetricFamily(found.name, told, labels=labels)
        bounds = [*map(str, found.bounds), "+Inf"]
        summed = [float(count) for count in accumulate(found.buckets)]
        family.add_metric([value for _, value in found.labels], list(zip(bounds, summed, strict=True)), found.total)
    yield from families.values()
