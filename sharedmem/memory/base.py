"""The base of every part of semantic memory: access rights and scope."""

from __future__ import annotations

import operator
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from sharedmem.errors import InvalidError
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.models import MemoryFilter, MemoryItem
from sharedmem.redis.scope import Need, Scope
from sharedmem.runtime import Counters
from sharedmem.runtime.process_bound import ProcessBound

T = TypeVar("T")
MEMORY = "memory"
SCOPE_FIELDS = ("user_id", "agent_id", "thread_id", "run_id")
LONGEST_THREAD_BYTES = 256


class MemoryBase(ProcessBound):
    """Memories of one namespace, seen with the rights of one actor.

    Args:
        context: what the hub shares with its stores.
        scope: hands out keys within the actor's rights.
        within: what every call is narrowed to: of `user_id`, `agent_id`, `thread_id` and `run_id`, those that are set.
    """

    def __init__(self, context: KnowledgeContext, scope: Scope, within: MemoryFilter | None = None) -> None:
        self._context = context
        self._scope = scope
        self._within = within or MemoryFilter()
        self._namespace = scope.identity.namespace
        self._actor = scope.signature

    @property
    def _counters(self) -> Counters:
        return self._context.counters

    def _permit(self, need: Need) -> None:
        """Refuse who may not read or write the namespace's memories.

        Raises:
            AccessDeniedError: this actor.
        """
        self._scope.common(MEMORY, need)

    def _check_author(self, item: MemoryItem) -> None:
        """Refuse who may not change or delete a memory.

        Raises:
            AccessDeniedError: another actor has added it, and `memory_rights` is `owner`.
        """
        # Those of earlier versions know only the agent that they are of, which was the actor by default.
        self._scope.check_author(item.created_by or item.agent_id, MEMORY, item.id)

    async def _enter(self, need: Need) -> None:
        """As `_permit`; then Redis has all memories: where it was lost they come back from the durable tier first.

        Raises:
            AccessDeniedError: as `_permit`.
            UnavailableError: they are not all in Redis, and the tier cannot be asked.
        """
        self._permit(need)
        if self._context.memory_tier is not None:
            await self._context.memory_tier.gather(self._namespace)

    async def _retry_after_restore(
        self, look: Callable[[], Awaitable[T]], is_empty: Callable[[T], bool] = operator.not_
    ) -> T:
        """What a look finds; when that is nothing, once more if memories were missing: Redis may have been emptied."""
        return await self._context.retry_after_restore(self._namespace, look, is_empty)


def check_filter(filters: MemoryFilter | Mapping[str, Any] | None) -> MemoryFilter:
    """A filter, from what a caller gives.

    Raises:
        InvalidError: a field is unknown, or its value is none.
    """
    if filters is None:
        return MemoryFilter()
    if isinstance(filters, MemoryFilter):
        return filters
    try:
        return MemoryFilter.model_validate(dict(filters))
    except (ValidationError, TypeError, ValueError) as error:
        if not isinstance(error, ValidationError):
            raise InvalidError("filters", filters, "give a MemoryFilter, or a mapping") from None
        problem = error.errors()[0]
        name = ".".join(map(str, problem["loc"])) or "filters"
        if problem["type"] == "extra_forbidden":
            advice = f"there is no such filter; there are {', '.join(MemoryFilter.model_fields)}"
        else:
            advice = problem["msg"]
        raise InvalidError(f"filter {name}", problem.get("input"), advice) from None
