"""Rights of the actor, scope of the caller, and filters: which memories a call may read or change.

A filter is evaluated in two ways that agree: as conditions for an index, and as a test of a single memory. An index may
lag behind, so a caller that fetches what an index found tests each memory again.
"""

from __future__ import annotations

import operator
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from pydantic import ValidationError

from sharedmem.errors import InvalidError
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.memory.serialization import meta_tag, standing_of, standing_tag
from sharedmem.models import MemoryFilter, MemoryItem
from sharedmem.redis.scope import Need, Scope
from sharedmem.search.protocol import Between, Condition, Every, Tagged

T = TypeVar("T")
MEMORY = "memory"
SCOPE_FIELDS = ("user_id", "agent_id", "thread_id", "run_id")
LONGEST_THREAD_BYTES = 256
ANY = MemoryFilter()


class MemoryAccess:
    """Access of one caller to the memories of a namespace.

    Args:
        context: dependencies that the hub shares with its stores.
        scope: builds keys within the actor's rights.
        within: the values of `user_id`, `agent_id`, `thread_id` and `run_id` to which every call is limited.
    """

    def __init__(self, context: KnowledgeContext, scope: Scope, within: MemoryFilter | None = None) -> None:
        self.context = context
        self.scope = scope
        self.within = within or ANY
        self.namespace = scope.identity.namespace
        self.settings = context.settings_of(self.namespace)
        """The settings of the namespace."""
        self.actor = scope.signature
        self._permitted: set[Need] = set()

    def permit(self, need: Need) -> None:
        """Reject an actor that may not read or write the namespace's memories.

        Raises:
            AccessDeniedError: this actor has no such right.
        """
        if need not in self._permitted:  # an actor's rights stay as they are while its store is used
            self.scope.common(MEMORY, need)
            self._permitted.add(need)

    async def enter(self, need: Need) -> None:
        """Check rights as `permit`; then restore memories from the durable tier if Redis has lost them.

        Raises:
            AccessDeniedError: this actor has no such right.
            UnavailableError: memories are missing in Redis, and the tier cannot be reached.
        """
        self.permit(need)
        await self.context.record_tier.gather(self.namespace)

    async def retry_after_restore(
        self, look: Callable[[], Awaitable[T]], is_empty: Callable[[T], bool] = operator.not_
    ) -> T:
        """Return the result of a read; if it is empty, restore lost memories and read again."""
        return await self.context.record_tier.retry_after_restore(self.namespace, look, is_empty)

    def check_author(self, item: MemoryItem) -> None:
        """Reject an actor that may not change or delete a memory.

        Raises:
            AccessDeniedError: another actor added the memory, and `memory_rights` is `owner`.
        """
        # Memories of earlier versions store only their agent, which was the actor by default.
        self.scope.check_author(item.created_by or item.agent_id, MEMORY, item.id)

    def covers(self, item: MemoryItem, filters: MemoryFilter = ANY) -> bool:
        """Return whether a memory is in this scope and matches a filter."""
        return matches_filter(self.within, item) and matches_filter(filters, item)

    def index_filter(self, filters: MemoryFilter) -> Every:
        """Return the conditions of this scope and a filter, in the form that an index takes."""
        return to_index_filter(self.within, filters)

    @property
    def narrowing(self) -> str:
        """What this is narrowed to, for display; empty for all of the namespace."""
        held = [(name, getattr(self.within, name)) for name in SCOPE_FIELDS]
        return "".join(f", {name} {value}" for name, value in held if value is not None)

    def key(self, id_: str) -> str:
        """Return the name of a memory in errors and in the durable tier."""
        return f"{self.namespace}:${MEMORY}:{id_}"


def check_filter(filters: MemoryFilter | Mapping[str, Any] | None) -> MemoryFilter:
    """Return the filter that a caller gives.

    Raises:
        InvalidError: a field is unknown, or its value is invalid.
    """
    if filters is None:
        return MemoryFilter()
    if isinstance(filters, MemoryFilter):
        return filters
    try:
        return MemoryFilter.model_validate(dict(filters))
    except (ValidationError, TypeError, ValueError) as error:
        if not isinstance(error, ValidationError):
            raise InvalidError("filters", filters, "give a MemoryFilter or a mapping") from None
        problem = error.errors()[0]
        name = ".".join(map(str, problem["loc"])) or "filters"
        if problem["type"] == "extra_forbidden":
            advice = f"there is no such filter; use {', '.join(MemoryFilter.model_fields)}"
        else:
            advice = problem["msg"]
        raise InvalidError(f"filter {name}", problem.get("input"), advice) from None


# -- filters ------------------------------------------------------------------------------------------

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
    """Return the index conditions for the memories that match all these filters."""
    return Every(tuple(condition for each in filters for condition in _conditions(each)))


def matches_filter(filters: MemoryFilter, item: MemoryItem) -> bool:
    """Return whether a memory matches a filter."""
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
        and _is_standing(filters, item)
        and all(_has_metadata(item, key, value) for key, value in filters.metadata.items())
    )


def to_milliseconds(at: datetime) -> int:
    """Return milliseconds since 1970, as the index stores them."""
    return round(at.timestamp() * 1000)


def _conditions(filters: MemoryFilter) -> Iterable[Condition]:
    for name, tag in _ONE_OF.items():
        wanted = getattr(filters, name)
        if wanted is not None:
            yield Tagged(tag, _as_tuple(wanted))
    for name in _ALL_OF:
        yield from (Tagged(name, (value,)) for value in _as_tuple(getattr(filters, name)))
    if filters.standing is not None:
        yield Tagged("meta", tuple(map(standing_tag, _as_tuple(filters.standing))))
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


def _is_standing(filters: MemoryFilter, item: MemoryItem) -> bool:
    if filters.standing is None:
        return True
    found = standing_of(item)
    return found is not None and found.kind in _as_tuple(filters.standing)


def _has_metadata(item: MemoryItem, key: str, value: object) -> bool:
    return key in item.metadata and meta_tag(key, item.metadata[key]) == meta_tag(key, value)
