"""The protocol's own conformance suite against our server: its transport, tokens, rates and guards."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send
from support.mcp_conformance import run_conformance
from support.mcp_fixtures import add_fixtures
from support.rest_server import token_entries

from sharedmem.config import Settings
from sharedmem.faces.auth import Bearer, TokenFile
from sharedmem.faces.listen_address import ListenAddress
from sharedmem.faces.mcp import McpApplication, McpOptions, McpService
from sharedmem.faces.rest import RestServer
from sharedmem.testing import fake_hub


class TokenHeader:
    """Adds a token to each request: the suite has no option for one."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._header = (b"authorization", f"Bearer {token}".encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = {**scope, "headers": [*scope["headers"], self._header]}
        await self._app(scope, receive, send)


@pytest.mark.parametrize(("revision", "scenarios"), [("2026-07-28", 37), ("2025-11-25", 30)])
# The suite tries what 2026-07-28 has deprecated, too.
@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
async def test_all_scenarios_for_servers_of_a_revision_pass(revision: str, scenarios: int, tmp_path: Path) -> None:
    tokens, known = token_entries(Bearer.of("tides", actor="ada"))
    async with fake_hub(settings=Settings(access="namespaced", embedder="hashing")) as hub:
        service = McpService(hub, options=McpOptions(write=True))
        add_fixtures(service.server)
        app = McpApplication(service, TokenFile(known))
        app.add_middleware(TokenHeader, token=tokens["tides/ada"])
        async with RestServer(app, ListenAddress(port=0), has_tokens=True) as server:
            found = await run_conformance(f"{server.url}/mcp", revision, tmp_path / "first")
            if found.failures():  # the suite waits a few seconds for each frame, which a busy machine may miss
                found = await run_conformance(f"{server.url}/mcp", revision, tmp_path / "second")
    assert len(found.required) == scenarios
    assert not found.failures(), found.output
    # Not required yet: the suite's own server does not pass it.
    assert not found.problems.get("http-header-validation"), found.output
