"""The gRPC server: its address and TLS, health, reflection, graceful shutdown; and its service.

The service authenticates a caller, runs the call on its store, and maps errors to statuses.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar, cast

import grpc
import grpc.aio
import orjson
from google.protobuf.message import Message
from grpc.aio import ServicerContext
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from sharedmem.api import Operation
from sharedmem.api.operation import find_operation
from sharedmem.clock import Clock, SystemClock
from sharedmem.errors import ConfigError, InternalError, InvalidError, SharedMemoryError, UnavailableError
from sharedmem.faces.auth import Admission, Bearer, Everyone, TokenRefusedError
from sharedmem.faces.bodies import json_bytes
from sharedmem.faces.grpc.contract import (
    METHODS,
    SERVICE,
    Method,
    message_fields,
    message_of,
    plain_fields,
    status_of,
    trailers_of,
)
from sharedmem.faces.grpc.v1 import memory_pb2 as pb
from sharedmem.faces.limits import CpuQuotas, TokenRateLimiter
from sharedmem.faces.listen_address import ListenAddress, check_access, format_address, read_pem
from sharedmem.hub import Hub
from sharedmem.models import Change, Gap
from sharedmem.runtime import get_logger
from sharedmem.runtime.concurrency import Background
from sharedmem.runtime.telemetry import TRACEPARENT, AttributeValue, work_span
from sharedmem.store import SharedMemoryStore

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
"""Room for the longest reasoning (1 MiB) and what goes with it, four times over."""
_MOST_MESSAGE_BYTES = 256 * 1024 * 1024
_LEAST_MESSAGE_BYTES = 1024


@dataclass(frozen=True)
class GrpcAddress(ListenAddress):
    """An address for gRPC, and who may come to it.

    Args:
        host, tls_cert_file, tls_key_file, tls_client_ca_file, trust_network: as `ListenAddress`.
        port: 0 takes a free one.
        max_message_bytes: longer requests are refused with RESOURCE_EXHAUSTED.
    """

    port: int = 50_051
    max_message_bytes: int = MAX_MESSAGE_BYTES

    def check(self, *, has_tokens: bool) -> None:
        """Refuse what cannot work, and what would let strangers in.

        Raises:
            ConfigError: a number is out of bounds, TLS is half given, or others could come in unasked.
        """
        if not _LEAST_MESSAGE_BYTES <= self.max_message_bytes <= _MOST_MESSAGE_BYTES:
            wish = f"give {_LEAST_MESSAGE_BYTES} to {_MOST_MESSAGE_BYTES} bytes"
            raise ConfigError("max_message_bytes", "argument", f"{self.max_message_bytes} is refused: {wish}")
        super().check(has_tokens=has_tokens)

    def credentials(self) -> grpc.ServerCredentials | None:
        """What grpc needs for TLS; None without TLS. Reads files.

        Raises:
            ConfigError: a file cannot be read, holds no PEM, or the key is another certificate's.
        """
        if self.tls_cert_file is None or self.tls_key_file is None:
            return None
        self.check_files()
        authorities = (
            None if self.tls_client_ca_file is None else read_pem("tls_client_ca_file", self.tls_client_ca_file)
        )
        pair = (read_pem("tls_key_file", self.tls_key_file), read_pem("tls_cert_file", self.tls_cert_file))
        return grpc.ssl_server_credentials([pair], authorities, authorities is not None)


GRACE_S = 10.0
_HEALTH_EVERY_S = 2.0
_HEALTH_PATIENCE_S = 2.0
_SERVED = ("", SERVICE)
_logger = get_logger("grpc")


class MemoryServer:
    """Serves a hub: `async with MemoryServer(hub, tokens=Tokens.read(path)) as server: await server.wait()`.

    Health checks and reflection need no token: they show whether it works and what can be called.

    Args:
        hub: the memory; it must be open for as long as the server runs, and stays open afterwards.
        endpoint: where to listen.
        tokens: who may call: `Tokens` of a file, a `Registry`. None treats every caller as `everyone`.
        everyone: whom callers are taken for where there are no tokens.
        grace_s: seconds that calls under way get to end when the server stops.
        health_every_s: seconds between two looks whether Redis answers.
        clock: source of the time.
    """

    def __init__(
        self,
        hub: Hub,
        endpoint: GrpcAddress | None = None,
        *,
        tokens: Admission | None = None,
        everyone: Bearer | None = None,
        grace_s: float = GRACE_S,
        health_every_s: float = _HEALTH_EVERY_S,
        clock: Clock | None = None,
    ) -> None:
        self._hub = hub
        self._endpoint = endpoint or GrpcAddress()
        self._tokens = tokens
        self._admission = tokens or Everyone(everyone or Bearer(namespace="default"))
        self._grace_s = grace_s
        self._health_every_s = health_every_s
        self._clock = clock or SystemClock()
        self._running: _RunningServer | None = None

    @property
    def endpoint(self) -> GrpcAddress:
        """Where it listens; while it runs with its real port."""
        return self._endpoint

    @property
    def target(self) -> str:
        """What clients of this machine take to find it."""
        return self._endpoint.address

    async def start(self) -> None:
        """Listen.

        Raises:
            ConfigError: the address cannot be listened at, a certificate is of no use, strangers could come in, or
                there are tokens while the hub's access policy is `open`.
        """
        endpoint = self._endpoint
        endpoint.check(has_tokens=self._tokens is not None)
        check_access(self._hub.settings, has_tokens=self._tokens is not None)
        credentials = await asyncio.to_thread(endpoint.credentials)
        await asyncio.to_thread(endpoint.check_free)
        running = _RunningServer(self._hub, MemoryService(self._hub, self._admission), endpoint)
        port = running.listen(endpoint, credentials)
        await self._tell_health(running)
        await running.server.start()
        self._endpoint = replace(endpoint, port=port)
        running.background.start("watch health", self._follow_health(running))
        self._running = running

    async def wait(self) -> None:
        """Return when the server has stopped."""
        if self._running is not None:
            await self._running.server.wait_for_termination()

    async def stop(self) -> None:
        """Say so to health checks, take no more calls, send watchers away, and let the other calls end in their time.

        The second call does nothing.
        """
        running, self._running = self._running, None
        if running is None:
            return
        await running.background.close()
        await running.health.enter_graceful_shutdown()
        running.service.end_streams()
        await running.server.stop(self._grace_s)

    async def _follow_health(self, running: _RunningServer) -> None:
        while True:
            await self._clock.sleep(self._health_every_s)
            await self._tell_health(running)

    async def _tell_health(self, running: _RunningServer) -> None:
        """Report to health checks whether Redis answers, and log changes of that."""
        answers = await self._redis_answers()
        if answers != running.answers:
            _logger.warning("%s: Redis %s", self.target, "answers" if answers else "does not answer any more")
        running.answers = answers
        for name in _SERVED:
            await running.health.set(name, _STATUS[answers])

    async def _redis_answers(self) -> bool:
        try:
            async with asyncio.timeout(_HEALTH_PATIENCE_S):
                return (await self._hub.health()).ok
        except (SharedMemoryError, TimeoutError):
            return False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def __repr__(self) -> str:
        who = repr(self._tokens) if self._tokens else "everybody"
        return f"<MemoryServer {format_address(self._endpoint.host, self._endpoint.port)} for {who}>"


_STATUS = {
    True: health_pb2.HealthCheckResponse.SERVING,
    False: health_pb2.HealthCheckResponse.NOT_SERVING,
}


class _RunningServer:
    """The parts of a server that listens."""

    def __init__(self, hub: Hub, service: MemoryService, endpoint: GrpcAddress) -> None:
        self.service = service
        self.answers = True
        self.health = health.aio.HealthServicer()
        self.background = Background(hub.counters)
        self.server = grpc.aio.server(options=_options(endpoint))
        self.server.add_generic_rpc_handlers((service.handlers(),))
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self.server)
        reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), self.server)

    def listen(self, endpoint: GrpcAddress, credentials: grpc.ServerCredentials | None) -> int:
        """Take the port; returns which one it is.

        Raises:
            UnavailableError: another process has taken it in this moment.
        """
        try:
            if credentials is None:
                return self.server.add_insecure_port(endpoint.address)
            return self.server.add_secure_port(endpoint.address, credentials)
        except RuntimeError as error:
            raise UnavailableError(f"listening at {endpoint.address}", str(error)) from error


def _options(endpoint: GrpcAddress) -> list[tuple[str, int]]:
    return [
        # Two servers on one port would each answer half of the calls.
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", endpoint.max_message_bytes),
        # A long plan list is the caller's wish; what it takes is the caller's setting.
        ("grpc.max_send_message_length", -1),
        # Clients look with pings whether a silent connection still lives: every 30 s, also without a call.
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
    ]


# -- the service ----------------------------------------------------------------------------------


FIELD_NAMES = {"session_id": "session", "lease_sec": "lease"}
"""Fields of the contract that have another name in the table; `..._json` holds a field as JSON."""


class TableCall(NamedTuple):
    """A method of the contract that is an operation of the table."""

    operation: str
    answers: str = ""
    """The field of the reply that holds the answer; empty where the answer is a record with the fields of the reply."""

    async def run(self, bearer: Bearer, store: SharedMemoryStore, request: Message, gives: type[Message]) -> Message:
        """Run the operation.

        Raises:
            InvalidError: a field of the request is invalid.
            ReadOnlyTokenError: it changes something, and the token may only read.
            SharedMemoryError: as the operation.
        """
        row = find_operation(self.operation)
        bearer.check_right(row.name, row.needs)
        answer = await row.run(store, row.request(_fields_for(row, request)))
        return gives(**{self.answers: plain_fields(answer)}) if self.answers else message_of(gives, answer)


TABLE_CALLS: Mapping[str, TableCall] = {
    "SavePlan": TableCall("plan.save", "plan_hash"),
    "SaveIfNew": TableCall("plan.save_if_new"),
    "GetRecentPlans": TableCall("plan.list", "plans"),
    "CheckDuplicate": TableCall("plan.check"),
    "BeginExecution": TableCall("execution.begin"),
    "RenewExecution": TableCall("execution.renew"),
    "FinishExecution": TableCall("execution.finish"),
    "ResolveExecution": TableCall("execution.resolve"),
    "MarkExecuted": TableCall("execution.mark"),
    "CheckExecuted": TableCall("execution.check"),
    "GetOpenExecutions": TableCall("execution.open", "executions"),
    "GetExecutionStats": TableCall("execution.stats"),
    "ListSessions": TableCall("plan.sessions", "session_ids"),
    "ForgetSession": TableCall("plan.erase", "removed"),
    "Store": TableCall("episode.append", "events"),
    "Retrieve": TableCall("episode.search", "events"),
    "Summarize": TableCall("episode.summarize", "summary"),
    "Publish": TableCall("message.publish", "receivers"),
}
"""By the name of the method."""


def _fields_for(row: Operation[Any], request: Message) -> dict[str, object]:
    """Return the fields of an operation's request. An empty text means the default, where there is one."""
    told = message_fields(request)
    if isinstance(plan := told.pop("plan", None), dict):
        told |= plan
    fields: dict[str, object] = {}
    for name, value in told.items():
        if name.endswith("_json"):
            fields[name.removesuffix("_json")] = value and _parse_json(name, str(value))
        else:
            fields[FIELD_NAMES.get(name, name)] = value
    takes = row.takes.model_fields
    return {name: value for name, value in fields.items() if value != "" or takes[name].is_required()}


