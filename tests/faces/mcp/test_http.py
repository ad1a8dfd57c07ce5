"""MCP over HTTP: tokens, tenants, `Host` and `Origin`, rates, both eras of the protocol."""

from __future__ import annotations

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from support.mcp_service import URL, called, mcp_service, refused

from sharedmem.faces.auth import Bearer

ADA, EVE = Bearer.of("tides", actor="ada"), Bearer.of("other", actor="eve")
HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


@pytest.mark.parametrize("sessions", [True, False])
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_clients_of_both_eras_call_tools(mode: str, sessions: bool) -> None:
    async with (
        mcp_service(ADA, sessions=sessions) as service,
        service.http("tides/ada") as http,
        Client(streamable_http_client(URL, http_client=http), mode=mode) as client,
    ):
        stored = await called(client, "remember", content="The harbour was flooded.")
        assert (await called(client, "get_memory", id=stored["id"]))["memory"]["agent_id"] == "ada"


async def test_a_caller_without_a_known_token_learns_where_to_get_one() -> None:
    async with mcp_service(ADA) as service, service.http() as http:
        for headers in ({}, {"authorization": "Bearer nix"}):
            answer = await http.post("/mcp", json=PING, headers=HEADERS | headers)
            assert answer.status_code == 401
            place = "http://127.0.0.1/.well-known/oauth-protected-resource/mcp"
            assert f'resource_metadata="{place}"' in answer.headers["www-authenticate"]
        told = (await http.get("/.well-known/oauth-protected-resource/mcp")).json()
        assert told["resource"] == "http://127.0.0.1/mcp"


@pytest.mark.parametrize(
    ("headers", "status"),
    [({"host": "evil.example"}, 421), ({"origin": "https://evil.example"}, 403), ({"host": "127.0.0.1:9"}, 401)],
)
async def test_foreign_hosts_and_origins_are_refused(headers: dict[str, str], status: int) -> None:
    async with mcp_service(ADA) as service, service.http() as http:
        assert (await http.post("/mcp", json=PING, headers=HEADERS | headers)).status_code == status


async def test_too_long_and_broken_bodies_are_refused() -> None:
    async with mcp_service(ADA, max_body_bytes=2000) as service, service.http("tides/ada") as http:
        long = await http.post("/mcp", content=b"x" * 3000, headers=HEADERS)
        deep = await http.post("/mcp", content=b"[" * 1500, headers=HEADERS)
        assert long.status_code == 413
        assert deep.status_code == 400


async def test_no_tool_reaches_another_tenant() -> None:
    async with mcp_service(ADA, EVE) as service:
        async with service.client("tides/ada") as ada:
            memory = (await called(ada, "remember", content="The secret of Ada is albatross."))["id"]
            await called(ada, "write_value", key="plan", value="secret albatross")
            await called(ada, "post_message", channel="team", content="secret albatross")
            await called(ada, "note_fact", subject="Ada", relation="knows", object="albatross")
            await called(ada, "save_decision", topic="albatross", action="hide", reasoning="secret")
            task = await service.hub.store("tides", actor="ada").queue("work").put("secret albatross")
        async with service.client("other/eve") as eve:
            offered = {tool.name for tool in (await eve.list_tools()).tools}
            calls: dict[str, dict[str, object]] = {
                "search_memory": {"query": "secret of Ada"},
                "recent_memories": {},
                "search": {"query": "secret albatross"},
                "read_messages": {"channel": "team"},
                "who_is_here": {},
                "claim_task": {"queue": "work"},
                "save_decision": {"topic": "x", "action": "hide", "reasoning": "secret"},
                "post_message": {"channel": "team", "content": "x"},
                "remember": {"content": "something else"},
                "note_fact": {"subject": "Eve", "relation": "knows", "object": "nothing"},
                "write_value": {"key": "plan", "value": "mine"},
            }
            refusals: dict[str, dict[str, object]] = {
                "get_memory": {"id": memory},
                "fetch": {"id": memory},
                "update_memory": {"id": memory, "content": "mine"},
                "undo": {"id": memory},
                "read_value": {"key": "tides:shared:plan"},
                "graph_facts": {"entity": "Ada"},
                "finish_task": {"queue": "work", "id": task.id, "token": 1},
            }
            assert offered == {*calls, *refusals, "forget"}, "a new tool needs a row here"
            for name, arguments in calls.items():
                assert "albatross" not in str(await called(eve, name, **arguments)), name
            for name, arguments in refusals.items():
                assert "albatross" not in await refused(eve, name, **arguments), name
            assert not (await called(eve, "forget", id=memory))["deleted"]
            assert "may not write" in await refused(eve, "write_value", key="tides:shared:plan", value=1)
        async with service.client("tides/ada") as ada:
            assert (await called(ada, "read_value", key="plan"))["value"] == "secret albatross"
            assert (await called(ada, "get_memory", id=memory))["memory"][
                "content"
            ] == "The secret of Ada is albatross."


async def test_a_session_belongs_to_the_token_that_opened_it() -> None:
    start = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }
    async with mcp_service(ADA, EVE) as service, service.http("tides/ada") as ada, service.http("other/eve") as eve:
        opened = await ada.post("/mcp", json=start, headers=HEADERS)
        session = {"mcp-session-id": opened.headers["mcp-session-id"]}
        foreign: httpx2.Response = await eve.post("/mcp", json=PING, headers=HEADERS | session)
        assert foreign.status_code == 404
        assert (await ada.post("/mcp", json=PING, headers=HEADERS | session)).status_code == 200
