"""What one caller of MCP may take: calls by its rate, sessions, streams, and the time for a body."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from support.mcp_service import URL, called

from sharedmem.config import Settings
from sharedmem.faces.auth import Bearer, Rate
from sharedmem.faces.listen_address import ListenAddress
from sharedmem.faces.mcp import McpApplication, McpOptions, McpService
from sharedmem.faces.rest import RestServer
from sharedmem.faces.token_registry import TokenRegistry
from sharedmem.testing import fake_hub

HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
START = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


@dataclass
class Registered:
    """A service whose tokens are in the registry."""

    registry: TokenRegistry
    app: McpApplication

    @asynccontextmanager
    async def caller(self, name: str, rate: str | None = None) -> AsyncIterator[httpx2.AsyncClient]:
        """A client of HTTP with a token of its own."""
        token, _ = await self.registry.create(Bearer.of("tides", actor=name), rate=Rate.of(rate) if rate else None)
        async with httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=self.app),
            base_url="http://127.0.0.1",
            headers=HEADERS | {"authorization": f"Bearer {token}"},
        ) as http:
            yield http


@asynccontextmanager
async def service(**options: Any) -> AsyncIterator[Registered]:
    async with fake_hub(settings=Settings(access="namespaced", embedder="hashing")) as hub:
        registry = TokenRegistry(hub)
        app = McpApplication(McpService(hub, options=McpOptions(**{"write": True} | options)), registry)
        async with app.endpoint.running():
            yield Registered(registry, app)


async def opened(http: httpx2.AsyncClient) -> dict[str, str]:
    """The header of a new session."""
    answer = await http.post("/mcp", json=START)
    assert answer.status_code == 200, answer.text
    return {"mcp-session-id": answer.headers["mcp-session-id"]}


async def test_a_flood_of_one_token_leaves_the_calls_of_another_alone() -> None:
    async with service(sessions=False) as running, running.caller("eve", "5/h") as eve, running.caller("ada") as ada:
        flood = asyncio.gather(*(eve.post("/mcp", json=PING) for _ in range(200)))
        async with Client(streamable_http_client(URL, http_client=ada)) as client:
            for number in range(10):
                await called(client, "write_value", key="step", value=number)
            assert (await called(client, "read_value", key="step"))["value"] == 9
        answers = await flood

    let_in = [answer for answer in answers if answer.status_code == 200]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert (len(let_in), len(refused)) == (5, 195)
    assert let_in[-1].headers["ratelimit-policy"] == '"token";q=5;w=3600'
    assert all(int(answer.headers["retry-after"]) in range(700, 721) for answer in refused)
    assert all(answer.json()["error"]["data"]["code"] == "limited" for answer in refused)


async def test_a_client_of_the_protocol_is_told_that_it_comes_too_often() -> None:
    async with service() as running, running.caller("eve", "20/h") as eve:
        session = await opened(eve)
        calls = [await eve.post("/mcp", json=PING, headers=session) for _ in range(25)]
        assert [answer.status_code for answer in calls] == [200] * 19 + [429] * 6


async def test_one_caller_cannot_take_all_sessions() -> None:
    async with service() as running, running.caller("eve") as eve, running.caller("ada") as ada:
        sessions = [await opened(eve) for _ in range(100)]
        refused = await eve.post("/mcp", json=START)
        assert refused.status_code == 429
        assert "retry-after" in refused.headers
        assert (await eve.post("/mcp", json=PING, headers=sessions[0])).status_code == 200
        assert await opened(ada)
        await eve.delete("/mcp", headers=sessions[0])
        assert await opened(eve)


async def test_a_stream_ends_when_its_token_is_taken_back() -> None:
    async with service(stream_check_s=0.05) as running, running.caller("eve") as eve:
        stream = asyncio.ensure_future(eve.get("/mcp", headers=await opened(eve)))
        [eves] = await running.registry.listed()
        await running.registry.revoke(eves.entry.id)
        assert (await stream).status_code == 200
        assert (await eve.post("/mcp", json=PING)).status_code == 401


async def test_one_caller_cannot_take_all_streams() -> None:
    async with service() as running, running.caller("eve") as eve, running.caller("ada") as ada:
        session = await opened(eve)
        streams = {asyncio.ensure_future(eve.get("/mcp", headers=await opened(eve))) for _ in range(99)}
        # One of these is one too many.
        streams |= {asyncio.ensure_future(eve.get("/mcp", headers=session)), asyncio.ensure_future(eve.get("/mcp"))}
        done, held = await asyncio.wait(streams, return_when=asyncio.FIRST_COMPLETED)
        assert await opened(ada)
        running.app.state.service.end_streams()
        [refused] = [await stream for stream in done]
        assert refused.status_code == 429
        assert "retry-after" in refused.headers
        assert {answer.status_code for answer in await asyncio.gather(*held)} == {200}
        assert (await ada.get("/mcp", headers=await opened(ada))).status_code in {200, 503}


async def test_a_body_that_trickles_in_is_given_up() -> None:
    async with fake_hub(settings=Settings(access="open", embedder="hashing")) as hub:
        app = McpApplication(McpService(hub, options=McpOptions(body_patience_s=0.1)), None)
        async with RestServer(app, ListenAddress(), grace_s=1) as server:
            reader, writer = await asyncio.open_connection(server.address.host, server.address.port)
            writer.write(b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 100\r\n\r\n{")
            await writer.drain()
            async with asyncio.timeout(60):
                answer = await reader.read()
            writer.close()
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"body_too_slow" in answer
