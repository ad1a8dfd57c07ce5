"""The Redis keys of decision sessions, and what plans and executions share."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from sharedmem.context import HubContext
from sharedmem.coordination.base import CoordinationBase
from sharedmem.errors import DurabilityPendingError, UnavailableError
from sharedmem.redis.durability import LOG_MODE, DurabilityModes, UnsettledError
from sharedmem.redis.keys import SHARED_SCOPE, Space, Target, check_name
from sharedmem.redis.replies import Reply
from sharedmem.redis.scope import Need, Scope
from sharedmem.redis.scripts.decisions import (
    COLD,
    DecisionScripts,
    DuplicateKeys,
    ExecutionClaimKeys,
    ExecutionKeys,
    ExecutionStatsKeys,
    PlanKeys,
    PlanSaveKeys,
    SessionForgetKeys,
)

T = TypeVar("T")
_REMEMBERED = 4096
_MOST_TRIES = 20
_SAVED = "plan.saved"
# Of a plan its id, of an execution its fence, else the version itself.
_VERSION = re.compile(rb'^(?:saved )?(\d+)|"fence":(\d+)')


@dataclass(frozen=True, slots=True)
class SessionKeys:
    """The keys of one session, by what is done with them."""

    name: str
    target: Target
    space: Space
    keep: DurabilityModes
    """How the durable tier keeps it: as one key, that of its plans."""
    events: bytes
    """What the channels of its events begin with."""
    saving: PlanSaveKeys
    plans: PlanKeys
    duplicates: DuplicateKeys
    claim: ExecutionClaimKeys
    executions: ExecutionKeys
    stats: ExecutionStatsKeys
    forget: SessionForgetKeys


class DecisionBase(CoordinationBase):
    """What plans and executions share: their sessions, and the scripts."""

    def __init__(self, context: HubContext, scope: Scope) -> None:
        super().__init__(context, scope)
        self._deciding = DecisionScripts(context.executor)
        self._known: dict[tuple[str, Need], SessionKeys] = {}

    def _session(self, name: str, need: Need) -> SessionKeys:
        """A session's keys.

        Raises:
            InvalidError: the name is none.
            AccessDeniedError: the actor may not decide, or read, there.
        """
        try:
            return self._known[name, need]
        except (KeyError, TypeError):
            session = self._found(check_name("session", name), need)
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[name, need] = session
        return session

    async def _changed(self, session: SessionKeys, call: Awaitable[T]) -> T:
        """The result of a change of a session.

        Raises:
            DurabilityPendingError: it is made, but the durable tier, which it waits for, does not have it yet.
            SharedMemoryError: as `_translated`.
        """
        try:
            return await self._translated(session.target, call)
        except UnsettledError as error:
            found = _VERSION.search(error.reply)
            version = int(found[1] or found[2]) if found else 0
            raise DurabilityPendingError(session.target.key, version, str(error)) from error.cause

    async def _seen(self, session: SessionKeys, look: Callable[[int], Awaitable[Reply]]) -> Reply:
        """What a look at a session answers; one that only the durable tier has is brought back first.

        Args:
            session: which one.
            look: the call; with 1 it answers `COLD` where nothing was found and the session is not in Redis.

        Raises:
            UnavailableError: it is not in Redis, and the tier cannot be asked.
            SharedMemoryError: as `_translated`.
        """
        tier = self._context.tier
        if tier is None:
            return await self._translated(session.target, look(0))
        await tier.join(session.space.namespace)
        for _ in range(_MOST_TRIES):
            reply = await self._translated(session.target, look(1))
            if reply != COLD:
                return reply
            if not await self._recalled(session):
                return await self._translated(session.target, look(0))
        raise UnavailableError(f"session {session.name!r}", "it goes as often as it is brought back; try again")

    async def _recalled(self, session: SessionKeys) -> bool:
        """Bring a session back that may lie in the durable tier alone; whether it is in Redis now."""
        tier = self._context.tier
        return tier is not None and await tier.recall(session.keep.targets[0], LOG_MODE)

    def _registry(self, need: Need) -> Target:
        """The key beside which the names of all sessions lie."""
        return self._scope.common(f"{self._scope.identity.namespace}:{SHARED_SCOPE}", need)

    def _found(self, name: str, need: Need) -> SessionKeys:
        target = self._scope.common(name, need)
        channel = self._scope.common(f"memory.{name}.{_SAVED}", need).physical
        key, sessions = target.physical, self._part(self._registry(need), "plan.sessions")
        plans, order = self._part(target, "plan"), self._part(target, "plan.order")
        duplicates, ages = self._part(target, "plan.duplicates"), self._part(target, "plan.ages")
        executions, finished = self._part(target, "execution"), self._part(target, "execution.finished")
        stats = self._part(target, "execution.stats")
        return SessionKeys(
            name=name,
            target=target,
            space=target.space,
            keep=DurabilityModes((self._scope.keyspace.beside(target, "plan"),), LOG_MODE),
            events=channel.removesuffix(_SAVED.encode()),
            saving=PlanSaveKeys(plans, key, order, duplicates, ages, executions, finished, stats, sessions),
            plans=PlanKeys(plans, order),
            duplicates=DuplicateKeys(plans, duplicates),
            claim=ExecutionClaimKeys(plans, key, order, executions, finished, stats),
            executions=ExecutionKeys(plans, executions),
            stats=ExecutionStatsKeys(plans, stats, finished, executions),
            forget=SessionForgetKeys(plans, key, order, duplicates, ages, executions, finished, stats, sessions),
        )
