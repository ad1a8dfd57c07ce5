"""Several processes answer MCP at one port: none keeps what a next call needs, and one that dies is replaced."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from support.mcp_service import called
from support.redis_process import RedisProcess
from support.waiting import wait_until

_COMMAND = "from sharedmem.faces.cli import main; main()"
_HEADERS = {
    "accept": "application/json, text/event-stream",
    "content-type": "application/json",
    "mcp-protocol-version": "2025-11-25",
}


@asynccontextmanager
async def workers(redis: RedisProcess, *words: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, dict[str, Any]]]:
    """A command that serves in two processes, and what it prints."""
    line = ["--json", "--url", redis.url, "--namespace", "tides", "serve", *words, "--port", "0", "--workers", "2"]
    command = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _COMMAND),
        *line,
        env=os.environ | {"SHAREDMEM_EMBEDDER": "hashing"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert command.stdout is not None
        yield command, json.loads(await command.stdout.read(4096))
    finally:
        if command.returncode is None:
            command.terminate()
            await command.wait()


def members_of(pid: int) -> set[int]:
    return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


async def written(url: str, key: str) -> None:
    """Write a key by a tool, on a connection of its own; a call whose connection breaks is sent again."""
    call = {"name": "write_value", "arguments": {"key": key, "value": key}, "_meta": {"sharedmem/idempotencyKey": key}}
    sent = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    while True:
        try:
            async with httpx2.AsyncClient(timeout=60) as http:
                answer = await http.post(url, json=sent, headers=_HEADERS)
        except httpx2.TransportError:
            continue
        assert answer.status_code == 200, answer.text
        if "under way" not in answer.text:
            assert '"isError":true' not in answer.text, answer.text
            return


async def test_clients_lose_nothing_when_one_of_two_processes_is_killed() -> None:
    with RedisProcess(tcp=True) as redis:
        async with workers(redis, "mcp", "--http", "--write") as (command, serving):
            url = serving["url"]
            await written(url, "first")
            before = members_of(command.pid)
            keys = [[f"key-{client}-{number}" for number in range(25)] for client in range(4)]

            async def write_all(mine: list[str]) -> None:
                for key in mine:
                    await written(url, key)

            writing = asyncio.gather(*(write_all(mine) for mine in keys))
            os.kill(min(before), signal.SIGKILL)
            await writing
            await wait_until(lambda: bool(members_of(command.pid) - before), description="another one took its place")

            async with (
                httpx2.AsyncClient(timeout=60) as http,
                Client(streamable_http_client(url, http_client=http)) as client,
            ):
                for key in chain(*keys):
                    assert (await called(client, "read_value", key=key))["value"] == key
            assert serving["workers"] == 2


async def test_a_client_of_the_handshake_needs_no_process_of_its_own() -> None:
    with RedisProcess(tcp=True) as redis:
        async with (
            workers(redis, "rest", "--mcp", "--mcp-write") as (_, serving),
            httpx2.AsyncClient(timeout=60) as http,
            Client(streamable_http_client(serving["mcp"], http_client=http), mode="legacy") as client,
        ):
            for number in range(20):
                # Each call may reach the other process.
                await called(client, "write_value", key="step", value=number)
            async with httpx2.AsyncClient(base_url=serving["url"], timeout=60) as rest:
                read = await rest.get("/api/v1/store/values/tides:shared:step")
    assert read.json()["value"] == 19
