"""Memory operations as spans: the operation of each call in the conventions of OpenTelemetry, and its records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sharedmem.models import AddResult, Hit, MemoryItem
from sharedmem.runtime.telemetry import MemoryOperation, TracedRecord


def _added(_: tuple[Any, ...], found: AddResult | list[AddResult]) -> Iterable[TracedRecord]:
    results = found if isinstance(found, list) else [found]
    return [TracedRecord(result.id) for result in results]


def _changed(_: tuple[Any, ...], found: MemoryItem) -> Iterable[TracedRecord]:
    return [TracedRecord(found.id, found.memory)]


def _deleted(args: tuple[Any, ...], found: bool) -> Iterable[TracedRecord]:
    return [TracedRecord(str(args[0]))] if found and args else []


def _many_deleted(_: tuple[Any, ...], __: int) -> Iterable[TracedRecord]:
    return []


def _hits(_: tuple[Any, ...], found: list[Hit]) -> Iterable[TracedRecord]:
    return [TracedRecord(hit.item.id, hit.item.memory) for hit in found]


CREATE = MemoryOperation("create_memory", _added)
UPDATE = MemoryOperation("update_memory", _changed)
DELETE = MemoryOperation("delete_memory", _deleted)
DELETE_ALL = MemoryOperation("delete_memory", _many_deleted)
SEARCH = MemoryOperation("search_memory", _hits, has_query=True)
SEARCH_VECTOR = MemoryOperation("search_memory", _hits)
