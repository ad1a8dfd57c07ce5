"""The REST service: open the hub, authenticate the caller, route to the endpoint, map errors to problems.

Around every request are ids, security headers and limits of headers. A large answer holds the event loop, and the
connection to Redis, for as long as it takes to read and to encode. So each caller has, for each operation, only so many
calls under way as its answers are small; the others wait in line. And a caller whose answers are not read is refused
more of them.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable, Mapping, MutableMapping
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sharedmem.clock import Clock, new_id
from sharedmem.errors import InternalError, LimitedError, SharedMemoryError, UnavailableError
from sharedmem.faces.auth import Admission, Bearer, TokenEntry, TokenRefusedError
from sharedmem.faces.bodies import RequestError
from sharedmem.faces.limits import CpuQuotas, TokenRateLimiter
from sharedmem.faces.rest.context import Call, Endpoint, Gate, RestOptions
from sharedmem.faces.rest.disconnect import run_until_disconnect
from sharedmem.faces.rest.handlers import PREFIX, Router, raw_path_of
from sharedmem.faces.rest.problems import REQUEST_ID, HeadersTooLargeError, OverdueError, problem_response
from sharedmem.hub import Hub
from sharedmem.runtime import Counters, get_logger
from sharedmem.runtime.telemetry import TRACEPARENT, ActiveSpan, AttributeValue, work_span
from sharedmem.store import SharedMemoryStore


class HubOpening:
    """Opens a hub once, and closes it.

    Args:
        hub: not open yet.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._opening = asyncio.Lock()
        self._is_open = self._has_ended = False

    async def open(self) -> None:
        """Open the hub unless it is open; a failure is tried anew by the next call.

        Raises:
            UnavailableError: the server cannot be reached, or the application has ended.
            ConfigError, UnsupportedError: as entering a `Hub`.
        """
        if self._is_open:
            return
        async with self._opening:
            if self._has_ended:
                raise UnavailableError("this server", "it shuts down; call again")
            if not self._is_open:
                await self._hub.__aenter__()
                self._is_open = True

    async def close(self) -> None:
        """Close the hub, for good."""
        async with self._opening:
            self._has_ended, was_open, self._is_open = True, self._is_open, False
            if was_open:
                await self._hub.close()


