"""MCP over HTTP: tokens, rates, `Host` and `Origin`, and the metadata that tells clients how to get a token.

A caller has so many sessions and streams open at once. Streams end with the service, and with the token.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from sharedmem.clock import Clock, SystemClock
from sharedmem.errors import InternalError, LimitedError, SharedMemoryError, UnavailableError
from sharedmem.faces.auth import Admission, TokenRefusedError
from sharedmem.faces.bodies import BodyTooLargeError, SlowBodyError, whole_body
from sharedmem.faces.limits import CallerSlots, TokenRateLimiter
from sharedmem.faces.mcp.callers import McpCaller, set_caller
from sharedmem.faces.mcp.plain_calls import PlainToolCalls
from sharedmem.faces.mcp.service import McpService
from sharedmem.faces.mcp.tool import sentence_of
from sharedmem.faces.token_registry import issuers_of
from sharedmem.runtime import get_logger

PATH = "/mcp"
METADATA = "/.well-known/oauth-protected-resource"
# What browsers may send, and what their pages may read.
_CORS_HEADERS = (
    *("Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID"),
    *("Mcp-Method", "Mcp-Name", "Mcp-Protocol-Version", "Mcp-Session-Id"),
)
_CORS_EXPOSED = ("Mcp-Session-Id", "Retry-After", "WWW-Authenticate")
_THIS_MACHINE = ("127.0.0.1", "localhost", "[::1]")
_SESSION = "mcp-session-id"
_LISTEN = "subscriptions/listen"
_BAD_REQUEST = 400
_logger = get_logger("mcp")
# JSON-RPC's code for a request that the server refuses; the codes of the protocol do not name the reason.
_REFUSED = -32_000


class McpEndpoint:
    """The endpoint of the protocol, as an ASGI application: who calls is known before the protocol is read.

    Args:
        service: the tools.
        admission: who may call; None takes every caller for the actor of the service.
        host: the address that the server listens at.
        closing: set when the service ends: streams end too.
    """

    def __init__(
        self,
        service: McpService,
        admission: Admission | None,
        *,
        host: str = "127.0.0.1",
        closing: asyncio.Event | None = None,
    ) -> None:
        self._service = service
        self._admission = admission
        self._limiter = TokenRateLimiter(service.hub)
        self._sessions = CallerSessions()
        options = service.options
        self._streams = CallerStreams(closing or asyncio.Event(), check_s=options.stream_check_s)
        self._hosts = _security(host, hosts=options.hosts, origins=options.origins, public_url=options.public_url)
        self._guard = TransportSecurityMiddleware(self._hosts)
        service.server.streamable_http_app(
            streamable_http_path=PATH,
            stateless_http=not options.sessions,
            max_request_body_size=options.max_body_bytes,
            session_idle_timeout=SESSION_IDLE_S,
            transport_security=self._hosts,
        )
        # Not the application around it: requests are routed and guarded here.
        self._protocol = service.server.session_manager.handle_request
        lowlevel = service.server.session_manager.app
        # Calls that wait for Redis alone need neither a stream that is kept alive nor a task that watches the client.
        self._at_once = StreamableHTTPSessionManager(
            lowlevel, json_response=True, stateless=True, max_request_body_size=options.max_body_bytes
        )
        self._tools_at_once = frozenset(tool.name for tool in service.tools if tool.kind.at_once)
        service.server.middleware.append(PlainToolCalls(lowlevel, service.tools))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answer calls inside of this block; enter it once."""
        async with self._service.running(), self._service.server.session_manager.run(), self._at_once.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, as ASGI hands it over."""
        request = Request(scope, receive)
        try:
            refused = await self._guard.validate_request(request)
            if refused is not None:
                await refused(scope, receive, send)
                return
            caller = await self._admit(request)
            headers = await self._count(request, caller)
            body = await self._body(request)
            await self._answer(request, caller, _replayed(body, receive), self._noting(request, caller, send, headers))
        except ClientDisconnect:
            return
        except SharedMemoryError as error:
            await self._refusal(request, error)(scope, receive, send)

    async def _answer(self, request: Request, caller: McpCaller, receive: Receive, send: Send) -> None:
        scope = request.scope
        set_caller(scope, caller)
        # Sessions of the protocol belong to the caller that opened them.
        scope["user"] = _user_of(caller.id)
        inside = {**scope, "path": PATH, "root_path": "", "headers": _trimmed(scope["headers"])}
        if _is_stream(request):
            await self._streams.run(
                caller.id,
                lambda sending: self._protocol(inside, receive, sending),
                send,
                is_known=lambda: self._is_known(request),
            )
        elif self._answers_at_once(request):
            await self._at_once.handle_request(inside, receive, send)
        else:
            await self._protocol(inside, receive, send)

    def _answers_at_once(self, request: Request) -> bool:
        """Return whether it is a call of the stateless protocol of a tool that is answered at once."""
        headers = request.headers
        return (
            request.method == "POST"
            and headers.get("mcp-method") == "tools/call"
            and headers.get("mcp-name") in self._tools_at_once
            and headers.get("mcp-protocol-version") in MODERN_PROTOCOL_VERSIONS
            # Both forms have to be accepted also where only one is used: the SDK refuses what does not accept a stream.
            and "text/event-stream" in headers.get("accept", "")
        )

    async def _count(self, request: Request, caller: McpCaller) -> dict[str, str]:
        """Hold a caller to its rate, and to its share of sessions and streams; returns headers of the answer."""
        if self._admission is None:
            return {}
        standing = await self._limiter.take(caller.bearer)
        if _is_stream(request):
            self._streams.check(caller.id)
        elif self._service.options.sessions and _opens_session(request):
            self._sessions.check(caller.id)
        return {} if standing is None else standing.headers()

    async def _body(self, request: Request) -> bytes:
        options = self._service.options
        return await whole_body(
            request.stream(),
            announced=request.headers.get("content-length", "0"),
            most_bytes=options.max_body_bytes,
            patience_s=options.body_patience_s,
        )

    def _noting(self, request: Request, caller: McpCaller, send: Send, headers: Mapping[str, str]) -> Send:
        """Add headers to the answer, and take note of the session that it names."""
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        used = request.headers.get(_SESSION)

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                listed = message.get("headers", [])
                session = next((value.decode() for name, value in listed if name.lower() == _SESSION.encode()), used)
                self._note_session(request.method, caller, session, is_known=message["status"] < _BAD_REQUEST)
                message = {**message, "headers": [*listed, *pairs]}
            await send(message)

        return sending

    def _note_session(self, method: str, caller: McpCaller, session: str | None, *, is_known: bool) -> None:
        if session is None or not is_known:
            return
        if method == "DELETE":
            self._sessions.end(caller.id, session)
        else:
            self._sessions.note(caller.id, session)

    async def metadata(self, request: Request) -> Response:
        """Return how clients get a token (RFC 9728)."""
        told: dict[str, Any] = {
            "resource": self._resource(request),
            "bearer_methods_supported": ["header"],
            "resource_name": "sharedmem",
        }
        issuers = issuers_of(self._admission)
        if issuers:
            told["authorization_servers"] = [issuer.issuer for issuer in issuers]
            told["scopes_supported"] = sorted({scope for issuer in issuers for scope in issuer.scopes})
        return JSONResponse(told, headers={"access-control-allow-origin": "*"})

    async def _admit(self, request: Request) -> McpCaller:
        if self._admission is None:
            return self._service.local
        bearer = await self._admission.admit(request.headers.get("authorization"))
        return McpCaller(bearer, self._service.options.write and not bearer.read_only)

    async def _is_known(self, request: Request) -> bool:
        try:
            await self._admit(request)
        except TokenRefusedError:
            return False
        except UnavailableError:
            pass  # the caller cannot be looked up just now
        return True

    def _resource(self, request: Request) -> str:
        return self._service.options.public_url or f"{request.url.scheme}://{request.headers.get('host', '')}{PATH}"

    def _refusal(self, request: Request, error: SharedMemoryError) -> Response:
        headers = dict(getattr(error, "headers", {}))
        retry_after = getattr(error, "retry_after", None)
        if isinstance(retry_after, int | float):
            headers["retry-after"] = str(max(1, math.ceil(retry_after)))
        if isinstance(error, BodyTooLargeError | SlowBodyError):
            # The rest of the body is not read.
            headers["connection"] = "close"
        if isinstance(error, TokenRefusedError):
            _logger.warning("a caller at %s showed no known token", request.client.host if request.client else "?")
            place = urlsplit(self._resource(request))
            where = f"{place.scheme}://{place.netloc}{METADATA}{place.path}"
            headers["www-authenticate"] = f'{error.challenge}, resource_metadata="{where}"'
        if isinstance(error, InternalError):
            _logger.error("a request failed: %s", error)
        told = {"code": _REFUSED, "message": sentence_of(error), "data": {"code": error.code}}
        return JSONResponse({"jsonrpc": "2.0", "id": None, "error": told}, error.codes.http_status, headers)


class McpApplication(Starlette):
    """The MCP endpoint at `/mcp`, with its metadata, as an ASGI application with a lifespan.

    Args:
        service: the tools.
        admission, host: as `McpEndpoint`.
    """

    def __init__(self, service: McpService, admission: Admission | None, *, host: str = "127.0.0.1") -> None:
        closing = asyncio.Event()
        self.endpoint = McpEndpoint(service, admission, host=host, closing=closing)
        super().__init__(
            routes=routes_of(self.endpoint),
            lifespan=lambda _: self.endpoint.running(),
            middleware=_cors(service.options.origins),
        )
        self.state.service = McpApplicationService(service, closing)


class McpApplicationService:
    """What the server of an application needs to know of it.

    Args:
        service: the tools and resources.
        closing: set when the service ends.
    """

    def __init__(self, service: McpService, closing: asyncio.Event) -> None:
        self.hub = service.hub
        self._subscriptions = service.subscriptions
        self._closing = closing

    def end_streams(self) -> None:
        """End streams of the protocol; clients open them again elsewhere."""
        self._subscriptions.end_streams()
        self._closing.set()


def mount_mcp(app: Starlette, endpoint: McpEndpoint) -> None:
    """Let another application answer at `/mcp` too; the endpoint runs for as long as the lifespan of the application.

    Args:
        app: of `sharedmem.faces.rest.create_app`, or another one of Starlette or FastAPI; not started yet.
        endpoint: shares the hub of the application, if that has one.
    """
    lifespan = app.router.lifespan_context

    @asynccontextmanager
    async def both(running: Any) -> AsyncIterator[Any]:
        async with lifespan(running) as state, endpoint.running():
            yield state

    app.router.routes.extend(routes_of(endpoint))
    app.router.lifespan_context = both


def routes_of(endpoint: McpEndpoint) -> list[Route]:
    """Return the routes of an endpoint."""
    return [
        Route(PATH, endpoint),
        Route(METADATA + PATH, endpoint.metadata, methods=["GET"]),
        Route(METADATA, endpoint.metadata, methods=["GET"]),
    ]


def _cors(origins: Sequence[str]) -> list[Middleware]:
    if not origins:
        return []
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=_CORS_HEADERS,
            expose_headers=_CORS_EXPOSED,
        )
    ]


def _security(host: str, *, hosts: Sequence[str], origins: Sequence[str], public_url: str) -> TransportSecuritySettings:
    named = [*_THIS_MACHINE, host, *hosts, *([urlsplit(public_url).netloc] if public_url else [])]
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=[form for name in dict.fromkeys(named) for form in (name, f"{name}:*")],
        allowed_origins=[
            *origins,
            *(
                f"{scheme}://{name}{port}"
                for scheme in ("http", "https")
                for name in _THIS_MACHINE
                for port in ("", ":*")
            ),
        ],
    )


def _trimmed(headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return headers without blanks around their values: they do not belong to them, and the protocol compares them."""
    return [(name, value.strip(b" \t")) for name, value in headers]


