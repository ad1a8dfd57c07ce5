"""The service: lets a caller in, runs the call with its rights, and tells errors as statuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeVar, cast

import grpc
from google.protobuf.message import Message
from grpc.aio import ServicerContext

from sharedmem.errors import InternalError, SharedMemoryError, UnavailableError
from sharedmem.faces.auth import Admission, Bearer, TokenRefusedError
from sharedmem.faces.grpc.calls import CALLS
from sharedmem.faces.grpc.contract import METHODS, SERVICE, Method
from sharedmem.faces.grpc.errors import status_of, trailers_of
from sharedmem.faces.grpc.v1 import memory_pb2 as pb
from sharedmem.hub import Hub
from sharedmem.models import Change, Gap
from sharedmem.store import SharedMemoryStore
from sharedmem.telemetry import get_logger

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
            return await _told(context, name, lambda: self._run(call, request, context))

        return answer

    async def _run(
        self, call: Callable[[SharedMemoryStore, Any], Awaitable[Message]], request: Message, context: Context
    ) -> Message:
        return await call(await self._store_of(context), request)

    async def _watching(self, request: pb.WatchRequest, context: Context) -> AsyncGenerator[pb.WatchResponse, None]:
        steps = self._steps(request, context)
        async with aclosing(steps):
            while (step := await _told(context, "Watch", lambda: anext(steps, None))) is not None:
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
                yield _step(change)

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


async def _told(context: Context, name: str, call: Callable[[], Awaitable[T]]) -> T:
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


def _step(change: Change) -> pb.WatchResponse:
    if isinstance(change, Gap):
        return pb.WatchResponse(cursor=change.cursor, gap=pb.Gap(next_version=change.version, namespace=change.key))
    told = pb.Change(key=change.key, operation=change.operation, version=change.version, actor=change.actor)
    return pb.WatchResponse(cursor=change.cursor, change=told)
