"""What a team shares, in numbers: read from the server once a while, whoever wrote it."""

from __future__ import annotations

from sharedmem.errors import SharedMemoryError, UnsupportedError
from sharedmem.hub import Hub
from sharedmem.models import CacheStats, DurableStatus, Health, IndexStatus, MemoryStats, Record

# A price of Cosmos DB without a reservation, in dollars for a million request units (serverless, 2026).
DOLLARS_PER_MILLION_RU = 0.25
_SECONDS_PER_MONTH = 30 * 86_400


class Totals(Record):
    """What was found at one time."""

    health: Health
    memories: dict[str, MemoryStats]
    """By namespace."""
    caches: dict[str, CacheStats]
    """By namespace."""
    indexes: list[IndexStatus]
    durable: DurableStatus | None
    failed: tuple[str, ...] = ()
    """What could not be read, in sentences."""


async def totals_of(hub: Hub) -> Totals:
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
    return Totals(
        health=health,
        memories={name: found for name, found in memories.items() if found.count},
        caches={name: found for name, found in caches.items() if found.entries or found.hits or found.misses},
        indexes=await hub.index.all(),
        durable=await _durable(hub),
        failed=tuple(failed),
    )


def monthly_cost(request_units: float, over_s: float) -> float:
    """Dollars a month if request units go on being spent as they were.

    Args:
        request_units: that were spent.
        over_s: in so many seconds.
    """
    return request_units / max(over_s, 1.0) * _SECONDS_PER_MONTH / 1_000_000 * DOLLARS_PER_MILLION_RU


async def _durable(hub: Hub) -> DurableStatus | None:
    try:
        return await hub.durable.status()
    except UnsupportedError:
        return None
