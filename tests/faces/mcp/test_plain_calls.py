"""Plain calls of tools take a shorter way than others, and have the same answers."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from support.mcp_service import mcp_service

from sharedmem.faces.auth import Bearer

ADA = Bearer.of("tides", actor="ada")
VERSION = "2026-07-28"
ENVELOPE: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
# A field that only the SDK knows what to do with.
LONGER_WAY = {"example.org/note": "any"}


async def posted(
    http: httpx2.AsyncClient,
    tool: object,
    arguments: object,
    *,
    meta: dict[str, Any] | None = None,
    accept: str = "application/json, text/event-stream",
) -> tuple[int, Any]:
    """Return status and body of a call."""
    params = {"name": tool, "arguments": arguments, "_meta": ENVELOPE | (meta or {})}
    headers = {"accept": accept, "mcp-protocol-version": VERSION, "mcp-method": "tools/call", "mcp-name": str(tool)}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    answer = await http.post("/mcp", json=body, headers=headers)
    return answer.status_code, answer.json() if answer.content else None


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("read_value", {"key": "plan"}),
        ("read_value", {"key": "nothing-here"}),
        ("read_value", {"key": 7}),
        ("read_value", {"key": "plan", "unknown": 1}),
        ("read_value", {}),
        ("read_value", None),
        ("read_value", ["plan"]),
        ("read_value", {"key": "plan", "cursor": [[[[]]]]}),
        ("write_value", {"key": "plan", "value": "b", "if_version": 99_999}),
        ("search_memory", {"query": "flood"}),
        ("no_such_tool", {"key": "plan"}),
    ],
)
async def test_the_shorter_way_has_the_answer_of_the_longer_one(tool: str, arguments: object) -> None:
    async with mcp_service(ADA) as service, service.http("tides/ada") as http:
        await service.hub.store("tides", actor="ada").shared.write("plan", {"a": [1, None, "ü"]})

        assert await posted(http, tool, arguments) == await posted(http, tool, arguments, meta=LONGER_WAY)


@pytest.mark.parametrize(
    "meta",
    [
        {"io.modelcontextprotocol/clientInfo": {"name": 1}},
        {"io.modelcontextprotocol/clientInfo": "test"},
        {"io.modelcontextprotocol/clientCapabilities": [1]},
        {"io.modelcontextprotocol/protocolVersion": "2031-01-01"},
        {"progressToken": {}},
    ],
)
async def test_an_envelope_that_is_invalid_is_refused(meta: dict[str, Any]) -> None:
    async with mcp_service(ADA) as service, service.http("tides/ada") as http:
        status, body = await posted(http, "who_is_here", {}, meta=meta)

    assert status == 400
    assert "error" in body


async def test_a_client_that_accepts_no_stream_is_refused() -> None:
    async with mcp_service(ADA) as service, service.http("tides/ada") as http:
        assert (await posted(http, "who_is_here", {}, accept="application/json"))[0] == 406


async def test_middleware_of_the_application_sees_plain_calls_too() -> None:
    seen: list[str] = []

    async def note(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        seen.append(ctx.method)
        return await call_next(ctx)

    async with mcp_service(ADA) as service, service.http("tides/ada") as http:
        service.service.server.middleware.append(note)
        status, _ = await posted(http, "who_is_here", {})

    assert (status, seen) == (200, ["tools/call"])


async def test_a_tool_that_the_application_has_replaced_is_called_instead() -> None:
    async def who_is_here() -> str:
        return "someone else"

    async with mcp_service(ADA) as service, service.http("tides/ada") as http:
        service.service.server.remove_tool("who_is_here")
        gone = await posted(http, "who_is_here", {})
        service.service.server.add_tool(who_is_here)
        _, body = await posted(http, "who_is_here", {})

    assert "Unknown tool" in str(gone)
    assert body["result"]["content"][0]["text"] == "someone else"
