"""Sessions: what lies at the server for each, found once."""

from __future__ import annotations

from dataclasses import dataclass

from sharedmem.coordination.ground import Ground, Primitive
from sharedmem.wire.access import Need, Scope
from sharedmem.wire.deciding import (
    BeginKeys,
    Deciding,
    DuplicateKeys,
    ExecutionKeys,
    ForgetKeys,
    OpenKeys,
    PlanKeys,
    RecordKeys,
    SavingKeys,
    StatsKeys,
)
from sharedmem.wire.keys import SHARED_SCOPE, Space, Target, check_name

_REMEMBERED = 4096
_SAVED = "plan.saved"


@dataclass(frozen=True, slots=True)
class Session:
    """The keys of one session, by what is done with them."""

    name: str
    target: Target
    space: Space
    events: bytes
    """What the channels of its events begin with."""
    saving: SavingKeys
    plans: PlanKeys
    duplicates: DuplicateKeys
    begin: BeginKeys
    record: RecordKeys
    executions: ExecutionKeys
    open: OpenKeys
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
            events=channel.removesuffix(_SAVED.encode()),
            saving=SavingKeys(key, plans, order, duplicates, ages, executions, stats, sessions),
            plans=PlanKeys(plans, order),
            duplicates=DuplicateKeys(duplicates),
            begin=BeginKeys(key, plans, executions, stats),
            record=RecordKeys(key, plans, executions, finished, stats),
            executions=ExecutionKeys(plans, executions),
            open=OpenKeys(executions),
            stats=StatsKeys(stats, finished, executions),
            forget=ForgetKeys(key, plans, order, duplicates, ages, executions, finished, stats, sessions),
        )
