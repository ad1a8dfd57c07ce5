"""`store.decisions`: the decision log of a namespace."""

from __future__ import annotations

from collections.abc import Sequence

from sharedmem.decisions.execution_claims import ExecutionClaims
from sharedmem.decisions.plans import Plans
from sharedmem.redis.change_stream import as_list, text_of
from sharedmem.redis.keys import Target

_PAGE = 1000
_SESSIONS = "$plan"


class Decisions(Plans, ExecutionClaims):
    """The decision log of a namespace: `store.decisions`. Sessions know nothing of each other.

    Changes are told on the channels `memory.<session>.plan.saved`, `.execution.recorded` and `.stats.updated`,
    and on the change feed.
    """

    async def sessions(self) -> list[str]:
        """The sessions that have plans, sorted. One round trip a thousand of them; a durable tier is asked as well.

        Raises:
            AccessDeniedError, UnavailableError: as `read`; also when the durable tier cannot be asked.
        """
        registry = self._registry("read")
        tier = self._context.tier
        if tier is None:
            return sorted(await self._registered(registry))
        namespace = registry.space.namespace
        await tier.join(namespace)
        names = await self._still_here(sorted(await self._registered(registry)))
        async for page in tier.logs(namespace, _SESSIONS):
            owners = (self._scope.keyspace.owner(self._scope.keyspace.target(key)) for key in page)
            names |= {owner.key.rpartition(":")[2] for owner in owners}
        return sorted(names)

    async def _registered(self, registry: Target) -> set[str]:
        names, cursor = set[str](), "0"
        while True:
            call = self._context.client.call("SSCAN", self._part(registry, "plan.sessions"), cursor, "COUNT", _PAGE)
            position, page = as_list(await self._translated(registry, call))
            names |= {text_of(name) for name in as_list(page)}
            cursor = text_of(position)
            if cursor == "0":
                return names

    async def _still_here(self, names: Sequence[str]) -> set[str]:
        """Those that are in Redis: a server that was set back in time may list what was forgotten."""
        found = set[str]()
        for first in range(0, len(names), _PAGE):
            some = names[first : first + _PAGE]
            looks = [("EXISTS", self._session(name, "read").plans.plans) for name in some]
            replies = await self._context.client.read_many(looks)
            found |= {name for name, reply in zip(some, replies, strict=True) if reply == 1}
        return found

    async def forget(self, session: str) -> int:
        """Remove all that a session has decided, executions and counts too. One round trip.

        The same plans can then be saved and executed again.

        Args:
            session: whose decisions.

        Returns:
            How many plans it had.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `write`.
            DurabilityPendingError: it is forgotten in Redis, and the durable tier is told as soon as it can be.
        """
        found = self._session(session, "write")
        call = self._deciding.session_forget(found.space, found.forget, self._actor, keep=found.keep)
        _, count = await self._changed(found, call)
        return int(count)

    def __repr__(self) -> str:
        return f"<Decisions of {self._scope.identity.namespace}, {self._scope.identity.name}>"
