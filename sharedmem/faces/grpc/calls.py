"""The calls with one answer: each turns a message into a call on the store, and what comes back into a message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import orjson

from sharedmem.errors import InvalidError
from sharedmem.faces.grpc.contract import message_of
from sharedmem.faces.grpc.v1 import memory_pb2 as pb
from sharedmem.knowledge.executions import Policy
from sharedmem.store import SharedMemoryStore

_WINDOW_S = 300.0
_LEASE_S = 30.0
_PLANS = 10
_EVENTS = 5

# -- plans ----------------------------------------------------------------------------------------


async def _save_plan(store: SharedMemoryStore, ask: pb.SavePlanRequest) -> pb.SavePlanResponse:
    plan_hash = await store.decisions.save_plan(
        ask.session_id, ask.symbol, ask.action, ask.confidence, ask.reasoning, ask.method
    )
    return pb.SavePlanResponse(plan_hash=plan_hash)


async def _save_if_new(store: SharedMemoryStore, ask: pb.SaveIfNewRequest) -> pb.SaveIfNewResponse:
    plan, window_s = ask.plan, ask.time_window_sec if ask.HasField("time_window_sec") else _WINDOW_S
    result = await store.decisions.save_if_new(
        plan.session_id, plan.symbol, plan.action, plan.confidence, plan.reasoning, plan.method, window_s
    )
    return message_of(pb.SaveIfNewResponse, result)


async def _get_recent_plans(store: SharedMemoryStore, ask: pb.GetRecentPlansRequest) -> pb.GetRecentPlansResponse:
    limit = ask.limit if ask.HasField("limit") else _PLANS
    plans = await store.decisions.get_recent_plans(ask.session_id, ask.symbol or None, limit)
    return pb.GetRecentPlansResponse(plans=[message_of(pb.PlanRecord, plan) for plan in plans])


async def _check_duplicate(store: SharedMemoryStore, ask: pb.CheckDuplicateRequest) -> pb.CheckDuplicateResponse:
    window_s = ask.time_window_sec if ask.HasField("time_window_sec") else _WINDOW_S
    is_duplicate, plan = await store.decisions.check_duplicate(
        ask.session_id, ask.symbol, ask.action, ask.reasoning, window_s
    )
    return pb.CheckDuplicateResponse(is_duplicate=is_duplicate, plan=message_of(pb.PlanRecord, plan) if plan else None)


# -- executions -----------------------------------------------------------------------------------


async def _begin_execution(store: SharedMemoryStore, ask: pb.BeginExecutionRequest) -> pb.ExecutionClaim:
    policy = cast("Policy", ask.policy or "never")  # the store refuses what is none
    claim = await store.decisions.begin_execution(ask.session_id, ask.plan_hash, lease=_lease_of(ask), policy=policy)
    return message_of(pb.ExecutionClaim, claim)


async def _renew_execution(store: SharedMemoryStore, ask: pb.RenewExecutionRequest) -> pb.ExecutionClaim:
    claim = await store.decisions.renew(ask.session_id, ask.plan_hash, ask.fence, lease=_lease_of(ask))
    return message_of(pb.ExecutionClaim, claim)


async def _finish_execution(store: SharedMemoryStore, ask: pb.FinishExecutionRequest) -> pb.ExecutionRecord:
    record = await store.decisions.finish(
        ask.session_id,
        ask.plan_hash,
        ask.fence,
        status=ask.status,
        executed=ask.executed if ask.HasField("executed") else None,
        order_id=ask.order_id,
        order_size_usdt=ask.order_size_usdt,
        error=ask.error,
    )
    return message_of(pb.ExecutionRecord, record)


async def _resolve_execution(store: SharedMemoryStore, ask: pb.ResolveExecutionRequest) -> pb.ExecutionRecord:
    record = await store.decisions.resolve(
        ask.session_id,
        ask.plan_hash,
        status=ask.status,
        executed=ask.executed if ask.HasField("executed") else None,
        order_id=ask.order_id,
        order_size_usdt=ask.order_size_usdt,
        error=ask.error,
    )
    return message_of(pb.ExecutionRecord, record)


async def _mark_executed(store: SharedMemoryStore, ask: pb.MarkExecutedRequest) -> pb.ExecutionRecord:
    record = await store.decisions.mark_executed(
        ask.session_id,
        ask.plan_hash,
        ask.symbol,
        ask.action,
        ask.confidence,
        ask.status,
        ask.executed,
        ask.order_id,
        ask.order_size_usdt,
        ask.error,
        fence=ask.fence if ask.HasField("fence") else None,
    )
    return message_of(pb.ExecutionRecord, record)


async def _check_executed(store: SharedMemoryStore, ask: pb.CheckExecutedRequest) -> pb.CheckExecutedResponse:
    executed, record = await store.decisions.check_executed(ask.session_id, ask.plan_hash)
    return pb.CheckExecutedResponse(
        executed=executed, execution=message_of(pb.ExecutionRecord, record) if record else None
    )


async def _get_open_executions(
    store: SharedMemoryStore, ask: pb.GetOpenExecutionsRequest
) -> pb.GetOpenExecutionsResponse:
    records = await store.decisions.get_open_executions(ask.session_id)
    return pb.GetOpenExecutionsResponse(executions=[message_of(pb.ExecutionRecord, record) for record in records])


async def _get_execution_stats(store: SharedMemoryStore, ask: pb.GetExecutionStatsRequest) -> pb.ExecutionStats:
    stats = await store.decisions.get_execution_stats(ask.session_id, ask.symbol or None)
    return message_of(pb.ExecutionStats, stats)


async def _list_sessions(store: SharedMemoryStore, _: pb.ListSessionsRequest) -> pb.ListSessionsResponse:
    return pb.ListSessionsResponse(session_ids=await store.decisions.sessions())


async def _forget_session(store: SharedMemoryStore, ask: pb.ForgetSessionRequest) -> pb.ForgetSessionResponse:
    return pb.ForgetSessionResponse(removed=await store.decisions.forget(ask.session_id))


# -- episodes and messages ------------------------------------------------------------------------


async def _store(store: SharedMemoryStore, ask: pb.StoreRequest) -> pb.StoreResponse:
    event = _json("event_json", ask.event_json)
    return pb.StoreResponse(events=await store.episodes.append_event(ask.session_id, event))


async def _retrieve(store: SharedMemoryStore, ask: pb.RetrieveRequest) -> pb.RetrieveResponse:
    filters = _json("filters_json", ask.filters_json or "{}")
    if not isinstance(filters, dict):
        raise InvalidError("filters_json", ask.filters_json, 'give a JSON object, such as {"session": "btc"}')
    k = ask.k if ask.HasField("k") else _EVENTS
    return pb.RetrieveResponse(events=await store.episodes.retrieve(ask.query, k, filters))


async def _summarize(store: SharedMemoryStore, ask: pb.SummarizeRequest) -> pb.SummarizeResponse:
    return pb.SummarizeResponse(summary=await store.episodes.summarize_episode(ask.session_id))


async def _publish(store: SharedMemoryStore, ask: pb.PublishRequest) -> pb.PublishResponse:
    message = _json("message_json", ask.message_json)
    return pb.PublishResponse(receivers=await store.publish(ask.channel, message))


def _lease_of(ask: pb.BeginExecutionRequest | pb.RenewExecutionRequest) -> float:
    return ask.lease_sec if ask.HasField("lease_sec") else _LEASE_S


def _json(field: str, text: str) -> object:
    """The value of a JSON text.

    Raises:
        InvalidError: it is none.
    """
    try:
        return cast("object", orjson.loads(text))
    except orjson.JSONDecodeError as error:
        raise InvalidError(field, text, f"give JSON; a text stands in quotes ({error})") from error


CALLS: Mapping[str, Callable[[SharedMemoryStore, Any], Awaitable[Any]]] = {
    "SavePlan": _save_plan,
    "SaveIfNew": _save_if_new,
    "GetRecentPlans": _get_recent_plans,
    "CheckDuplicate": _check_duplicate,
    "BeginExecution": _begin_execution,
    "RenewExecution": _renew_execution,
    "FinishExecution": _finish_execution,
    "ResolveExecution": _resolve_execution,
    "MarkExecuted": _mark_executed,
    "CheckExecuted": _check_executed,
    "GetOpenExecutions": _get_open_executions,
    "GetExecutionStats": _get_execution_stats,
    "ListSessions": _list_sessions,
    "ForgetSession": _forget_session,
    "Store": _store,
    "Retrieve": _retrieve,
    "Summarize": _summarize,
    "Publish": _publish,
}
"""By the name of the method."""
