"""An MCP service for tests: in this process, behind HTTP without a port, with tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent

from sharedmem import Hub
from sharedmem.config import Settings
from sharedmem.faces.auth import Admission, Bearer, TokenFile
from sharedmem.faces.listen_address import ListenAddress
from sharedmem.faces.mcp import McpApplication, McpOptions, McpService
from sharedmem.faces.rest import RestServer
from sharedmem.testing import fake_hub
from support.rest_server import token_entries

URL = "http://127.0.0.1/mcp"


@dataclass
class McpHarness:
    """A service, and tokens for it by `namespace/actor`."""

    hub: Hub
    service: McpService
    app: McpApplication
    admission: Admission | None
    tokens: dict[str, str] = field(default_factory=dict)

    @asynccontextmanager
    async def at_port(self, actor: str | None = None, **options: Any) -> AsyncIterator[Client]:
        """A client over HTTP and a port, which gets streams as they come; of a further service over the same hub."""
        app = McpApplication(McpService(self.hub, options=self.service.options), self.admission)
        headers = {"authorization": f"Bearer {self.tokens[actor]}"} if actor else {}
        async with (
            RestServer(app, ListenAddress(port=0), has_tokens=self.admission is not None) as server,
            httpx2.AsyncClient(headers=headers, timeout=60) as http,
            Client(streamable_http_client(f"{server.url}/mcp", http_client=http), **options) as client,
        ):
            yield client

    def http(self, actor: str | None = None, **headers: str) -> httpx2.AsyncClient:
        """A client of HTTP with the token of an actor, or without one."""
        given = {"authorization": f"Bearer {self.tokens[actor]}"} if actor else {}
        transport = httpx2.ASGITransport(app=self.app)
        return httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=given | headers)

    @asynccontextmanager
    async def client(self, actor: str | None = None, **headers: str) -> AsyncIterator[Client]:
        """A client of the protocol over HTTP."""
        async with (
            self.http(actor, **headers) as http,
            Client(streamable_http_client(URL, http_client=http)) as client,
        ):
            yield client


@asynccontextmanager
async def mcp_service(
    *bearers: Bearer, admission: Admission | None = None, **options: Any
) -> AsyncIterator[McpHarness]:
    """A service over a fake server; with `bearers`, or an `admission`, only they may call."""
    tokens, known = token_entries(*bearers)
    admission = admission or (TokenFile(known) if known else None)
    settings = Settings(access="open" if admission is None else "namespaced", embedder="hashing")
    async with fake_hub(settings=settings) as hub:
        service = McpService(hub, options=McpOptions(**{"write": True} | options))
        app = McpApplication(service, admission)
        async with app.endpoint.running():
            yield McpHarness(hub, service, app, admission, tokens)


def text_of(result: CallToolResult) -> str:
    """The text of an answer."""
    first = result.content[0]
    assert isinstance(first, TextContent)
    return first.text


async def called(client: Client, tool: str, /, **arguments: Any) -> dict[str, Any]:
    """The structured answer of a tool."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, text_of(result)
    assert result.structured_content is not None
    return dict(result.structured_content)


async def refused(client: Client, tool: str, /, **arguments: Any) -> str:
    """The sentence with which a tool refuses a call."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result
    return text_of(result)
