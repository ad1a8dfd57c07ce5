"""Calls of tools in their plain form, answered past the models of the SDK.

The SDK validates the parameters of a call and its result with models of the whole protocol, several times: a third of
the time of a read. A call of the stateless protocol with nothing but a tool of ours, its arguments and a valid
envelope needs none of it: the tool validates its arguments itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    SERVER_INFO_META_KEY,
    CallToolResult,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from sharedmem.faces.bodies import json_bytes
from sharedmem.faces.mcp.tool import SharedMemTool

_PARAMS = frozenset({"name", "arguments", "_meta"})
_ENVELOPE = frozenset({PROTOCOL_VERSION_META_KEY, CLIENT_INFO_META_KEY, CLIENT_CAPABILITIES_META_KEY})


class PlainToolCalls:
    """Middleware of the protocol's server that answers plain calls, and passes on every other request.

    Args:
        server: the server.
        tools: what it may call.
    """

    def __init__(self, server: Server[Any], tools: Iterable[SharedMemTool]) -> None:
        self._server = server
        self._tools = {tool.name: tool for tool in tools}

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Answer a request, as the protocol's server calls it."""
        tool = self._tool_of(ctx)
        if tool is None:
            return await call_next(ctx)
        assert ctx.params is not None
        found = await tool.answer(ctx.params.get("arguments", {}), ctx)
        if isinstance(found, CallToolResult):
            result = found.model_dump(by_alias=True, mode="json", exclude_none=True)
        else:
            result = {
                "content": [{"type": "text", "text": json_bytes(found).decode()}],
                "structuredContent": found,
                "isError": False,
            }
        meta = result.get("_meta", {}) | {SERVER_INFO_META_KEY: self._server.server_info_stamp}
        return result | {"resultType": "complete", "_meta": meta}

    def _tool_of(self, ctx: ServerRequestContext[Any, Any]) -> SharedMemTool | None:
        """Return the tool that a plain call names; None for a request that the SDK has to judge."""
        params = ctx.params
        if ctx.method != "tools/call" or ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS or params is None:
            return None
        tool = self._tools.get(params["name"]) if isinstance(params.get("name"), str) else None
        if tool is None or not self._is_offered(tool):
            return None
        meta, arguments = params.get("_meta"), params.get("arguments", {})
        is_plain = (
            _PARAMS.issuperset(params)
            and isinstance(arguments, dict)
            and isinstance(meta, dict)
            and _ENVELOPE.issuperset(meta)
            and (CLIENT_INFO_META_KEY not in meta or ctx.session.client_params is not None)
            and ctx.session.client_capabilities is not None
        )
        return tool if is_plain else None

    def _is_offered(self, tool: SharedMemTool) -> bool:
        """Return whether the tool is still registered, and no middleware was added that has to see its calls."""
        schema = self._server.get_tool_input_schema
        return self._server.middleware[-1] is self and schema is not None and schema(tool.name) is tool.parameters