class SettingsAdmission:
    """Admits every caller as the actor of the hub's settings, which are known when it is open.

    Args:
        hub: the memory.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._bearer: Bearer | None = None

    async def admit(self, authorization: str | None) -> Bearer:  # noqa: ARG002  the name is that of `Admission`
        """Return the actor of the settings."""
        if self._bearer is None:
            settings = self._hub.settings
            self._bearer = Bearer.of(settings.namespace, actor=settings.actor, operator=True)
        return self._bearer


class RateLimitGate:
    """A gate that lets each token in as often as it may.

    Args:
        hub: to the server that has the buckets; it has to be open when calls come.
        clock: source of the time.
    """

    def __init__(self, hub: Hub, *, clock: Clock | None = None) -> None:
        self._allowances = TokenRateLimiter(hub, clock=clock)

    async def __call__(self, call: Call) -> dict[str, str]:
        """Count a call; returns the headers with the state of the caller's limit.

        Raises:
            RateLimitedError: the caller comes too often.
            UnavailableError: the bucket cannot be looked into.
        """
        standing = await self._allowances.take(call.bearer)
        return {} if standing is None else standing.headers()


_MOST_STORES = 1024
_ONLY_ONCE = (b"authorization", b"content-type", b"content-length", b"idempotency-key", b"if-match", b"x-request-id")
# Former routes are the routes of 0.1; the date is of the release after it, in seconds since 1970.
_DEPRECATED_SINCE = "@1795392000"


class RestService:
    """Answers everything below `/api/v1`.

    Args:
        hub: the memory; it has to be open when calls come.
        admission: who may call.
        terms: how much it takes, and for how long it waits.
        gate: asked before each call; raises LimitedError for callers over their rate.
        opening: opens the hub, if that is left to the service.
    """

    def __init__(
        self,
        hub: Hub,
        admission: Admission,
        terms: RestOptions,
        gate: Gate | None = None,
        *,
        opening: HubOpening | None = None,
    ) -> None:
        self.hub = hub
        self.terms = terms
        self.closing = asyncio.Event()
        self._admission = admission
        self._gate = gate
        self._opening = opening
        self._tenants: dict[str, tuple[Counters, Counters]] = {}
        self._quotas = CpuQuotas(hub)
        self._turns = CallQueues()
        self._unread = UnreadResponses()
        self._paths = Router(())
        self._stores: dict[Bearer, SharedMemoryStore] = {}

    def offer(self, endpoints: Iterable[Endpoint]) -> None:
        """Answer these from now on, and nothing else."""
        self._paths = Router(endpoints)

    async def start(self) -> None:
        """Open the hub, if that is left to the service; also a call does so.

        Raises:
            UnavailableError, ConfigError, UnsupportedError: as entering a `Hub`.
        """
        if self._opening is not None:
            await self._opening.open()

    async def end(self) -> None:
        """End streams, and close the hub if the service has opened it."""
        self.end_streams()
        if self._opening is not None:
            await self._opening.close()

    def end_streams(self) -> None:
        """End all streams with a last event."""
        self.closing.set()

    async def known(self, request: Request) -> Bearer | None:
        """Who sent a request; None for strangers, and while that cannot be looked up."""
        try:
            await self.start()
            return await self._admission.admit(request.headers.get("authorization"))
        except SharedMemoryError:
            return None

    def counters_of(self, namespace: str) -> Counters:
        """What this process has counted of the calls of a namespace's tokens."""
        return self._counters(namespace)[1]

    def _counters(self, namespace: str) -> tuple[Counters, Counters]:
        """Return the counters for the calls of a namespace's tokens: of all calls, and of this namespace."""
        found = self._tenants.get(namespace)
        if found is None:
            if len(self._tenants) >= _MOST_STORES:
                self._tenants.clear()
            found = self._tenants[namespace] = (self.hub.counters, Counters())
        return found

    async def admit(self, request: Request) -> Bearer:
        """Who sent a request.

        Raises:
            TokenRefusedError: the token is unknown.
            UnavailableError: who it is cannot be looked up just now.
        """
        await self.start()
        try:
            return await self._admission.admit(request.headers.get("authorization"))
        except TokenRefusedError:
            _logger.warning("a caller at %s showed no known token", request.client.host if request.client else "?")
            raise

    async def respond(self, scope: Scope, receive: Receive) -> Response:
        """The response to a request; every error is one too."""
        try:
            return await self._answer(Request(scope, receive))
        except SharedMemoryError as error:
            return problem_response(error)
        except ClientDisconnect:
            # The client is gone.
            return Response(status_code=400)
        except Exception as error:
            _logger.exception("request %s: %s %s failed", REQUEST_ID.get(), scope["method"], scope["path"])
            return problem_response(InternalError(f"{scope['path']} failed: {error!r}"))

    async def _answer(self, request: Request) -> Response:
        _check_headers(request.scope["headers"])
        endpoint, params = self._paths.find(request.method, raw_path_of(request.scope))
        with _span(request, endpoint) as active:
            response = await self._counted(request, endpoint, params)
            if active is not None:
                active.set({"http.response.status_code": response.status_code})
            return response

    async def _counted(self, request: Request, endpoint: Endpoint, params: dict[str, str]) -> Response:
        # Before anything is counted: a hub that is closed counts nothing.
        await self.start()
        began, status, counted = time.perf_counter(), 500, None
        try:
            bearer = await self.admit(request)
            counted = self._counters(bearer.namespace)
            response = await self._let_in(request, endpoint, params, bearer)
        except SharedMemoryError as error:
            status = error.codes.http_status
            raise
        else:
            status = response.status_code
            return response
        finally:
            for counters in counted or (self.hub.counters,):
                counters.increment("http_requests", operation=endpoint.name, status=str(status))
                counters.observe("http_seconds", time.perf_counter() - began, operation=endpoint.name)

    async def _let_in(self, request: Request, endpoint: Endpoint, params: dict[str, str], bearer: Bearer) -> Response:
        call = Call(
            request=request,
            hub=self.hub,
            store=self._store(bearer),
            bearer=bearer,
            caller=bearer.sha256 if isinstance(bearer, TokenEntry) else "everyone",
            params=params,
            terms=self.terms,
            closing=self.closing,
            quotas=self._quotas,
        )
        if isinstance(bearer, TokenEntry):
            self._unread.check(call.caller)
        headers: Mapping[str, str] = {} if self._gate is None else await self._gate(call)
        try:
            bearer.check_right(endpoint.name, endpoint.needs)
            response = await self._in_time(endpoint, call)
        except SharedMemoryError as error:
            response = problem_response(error)
        if headers:
            response.headers.update(headers)
        if endpoint.successor:
            _deprecate(response, endpoint.successor, params)
        return self._unread.counted(call.caller, response)

    async def _in_time(self, endpoint: Endpoint, call: Call) -> Response:
        limit = self.terms.answer_within_s if endpoint.is_limited else None
        try:
            async with asyncio.timeout(limit) as within:
                if endpoint.waits:
                    # A client that has left meanwhile must not get a task or a lock.
                    await call.body()
                    work = endpoint.handler(call)
                    return await run_until_disconnect(work, call.request.receive, closing=call.closing)
                async with self._turns.of(call.caller, endpoint.name) as line:
                    work = endpoint.handler(call)
                    response = await (call.quotas.run(call.bearer, work) if endpoint.is_bulk else work)
                    self._turns.note(line, response)
                    return response
        except TimeoutError:
            if within.expired():
                raise OverdueError(self.terms.answer_within_s) from None
            raise

    def _store(self, bearer: Bearer) -> SharedMemoryStore:
        store = self._stores.get(bearer)
        if store is None:
            if len(self._stores) >= _MOST_STORES:
                self._stores.clear()
            store = self._stores[bearer] = bearer.store(self.hub)
        return store


