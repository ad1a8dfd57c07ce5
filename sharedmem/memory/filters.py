"""Which memories a call is about: filters of callers and scopes, as an index takes them and as a single memory passes.

Both readings of a filter agree: an index may lag behind, so whoever fetches what it found looks once more.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from sharedmem.memory.serialization import meta_tag
from sharedmem.models import MemoryFilter, MemoryItem
from sharedmem.search.filters import Between, Condition, Every, Tagged

_ONE_OF = {
    "user_id": "user",
    "agent_id": "agent",
    "thread_id": "thread",
    "run_id": "run",
    "category": "category",
    "importance": "importance",
    "memory_type": "type",
    "entity_id": "entity",
    "source_actor": "source",
}
_SINGLE = frozenset(_ONE_OF)
_ALL_OF = ("tags", "collections")


def to_index_filter(*filters: MemoryFilter) -> Every:
    """What must hold of a record that all these filters let through."""
    return Every(tuple(condition for each in filters for condition in _conditions(each)))


def matches_filter(filters: MemoryFilter, item: MemoryItem) -> bool:
    """Whether a filter lets a memory through."""
    given = filters.model_fields_set
    if not given:
        return True
    for name in given & _SINGLE:
        wanted = getattr(filters, name)
        if wanted is not None and getattr(item, name) not in _as_tuple(wanted):
            return False
    return given <= _SINGLE or (
        all(set(_as_tuple(getattr(filters, name))) <= set(getattr(item, name)) for name in _ALL_OF)
        and _is_between(filters, item.timestamp)
        and all(_has_metadata(item, key, value) for key, value in filters.metadata.items())
    )


def to_milliseconds(at: datetime) -> int:
    """Milliseconds since 1970, as the index has them."""
    return round(at.timestamp() * 1000)


def _conditions(filters: MemoryFilter) -> Iterable[Condition]:
    for name, tag in _ONE_OF.items():
        wanted = getattr(filters, name)
        if wanted is not None:
            yield Tagged(tag, _as_tuple(wanted))
    for name in _ALL_OF:
        yield from (Tagged(name, (value,)) for value in _as_tuple(getattr(filters, name)))
    yield from (Tagged("meta", (meta_tag(key, value) or "",)) for key, value in filters.metadata.items())
    if filters.since is not None or filters.until is not None:
        yield Between("at", _bound_ms(filters.since), _bound_ms(filters.until))


def _as_tuple(wanted: str | tuple[str, ...]) -> tuple[str, ...]:
    return (wanted,) if isinstance(wanted, str) else wanted


def _bound_ms(at: datetime | None) -> int | None:
    return None if at is None else to_milliseconds(at)


def _is_between(filters: MemoryFilter, at: datetime | None) -> bool:
    if filters.since is None and filters.until is None:
        return True
    if at is None:
        return False
    low, high = _bound_ms(filters.since), _bound_ms(filters.until)
    return (low is None or low <= to_milliseconds(at)) and (high is None or to_milliseconds(at) <= high)


def _has_metadata(item: MemoryItem, key: str, value: object) -> bool:
    return key in item.metadata and meta_tag(key, item.metadata[key]) == meta_tag(key, value)
