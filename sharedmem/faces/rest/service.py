"""The REST service: open the hub, authenticate the caller, route to the endpoint, map errors to problems."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from urllib.parse import quote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from sharedmem.clock import Clock
from sharedmem.errors import InternalError, SharedMemoryError, UnavailableError
from sharedmem.faces.auth import Admission, Bearer, TokenEntry, TokenRefusedError
from sharedmem.faces.bodies import RequestError
from sharedmem.faces.limits import CpuQuotas, TokenRateLimiter
from sharedmem.faces.rest.backpressure import CallQueues, UnreadResponses
from sharedmem.faces.rest.context import Call, Endpoint, Gate
from sharedmem.faces.rest.disconnect import run_until_disconnect
from sharedmem.faces.rest.options import RestOptions
from sharedmem.faces.rest.problems import REQUEST_ID, OverdueError, problem_response
from sharedmem.faces.rest.router import PREFIX, Router, raw_path_of
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
_logger = get_logger("rest")


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
