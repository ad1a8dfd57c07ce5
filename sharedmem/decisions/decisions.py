"""`store.decisions`: the decision log of a namespace."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING

from sharedmem.context import HubContext
from sharedmem.coordination.names import NameAccess
from sharedmem.decisions.executions import Execution, ExecutionLog, TakeoverPolicy, hold_execution
from sharedmem.decisions.plans import DecisionHistory, Plans, ReasoningComparer, check_similarity, find_patterns
from sharedmem.decisions.sessions import DecisionSessions
from sharedmem.decisions.validation import (
    DEFAULT_WINDOW_S,
    LATEST_US,
    check_kind,
    check_limit,
    check_moment_us,
    check_reasoning,
    check_window_ms,
)
from sharedmem.errors import InvalidError
from sharedmem.models import (
    ExecutionClaim,
    ExecutionRecord,
    ExecutionStats,
    PastDecision,
    PlanPattern,
    PlanRecord,
    RefusedDuplicate,
    SaveResult,
)
from sharedmem.redis.scope import Scope
from sharedmem.runtime import Counters, measured, metric_key
from sharedmem.runtime.concurrency import ProcessBound

if TYPE_CHECKING:
    from sharedmem.providers.protocol import OpenEmbedder

_SAVED, _DUPLICATE = (metric_key("plans", outcome=outcome) for outcome in ("saved", "duplicate"))


class Decisions(ProcessBound):
    """The decision log of a namespace: `store.decisions`. Sessions are independent of each other.

    Changes are published on the channels `memory.<session>.plan.saved`, `.execution.recorded` and `.stats.updated`,
    and on the change feed.

    Args:
        context: dependencies that the hub shares with its stores.
        scope: returns names within the actor's rights.
        embedder: returns the embedder that compares plans by meaning, called when plans are compared; None: the extra
            `memory` is not installed.
    """

    def __init__(self, context: HubContext, scope: Scope, *, embedder: OpenEmbedder | None = None) -> None:
        self._counters: Counters = context.counters
        self._scope = scope
        self._sessions = DecisionSessions(NameAccess(context, scope))
        self._plans = Plans(self._sessions, ReasoningComparer(embedder))
        self._executions = ExecutionLog(self._sessions)
        self._history = DecisionHistory(self._sessions, self._plans, self._executions)

    # -- plans

    @measured("decisions.save_plan")
    async def save_plan(
        self, session: str, symbol: str, action: str, confidence: float, reasoning: str, method: str = ""
    ) -> str:
        """Save a plan, even if the same plan was saved before. One round trip.

        Args:
            session: name of the session, without blanks, colons and braces.
            symbol: subject of the plan, up to 256 bytes.
            action: the action to execute, up to 256 bytes.
            confidence: from 0 to 1.
            reasoning: reasons for the plan, up to 1 MiB.
            method: method of the decision.

        Returns:
            Its `plan_hash`, which identifies the newest such plan of the session.

        Raises:
            InvalidError: a field is invalid.
            AccessDeniedError, UnavailableError: as `write`.
            DurabilityPendingError: the plan is saved, its id is the error's `version`, but the durable tier does not
                have it yet; only if `log_durability` is `through`.
        """
        found = await self._plans.save_plan(session, symbol, action, confidence, reasoning, method)
        self._counters.add_to(_SAVED, 1)
        return found

    @measured("decisions.save_if_new")
    async def save_if_new(
        self,
        session: str,
        symbol: str,
        action: str,
        confidence: float,
        reasoning: str,
        method: str = "",
        time_window_sec: float = DEFAULT_WINDOW_S,
        similar: float | None = None,
    ) -> SaveResult:
        """Save a plan unless the same plan was saved in the time window; one of several racing planners saves it.

        One round trip; with `similar` two, and a request to the embedder for reasonings that it has not embedded
        lately.

        Args:
            session: this and the arguments up to `method`: as `save_plan`.
            symbol: two plans are the same if symbol, `action` and `reasoning` are equal.
            action: compared exactly.
            confidence: not compared.
            reasoning: compared exactly.
            method: not compared.
            time_window_sec: seconds, above 0, up to 30 days, by the server's clock.
            similar: above 0, up to 1: a plan with the same symbol and action is a duplicate too if the cosine
                similarity of its reasoning is at least this, and the two do not contradict each other in a number, a
                name, a negation or an opposite; its `similarity` says how much. None: equal texts only.
                Compared are the plans that the session lists, the newest 1,000. Embedders differ: measure yours.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError, DurabilityPendingError: as `save_plan`.
            UnsupportedError: `similar` is given, and there is no embedder.
        """
        result = await self._plans.save_if_new(
            session, symbol, action, confidence, reasoning, method, time_window_sec, similar
        )
        self._counters.add_to(_SAVED if result.saved else _DUPLICATE, 1)
        return result

    @measured("decisions.get_recent_plans")
    async def get_recent_plans(self, session: str, symbol: str | None = None, limit: int = 10) -> list[PlanRecord]:
        """Return the newest plans of a session, newest first. One round trip.

        Args:
            session: name of the session.
            symbol: only plans with this symbol; None: all.
            limit: most plans to return, 1 to 1000. A session keeps `plans_per_session` of them (100).

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `read`.
        """
        return await self._plans.get_recent_plans(session, symbol, limit)

    @measured("decisions.get_refusals")
    async def get_refusals(self, session: str) -> list[RefusedDuplicate]:
        """Return the newest plans and executions that were refused as duplicates, newest first. One round trip.

        Redis stores the newest 50 of a session; `get_execution_stats` counts all of them.

        Args:
            session: name of the session.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `read`.
        """
        return await self._plans.get_refusals(session)

    @measured("decisions.check_duplicate")
    async def check_duplicate(
        self,
        session: str,
        symbol: str,
        action: str,
        reasoning: str,
        time_window_sec: float = DEFAULT_WINDOW_S,
        similar: float | None = None,
    ) -> tuple[bool, PlanRecord | None]:
        """Return whether the same plan was saved in the time window, and that plan. One round trip.

        Another planner may save the plan right after: `save_if_new` checks and saves in one step.

        Args:
            session: name of the session.
            symbol: as in the plan.
            action: as in the plan.
            reasoning: compared exactly, or by meaning with `similar`.
            time_window_sec: seconds, above 0, up to 30 days, by the server's clock.
            similar: as `save_if_new`; two round trips more.

        Returns:
            (True, the newest such plan with its `time_since_ms`, or the most similar one), or (False, None).

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `read`.
            UnsupportedError: `similar` is given, and there is no embedder.
        """
        return await self._plans.check_duplicate(session, symbol, action, reasoning, time_window_sec, similar)

    @measured("decisions.find_similar")
    async def find_similar(
        self,
        reasoning: str,
        *,
        session: str | None = None,
        symbol: str | None = None,
        action: str | None = None,
        threshold: float = 0.5,
        limit: int = 10,
    ) -> list[PastDecision]:
        """Return earlier plans with a similar reasoning and how their executions went, the most similar first.

        One round trip a session and one a result, and a request to the embedder for reasonings that it has not embedded
        lately.

        Args:
            reasoning: the text to compare with.
            session: only plans of this session; None: of all sessions.
            symbol: only plans with this symbol; None: all.
            action: likewise.
            threshold: least cosine similarity, above 0, up to 1.
            limit: most plans to return, 1 to 1000. Of each session the plans are compared that it lists.

        Raises:
            InvalidError: an argument is invalid.
            UnsupportedError: there is no embedder.
            AccessDeniedError, UnavailableError: as `read`.
        """
        check_limit(limit)
        check_similarity("threshold", threshold)
        check_kind(symbol, action)
        check_reasoning(reasoning)
        if not reasoning.strip():
            raise InvalidError("reasoning", reasoning, "give a text to compare with")
        near = await self._plans.find_similar(
            reasoning, session=session, symbol=symbol, action=action, threshold=threshold, limit=limit
        )
        return await self._history.with_execution(near)

    async def history(
        self,
        session: str,
        *,
        symbol: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        limit: int = 100,
    ) -> list[PastDecision]:
        """Return the decisions of a session, newest first, from Redis and from the durable tier.

        The tier keeps decisions that a session no longer lists only with the setting `decision_history`. Linear in the
        documents of the session: one request to the tier, one round trip, and one more a decision returned.

        Args:
            session: its name.
            symbol: only plans with this symbol; None: all.
            since: only plans saved after this: a time with its zone, or a `plan_id`.
            until: only plans saved before this, likewise: the `plan_id` of the last one returned for the next page.
            limit: most decisions to return, 1 to 1000.

        Raises:
            InvalidError: an argument is invalid.
            AccessDeniedError, UnavailableError: as `read`; the latter also if the tier cannot be reached.
        """
        check_kind(symbol, None)
        return await self._history.read(
            session,
            symbol=symbol,
            since_us=check_moment_us("since", since, 0),
            until_us=check_moment_us("until", until, LATEST_US),
            limit=check_limit(limit),
        )

    @measured("decisions.patterns")
    async def patterns(
        self,
        session: str | None = None,
        *,
        symbol: str | None = None,
        action: str | None = None,
        within: float = 3600.0,
        limit: int = 20,
    ) -> list[PlanPattern]:
        """Return what tended to follow plans of a kind (a symbol and an action), the most frequent first.

        Of each session the plans count that it lists (`plans_per_session`); a plan counts once for each kind that
        followed it. One round trip a session and one a plan.

        Args:
            session: only this session; None: all sessions.
            symbol: only what followed plans with this symbol; None: any.
            action: likewise.
            within: seconds, above 0, up to 30 days, between a plan and the one that followed it.
            limit: most patterns to return, 1 to 1000.

        Raises:
            InvalidError: an argument is invalid.
            AccessDeniedError, UnavailableError: as `read`.
        """
        check_kind(symbol, action)
        within_ms = check_window_ms(within, "within")
        check_limit(limit)
        sessions = [plans[::-1] async for plans in self._plans.listed(session)]
        past = await self._history.with_execution([plan for plans in sessions for plan in plans])
        states = {one.plan.plan_id: one.execution.state for one in past if one.execution is not None}
        found = find_patterns(sessions, states, within_ms=within_ms, symbol=symbol, action=action)
        return found[:limit]

    # -- executions

    @measured("decisions.begin_execution")
    async def begin_execution(
        self, session: str, plan_hash: str, *, lease: float = 30.0, policy: TakeoverPolicy = "never"
    ) -> ExecutionClaim:
        """Claim the execution of a plan before you execute it; one of several executors gets it. One round trip.

        Args:
            session: name of the session.
            plan_hash: eight digits for the newest such plan of the session, or a `plan_id`.
            lease: seconds after which the claim expires unless it is renewed, 0.05 to 86,400.
            policy: what to do if the claim of another executor has expired without a result. `never`: the execution
                is `orphaned`, until a person or a program calls `resolve` with its outcome. `takeover`: execute it
                again, for actions that may happen twice.

        Returns:
            A claim. Unless `started`, do not execute: `state` and `execution` show the present executor or the outcome.

        Raises:
            NotFoundError: the session has no such plan (any more).
            InvalidError: the lease or policy is invalid.
            AccessDeniedError, UnavailableError: as `write`.
            DurabilityPendingError: the execution is claimed, with the error's `version` as fence, but the durable tier
                does not have the claim: place no order. Only if `log_durability` is `through`.
        """
        return await self._executions.begin_execution(session, plan_hash, lease=lease, policy=policy)

    @measured("decisions.renew")
    async def renew(self, session: str, plan_hash: str, fence: int, *, lease: float = 30.0) -> ExecutionClaim:
        """Renew a claim during the execution. One round trip.

        Args:
            session: name of the session.
            plan_hash: as `begin_execution`; a `plan_id` is safer, since a newer plan may have the same hash by now.
            fence: fence of the claim.
            lease: seconds from now on, 0.05 to 86,400.

        Raises:
            ClaimLostError: the lease has expired, another executor has the claim, or the execution has ended.
            NotFoundError, InvalidError, AccessDeniedError, UnavailableError: as `begin_execution`.
        """
        return await self._executions.renew(session, plan_hash, fence, lease=lease)

    @measured("decisions.finish")
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
        """Record the outcome of a claimed execution. One round trip.

        Args:
            session: name of the session.
            plan_hash: as `renew`.
            fence: fence of the claim. It is valid after the lease has expired, unless another executor took over or
                the execution was resolved.
            status: `success`; `error` or `failed` if the action certainly did not happen; `unknown` or `timeout` if
                that cannot be determined.
            executed: whether an order was placed; None: if it was a success.
            order_id: id of the order at the exchange.
            order_size_usdt: 0 or more.
            error: error text; truncated to 4000 characters.

        Returns:
            The record; the existing one if the same outcome was recorded before.

        Raises:
            ClaimLostError: another executor has the claim by now.
            AlreadyExecutedError: another outcome was recorded before.
            DurabilityPendingError: the outcome is recorded, but the durable tier does not have it yet; only if
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

    @measured("decisions.mark_executed")
    async def mark_executed(  # noqa: PLR0913, PLR0917  # positional, as executors call it
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
        """Record the execution of a plan, even without a claim: the first call wins. One round trip.

        If two executors both check, execute and then mark, the plan is executed twice. To prevent that, claim with
        `begin_execution` first.

        Args:
            session: name of the session.
            plan_hash: as `begin_execution`.
            symbol: symbol of the execution.
            action: action of the execution.
            confidence: from 0 to 1.
            status: this and the arguments up to `error`: as `finish`.
            executed: whether an order was placed.
            order_id: as `finish`.
            order_size_usdt: as `finish`.
            error: as `finish`.
            fence: fence of the claim, if there is one.

        Returns:
            The record; the existing one if the same status and order id were recorded before.

        Raises:
            AlreadyExecutedError: another outcome was recorded before.
            ClaimLostError: another executor has a claim on it.
            DurabilityPendingError: as `finish`.
            NotFoundError, InvalidError, AccessDeniedError, UnavailableError: as `begin_execution`.
        """
        return await self._executions.mark_executed(
            session,
            plan_hash,
            (symbol, action, confidence),
            fence=fence,
            status=status,
            executed=executed,
            order_id=order_id,
            order_size_usdt=order_size_usdt,
            error=error,
        )

    @measured("decisions.resolve")
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
        """Record the outcome of an orphaned or unknown execution, after a look at the exchange. One round trip.

        After that, the former holder of the claim cannot finish it.

        Args:
            session: name of the session.
            plan_hash: as `renew`.
            status: this and the arguments that follow: as `finish`.
            executed: as `finish`.
            order_id: as `finish`.
            order_size_usdt: as `finish`.
            error: as `finish`.

        Returns:
            The record; the existing one if the same outcome was recorded before.

        Raises:
            ConflictError: an executor still has a valid claim.
            AlreadyExecutedError: another outcome was recorded before.
            NotFoundError: the plan does not exist, or its execution was never begun.
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

    @measured("decisions.check_executed")
    async def check_executed(self, session: str, plan_hash: str) -> tuple[bool, ExecutionRecord | None]:
        """Return whether an execution of a plan was begun, in any state. One round trip.

        Args:
            session: name of the session.
            plan_hash: as `begin_execution`.

        Returns:
            (True, the record): do not execute. (False, None): no execution was begun.

        Raises:
            NotFoundError: the session has no such plan (any more).
            InvalidError, AccessDeniedError, UnavailableError: as `read`.
        """
        return await self._executions.check_executed(session, plan_hash)

    @measured("decisions.get_execution_stats")
    async def get_execution_stats(self, session: str, symbol: str | None = None) -> ExecutionStats:
        """Return statistics of the executions of a session. One round trip; counters are updated as executions end.

        Args:
            session: name of the session; one without executions has zeros.
            symbol: only executions with this symbol; None: all.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `read`.
        """
        return await self._executions.get_execution_stats(session, symbol)

    @measured("decisions.get_open_executions")
    async def get_open_executions(self, session: str) -> list[ExecutionRecord]:
        """Return the executions without a known outcome: running, orphaned and unknown ones, oldest plan first.

        One round trip for each 500 executions of the session.

        Args:
            session: name of the session.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `read`.
        """
        return await self._executions.get_open_executions(session)

    @asynccontextmanager
    async def executing(
        self, session: str, plan_hash: str, *, lease: float = 30.0, policy: TakeoverPolicy = "never"
    ) -> AsyncIterator[Execution]:
        """Claim an execution for the length of the block, and renew the claim at a third of its lease.

        If the block ends without `finish`, with or without an error, the outcome is `unknown`: an order may have been
        placed. Two round trips, and one for each renewal.

        Args:
            session: name of the session.
            plan_hash: as `begin_execution`.
            lease: seconds after which the claim of a dead executor expires.
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

    @measured("decisions.sessions")
    async def sessions(self) -> list[str]:
        """Return the sessions that have plans, sorted. One round trip a thousand; reads the durable tier as well.

        Raises:
            AccessDeniedError, UnavailableError: as `read`; also if the durable tier is unreachable.
        """
        return await self._sessions.session_names()

    @measured("decisions.erase")
    async def erase(self, session: str) -> int:
        """Erase all plans, executions and counters of a session for good. One round trip.

        The same plans can then be saved and executed again.

        Args:
            session: name of the session.

        Returns:
            The number of its plans.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `write`.
            DurabilityPendingError: the session is erased in Redis, but not yet in the durable tier.
        """
        found = self._sessions.keys(session, "write")
        call = self._sessions.scripts.session_forget(found.space, found.forget, self._sessions.actor, keep=found.keep)
        _, count = await self._sessions.changed(found, call)
        return int(count)

    def __repr__(self) -> str:
        return f"<Decisions of {self._scope.identity.namespace}, {self._scope.identity.name}>"
