"""The application: all endpoints over one hub, as ASGI."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, Literal

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sharedmem.api.operation import operations
from sharedmem.errors import ConfigError
from sharedmem.faces.auth import Admission
from sharedmem.faces.rest.archives import ArchiveEndpoints
from sharedmem.faces.rest.console import Console
from sharedmem.faces.rest.context import Endpoint, Gate, RestOptions
from sharedmem.faces.rest.events import EventEndpoints
from sharedmem.faces.rest.handlers import endpoints_of
from sharedmem.faces.rest.health import HealthEndpoints
from sharedmem.faces.rest.openapi import PATH, OpenApiEndpoints, build_document, describe_operation
from sharedmem.faces.rest.problems import NoSuchPathError, problem_response, status_problem
from sharedmem.faces.rest.service import (
    HubOpening,
    RateLimitGate,
    RequestMiddleware,
    RestService,
    ServiceMiddleware,
    SettingsAdmission,
)
from sharedmem.faces.rest.tokens import TokenEndpoints, caller_endpoint
from sharedmem.hub import Hub

TITLE = "sharedmem"
_NO_ADMISSION = (
    "it is not given, so the application would not know who may call: pass admission=Tokens.read(path) or "
    "admission=Registry(hub), or admission='open_to_all' where no stranger can reach it"
)
_EXPOSED = (
    "ETag",
    "Link",
    "Location",
    "Retry-After",
    "X-Request-ID",
    "Idempotency-Replayed",
    "WWW-Authenticate",
    "Mcp-Session-Id",
)
MetricsText = Callable[[], Awaitable[str]]


class RestApplication(Starlette):
    """All of a hub over HTTP, as an ASGI application; `create_app` makes it.

    Args:
        service: handles the calls.
        offered: its endpoints.
        metrics_text, console: as `create_app`.
    """

    def __init__(
        self,
        service: RestService,
        offered: Sequence[Endpoint],
        metrics_text: MetricsText | None = None,
        console: Console | None = None,
    ) -> None:
        self.title = TITLE
        self.version = version("sharedmem-hub")
        self._offered = offered
        self._description: dict[str, Any] | None = None
        description = OpenApiEndpoints(self.title, self.openapi)
        handlers = {
            **HealthEndpoints(service, metrics_text).handlers(),
            PATH: description.document,
            "/docs": description.page,
        }
        super().__init__(
            routes=[
                *(Route(path, handler, methods=["GET"]) for path, handler in handlers.items()),
                *(() if console is None else console.routes()),
            ],
            lifespan=lambda _: _run_service(service),
            exception_handlers={HTTPException: _refused},
        )
        self.state.service = service

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document; it is made once."""
        if self._description is None:
            self._description = build_document(self.title, self.version, self._offered)
        return self._description


async def _refused(_: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    if status == HTTPStatus.NOT_FOUND:
        return problem_response(NoSuchPathError())
    return status_problem(status, getattr(error, "headers", None))


def create_app(
    hub: Hub,
    *,
    admission: Admission | Literal["open_to_all"] | None = None,
    terms: RestOptions | None = None,
    gate: Gate | None = None,
    endpoints: Iterable[Endpoint] = (),
    metrics_text: MetricsText | None = None,
    console: Console | None = None,
    opens_hub: bool = False,
) -> RestApplication:
    """Return an ASGI application that offers all of a hub over HTTP.

    Args:
        hub: the memory; open, unless the application shall open it.
        admission: who may call: `Tokens.read(path)`, `Registry(hub)`, or both by `AnyOf`. "open_to_all" takes every
            caller for the actor of the hub's settings: only for servers that no stranger can reach.
        terms: how much it takes, and for how long it waits.
        gate: asked before each call; None holds each token to the rate that it was given.
        endpoints: endpoints below `/api/v1` besides the operations and the streams.
        metrics_text: returns the text for Prometheus; without it the counts of this process are returned.
        console: the page for people, served at `/console`; None serves none.
        opens_hub: whether the application opens the hub when it starts, and closes it when it ends. A mounted
            application is not started by its host: enter `lifespan_of(app)` in the lifespan of the host. Otherwise the
            first call opens the hub, and nothing closes it.

    Raises:
        ConfigError: no admission is given.
    """
    if admission is None:
        raise ConfigError("admission", "argument", _NO_ADMISSION)
    admits = SettingsAdmission(hub) if isinstance(admission, str) else admission
    opening = HubOpening(hub) if opens_hub else None
    if gate is None and not isinstance(admission, str):
        gate = RateLimitGate(hub)  # without tokens there is no rate
    service = RestService(hub, admits, terms or RestOptions(), gate, opening=opening)
    streams = (*EventEndpoints(admits).endpoints(), *ArchiveEndpoints().endpoints())
    offered = (*_operations(), *streams, caller_endpoint(), *TokenEndpoints(admits).endpoints(), *endpoints)
    service.offer(offered)
    app = RestApplication(service, offered, metrics_text, console)
    _guard(app, service)
    return app


@cache
def _operations() -> tuple[Endpoint, ...]:
    # They know no hub, and making them takes a while.
    return tuple(one for row in operations().values() for one in endpoints_of(row, describe_operation))


@asynccontextmanager
async def _run_service(service: RestService) -> AsyncIterator[None]:
    await service.start()
    try:
        yield
    finally:
        await service.end()


def lifespan_of(app: RestApplication) -> AbstractAsyncContextManager[None]:
    """Start and end a mounted application: enter this in the lifespan of its host.

    The hub of the application is open inside of the block (with `opens_hub`), and streams are ended behind it.

    Args:
        app: as `create_app` makes it.

    Raises (when entered):
        UnavailableError, ConfigError, UnsupportedError: as entering a `Hub`.
    """
    service: RestService = app.state.service
    return _run_service(service)


def _guard(app: RestApplication, service: RestService) -> None:
    # The one added last is the outermost.
    app.add_middleware(ServiceMiddleware, service=service)
    if service.terms.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=service.terms.cors_origins,
            allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=[
                "Authorization",
                "Content-Type",
                "Idempotency-Key",
                "If-Match",
                "If-None-Match",
                "Last-Event-ID",
                # Of MCP, which may be served beside it.
                "Mcp-Method",
                "Mcp-Name",
                "Mcp-Protocol-Version",
                "Mcp-Session-Id",
            ],
            expose_headers=_EXPOSED,
        )
    app.add_middleware(RequestMiddleware)
