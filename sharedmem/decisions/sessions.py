"""The Redis keys of decision sessions, and the code that plans and executions share."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sharedmem.coordination.names import NameAccess
from sharedmem.errors import DurabilityPendingError, UnavailableError
from sharedmem.models import DurableRecord
from sharedmem.redis.change_stream import as_list, text_of
from sharedmem.redis.durability import LOG_MODE, DurabilityModes, UnsettledError
from sharedmem.redis.keys import SHARED_SCOPE, Space, Target, check_name
from sharedmem.redis.replies import Reply
from sharedmem.redis.scope import Need
from sharedmem.redis.scripts.decisions import (
    COLD,
    DecisionScripts,
    DuplicateKeys,
    ExecutionBeginKeys,
    ExecutionEndKeys,
    ExecutionKeys,
    ExecutionStatsKeys,
    PlanKeys,
    PlanSaveKeys,
    SessionForgetKeys,
)

T = TypeVar("T")
_REMEMBERED = 4096
_MOST_TRIES = 20
_PAGE = 1000
_SESSIONS = "$plan"
_SAVED = "plan.saved"
# The id of a plan, the fence of an execution, or the version itself.
_VERSION = re.compile(rb'^(?:saved )?(\d+)|"fence":(\d+)')


@dataclass(frozen=True, slots=True)
class SessionKeys:
    """The keys of one session."""

    name: str
    target: Target
    space: Space
    keep: DurabilityModes
    """How the durable tier stores the session: as one key, that of its plans."""
    events: bytes
    """Prefix of the channels of its events."""
    saving: PlanSaveKeys
    plans: PlanKeys
    duplicates: DuplicateKeys
    refusals: bytes
    begin: ExecutionBeginKeys
    end: ExecutionEndKeys
    executions: ExecutionKeys
    stats: ExecutionStatsKeys
    forget: SessionForgetKeys


class DecisionSessions:
    """The sessions of one namespace: their keys, their scripts and the restore from the durable tier.

    Args:
        names: the names within the actor's rights.
    """

    def __init__(self, names: NameAccess) -> None:
        self.names = names
        self.actor = names.actor
        self.settings = names.context.settings
        self.scripts = DecisionScripts(names.context.executor)
        self._tier = names.context.tier
        self._known: dict[tuple[str, Need], SessionKeys] = {}

    def keys(self, name: str, need: Need) -> SessionKeys:
        """Return the keys of a session.

        Raises:
            InvalidError: the name is invalid.
            AccessDeniedError: the actor may not write, or read, there.
        """
        try:
            return self._known[name, need]
        except (KeyError, TypeError):
            session = self._find_keys(check_name("session", name), need)
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[name, need] = session
        return session

    async def changed(self, session: SessionKeys, call: Awaitable[T]) -> T:
        """Return the result of a change of a session.

        Raises:
            DurabilityPendingError: the change is made in Redis, but the durable tier does not have it yet.
            SharedMemoryError: the public error for the server's refusal.
        """
        try:
            return await self.names.explained(session.target, call)
        except UnsettledError as error:
            found = _VERSION.search(error.reply)
            version = int(found[1] or found[2]) if found else 0
            raise DurabilityPendingError(session.target.key, version, str(error)) from error.cause

    async def look(self, session: SessionKeys, call: Callable[[int], Awaitable[Reply]]) -> Reply:
        """Return the reply of a script that reads a session; restore a session first that only the durable tier has.

        Args:
            session: keys of the session.
            call: runs the script; with 1 it returns `COLD` if it found nothing and the session is not in Redis.

        Raises:
            UnavailableError: the session is not in Redis, and the tier is unreachable.
            SharedMemoryError: the public error for the server's refusal.
        """
        if self._tier is None:
            return await self.names.explained(session.target, call(0))
        await self._tier.join(session.space.namespace)
        for _ in range(_MOST_TRIES):
            reply = await self.names.explained(session.target, call(1))
            if reply != COLD:
                return reply
            if not await self.restore(session):
                return await self.names.explained(session.target, call(0))
        raise UnavailableError(f"session {session.name!r}", "Redis evicts it as often as it is restored; try again")

    async def restore(self, session: SessionKeys) -> bool:
        """Restore a session that only the durable tier may have; return whether it is in Redis now."""
        return self._tier is not None and await self._tier.recall(session.keep.targets[0], LOG_MODE)

    async def documents(self, name: str) -> list[DurableRecord]:
        """Return the documents of a session in the durable tier; none without a tier. One request to the tier.

        Raises:
            InvalidError, AccessDeniedError: as `keys`.
            UnavailableError, LimitedError: the tier is unavailable.
        """
        session = self.keys(name, "read")
        return [] if self._tier is None else await self._tier.documents(session.keep.targets[0])

    async def session_names(self) -> list[str]:
        """Return the sessions that have plans, sorted; from the durable tier too."""
        registry = self._registry("read")
        if self._tier is None:
            return sorted(await self._registered(registry))
        namespace = registry.space.namespace
        await self._tier.join(namespace)
        names = await self._still_here(sorted(await self._registered(registry)))
        async for page in self._tier.logs(namespace, _SESSIONS):
            keyspace = self.names.scope.keyspace
            owners = (keyspace.owner(keyspace.target(key)) for key in page)
            names |= {owner.key.rpartition(":")[2] for owner in owners}
        return sorted(names)

    async def _registered(self, registry: Target) -> set[str]:
        names, cursor = set[str](), "0"
        while True:
            call = self.names.context.client.call(
                "SSCAN", self.names.part(registry, "plan.sessions"), cursor, "COUNT", _PAGE
            )
            position, page = as_list(await self.names.explained(registry, call))
            names |= {text_of(name) for name in as_list(page)}
            cursor = text_of(position)
            if cursor == "0":
                return names

    async def _still_here(self, names: Sequence[str]) -> set[str]:
        """Return the sessions that are in Redis: a server restored from an old snapshot may list deleted ones."""
        found = set[str]()
        for first in range(0, len(names), _PAGE):
            some = names[first : first + _PAGE]
            looks = [("EXISTS", self.keys(name, "read").plans.plans) for name in some]
            replies = await self.names.context.client.read_many(looks)
            found |= {name for name, reply in zip(some, replies, strict=True) if reply == 1}
        return found

    def _registry(self, need: Need) -> Target:
        """Return the key from which the key of the session registry is derived."""
        return self.names.scope.common(f"{self.names.scope.identity.namespace}:{SHARED_SCOPE}", need)

    def _find_keys(self, name: str, need: Need) -> SessionKeys:
        target = self.names.scope.common(name, need)
        channel = self.names.scope.common(f"memory.{name}.{_SAVED}", need).physical
        key, sessions = target.physical, self.names.part(self._registry(need), "plan.sessions")
        plans, order = self.names.part(target, "plan"), self.names.part(target, "plan.order")
        duplicates, ages = self.names.part(target, "plan.duplicates"), self.names.part(target, "plan.ages")
        executions, finished = self.names.part(target, "execution"), self.names.part(target, "execution.finished")
        stats, refusals = self.names.part(target, "execution.stats"), self.names.part(target, "plan.refusals")
        return SessionKeys(
            name=name,
            target=target,
            space=target.space,
            keep=DurabilityModes((self.names.scope.keyspace.beside(target, "plan"),), LOG_MODE),
            events=channel.removesuffix(_SAVED.encode()),
            saving=PlanSaveKeys(plans, key, order, duplicates, ages, executions, finished, stats, sessions, refusals),
            plans=PlanKeys(plans, order),
            duplicates=DuplicateKeys(plans, duplicates),
            refusals=refusals,
            begin=ExecutionBeginKeys(plans, key, order, executions, finished, stats, refusals),
            end=ExecutionEndKeys(plans, key, order, executions, finished, stats),
            executions=ExecutionKeys(plans, executions),
            stats=ExecutionStatsKeys(plans, stats, finished, executions),
            forget=SessionForgetKeys(
                plans, key, order, duplicates, ages, executions, finished, stats, sessions, refusals
            ),
        )
