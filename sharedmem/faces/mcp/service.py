"""The MCP service: the tools and resources of a hub as a server of the protocol, over stdio or over HTTP.

Requests for resources are handled beside the handlers of the official package.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib.metadata import version
from typing import Any, TypeVar

from mcp.server import CacheHint, MCPServer, ServerRequestContext
from mcp.server.context import CallNext, HandlerResult, ServerMiddleware
from mcp_types import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    UnsubscribeRequestParams,
)
from pydantic import BaseModel

from sharedmem.errors import SharedMemoryError
from sharedmem.faces.auth import Bearer
from sharedmem.faces.mcp.callers import Callers, McpCaller
from sharedmem.faces.mcp.coordination_tools import COORDINATION_TOOLS
from sharedmem.faces.mcp.memory_tools import CONTEXT_TOOLS, GRAPH_TOOLS, MEMORY_TOOLS, NOTE_TOOLS
from sharedmem.faces.mcp.options import McpOptions
from sharedmem.faces.mcp.prompts import MemoryPrompts, add_completions
from sharedmem.faces.mcp.reference_tools import REFERENCE_TOOLS
from sharedmem.faces.mcp.resources import ResourceCatalog
from sharedmem.faces.mcp.subscriptions import ResourceSubscriptions
from sharedmem.faces.mcp.tool import SharedMemTool, ToolCall, protocol_error
from sharedmem.hub import Hub
from sharedmem.runtime.concurrency import Background
from sharedmem.runtime.telemetry import is_tracing

_INSTRUCTIONS = (
    "Memory and coordination that several agents share. Search memory before you answer from what you know of this"
    " user or project; remember facts that a later session should know, one sentence each. Values have versions:"
    " read before you write, and write with if_version. Lists come in pages: pass next_cursor as cursor."
)
_CACHED_MS = 60_000
ALL_TOOLS = (
    *MEMORY_TOOLS,
    *COORDINATION_TOOLS,
    *GRAPH_TOOLS,
    *NOTE_TOOLS,
    *CONTEXT_TOOLS,
    *REFERENCE_TOOLS,
)
"""All tools, with what clients may know of them."""


class McpService:
    """Serves a hub to MCP clients.

    Args:
        hub: the memory; it has to be open when calls come.
        bearer: who calls where there are no tokens, and over standard input and output; by default the actor of the
            hub's settings.
        options: what is offered.
    """

    def __init__(self, hub: Hub, *, bearer: Bearer | None = None, options: McpOptions | None = None) -> None:
        self.hub = hub
        self.options = options or McpOptions()
        settings = hub.settings
        self.local = McpCaller(bearer or Bearer.of(settings.namespace, actor=settings.actor), self.options.write)
        self.callers = Callers(hub, self.local)
        self._background = Background(hub.counters)
        catalog = ResourceCatalog(self.options)
        self.subscriptions = ResourceSubscriptions(self.callers, catalog, self._background)
        self.tools = self._tools()
        """The tools of sharedmem that are offered."""
        self.server = self._server()
        """The server of the protocol, for tools and resources of one's own."""
        if not catalog.is_empty():
            add_resources(self.server, catalog, self.subscriptions, self.callers, self.options)
        MemoryPrompts(self.callers, self.options).add_to(self.server)
        add_completions(self.server, self.callers, self.options)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Let subscriptions be served inside of this block; at its end they end."""
        try:
            yield
        finally:
            self.subscriptions.end_streams()
            await self._background.close()

    async def run_stdio(self) -> None:
        """Serve one client over standard input and output until it closes them."""
        async with self.running():
            await self.server.run_stdio_async()

    def _server(self) -> MCPServer[Any]:
        with _root_log_as_it_is():
            server: MCPServer[Any] = MCPServer(
                "sharedmem",
                title="sharedmem",
                instructions=_INSTRUCTIONS,
                version=version("sharedmem-hub"),
                tools=list(self.tools),
                cache_hints={"tools/list": CacheHint(ttl_ms=_CACHED_MS, scope="private")},
                subscriptions=self.subscriptions.common,
            )
        server.middleware[:] = [_only_if_tracing(one) for one in server.middleware]
        return server

    def _tools(self) -> list[SharedMemTool]:
        chosen = [(fn, kind) for fn, kind in ALL_TOOLS if kind.profile in self.options.tools]
        offered = [(fn, kind) for fn, kind in chosen if self.options.write or not kind.writes]
        return [SharedMemTool.over(fn, kind, self.callers, self.options) for fn, kind in offered]


def _only_if_tracing(middleware: ServerMiddleware[Any]) -> ServerMiddleware[Any]:
    """Return the tracing of the SDK as one that costs nothing without a tracer provider; others as they are."""
    if type(middleware).__name__ != "OpenTelemetryMiddleware":  # not a public name of the SDK
        return middleware

    async def traced(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        return await (middleware(ctx, call_next) if is_tracing() else call_next(ctx))

    return traced


@contextmanager
def _root_log_as_it_is() -> Iterator[None]:
    """Keep the library from adding a handler of its own to the log of the process."""
    root, quiet = logging.getLogger(), logging.NullHandler()
    root.addHandler(quiet)
    try:
        yield
    finally:
        root.removeHandler(quiet)


# -- requests for resources -----------------------------------------------------------------------


_Context = ServerRequestContext[Any, Any]
_Params = TypeVar("_Params", bound=BaseModel)
_Handler = Callable[[_Context, _Params], Awaitable[Any]]


def add_resources(
    server: MCPServer[Any],
    catalog: ResourceCatalog,
    subscriptions: ResourceSubscriptions,
    callers: Callers,
    options: McpOptions,
) -> None:
    """Serve the resources of a catalog. Resources that were or will be added to the server itself are served too."""
    protocol = server._lowlevel_server  # noqa: SLF001  # the package has no public way to pages, nor to subscriptions

    def own(method: str) -> _Handler[Any]:
        entry = protocol.get_request_handler(method)
        assert entry is not None, method
        return entry.handler

    lists, reads, templates = own("resources/list"), own("resources/read"), own("resources/templates/list")

    def call_of(context: _Context) -> ToolCall:
        caller = callers.of(context)
        return ToolCall(caller, callers.store(caller), options, None)

    async def list_resources(context: _Context, params: PaginatedRequestParams) -> ListResourcesResult:
        page = await catalog.page(call_of(context), params.cursor)
        if params.cursor is None:
            added: ListResourcesResult = await lists(context, params)
            page.resources[:0] = added.resources
        return page

    async def list_templates(context: _Context, params: PaginatedRequestParams) -> ListResourceTemplatesResult:
        found = catalog.templates()
        added: ListResourceTemplatesResult = await templates(context, params)
        found.resource_templates += added.resource_templates
        return found

    async def read(context: _Context, params: ReadResourceRequestParams) -> ReadResourceResult:
        uri = catalog.offers(params.uri)
        if uri is None:
            others: ReadResourceResult = await reads(context, params)
            return others
        return await catalog.read(call_of(context), uri, params.uri)

    add = protocol.add_request_handler
    add("resources/list", PaginatedRequestParams, _explained(list_resources))
    add("resources/templates/list", PaginatedRequestParams, _explained(list_templates))
    add("resources/read", ReadResourceRequestParams, _explained(read))
    add("resources/subscribe", SubscribeRequestParams, _explained(subscriptions.subscribe))
    add("resources/unsubscribe", UnsubscribeRequestParams, _explained(subscriptions.unsubscribe))
    add("subscriptions/listen", SubscriptionsListenRequestParams, _explained(subscriptions.listen))


def _explained(handler: _Handler[_Params]) -> _Handler[_Params]:
    """Return a handler that raises errors of the protocol, with our sentences."""

    async def handle(context: _Context, params: _Params) -> Any:
        try:
            return await handler(context, params)
        except SharedMemoryError as error:
            raise protocol_error(error) from error

    return handle
