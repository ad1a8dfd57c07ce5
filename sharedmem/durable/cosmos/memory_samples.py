"""Sample queries on the container of memories, in the query language of Cosmos DB; no I/O."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sharedmem.durable.cosmos import memory_container
from sharedmem.durable.cosmos.record_container import CosmosQuery
from sharedmem.durable.samples import MEMORY_FIELDS, SampleRequest, SampleRow


def sample_query(request: SampleRequest) -> CosmosQuery:
    """Return the query of a sample."""
    where = memory_container.MemoryQueryScope(request.namespace, request.now_ms, request.thread_id)
    limit, words, vector = request.limit, request.words, request.vector
    match request.name:
        case "recent-turns":
            return memory_container.recent(where, limit)
        case "recent":
            return memory_container.recent(where, limit, by="timestamp")
        case "nearest":
            return memory_container.nearest(where, vector, limit)
        case "hybrid":
            return memory_container.hybrid(where, vector, words, limit)
        case "words":
            return memory_container.ranked(where, words, limit)
        case "phrase":
            return memory_container.with_phrase(where, request.text, limit)
        case "duplicates":
            return memory_container.duplicates(where, vector, category=request.category)
        case "thread-statistics":
            return memory_container.thread_statistics(where)
        case _:
            return memory_container.count(where)


def sample_rows(request: SampleRequest, answered: Iterable[Any]) -> list[SampleRow]:
    """Return the rows of a result with the same fields as every other store."""
    if request.name == "count":
        return [{"count": number} for number in answered]
    if request.name == "thread-statistics":
        return [dict(row) for row in answered]
    return [_memory_row(row) for row in answered]


def _memory_row(row: dict[str, Any]) -> SampleRow:
    shown = {name: row.get(name) for name in MEMORY_FIELDS} | {"metadata": row.get("metadata") or {}}
    return shown | ({"similarity": row["similarity"]} if "similarity" in row else {})
