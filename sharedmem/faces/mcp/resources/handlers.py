"""Handlers of the protocol's requests for resources, beside the handlers of the official package."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from mcp.server import MCPServer, ServerRequestContext
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
from sharedmem.faces.mcp.callers import Callers
from sharedmem.faces.mcp.options import McpOptions
from sharedmem.faces.mcp.problems import protocol_error
from sharedmem.faces.mcp.resources.catalog import ResourceCatalog
from sharedmem.faces.mcp.resources.subscriptions import ResourceSubscriptions
from sharedmem.faces.mcp.tool import ToolCall

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
