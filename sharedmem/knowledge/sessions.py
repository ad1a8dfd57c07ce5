"""Sessions: what lies at the server for each, found once."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from sharedmem.coordination.ground import Ground, Primitive
from sharedmem.errors import DurabilityPendingError, UnavailableError
from sharedmem.wire.access import Need, Scope
from sharedmem.wire.deciding import (
    COLD,
    ClaimKeys,
    Deciding,
    DuplicateKeys,
    ExecutionKeys,
    ForgetKeys,
    PlanKeys,
    SavingKeys,
    StatsKeys,
)
from sharedmem.wire.keys import SHARED_SCOPE, Space, Target, check_name
from sharedmem.wire.replies import Reply
from sharedmem.wire.tier import LOG, Keep, UnsettledError

T = TypeVar("T")
_REMEMBERED = 4096
_MOST_TRIES = 20
_SAVED = "plan.saved"
# Of a plan its id, of an execution its fence, else the version itself.
_VERSION = re.compile(rb'^(?:saved )?(\d+)|"fence":(\d+)')


@dataclass(frozen=True, slots=True)
class Session:
    """The keys of one session, by what is done with them."""

    name: str
    target: Target
    space: Space
    keep: Keep
    """How the durable tier keeps it: as one key, that of its plans."""
    events: bytes
    """What the channels of its events begin with."""
    saving: SavingKeys
    plans: PlanKeys
    duplicates: DuplicateKeys
    claim: ClaimKeys
    executions: ExecutionKeys
    stats: StatsKeys
    forget: ForgetKeys


class OfSessions(Primitive):
    """What plans and executions share: their sessions, and the scripts."""

    def __init__(self, ground: Ground, scope: Scope) -> None:
        super().__init__(ground, scope)
        self._deciding = Deciding(ground.sender)
        self._known: dict[tuple[str, Need], Session] = {}

    def _session(self, name: str, need: Need) -> Session:
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

    async def _changed(self, session: Session, call: Awaitable[T]) -> T:
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

    async def _seen(self, session: Session, look: Callable[[int], Awaitable[Reply]]) -> Reply:
        """What a look at a session answers; one that only the durable tier has is brought back first.

        Args:
            session: which one.
            look: the call; with 1 it answers `COLD` where nothing was found and the session is not in Redis.

        Raises:
            UnavailableError: it is not in Redis, and the tier cannot be asked.
            SharedMemoryError: as `_translated`.
        """
        tier = self._ground.tier
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

    async def _recalled(self, session: Session) -> bool:
        """Bring a session back that may lie in the durable tier alone; whether it is in Redis now."""
        tier = self._ground.tier
        return tier is not None and await tier.recall(session.keep.targets[0], LOG)

    def _registry(self, need: Need) -> Target:
        """The key beside which the names of all sessions lie."""
        return self._scope.common(f"{self._scope.identity.namespace}:{SHARED_SCOPE}", need)

    def _found(self, name: str, need: Need) -> Session:
        target = self._scope.common(name, need)
        channel = self._scope.common(f"memory.{name}.{_SAVED}", need).physical
        key, sessions = target.physical, self._part(self._registry(need), "plan.sessions")
        plans, order = self._part(target, "plan"), self._part(target, "plan.order")
        duplicates, ages = self._part(target, "plan.duplicates"), self._part(target, "plan.ages")
        executions, finished = self._part(target, "execution"), self._part(target, "execution.finished")
        stats = self._part(target, "execution.stats")
        return Session(
            name=name,
            target=target,
            space=target.space,
            keep=Keep((self._scope.keyspace.beside(target, "plan"),), LOG),
            events=channel.removesuffix(_SAVED.encode()),
            saving=SavingKeys(plans, key, order, duplicates, ages, executions, finished, stats, sessions),
            plans=PlanKeys(plans, order),
            duplicates=DuplicateKeys(plans, duplicates),
            claim=ClaimKeys(plans, key, order, executions, finished, stats),
            executions=ExecutionKeys(plans, executions),
            stats=StatsKeys(plans, stats, finished, executions),
            forget=ForgetKeys(plans, key, order, duplicates, ages, executions, finished, stats, sessions),
        )
