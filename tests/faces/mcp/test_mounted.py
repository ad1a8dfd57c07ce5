"""MCP beside REST: one port, the same tokens, one hub."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from support.mcp_service import called, refused
from support.rest_server import token_entries

from sharedmem.config import Settings
from sharedmem.faces.auth import Bearer, TokenFile
from sharedmem.faces.listen_address import ListenAddress
from sharedmem.faces.mcp import McpEndpoint, McpOptions, McpService, mount_mcp
from sharedmem.faces.rest import RestOptions, RestServer, create_app
from sharedmem.testing import fake_hub

PLAN = "/api/v1/store/values/tides:shared:plan"
APP = "https://app.example.org"


@asynccontextmanager
async def served(write: bool = True) -> AsyncIterator[tuple[str, dict[str, str]]]:
    """Both on a free port of this machine: its address, and the headers of Ada."""
    tokens, known = token_entries(Bearer.of("tides", actor="ada"))
    async with fake_hub(settings=Settings(access="namespaced", embedder="hashing")) as hub:
        admission = TokenFile(known)
        app = create_app(hub, admission=admission, terms=RestOptions(cors_origins=(APP,)))
        service = McpService(hub, options=McpOptions(write=write, origins=(APP,)))
        mount_mcp(app, McpEndpoint(service, admission))
        async with RestServer(app, ListenAddress(), has_tokens=True, grace_s=1) as server:
            yield server.url, {"authorization": f"Bearer {tokens['tides/ada']}"}


async def test_rest_and_mcp_answer_at_one_port_over_one_memory() -> None:
    async with (
        served() as (url, headers),
        httpx2.AsyncClient(headers=headers, base_url=url, timeout=60) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http)) as client,
    ):
        assert (await http.put(PLAN, json={"value": "by boat"})).status_code == 200
        read = await called(client, "read_value", key="plan")
        await called(client, "write_value", key="plan", value="by train", if_version=read["version"])
        assert (await http.get(PLAN)).json()["value"] == "by train"
        assert read["value"] == "by boat"


async def test_both_know_the_same_callers_and_mcp_may_be_for_readers_only() -> None:
    async with served(write=False) as (url, headers), httpx2.AsyncClient(base_url=url, timeout=60) as stranger:
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        assert (await stranger.get(PLAN)).status_code == 401
        assert (await stranger.post("/mcp", json=ping)).status_code == 401
        assert (await stranger.get("/.well-known/oauth-protected-resource/mcp")).json()["resource"] == f"{url}/mcp"
        async with (
            httpx2.AsyncClient(headers=headers, timeout=60) as http,
            Client(streamable_http_client(f"{url}/mcp", http_client=http)) as client,
        ):
            assert "Unknown tool" in await refused(client, "write_value", key="plan", value="by boat")


async def test_pages_of_a_named_origin_may_call_both() -> None:
    async with served() as (url, headers), httpx2.AsyncClient(base_url=url, timeout=60) as http:
        asked = {
            "origin": APP,
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization,content-type,mcp-protocol-version,mcp-session-id",
        }
        allowed = await http.options("/mcp", headers=asked)
        answer = await http.post(
            "/mcp",
            json={"jsonrpc": "2.0", "id": 1, "method": "ping"},
            headers=headers | {"origin": APP, "accept": "application/json, text/event-stream"},
        )
    assert allowed.status_code == 200
    assert answer.headers["access-control-allow-origin"] == APP
    assert "Mcp-Session-Id" in answer.headers["access-control-expose-headers"]
