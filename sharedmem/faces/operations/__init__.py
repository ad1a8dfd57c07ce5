"""The table of operations: what every face offers, once, as plain rows.

A face turns its input into the request that a row `takes`, runs the row on a store, and spells the
answer. It decides nothing itself: rights, limits and defaults belong to the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from sharedmem.faces.operations import (
    cache,
    decisions,
    episodes,
    graph,
    leases,
    limits,
    memory,
    presence,
    queues,
    store,
    synthesis,
)
from sharedmem.faces.operations.row import Feed, Operation

__all__ = ["FEEDS", "OPERATIONS", "Feed", "Operation"]

_ROWS = (
    *store.ROWS,
    *episodes.ROWS,
    *decisions.ROWS,
    *leases.ROWS,
    *limits.ROWS,
    *presence.ROWS,
    *queues.ROWS,
    *memory.ROWS,
    *graph.ROWS,
    *synthesis.ROWS,
    *cache.ROWS,
)

OPERATIONS: Mapping[str, Operation[Any, Any]] = MappingProxyType(
    {row.name: row for row in _ROWS if isinstance(row, Operation)}
)
"""The calls with one answer, by name."""
FEEDS: Mapping[str, Feed[Any, Any]] = MappingProxyType({row.name: row for row in _ROWS if isinstance(row, Feed)})
"""The calls that go on answering, by name."""