@lru_cache(maxsize=1024)
def _user_of(caller_id: str) -> AuthenticatedUser:
    return AuthenticatedUser(AccessToken(token="", client_id=caller_id, scopes=[]))


def _is_stream(request: Request) -> bool:
    return request.method == "GET" or request.headers.get("mcp-method") == _LISTEN


def _opens_session(request: Request) -> bool:
    version = request.headers.get("mcp-protocol-version")
    by_handshake = version is None or version in HANDSHAKE_PROTOCOL_VERSIONS
    return request.method == "POST" and by_handshake and request.headers.get(_SESSION) is None


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return what hands over a body that was read, and then goes on."""
    is_over = False

    async def receiving() -> Message:
        nonlocal is_over
        if is_over:
            return await receive()
        is_over = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receiving


# -- bounds of one caller -------------------------------------------------------------------------


SESSION_IDLE_S = 1800.0
"""Seconds after which a session without a request ends."""
_MOST_SESSIONS_EACH = 100
_MOST_KNOWN = 10_000
_MOST_STREAMS, _MOST_STREAMS_EACH = 1000, 100
_BACK_AFTER_S = 5.0


class CallerSessions:
    """The sessions of each caller in this process, so that one of them cannot take the room of all.

    Args:
        clock: source of the time.
    """

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._used_s: dict[str, dict[str, float]] = {}

    def check(self, caller: str) -> None:
        """Refuse a caller that wants a further session.

        Raises:
            LimitedError: it has too many that were used lately.
        """
        if len(self._used_s) > _MOST_KNOWN:
            for known in list(self._used_s):
                self._forget_idle(known)
        self._forget_idle(caller)
        if len(self._used_s.get(caller, ())) >= _MOST_SESSIONS_EACH:
            what = f"{_MOST_SESSIONS_EACH} sessions of this caller are open"
            raise LimitedError(f"{what}; go on in one of them, or end them with DELETE", _BACK_AFTER_S)

    def note(self, caller: str, session: str) -> None:
        """Take note that a session was used."""
        self._used_s.setdefault(caller, {})[session] = self._clock.monotonic()

    def end(self, caller: str, session: str) -> None:
        """Take note that a caller has ended a session."""
        self._used_s.get(caller, {}).pop(session, None)

    def _forget_idle(self, caller: str) -> None:
        since_s = self._clock.monotonic() - SESSION_IDLE_S
        left = {session: used_s for session, used_s in self._used_s.get(caller, {}).items() if used_s > since_s}
        if left:
            self._used_s[caller] = left
        else:
            self._used_s.pop(caller, None)


class CallerStreams:
    """The streams that are open: each ends when its client leaves, its token is taken back, or the service ends.

    Args:
        closing: set when the service ends.
        check_s: so often the caller of a stream is looked at again, in seconds.
    """

    def __init__(self, closing: asyncio.Event, *, check_s: float) -> None:
        self._closing = closing
        self._check_s = check_s
        self._slots = CallerSlots(
            "streams", most=_MOST_STREAMS, most_each=_MOST_STREAMS_EACH, retry_after=_BACK_AFTER_S
        )

    def check(self, caller: str) -> None:
        """Refuse a caller that has too many.

        Raises:
            LimitedError: it has, or all callers together have.
        """
        self._slots.check(caller)

    async def run(
        self,
        caller: str,
        answer: Callable[[Send], Awaitable[None]],
        send: Send,
        *,
        is_known: Callable[[], Awaitable[bool]],
    ) -> None:
        """Answer a request with a stream.

        Args:
            caller: whose it is.
            answer: sends the stream, until it is cancelled.
            send: of the request.
            is_known: whether the token of the caller still counts; the stream ends when it does not.

        Raises:
            UnavailableError: the service ends before the stream has begun.
        """
        has_begun = False

        async def sending(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        with self._slots.taken(caller):
            work = asyncio.ensure_future(answer(sending))
            ending = asyncio.ensure_future(self._closing.wait())
            try:
                while not await _any_done({work, ending}, within_s=self._check_s) and await is_known():
                    pass
            finally:
                ending.cancel()
                work.cancel()
                await asyncio.wait({work})
            if not work.cancelled():
                work.result()
            elif not has_begun:
                raise UnavailableError("this server", "it shuts down; call again", retry_after=_BACK_AFTER_S)
            else:
                await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _any_done(tasks: set[asyncio.Future[Any]], *, within_s: float) -> bool:
    done, _ = await asyncio.wait(tasks, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
    return bool(done)
