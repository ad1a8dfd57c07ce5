"""`store.decisions`: the decision log of a namespace."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sharedmem.context import HubContext
from sharedmem.coordination.names import NameAccess
from sharedmem.decisions.execution_claims import Execution, hold_execution
from sharedmem.decisions.executions import ExecutionLog, TakeoverPolicy
from sharedmem.decisions.plans import Plans
from sharedmem.decisions.sessions import DecisionSessions
from sharedmem.decisions.validation import DEFAULT_WINDOW_S
from sharedmem.models import ExecutionClaim, ExecutionRecord, ExecutionStats, PlanRecord, SaveResult
from sharedmem.redis.scope import Scope
from sharedmem.runtime.process_bound import ProcessBound


class Decisions(ProcessBound):
    """The decision log of a namespace: `store.decisions`. Sessions know nothing of each other.

    Changes are told on the channels `memory.<session>.plan.saved`, `.execution.recorded` and `.stats.updated`,
    and on the change feed.
    """

    def __init__(self, context: HubContext, scope: Scope) -> None:
        self._scope = scope
        self._sessions = DecisionSessions(NameAccess(context, scope))
        self._plans = Plans(self._sessions)
        self._executions = ExecutionLog(self._sessions)

    # -- plans

    async def save_plan(
        self, session: str, symbol: str, action: str, confidence: float, reasoning: str, method: str = ""
    ) -> str:
        """Save a plan, also when the same one was saved before. One round trip.

        Args:
            session: whose plan it is: a name without blanks, colons and braces.
            symbol: what it is about, up to 256 bytes.
            action: what to do, up to 256 bytes.
            confidence: from 0 to 1.
            reasoning: why, up to 1 MiB.
            method: how it was decided.

        Returns:
            Its `plan_hash`, which names the newest such plan of the session.

        Raises:
            InvalidError: a field that cannot stand in a plan.
            AccessDeniedError, UnavailableError: as `write`.
            DurabilityPendingError: it is saved, its id is the error's `version`, and it waits in Redis for the durable
                tier; only where `log_durability` is `through`.
        """
        return await self._plans.save_plan(session, symbol, action, confidence, reasoning, method)

    async def save_if_new(
        self,
        session: str,
        symbol: str,
        action: str,
        confidence: float,
        reasoning: str,
        method: str = "",
        time_window_sec: float = DEFAULT_WINDOW_S,
    ) -> SaveResult:
        """Save a plan unless the same one was saved in the time window; of racing planners exactly one saves.

        One round trip.

        Args:
            session: as `save_plan`, like all up to `method`.
            symbol: with `action` and `reasoning` it makes two plans the same.
            action: see there.
            confidence: not compared.
            reasoning: compared to the letter.
            method: not compared.
            time_window_sec: seconds, above 0, up to 30 days, by the server's clock.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError, DurabilityPendingError: as `save_plan`.
        """
        return await self._plans.save_if_new(session, symbol, action, confidence, reasoning, method, time_window_sec)

    async def get_recent_plans(self, session: str, symbol: str | None = None, limit: int = 10) -> list[PlanRecord]:
        """The newest plans of a session, newest first. One round trip.

        Args:
            session: whose plans.
            symbol: only plans for it; None for all.
            limit: how many at most, 1 to 1000. A session keeps `plans_per_session` of them (100).

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `read`.
        """
        return await self._plans.get_recent_plans(session, symbol, limit)

    async def check_duplicate(
        self,
        session: str,
        symbol: str,
        action: str,
        reasoning: str,
        time_window_sec: float = DEFAULT_WINDOW_S,
    ) -> tuple[bool, PlanRecord | None]:
        """Whether the same plan was saved in the time window, and that plan. One round trip.

        Another planner may save it right after: `save_if_new` checks and saves in one step.

        Args:
            session: whose plans.
            symbol: as in the plan, like `action` and `reasoning`.
            action: see there.
            reasoning: compared to the letter.
            time_window_sec: seconds, above 0, up to 30 days, by the server's clock.

        Returns:
            (True, the newest such plan with its `time_since_ms`), or (False, None).

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `read`.
        """
        return await self._plans.check_duplicate(session, symbol, action, reasoning, time_window_sec)

    # -- executions

    async def begin_execution(
        self, session: str, plan_hash: str, *, lease: float = 30.0, policy: TakeoverPolicy = "never"
    ) -> ExecutionClaim:
        """Claim the execution of a plan before doing it; of racing executors exactly one gets it. One round trip.

        Args:
            session: whose plan.
            plan_hash: eight digits for the newest such plan of the session, or a `plan_id`.
            lease: seconds after which the claim is over unless it is renewed, 0.05 to 86,400.
            policy: what to do when another's claim is over without a result. `never`: it is `orphaned`, and a
                person or a probe says by `resolve` how it ended. `takeover`: begin it anew, for what may happen
                twice.

        Returns:
            A claim. Unless `started`, do not execute: `state` and `execution` say who is at it or how it ended.

        Raises:
            NotFoundError: the session has no such plan (any more).
            InvalidError: a lease or policy that is none.
            AccessDeniedError, UnavailableError: as `write`.
            DurabilityPendingError: it is claimed, by the fence that is the error's `version`, but the durable tier
                does not know: place no order. Only where `log_durability` is `through`.
        """
        return await self._executions.begin_execution(session, plan_hash, lease=lease, policy=policy)

    async def renew(self, session: str, plan_hash: str, fence: int, *, lease: float = 30.0) -> ExecutionClaim:
        """Prolong a claim while the work goes on. One round trip.

        Args:
            session: whose plan.
            plan_hash: as `begin_execution`; a `plan_id` is safer, since a newer plan may bear the hash by now.
            fence: of the claim.
            lease: seconds from now on, 0.05 to 86,400.

        Raises:
            ClaimLostError: the lease is over, or the execution is another's or has ended.
            NotFoundError, InvalidError, AccessDeniedError, UnavailableError: as `begin_execution`.
        """
        return await self._executions.renew(session, plan_hash, fence, lease=lease)

    async def finish(
        self,
        session: str,
        plan_hash: str,
        fence: int,
        *,
        status: str,
        executed: bool | None = None,
        order_id: str = "",
        order_size_usdt: float = 0.0,
        error: str = "",
    ) -> ExecutionRecord:
        """Record how a claimed execution ended. One round trip.

        Args:
            session: whose plan.
            plan_hash: as `renew`.
            fence: of the claim. One whose lease is over still counts while nobody took over or resolved.
            status: `success`; `error` or `failed` when it certainly did not happen; `unknown` or `timeout` when
                nobody knows whether it did.
            executed: whether an order was placed; None: if it was a success.
            order_id: what the exchange calls it.
            order_size_usdt: 0 or more.
            error: what went wrong; over 4000 characters it is cut.

        Returns:
            The record; that of before when it was finished so already.

        Raises:
            ClaimLostError: the execution is another's by now.
            AlreadyExecutedError: it ended already, and differently.
            DurabilityPendingError: it is recorded, and waits in Redis for the durable tier; only where
                `log_durability` is `through`.
            NotFoundError, InvalidError, AccessDeniedError, UnavailableError: as `begin_execution`.
        """
        return await self._executions.finish(
            session,
            plan_hash,
            fence,
            status=status,
            executed=executed,
            order_id=order_id,
            order_size_usdt=order_size_usdt,
            error=error,
        )

    async def mark_executed(  # noqa: PLR0913, PLR0917  # one after the other, as executors know it
        self,
        session: str,
        plan_hash: str,
        symbol: str,
        action: str,
        confidence: float,
        status: str,
        executed: bool,
        order_id: str = "",
        order_size_usdt: float = 0.0,
        error: str = "",
        *,
        fence: int | None = None,
    ) -> ExecutionRecord:
        """Record the one execution of a plan, also without a claim: the first to mark it wins. One round trip.

        Two executors that both checked, executed and then mark have executed twice: claim with
        `begin_execution` first where that must not happen.

        Args:
            session: whose plan.
            plan_hash: as `begin_execution`.
            symbol: what was dealt in.
            action: what was done.
            confidence: from 0 to 1.
            status: as `finish`, like all up to `error`.
            executed: whether an order was placed.
            order_id: see there.
            order_size_usdt: see there.
            error: see there.
            fence: of the claim, if there is one.

        Returns:
            The record; that of before when it was marked with the same status and order id already.

        Raises:
            AlreadyExecutedError: it was recorded already, and differently.
            ClaimLostError: somebody else has a claim on it.
            DurabilityPendingError: as `finish`.
            NotFoundError, InvalidError, AccessDeniedError, UnavailableError: as `begin_execution`.
        """
        return await self._executions.mark_executed(
            session,
            plan_hash,
            symbol,
            action,
            confidence,
            status,
            executed,
            order_id,
            order_size_usdt,
            error,
            fence=fence,
        )

    async def resolve(
        self,
        session: str,
        plan_hash: str,
        *,
        status: str,
        executed: bool | None = None,
        order_id: str = "",
        order_size_usdt: float = 0.0,
        error: str = "",
    ) -> ExecutionRecord:
        """Say how an orphaned or unknown execution ended, after looking at the exchange. One round trip.

        Whoever held the claim cannot finish it any more.

        Args:
            session: whose plan.
            plan_hash: as `renew`.
            status: as `finish`, like all that follow.
            executed: see there.
            order_id: see there.
            order_size_usdt: see there.
            error: see there.

        Returns:
            The record; that of before when it was recorded so already.

        Raises:
            ConflictError: somebody is still at it.
            AlreadyExecutedError: it is known already how it ended, and differently.
            NotFoundError: no such plan, or it was never begun.
            DurabilityPendingError: as `finish`.
            InvalidError, AccessDeniedError, UnavailableError: as `begin_execution`.
        """
        return await self._executions.resolve(
            session,
            plan_hash,
            status=status,
            executed=executed,
            order_id=order_id,
            order_size_usdt=order_size_usdt,
            error=error,
        )

    async def check_executed(self, session: str, plan_hash: str) -> tuple[bool, ExecutionRecord | None]:
        """Whether a plan was executed, or is being executed, in whatever state that is. One round trip.

        Args:
            session: whose plan.
            plan_hash: as `begin_execution`.

        Returns:
            (True, the record): do not execute. (False, None): nobody has begun.

        Raises:
            NotFoundError: the session has no such plan (any more).
            InvalidError, AccessDeniedError, UnavailableError: as `read`.
        """
        return await self._executions.check_executed(session, plan_hash)

    async def get_execution_stats(self, session: str, symbol: str | None = None) -> ExecutionStats:
        """How the executions of a session went. One round trip; counted as they happen, not when asked.

        Args:
            session: whose executions; one that never had any has zeros.
            symbol: only executions of it; None for all.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `read`.
        """
        return await self._executions.get_execution_stats(session, symbol)

    async def get_open_executions(self, session: str) -> list[ExecutionRecord]:
        """The executions that wait for an end: running, orphaned and unknown ones, oldest plan first.

        One round trip 500 executions of the session.

        Args:
            session: whose executions.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `read`.
        """
        return await self._executions.get_open_executions(session)

    @asynccontextmanager
    async def executing(
        self, session: str, plan_hash: str, *, lease: float = 30.0, policy: TakeoverPolicy = "never"
    ) -> AsyncIterator[Execution]:
        """Claim an execution for the length of the block, and renew the claim at a third of its lease.

        A block that ends without `finish`, by an error or not, leaves the execution `unknown`: an order may
        have been placed. Two round trips, and one a renewal.

        Args:
            session: whose plan.
            plan_hash: as `begin_execution`.
            lease: seconds after which the claim of an executor that died is over.
            policy: as `begin_execution`.

        Raises:
            NotFoundError, InvalidError, AccessDeniedError, UnavailableError: as `begin_execution`.
        """
        context = self._sessions.names.context
        block = hold_execution(
            self._executions, context.clock, context.background, session, plan_hash, lease=lease, policy=policy
        )
        async with block as execution:
            yield execution

    # -- sessions

    async def sessions(self) -> list[str]:
        """The sessions that have plans, sorted. One round trip a thousand of them; a durable tier is asked as well.

        Raises:
            AccessDeniedError, UnavailableError: as `read`; also when the durable tier cannot be asked.
        """
        return await self._sessions.session_names()

    async def erase(self, session: str) -> int:
        """Erase all decisions of a session for good, executions and counts too. One round trip.

        The same plans can then be saved and executed again.

        Args:
            session: whose decisions.

        Returns:
            How many plans it had.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `write`.
            DurabilityPendingError: it is erased in Redis, and the durable tier is told as soon as it can be.
        """
        found = self._sessions.keys(session, "write")
        call = self._sessions.scripts.session_forget(found.space, found.forget, self._sessions.actor, keep=found.keep)
        _, count = await self._sessions.changed(found, call)
        return int(count)

    def __repr__(self) -> str:
        return f"<Decisions of {self._scope.identity.namespace}, {self._scope.identity.name}>"
