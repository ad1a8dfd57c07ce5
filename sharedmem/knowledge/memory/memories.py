"""`store.memory`: what the agents of a namespace remember, and how they find it again."""

from __future__ import annotations

from sharedmem.errors import AccessDeniedError, InvalidError
from sharedmem.knowledge.memory.base import NARROWED
from sharedmem.knowledge.memory.drafts import check_label, check_thread
from sharedmem.knowledge.memory.moving import Moving
from sharedmem.knowledge.memory.searching import Searching
from sharedmem.knowledge.memory.standing import Standing
from sharedmem.knowledge.memory.statistics import Statistics
from sharedmem.knowledge.memory.threads import Threads
from sharedmem.knowledge.memory.using import Using


class Memories(Threads, Searching, Using, Statistics, Standing, Moving):
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
        chosen = {name: _checked(name, value) for name, value in given.items() if value is not None}
        for name, value in chosen.items():
            held = getattr(self._within, name)
            if held is not None and held != value:
                advice = f"these memories are narrowed to {name} {held!r}; narrow store.memory instead"
                raise AccessDeniedError(self._scope.identity.name, f"{name}={value}", "read", advice)
        narrowed = self._within.model_copy(update=chosen)
        return Memories(self._minds, self._scope, narrowed)

    def __repr__(self) -> str:
        narrowed = [f", {name} {value}" for name in NARROWED if (value := getattr(self._within, name)) is not None]
        return f"<Memories of {self._namespace}{''.join(narrowed)}>"


def _checked(name: str, value: str) -> str:
    if not isinstance(value, str):
        raise InvalidError(name, value, "give a text")
    if name == "thread_id":
        check_thread(value)
    check_label(name, value)
    return value
