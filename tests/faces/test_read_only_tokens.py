"""A token that may only read: what changes something is refused on every face, before anything is done."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.mcp_service import mcp_service
from support.rest_server import ServiceHarness, format_operation_request

from sharedmem import Hub
from sharedmem.api.operation import operations
from sharedmem.faces.auth import Bearer, TokenFile, new_token
from sharedmem.faces.grpc import GrpcAddress, MemoryClient, MemoryServer
from sharedmem.faces.rest import create_app
from sharedmem.testing import fake_hub

LOOKING = Bearer.of("desk", actor="rita", read_only=True)
WRITES = sorted(name for name, row in operations().items() if row.needs == "write")


@pytest.fixture
async def hub() -> AsyncIterator[Hub]:
    async with fake_hub() as hub:
        await hub.store("desk", actor="rita").write("plan", 1)
        yield hub


@pytest.fixture
def service(hub: Hub) -> ServiceHarness:
    token, entry = new_token(LOOKING)
    return ServiceHarness(hub, create_app(hub, admission=TokenFile([entry])), {"rita": token})


@pytest.mark.parametrize("name", WRITES)
async def test_rest_refuses_what_changes_something(service: ServiceHarness, name: str) -> None:
    row = operations()[name]
    fields = {part[1:-1]: "x" for part in row.http.path.split("/") if part.startswith("{")}
    async with service.client("rita") as client:
        answer = await client.request(**_sent(name, fields))

    assert answer.status_code == 403
    assert answer.json()["code"] == "access_denied"
    assert "this token may only read" in answer.json()["detail"]


def _sent(name: str, fields: dict[str, str]) -> dict[str, Any]:
    takes = operations()[name].takes.model_fields
    return format_operation_request(name, {field: value for field, value in fields.items() if field in takes})


async def test_rest_lets_it_read_and_tells_it_what_it_may(service: ServiceHarness) -> None:
    async with service.client("rita") as client:
        read = await client.get("/api/v1/store/values/plan/value")
        caller = (await client.get("/api/v1/caller")).json()
        imported = await client.post("/api/v1/namespace/import", content=b"{}\n")

    assert read.json() == {"value": 1}
    assert (caller["namespace"], caller["actor"], caller["read_only"]) == ("desk", "rita", True)
    assert (caller["readable"], caller["writable"]) == (["desk:*", "global:*"], [])
    assert imported.status_code == 403


async def test_grpc_refuses_what_changes_something(hub: Hub) -> None:
    token, entry = new_token(LOOKING)
    async with (
        MemoryServer(hub, GrpcAddress(port=0), tokens=TokenFile([entry])) as server,
        MemoryClient(server.target, token=token) as client,
    ):
        assert await client.call("value.read", key="plan") == 1
        for refused in (
            client.call("value.write", key="plan", value=2),
            client.decisions.save_plan("s", "BTC", "BUY", 0.5, "it rises"),
        ):
            with pytest.raises(PermissionError, match="may only read"):
                await refused
    assert await hub.store("desk", actor="rita").read("plan") == 1


async def test_mcp_refuses_it_tools_that_change_something() -> None:
    async with mcp_service(LOOKING) as service, service.client("desk/rita") as client:
        tools = (await client.list_tools()).tools
        writing = [tool.name for tool in tools if tool.annotations is None or not tool.annotations.read_only_hint]
        assert writing
        for name in writing:
            answer = await client.call_tool(name, {})
            assert answer.is_error
        answer = await client.call_tool("remember", {"content": "The harbour was flooded."})
        assert "may only read" in str(answer.content)
