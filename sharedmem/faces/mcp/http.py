"""MCP over HTTP: tokens, rates, `Host` and `Origin`, and the metadata that tells clients how to get a token."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from sharedmem.errors import InternalError, SharedMemoryError
from sharedmem.faces.auth import Admission, TokenRefusedError
from sharedmem.faces.mcp.callers import McpCaller, set_caller
from sharedmem.faces.mcp.problems import sentence_of
from sharedmem.faces.mcp.service import McpService
from sharedmem.faces.rate_limits import TokenRateLimiter
from sharedmem.hub import Hub
from sharedmem.runtime import get_logger

PATH = "/mcp"
METADATA = "/.well-known/oauth-protected-resource"
_THIS_MACHINE = ("127.0.0.1", "localhost", "[::1]")
_logger = get_logger("mcp")
# JSON-RPC's code for a request that the server refuses; the codes of the protocol do not name the reason.
_REFUSED = -32_000


class McpEndpoint:
    """The endpoint of the protocol, as an ASGI application: who calls is known before the protocol is read.

    Args:
        service: the tools.
        admission: who may call; None takes every caller for the actor of the service.
        host: the address that the server listens at.
    """

    def __init__(self, service: McpService, admission: Admission | None, *, host: str = "127.0.0.1") -> None:
        self._service = service
        self._admission = admission
        self._limiter = TokenRateLimiter(service.hub)
        options = service.options
        self._hosts = _security(host, hosts=options.hosts, origins=options.origins, public_url=options.public_url)
        self._guard = TransportSecurityMiddleware(self._hosts)
        self._protocol = service.server.streamable_http_app(
            streamable_http_path=PATH,
            stateless_http=not options.sessions,
            max_request_body_size=options.max_body_bytes,
            transport_security=self._hosts,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answer calls inside of this block; enter it once."""
        async with self._service.server.session_manager.run():
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
            standing = None if self._admission is None else await self._limiter.take(caller.bearer)
        except SharedMemoryError as error:
            await self._refusal(request, error)(scope, receive, send)
            return
        set_caller(scope, caller)
        # Sessions of the protocol belong to the caller that opened them.
        scope["user"] = AuthenticatedUser(AccessToken(token="", client_id=caller.id, scopes=[]))
        headers = {} if standing is None else standing.headers()
        inside = {**scope, "path": PATH, "root_path": "", "headers": _trimmed(scope["headers"])}
        await self._protocol(inside, receive, _with_headers(send, headers))

    async def metadata(self, request: Request) -> Response:
        """Return how clients get a token (RFC 9728)."""
        told: dict[str, Any] = {
            "resource": self._resource(request),
            "bearer_methods_supported": ["header"],
            "resource_name": "sharedmem",
        }
        return JSONResponse(told, headers={"access-control-allow-origin": "*"})

    async def _admit(self, request: Request) -> McpCaller:
        if self._admission is None:
            return self._service.local
        bearer = await self._admission.admit(request.headers.get("authorization"))
        return McpCaller(bearer, self._service.options.write)

    def _resource(self, request: Request) -> str:
        return self._service.options.public_url or f"{request.url.scheme}://{request.headers.get('host', '')}{PATH}"

    def _refusal(self, request: Request, error: SharedMemoryError) -> Response:
        headers = dict(getattr(error, "headers", {}))
        retry_after = getattr(error, "retry_after", None)
        if isinstance(retry_after, int | float):
            headers["retry-after"] = str(max(1, round(retry_after)))
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
        self.endpoint = McpEndpoint(service, admission, host=host)
        super().__init__(routes=routes_of(self.endpoint), lifespan=lambda _: self.endpoint.running())
        self.state.service = McpApplicationService(service.hub)


class McpApplicationService:
    """What the server of an application needs to know of it.

    Args:
        hub: the memory.
    """

    def __init__(self, hub: Hub) -> None:
        self.hub = hub

    def end_streams(self) -> None:
        """Do nothing: streams of the protocol end with the connection, and clients open them again."""


def routes_of(endpoint: McpEndpoint) -> list[Route]:
    """Return the routes of an endpoint, for an application that has others too."""
    return [
        Route(PATH, endpoint),
        Route(METADATA + PATH, endpoint.metadata, methods=["GET"]),
        Route(METADATA, endpoint.metadata, methods=["GET"]),
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


def _with_headers(send: Send, headers: Mapping[str, str]) -> Send:
    if not headers:
        return send

    async def sending(message: Any) -> None:
        if message["type"] == "http.response.start":
            pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
            message = {**message, "headers": [*message.get("headers", []), *pairs]}
        await send(message)

    return sending