def _parse_json(field: str, text: str) -> object:
    """Return the value of a JSON text.

    Raises:
        InvalidError: it is not JSON.
    """
    try:
        return cast("object", orjson.loads(text))
    except orjson.JSONDecodeError as error:
        raise InvalidError(field, text, f"give JSON; a text is in quotes ({error})") from error


T = TypeVar("T")
Context = ServicerContext[Any, Any]
_BACK_AFTER_S = 0.5


class MemoryService:
    """Implements the calls of memory.proto.

    Args:
        hub: the memory; it has to be open.
        admission: who may call.
    """

    def __init__(self, hub: Hub, admission: Admission) -> None:
        self._hub = hub
        self._counters = hub.counters
        self._admission = admission
        self._quotas = CpuQuotas(hub)
        self._rates = TokenRateLimiter(hub)
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
        run = self._call if method.name == "Call" else partial(self._run, method)
        return grpc.unary_unary_rpc_method_handler(self._answering(method.name, run), **spelled)

    def _answering(self, name: str, run: Callable[[Any, Context], Awaitable[Message]]) -> Any:
        async def answer(request: Message, context: Context) -> Message:
            async with self._measured(name, context):
                if (left_s := context.time_remaining()) is not None and left_s <= 0:
                    await context.abort(
                        grpc.StatusCode.DEADLINE_EXCEEDED, "the deadline was over before the call began"
                    )
                return await _call_or_abort(context, name, lambda: run(request, context))

        return answer

    @asynccontextmanager
    async def _measured(self, name: str, context: Context) -> AsyncIterator[None]:
        """Time a call, count it by its status, and run it as a span."""
        began = time.perf_counter()
        status = grpc.StatusCode.CANCELLED.name
        try:
            with _span(name, context):
                yield
            status = grpc.StatusCode.OK.name
        except (grpc.aio.AbortError, Exception):
            status = _status_name(context.code())
            raise
        finally:
            self._counters.observe("grpc_seconds", time.perf_counter() - began, method=name)
            self._counters.increment("grpc_requests", method=name, status=status)

    async def _run(self, method: Method, request: Message, context: Context) -> Message:
        bearer = await self._admit(context)
        return await TABLE_CALLS[method.name].run(bearer, self._store_of(bearer), request, method.gives)

    async def _call(self, request: pb.CallRequest, context: Context) -> pb.CallResponse:
        """Run any operation of the table. It counts for the rate of the token, and bulk work for its CPU quota."""
        bearer = await self._admit(context)
        await self._rates.take(bearer)
        row = find_operation(request.operation)
        bearer.check_right(row.name, row.needs)
        fields = _parse_json("request_json", request.request_json or "{}")
        if not isinstance(fields, dict):
            raise InvalidError("request_json", request.request_json, 'give a JSON object, such as {"key": "plan"}')
        store, asked = self._store_of(bearer), row.request(fields)

        async def work() -> object:
            return await row.run(store, asked)

        answer = await (self._quotas.run(bearer, work()) if row.http.bulk else work())
        return pb.CallResponse(answer_json=json_bytes(answer).decode())

    async def _watching(self, request: pb.WatchRequest, context: Context) -> AsyncGenerator[pb.WatchResponse, None]:
        steps = self._steps(request, context)
        async with self._measured("Watch", context), aclosing(steps):
            while (step := await _call_or_abort(context, "Watch", lambda: anext(steps, None))) is not None:
                yield step

    async def _steps(self, request: pb.WatchRequest, context: Context) -> AsyncGenerator[pb.WatchResponse, None]:
        store, pattern = self._store_of(await self._admit(context)), request.pattern or "*"
        newest = await store.cursor(pattern)
        cursor = request.cursor or newest
        # Now the caller knows that it is connected, and from where on nothing is missed.
        yield pb.WatchResponse(cursor=cursor, started=pb.Started())
        changes = cast("AsyncGenerator[Change, None]", store.watch(pattern, since=cursor))
        async with aclosing(changes):
            while True:
                change = await self._unless_closing(anext(changes))
                # The token may have been taken back meanwhile.
                await self._admit(context)
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

    async def _admit(self, context: Context) -> Bearer:
        """Return the caller.

        Raises:
            TokenRefusedError: the caller shows no known token.
        """
        metadata = dict(context.invocation_metadata() or ())
        authorization = metadata.get("authorization")
        try:
            return await self._admission.admit(authorization if isinstance(authorization, str) else None)
        except TokenRefusedError:
            _logger.warning("a caller at %s showed no known token", context.peer())
            raise

    def _store_of(self, bearer: Bearer) -> SharedMemoryStore:
        store = self._stores.get(bearer)
        if store is None:
            store = self._stores[bearer] = bearer.store(self._hub)
        return store


def _span(name: str, context: Context) -> AbstractContextManager[object]:
    """Return the span of a call, a child of the span that its client sent along."""
    sent = dict(context.invocation_metadata() or ()).get(TRACEPARENT)
    attributes: dict[str, AttributeValue] = {"rpc.system": "grpc", "rpc.service": SERVICE, "rpc.method": name}
    parent = sent if isinstance(sent, str) else None
    return work_span(f"{SERVICE}/{name}", attributes, role="server", traceparent=parent)


def _status_name(code: object) -> str:
    """Return the name of a status, which grpc.aio holds as a number although its types say otherwise."""
    found = (status for status in grpc.StatusCode if code in {status, status.value[0]})
    return next(found, grpc.StatusCode.UNKNOWN).name


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