class ServiceMiddleware:
    """Hands what is below `/api/v1` to the service, and all else to the application.

    It is in front of the router of the application, whose dependency machinery an operation does not need.

    Args:
        app: the application.
        service: the service.
    """

    def __init__(self, app: ASGIApp, service: RestService) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, as ASGI hands it over."""
        if scope["type"] != "http" or not raw_path_of(scope).startswith(PREFIX + "/"):
            await self._app(scope, receive, send)
            return
        response = await self._service.respond(scope, receive)
        await response(scope, receive, send)


def _span(request: Request, endpoint: Endpoint) -> AbstractContextManager[ActiveSpan | None]:
    """Return the span of a request, a child of the span that its client sent along."""
    route = PREFIX + endpoint.path
    attributes: dict[str, AttributeValue] = {
        "http.request.method": request.method,
        "http.route": route,
        "sharedmem.operation": endpoint.name,
    }
    sent = request.headers.get(TRACEPARENT)
    return work_span(f"{request.method} {route}", attributes, role="server", traceparent=sent)


def _deprecate(response: Response, successor: str, params: dict[str, str]) -> None:
    """Show that a route is a former one, and which to use (RFC 9745)."""
    path = successor.format_map({name: quote(value, safe="") for name, value in params.items()})
    response.headers["deprecation"] = _DEPRECATED_SINCE
    response.headers.append("link", f'<{PREFIX}{path}>; rel="successor-version"')


def _check_headers(headers: list[tuple[bytes, bytes]]) -> None:
    names = [name for name, _ in headers]
    for name in _ONLY_ONCE:
        if names.count(name) > 1:
            raise RequestError(f"the header {name.decode()} is given more than once; give it once")


# -- around every request -------------------------------------------------------------------------


_SOUND_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
# For clients that send a whole body before they look for an answer: so much is thrown away to let them see it.
_MOST_DRAINED_BYTES = 64 * 1024 * 1024
_DRAINED_WITHIN_S = 2.0
_MOST_HEADER_BYTES = 32 * 1024
_TOO_LARGE = 413
_UNREAD = frozenset({408, _TOO_LARGE})
# Of an answer: the server waits before each of them while the reader has not taken the ones before.
_PIECE_BYTES = 64 * 1024
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)
_logger = get_logger("rest")


class RequestMiddleware:
    """Gives each request an id, each response the headers of a careful service, and each failure a problem.

    Args:
        app: what is guarded.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, as ASGI hands it over."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        token = REQUEST_ID.set(request_id.decode())
        sending = _ResponseSender(scope, receive, send, request_id)
        try:
            if sum(len(name) + len(value) for name, value in scope["headers"]) > _MOST_HEADER_BYTES:
                await problem_response(HeadersTooLargeError(_MOST_HEADER_BYTES))(scope, receive, sending)
            else:
                await self._app(scope, receive, sending)
        except Exception as error:
            _logger.exception("request %s: %s %s failed", REQUEST_ID.get(), scope["method"], scope["path"])
            if sending.status:
                raise
            await problem_response(InternalError(repr(error)))(scope, receive, sending)
        finally:
            sending.log()
            REQUEST_ID.reset(token)


class _ResponseSender:
    """The way out of one response."""

    __slots__ = ("_began", "_receive", "_request_id", "_scope", "_send", "status")

    def __init__(self, scope: Scope, receive: Receive, send: Send, request_id: bytes) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._request_id = request_id
        self._began = time.perf_counter()
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._dress(message)
        elif self.status == _TOO_LARGE and not message.get("more_body"):
            await self._send({**message, "more_body": True})
            await self._drain()
            message = {"type": "http.response.body", "body": b""}
        await self._put(message)

    async def _put(self, message: Message) -> None:
        body, more = message.get("body", b""), message.get("more_body", False)
        if len(body) <= _PIECE_BYTES:
            await self._send(message)
            return
        for start in range(0, len(body), _PIECE_BYTES):
            end = start + _PIECE_BYTES
            is_last = end >= len(body)
            await self._send({**message, "body": body[start:end], "more_body": more if is_last else True})

    def log(self) -> None:
        """Log the response in a line, without the query, which may contain private data."""
        took_ms = (time.perf_counter() - self._began) * 1000
        told = {"request_id": self._request_id.decode(), "status": self.status, "took_ms": round(took_ms, 2)}
        _logger.debug("%s %s", self._scope["method"], self._scope["path"], extra=told)

    def _dress(self, message: MutableMapping[str, Any]) -> None:
        headers = message.setdefault("headers", [])
        present = {name for name, _ in headers}
        headers.append((b"x-request-id", self._request_id))
        headers.extend(pair for pair in _HEADERS if pair[0] not in present)
        if self.status in _UNREAD and b"connection" not in present:
            headers.append((b"connection", b"close"))

    async def _drain(self) -> None:
        left = _MOST_DRAINED_BYTES
        try:
            async with asyncio.timeout(_DRAINED_WITHIN_S):
                while left > 0:
                    message = await self._receive()
                    if message["type"] != "http.request" or not message.get("more_body"):
                        return
                    left -= len(message.get("body", b""))
        except TimeoutError:
            return


