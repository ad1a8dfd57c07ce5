"""The MCP service: the tools of a hub as a server of the protocol, over standard input and output or over HTTP."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

from mcp.server import CacheHint, MCPServer

from sharedmem.faces.auth import Bearer
from sharedmem.faces.mcp.callers import Callers, McpCaller
from sharedmem.faces.mcp.options import McpOptions
from sharedmem.faces.mcp.tool import SharedMemTool
from sharedmem.faces.mcp.tools import TOOLS
from sharedmem.hub import Hub

_INSTRUCTIONS = (
    "Memory and coordination that several agents share. Search memory before you answer from what you know of this"
    " user or project; remember facts that a later session should know, one sentence each. Values have versions:"
    " read before you write, and write with if_version. Lists come in pages: pass next_cursor as cursor."
)
_CACHED_MS = 60_000


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
        self.server = self._server()
        """The server of the protocol, for tools of one's own."""

    async def run_stdio(self) -> None:
        """Serve one client over standard input and output until it closes them."""
        await self.server.run_stdio_async()

    def _server(self) -> MCPServer[Any]:
        with _root_log_as_it_is():
            server: MCPServer[Any] = MCPServer(
                "sharedmem",
                title="sharedmem",
                instructions=_INSTRUCTIONS,
                version=version("sharedmem-hub"),
                tools=self._tools(),
                cache_hints={"tools/list": CacheHint(ttl_ms=_CACHED_MS, scope="private")},
            )
        return server

    def _tools(self) -> list[Any]:
        chosen = [(fn, kind) for fn, kind in TOOLS if kind.profile in self.options.tools]
        offered = [(fn, kind) for fn, kind in chosen if self.options.write or not kind.writes]
        return [SharedMemTool.over(fn, kind, self.callers, self.options) for fn, kind in offered]


@contextmanager
def _root_log_as_it_is() -> Iterator[None]:
    """Keep the library from adding a handler of its own to the log of the process."""
    root, quiet = logging.getLogger(), logging.NullHandler()
    root.addHandler(quiet)
    try:
        yield
    finally:
        root.removeHandler(quiet)
