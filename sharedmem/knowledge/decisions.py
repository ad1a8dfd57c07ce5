"""Decisions: what agents plan and carry out, kept so that nothing is decided or done twice."""

from __future__ import annotations

from sharedmem.knowledge.executing import Executing
from sharedmem.knowledge.plans import Plans
from sharedmem.wire.changes import as_list, text_of

_PAGE = 1000


class Decisions(Plans, Executing):
    """The decision log of a namespace: `store.decisions`. Sessions know nothing of each other.

    Changes are told on the channels `memory.<session>.plan.saved`, `.execution.recorded` and `.stats.updated`,
    and on the change feed.
    """

    async def sessions(self) -> list[str]:
        """The sessions that have plans, sorted. One round trip a thousand of them.

        Raises:
            AccessDeniedError, UnavailableError: as `read`.
        """
        registry = self._registry("read")
        names, cursor = set[str](), "0"
        while True:
            call = self._ground.line.call("SSCAN", self._part(registry, "plan.sessions"), cursor, "COUNT", _PAGE)
            position, page = as_list(await self._translated(registry, call))
            names |= {text_of(name) for name in as_list(page)}
            cursor = text_of(position)
            if cursor == "0":
                return sorted(names)

    async def forget(self, session: str) -> int:
        """Remove all that a session has decided, executions and counts too. One round trip.

        The same plans can then be saved and executed again.

        Args:
            session: whose decisions.

        Returns:
            How many plans it had.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `write`.
        """
        found = self._session(session, "write")
        call = self._deciding.session_forget(found.space, found.forget, self._actor)
        return await self._translated(found.target, call)

    def __repr__(self) -> str:
        return f"<Decisions of {self._scope.identity.namespace}, {self._scope.identity.name}>"
