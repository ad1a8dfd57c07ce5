"""All operations and feeds by name: the rows of the modules beside this one."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from sharedmem.api import cache, coordination, decisions, graph, memory, store, synthesis
from sharedmem.api.operation import FeedOperation, Operation

_ROWS = (
    *store.ROWS,
    *memory.EPISODE_ROWS,
    *decisions.ROWS,
    *coordination.LEASE_ROWS,
    *coordination.LIMIT_ROWS,
    *coordination.PRESENCE_ROWS,
    *coordination.QUEUE_ROWS,
    *memory.MEMORY_ROWS,
    *graph.ROWS,
    *synthesis.ROWS,
    *cache.ROWS,
)

OPERATIONS: Mapping[str, Operation[Any, Any]] = MappingProxyType(
    {row.name: row for row in _ROWS if isinstance(row, Operation)}
)
"""The calls with one answer, by name."""
FEEDS: Mapping[str, FeedOperation[Any, Any]] = MappingProxyType(
    {row.name: row for row in _ROWS if isinstance(row, FeedOperation)}
)
"""The calls that go on answering, by name."""
