"""`sharedmem serve mcp` as a process of its own, called by a client of the protocol."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ResourceUpdated
from support.mcp_service import called, refused
from support.shell import finish, read_json_line, start
from support.token_issuer import AUDIENCE, ISSUER, FakeIssuer

SOON_S = 60
FLOOD = "The harbour of Skarn was flooded in 1962."


@pytest.fixture
def data_dir() -> Iterator[Path]:
    base = Path(tempfile.mkdtemp(dir="/tmp", prefix="sm"))
    yield base / "d"
    shutil.rmtree(base)


def over_stdio(data_dir: Path, *words: str) -> Client:
    command = ["-m", "sharedmem", "--data-dir", str(data_dir), "--namespace", "tides", "--actor", "ada"]
    return Client(stdio_client(StdioServerParameters(command=sys.executable, args=[*command, "serve", "mcp", *words])))


async def test_what_one_process_remembers_another_one_finds(data_dir: Path) -> None:
    async with over_stdio(data_dir, "--write") as writer:
        stored = await called(writer, "remember", content=FLOOD)
        async with over_stdio(data_dir) as reader:
            found = await called(reader, "search_memory", query="when was the flood?")
            assert [(one["id"], one["agent_id"]) for one in found["memories"]] == [(stored["id"], "ada")]


async def test_a_process_is_told_of_what_another_one_has_changed(data_dir: Path) -> None:
    async with over_stdio(data_dir, "--write") as writer:
        stored = await called(writer, "remember", content=FLOOD)
        address = f"memory://{stored['id']}"
        async with over_stdio(data_dir) as reader, reader.listen(resource_subscriptions=[address]) as events:
            assert address in [resource.uri for resource in (await reader.list_resources()).resources]
            await called(writer, "update_memory", id=stored["id"], content="It was flooded in 1963.")
            async with asyncio.timeout(SOON_S):
                assert await anext(events) == ResourceUpdated(address)
            [content] = (await reader.read_resource(address)).contents
            assert "1963" in str(content)


async def test_without_write_a_process_changes_nothing(data_dir: Path) -> None:
    async with over_stdio(data_dir) as client:
        assert "Unknown tool" in await refused(client, "remember", content=FLOOD)


async def test_a_process_serves_callers_with_tokens_over_http(data_dir: Path, tmp_path: Path) -> None:
    issuer, described = FakeIssuer("k1"), tmp_path / "issuer.json"
    (tmp_path / "keys.json").write_bytes(issuer.document())
    terms = {
        "issuer": ISSUER,
        "audience": AUDIENCE,
        "jwks": "keys.json",
        "scopes": {"tides:write": {"namespace": "tides"}},
    }
    described.write_text(json.dumps(terms))
    place = ("--data-dir", str(data_dir), "--namespace", "tides")
    made = await asyncio.to_thread(finish, start(*place, "--json", "token", "create", "--actor", "bob"))
    tokens = ("--tokens", "registry", "--tokens", str(described))
    server = start(*place, "serve", "mcp", "--http", "--port", "0", "--write", *tokens)
    try:
        url = str(read_json_line(server)["url"])
        async with httpx2.AsyncClient(timeout=60) as stranger:
            assert (await stranger.post(url, json={"jsonrpc": "2.0", "id": 1, "method": "ping"})).status_code == 401
        for token, actor in ((made.data["token"], "bob"), (issuer.token(), "ada")):
            async with (
                httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}, timeout=60) as http,
                Client(streamable_http_client(url, http_client=http)) as client,
            ):
                stored = await called(client, "remember", content=f"{FLOOD} Says {actor}.")
                assert (await called(client, "get_memory", id=stored["id"]))["memory"]["agent_id"] == actor
    finally:
        server.terminate()
        finish(server)
