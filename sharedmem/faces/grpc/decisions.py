"""The decision log over gRPC: the calls of store.decisions, with the same checks before a request is sent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeVar, Unpack

from google.protobuf.message import Message

from sharedmem.clock import Clock
from sharedmem.coordination.names import check_lease_ms
from sharedmem.decisions.executions import Execution, TakeoverPolicy, hold_execution
from sharedmem.decisions.plans import check_similarity
from sharedmem.decisions.validation import (
    DEFAULT_WINDOW_S,
    OutcomeFields,
    check_confidence,
    check_decision,
    check_fence,
    check_limit,
    check_outcome,
    check_plan,
    check_window_ms,
    check_word,
    prepare_plan,
)
from sharedmem.errors import InvalidError
from sharedmem.faces.grpc.contract import record_of
from sharedmem.faces.grpc.v1 import memory_pb2 as pb
from sharedmem.models import ExecutionClaim, ExecutionRecord, ExecutionStats, PlanRecord, SaveResult
from sharedmem.redis.keys import check_name
from sharedmem.runtime.concurrency import Background

Reply = TypeVar("Reply", bound=Message)
_LARGEST_FENCE = 2**63 - 1


class UnaryCall(Protocol):
    """How a call is made."""

    def __call__(self, name: str, request: Message, gives: type[Reply], /) -> Awaitable[Reply]:
        """The answer to a call."""


class RemoteDecisions:
    """Plans and executions at the other end; made by `MemoryClient`.

    The calls do, take, return and raise what the calls of `store.decisions` with the same names do.
    """

    def __init__(self, ask: UnaryCall, clock: Clock, background: Background) -> None:
        self._ask = ask
        self._clock = clock
        self._background = background

    async def save_plan(
        self, session: str, symbol: str, action: str, confidence: float, reasoning: str, method: str = ""
    ) -> str:
        """Save a plan, also when the same one was saved before; returns its `plan_hash`."""
        request = _plan(session, symbol, action, confidence, reasoning, method)
        return (await self._ask("SavePlan", request, pb.SavePlanResponse)).plan_hash

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
        """Save a plan unless the same one was saved in the time window; of racing planners exactly one saves."""
        plan = _plan(session, symbol, action, confidence, reasoning, method)
        check_window_ms(time_window_sec)
        request = pb.SaveIfNewRequest(plan=plan, time_window_sec=time_window_sec, similar=_threshold(similar))
        return record_of(SaveResult, await self._ask("SaveIfNew", request, pb.SaveIfNewResponse))

    async def get_recent_plans(self, session: str, symbol: str | None = None, limit: int = 10) -> list[PlanRecord]:
        """The newest plans of a session, newest first."""
        request = pb.GetRecentPlansRequest(
            session_id=check_name("session", session), symbol=_symbol(symbol), limit=check_limit(limit)
        )
        reply = await self._ask("GetRecentPlans", request, pb.GetRecentPlansResponse)
        return [record_of(PlanRecord, plan) for plan in reply.plans]

    async def check_duplicate(
        self,
        session: str,
        symbol: str,
        action: str,
        reasoning: str,
        time_window_sec: float = DEFAULT_WINDOW_S,
        similar: float | None = None,
    ) -> tuple[bool, PlanRecord | None]:
        """Whether the same plan was saved in the time window, and that plan."""
        check_decision(symbol, action, reasoning)
        check_window_ms(time_window_sec)
        request = pb.CheckDuplicateRequest(
            session_id=check_name("session", session),
            symbol=symbol,
            action=action,
            reasoning=reasoning,
            time_window_sec=time_window_sec,
            similar=_threshold(similar),
        )
        reply = await self._ask("CheckDuplicate", request, pb.CheckDuplicateResponse)
        return reply.is_duplicate, record_of(PlanRecord, reply.plan) if reply.HasField("plan") else None

    async def begin_execution(
        self, session: str, plan_hash: str, *, lease: float = 30.0, policy: TakeoverPolicy = "never"
    ) -> ExecutionClaim:
        """Claim the execution of a plan before doing it; of racing executors exactly one gets it."""
        check_lease_ms(lease)
        request = pb.BeginExecutionRequest(**_plan_key(session, plan_hash), lease_sec=lease, policy=_policy(policy))
        return record_of(ExecutionClaim, await self._ask("BeginExecution", request, pb.ExecutionClaim))

    async def renew(self, session: str, plan_hash: str, fence: int, *, lease: float = 30.0) -> ExecutionClaim:
        """Prolong a claim while the work goes on."""
        check_lease_ms(lease)
        request = pb.RenewExecutionRequest(**_plan_key(session, plan_hash), fence=_fence(fence), lease_sec=lease)
        return record_of(ExecutionClaim, await self._ask("RenewExecution", request, pb.ExecutionClaim))

    async def finish(
        self,
        session: str,
        plan_hash: str,
        fence: int,
        **outcome: Unpack[OutcomeFields],
    ) -> ExecutionRecord:
        """Record how a claimed execution ended."""
        request = pb.FinishExecutionRequest(
            **_plan_key(session, plan_hash),
            fence=_fence(fence),
            **_outcome(**outcome),
        )
        return record_of(ExecutionRecord, await self._ask("FinishExecution", request, pb.ExecutionRecord))

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
        """Record the one execution of a plan, also without a claim: the first to mark it wins."""
        request = pb.MarkExecutedRequest(
            **_plan_key(session, plan_hash),
            symbol=check_word("symbol", symbol),
            action=check_word("action", action),
            confidence=check_confidence(confidence),
            **_outcome(
                status=status,
                executed=executed,
                order_id=order_id,
                order_size_usdt=order_size_usdt,
                error=error,
            ),
            fence=None if fence is None else _fence(fence),
        )
        return record_of(ExecutionRecord, await self._ask("MarkExecuted", request, pb.ExecutionRecord))

    async def resolve(
        self,
        session: str,
        plan_hash: str,
        **outcome: Unpack[OutcomeFields],
    ) -> ExecutionRecord:
        """Say how an orphaned or unknown execution ended, after looking at the exchange."""
        request = pb.ResolveExecutionRequest(
            **_plan_key(session, plan_hash),
            **_outcome(**outcome),
        )
        return record_of(ExecutionRecord, await self._ask("ResolveExecution", request, pb.ExecutionRecord))

    async def check_executed(self, session: str, plan_hash: str) -> tuple[bool, ExecutionRecord | None]:
        """Whether a plan was executed, or is being executed, in whatever state that is."""
        request = pb.CheckExecutedRequest(**_plan_key(session, plan_hash))
        reply = await self._ask("CheckExecuted", request, pb.CheckExecutedResponse)
        return reply.executed, record_of(ExecutionRecord, reply.execution) if reply.HasField("execution") else None

    async def get_open_executions(self, session: str) -> list[ExecutionRecord]:
        """The executions that wait for an end: running, orphaned and unknown ones, oldest plan first."""
        request = pb.GetOpenExecutionsRequest(session_id=check_name("session", session))
        reply = await self._ask("GetOpenExecutions", request, pb.GetOpenExecutionsResponse)
        return [record_of(ExecutionRecord, record) for record in reply.executions]

    async def get_execution_stats(self, session: str, symbol: str | None = None) -> ExecutionStats:
        """How the executions of a session went."""
        request = pb.GetExecutionStatsRequest(session_id=check_name("session", session), symbol=_symbol(symbol))
        return record_of(ExecutionStats, await self._ask("GetExecutionStats", request, pb.ExecutionStats))

    @asynccontextmanager
    async def executing(
        self, session: str, plan_hash: str, *, lease: float = 30.0, policy: TakeoverPolicy = "never"
    ) -> AsyncIterator[Execution]:
        """Claim an execution for the length of the block, and renew the claim at a third of its lease."""
        block = hold_execution(self, self._clock, self._background, session, plan_hash, lease=lease, policy=policy)
        async with block as execution:
            yield execution

    async def sessions(self) -> list[str]:
        """The sessions that have plans, sorted."""
        reply = await self._ask("ListSessions", pb.ListSessionsRequest(), pb.ListSessionsResponse)
        return list(reply.session_ids)

    async def erase(self, session: str) -> int:
        """Remove all that a session has decided; returns how many plans it had."""
        request = pb.ForgetSessionRequest(session_id=check_name("session", session))
        return (await self._ask("ForgetSession", request, pb.ForgetSessionResponse)).removed


def _plan(session: str, symbol: str, action: str, confidence: float, reasoning: str, method: str) -> pb.SavePlanRequest:
    checked = prepare_plan(check_name("session", session), symbol, action, confidence, reasoning, method)
    return pb.SavePlanRequest(
        session_id=checked.session,
        symbol=checked.symbol,
        action=checked.action,
        confidence=checked.confidence,
        reasoning=checked.reasoning,
        method=checked.method,
    )


def _plan_key(session: str, plan_hash: str) -> dict[str, Any]:
    return {"session_id": check_name("session", session), "plan_hash": check_plan(plan_hash)}


def _threshold(similar: float | None) -> float | None:
    return None if similar is None else check_similarity("similar", similar)


def _symbol(symbol: str | None) -> str:
    return "" if symbol is None else check_word("symbol", symbol)


def _fence(fence: int) -> int:
    # No fence is larger; the message could not hold it either.
    return min(check_fence(fence), _LARGEST_FENCE)


def _policy(policy: TakeoverPolicy) -> TakeoverPolicy:
    if not isinstance(policy, str) or not policy:
        raise InvalidError("policy", policy, "say 'never' or 'takeover'")
    return policy


def _outcome(**outcome: Unpack[OutcomeFields]) -> dict[str, Any]:
    check_outcome(**outcome)
    return {**outcome, "error": _utf8(outcome.get("error", ""))}


def _utf8(text: str) -> str:
    # As at the server: an error text that cannot be sent must not prevent the record.
    return text.encode(errors="replace").decode()
