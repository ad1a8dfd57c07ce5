"""The gRPC service: authenticate a caller, run the call on its store, map errors to statuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, TypeVar, cast

import grpc
import orjson
from google.protobuf.message import Message
from grpc.aio import ServicerContext

from sharedmem.decisions.executions import TakeoverPolicy
from sharedmem.errors import InternalError, InvalidError, SharedMemoryError, UnavailableError
from sharedmem.faces.auth import Admission, Bearer, TokenRefusedError
from sharedmem.faces.grpc.contract import METHODS, SERVICE, Method, message_of
from sharedmem.faces.grpc.errors import status_of, trailers_of
from sharedmem.faces.grpc.v1 import memory_pb2 as pb
from sharedmem.hub import Hub
from sharedmem.models import Change, Gap
from sharedmem.runtime import get_logger
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
    policy = cast("TakeoverPolicy", ask.policy or "never")  # the store refuses what is none
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


async def _append_event(store: SharedMemoryStore, ask: pb.StoreRequest) -> pb.StoreResponse:
    event = _parse_json("event_json", ask.event_json)
    return pb.StoreResponse(events=await store.episodes.append_event(ask.session_id, event))


async def _retrieve(store: SharedMemoryStore, ask: pb.RetrieveRequest) -> pb.RetrieveResponse:
    filters = _parse_json("filters_json", ask.filters_json or "{}")
    if not isinstance(filters, dict):
        raise InvalidError("filters_json", ask.filters_json, 'give a JSON object, such as {"session": "btc"}')
    k = ask.k if ask.HasField("k") else _EVENTS
    return pb.RetrieveResponse(events=await store.episodes.retrieve(ask.query, k, filters))


async def _summarize(store: SharedMemoryStore, ask: pb.SummarizeRequest) -> pb.SummarizeResponse:
    return pb.SummarizeResponse(summary=await store.episodes.summarize_episode(ask.session_id))


async def _publish(store: SharedMemoryStore, ask: pb.PublishRequest) -> pb.PublishResponse:
    message = _parse_json("message_json", ask.message_json)
    return pb.PublishResponse(receivers=await store.publish(ask.channel, message))


def _lease_of(ask: pb.BeginExecutionRequest | pb.RenewExecutionRequest) -> float:
    return ask.lease_sec if ask.HasField("lease_sec") else _LEASE_S


def _parse_json(field: str, text: str) -> object:
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
    "Store": _append_event,
    "Retrieve": _retrieve,
    "Summarize": _summarize,
    "Publish": _publish,
}
"""By the name of the method."""


T = TypeVar("T")
Context = ServicerContext[Any, Any]
_logger = get_logger("grpc")
_BACK_AFTER_S = 0.5


class MemoryService:
    """Answers the calls of memory.proto.

    Args:
        hub: the memory.
        admission: who may call.
    """

    def __init__(self, hub: Hub, admission: Admission) -> None:
        self._hub = hub
        self._admission = admission
        self._stores: dict[Bearer, SharedMemoryStore] = {}
        self._closing = asyncio.Event()

    def end_streams(self) -> None:
        """Send watchers away, with a word that they should come back."""
        self._closing.set()

    def handlers(self) -> grpc.GenericRpcHandler:
        """What a grpc.aio server takes."""
        return grpc.method_handlers_generic_handler(SERVICE, {name: self._handler(METHODS[name]) for name in METHODS})

    def _handler(self, method: Method) -> grpc.RpcMethodHandler[Any, Any]:
        # The types know the callbacks of threaded servers only; grpc.aio takes coroutine functions in their place.
        spelled: Any = {"request_deserializer": method.takes.FromString, "response_serializer": _serialized}
        if method.streams:
            return grpc.unary_stream_rpc_method_handler(self._watching, **spelled)
        return grpc.unary_unary_rpc_method_handler(self._answering(method.name), **spelled)

    def _answering(self, name: str) -> Any:
        call = CALLS[name]

        async def answer(request: Message, context: Context) -> Message:
            if (left_s := context.time_remaining()) is not None and left_s <= 0:
                await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the deadline was over before the call began")
            return await _call_or_abort(context, name, lambda: self._run(call, request, context))

        return answer

    async def _run(
        self, call: Callable[[SharedMemoryStore, Any], Awaitable[Message]], request: Message, context: Context
    ) -> Message:
        return await call(await self._store_of(context), request)

    async def _watching(self, request: pb.WatchRequest, context: Context) -> AsyncGenerator[pb.WatchResponse, None]:
        steps = self._steps(request, context)
        async with aclosing(steps):
            while (step := await _call_or_abort(context, "Watch", lambda: anext(steps, None))) is not None:
                yield step

    async def _steps(self, request: pb.WatchRequest, context: Context) -> AsyncGenerator[pb.WatchResponse, None]:
        store, pattern = await self._store_of(context), request.pattern or "*"
        newest = await store.cursor(pattern)
        cursor = request.cursor or newest
        # Now the caller knows that it is connected, and from where on nothing is missed.
        yield pb.WatchResponse(cursor=cursor, started=pb.Started())
        changes = cast("AsyncGenerator[Change, None]", store.watch(pattern, since=cursor))
        async with aclosing(changes):
            while True:
                change = await self._unless_closing(anext(changes))
                # The token may have been taken back meanwhile.
                await self._store_of(context)
                yield _watch_response(change)

    async def _unless_closing(self, coming: Awaitable[T]) -> T:
        """What is coming.

        Raises:
            UnavailableError: the server closes.
        """
        news, closing = asyncio.ensure_future(coming), asyncio.ensure_future(self._closing.wait())
        try:
            await asyncio.wait((news, closing), return_when=asyncio.FIRST_COMPLETED)
            if news.done():
                return news.result()
            raise UnavailableError(
                "this server", "it shuts down; call again with your last cursor", retry_after=_BACK_AFTER_S
            )
        finally:
            news.cancel()
            closing.cancel()
            await asyncio.wait((news, closing))

    async def _store_of(self, context: Context) -> SharedMemoryStore:
        """The store with the rights of the caller.

        Raises:
            TokenRefusedError: nobody knows the caller.
        """
        metadata = dict(context.invocation_metadata() or ())
        authorization = metadata.get("authorization")
        try:
            bearer = await self._admission.admit(authorization if isinstance(authorization, str) else None)
        except TokenRefusedError:
            _logger.warning("a caller at %s showed no known token", context.peer())
            raise
        store = self._stores.get(bearer)
        if store is None:
            store = self._stores[bearer] = bearer.store(self._hub)
        return store


async def _call_or_abort(context: Context, name: str, call: Callable[[], Awaitable[T]]) -> T:
    """What the call answers; its error becomes a status."""
    try:
        return await call()
    except SharedMemoryError as error:
        refused: SharedMemoryError = error
    except Exception:
        _logger.exception("%s failed", name)
        refused = InternalError(f"{name} failed by a bug of sharedmem; the log of the server says how")
    return await context.abort(status_of(refused), refused.message_for("token"), trailers_of(refused))


def _serialized(message: Message) -> bytes:
    return message.SerializeToString()


def _watch_response(change: Change) -> pb.WatchResponse:
    if isinstance(change, Gap):
        return pb.WatchResponse(cursor=change.cursor, gap=pb.Gap(next_version=change.version, namespace=change.key))
    told = pb.Change(key=change.key, operation=change.operation, version=change.version, actor=change.actor)
    return pb.WatchResponse(cursor=change.cursor, change=told)
