"""The MCP service: the tools and resources of a hub as a server of the protocol, over stdio or over HTTP."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib.metadata import version
from typing import Any

from mcp.server import CacheHint, MCPServer

from sharedmem.faces.auth import Bearer
from sharedmem.faces.mcp.callers import Callers, McpCaller
from sharedmem.faces.mcp.completions import add_completions
from sharedmem.faces.mcp.options import McpOptions
from sharedmem.faces.mcp.prompts import MemoryPrompts
from sharedmem.faces.mcp.resources.catalog import ResourceCatalog
from sharedmem.faces.mcp.resources.handlers import add_resources
from sharedmem.faces.mcp.resources.subscriptions import ResourceSubscriptions
from sharedmem.faces.mcp.tool import SharedMemTool
from sharedmem.faces.mcp.tools import TOOLS
from sharedmem.hub import Hub
from sharedmem.runtime.background import Background

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
        self._background = Background(hub.counters)
        catalog = ResourceCatalog(self.options)
        self.subscriptions = ResourceSubscriptions(self.callers, catalog, self._background)
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
                tools=self._tools(),
                cache_hints={"tools/list": CacheHint(ttl_ms=_CACHED_MS, scope="private")},
                subscriptions=self.subscriptions.common,
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