def _request_id(scope: Scope) -> bytes:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _SOUND_ID.fullmatch(value):
            found: bytes = value
            return found
    return new_id().encode()


# -- turns of large answers -----------------------------------------------------------------------


_MOST_AT_ONCE = 64
_BYTES_AT_ONCE = 4 << 20
# What an operation of a caller is taken for before its first answer.
_ASSUMED_BYTES = _BYTES_AT_ONCE // 16
_LATEST_WEIGHS = 0.25
_MOST_KNOWN = 10_000
_MOST_UNREAD_BYTES = 64 << 20
_LARGE_BYTES = 1 << 16
_BACK_AFTER_S = 1.0


@dataclass(slots=True)
class _CallQueue:
    """The calls of one operation by one caller."""

    usual_bytes: float = _ASSUMED_BYTES
    running: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)

    @property
    def most(self) -> int:
        """How many may be under way."""
        return max(1, min(_MOST_AT_ONCE, int(_BYTES_AT_ONCE / max(1.0, self.usual_bytes))))

    def call_next(self) -> None:
        """Let as many begin as may."""
        while self.waiting and self.running < self.most:
            turn = self.waiting.popleft()
            if not turn.done():
                self.running += 1
                turn.set_result(None)


class CallQueues:
    """Whose turn it is, in one process."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, str], _CallQueue] = {}

    @asynccontextmanager
    async def of(self, caller: str, operation: str) -> AsyncIterator[_CallQueue]:
        """Wait until it is a call's turn; first come, first served."""
        line = self._line(caller, operation)
        if line.running >= line.most:
            await self._wait(line)
        else:
            line.running += 1
        try:
            yield line
        finally:
            line.running -= 1
            line.call_next()

    def note(self, line: _CallQueue, response: Response) -> None:
        """Take note of how large an answer was."""
        size = len(getattr(response, "body", b""))
        line.usual_bytes += (size - line.usual_bytes) * _LATEST_WEIGHS

    async def _wait(self, line: _CallQueue) -> None:
        turn = asyncio.get_running_loop().create_future()
        line.waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                # Its turn came in the moment in which it was given up.
                line.running -= 1
                line.call_next()
            raise

    def _line(self, caller: str, operation: str) -> _CallQueue:
        line = self._lines.get((caller, operation))
        if line is None:
            if len(self._lines) >= _MOST_KNOWN:
                self._lines = {key: known for key, known in self._lines.items() if known.running}
            line = self._lines[caller, operation] = _CallQueue()
        return line


class UnreadResponses:
    """How many bytes of answers wait for their readers, by caller."""

    def __init__(self) -> None:
        self._bytes: Counter[str] = Counter()

    def check(self, caller: str) -> None:
        """Refuse a caller that does not read what it has asked for.

        Raises:
            LimitedError: too much of it waits.
        """
        if self._bytes[caller] > _MOST_UNREAD_BYTES:
            what = f"answers of more than {_MOST_UNREAD_BYTES >> 20} MiB wait for the readers of this token"
            raise LimitedError(f"{what}; read them first", _BACK_AFTER_S)

    def counted(self, caller: str, response: Response) -> Response:
        """The same response; a large one counts until it is sent."""
        size = len(getattr(response, "body", b""))
        return response if size < _LARGE_BYTES else _CountedResponse(response, self._bytes, caller, size)


class _CountedResponse(Response):
    """A response that counts until it is sent."""

    def __init__(self, response: Response, counts: Counter[str], caller: str, size: int) -> None:
        self._response, self._counts, self._caller, self._size = response, counts, caller, size
        self.body, self.status_code, self.raw_headers = response.body, response.status_code, response.raw_headers
        self.background = response.background
        counts[caller] += size

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await self._response(scope, receive, send)
        finally:
            self._counts[self._caller] -= self._size
            if not self._counts[self._caller]:
                del self._counts[self._caller]
