"""`store.memory`: the semantic memory of a namespace."""

from __future__ import annotations

from sharedmem.errors import AccessDeniedError, InvalidError
from sharedmem.memory.base import SCOPE_FIELDS
from sharedmem.memory.search import MemorySearcher
from sharedmem.memory.stats import MemoryStatistics, MemoryUsageStats
from sharedmem.memory.subscriptions import MemorySubscriptions
from sharedmem.memory.threads import MemoryThreads
from sharedmem.memory.transfer import MemoryTransfer
from sharedmem.memory.validation import check_label, check_thread


class Memories(MemoryThreads, MemorySearcher, MemoryUsageStats, MemoryStatistics, MemorySubscriptions, MemoryTransfer):
    """Semantic memory of one namespace, seen with the rights of one actor; perhaps of one user, agent, thread or run.

    Nothing of another namespace can be read or written through it, and nothing outside of what it is narrowed to.
    """

    def within(
        self,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        thread_id: str | None = None,
        run_id: str | None = None,
    ) -> Memories:
        """The same memories, narrowed: every call sees and writes only those with these fields, by-id calls too.

        What is added gets them. It can be narrowed further, never widened. No round trip.

        Args:
            user_id, agent_id, thread_id, run_id: exact values; None leaves the field as it is.

        Raises:
            InvalidError: a value could not be that of a memory.
            AccessDeniedError: it is narrowed to another value already.
        """
        given = {"user_id": user_id, "agent_id": agent_id, "thread_id": thread_id, "run_id": run_id}
        chosen = {name: _check_scope_value(name, value) for name, value in given.items() if value is not None}
        for name, value in chosen.items():
            held = getattr(self._within, name)
            if held is not None and held != value:
                advice = f"these memories are narrowed to {name} {held!r}; narrow store.memory instead"
                raise AccessDeniedError(self._scope.identity.name, f"{name}={value}", "read", advice)
        narrowed = self._within.model_copy(update=chosen)
        return Memories(self._context, self._scope, narrowed)

    def __repr__(self) -> str:
        narrowed = [f", {name} {value}" for name in SCOPE_FIELDS if (value := getattr(self._within, name)) is not None]
        return f"<Memories of {self._namespace}{''.join(narrowed)}>"


def _check_scope_value(name: str, value: str) -> str:
    if not isinstance(value, str):
        raise InvalidError(name, value, "give a text")
    if name == "thread_id":
        check_thread(value)
    check_label(name, value)
    return value
