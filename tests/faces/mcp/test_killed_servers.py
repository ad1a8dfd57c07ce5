"""A server that is killed in the middle of a call: the client repeats it elsewhere with its key, and it has one effect.

The first server does its work in Redis and hears nothing of it, and is left so, as a killed process would be.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp import Client
from support.chaos_proxy import ChaosProxy
from support.mcp_service import called, text_of
from support.redis_process import RedisProcess

from sharedmem import Hub
from sharedmem.config import Settings
from sharedmem.errors import NotFoundError
from sharedmem.faces.mcp import McpOptions, McpService

META: Any = {"sharedmem/idempotencyKey": "k-1"}
OPTIONS = McpOptions(
    tools=("memory", "coordination", "graph", "notes", "reference-memory"), write=True, idempotency_lease_s=0.3
)
ADA = {"name": "Ada", "entityType": "person", "observations": ["has a boat"]}
CALLS: dict[str, dict[str, Any]] = {
    "post_message": {"channel": "team", "content": "marker"},
    "write_value": {"key": "marker", "value": "new", "if_version": 0},
    "claim_task": {"queue": "marker"},
    "remember": {"content": "The marker is green."},
    "save_decision": {"topic": "marker", "action": "buy", "reasoning": "it is cheap"},
    "note_fact": {"subject": "marker", "relation": "works_for", "object": "Skarn"},
    "create_entities": {"entities": [ADA | {"observations": ["marker"]}]},
}


@asynccontextmanager
async def client_of(url: str) -> AsyncIterator[Client]:
    settings = Settings(redis_url=url, embedder="hashing", namespace="tides", retry_for_s=60)
    async with Hub.open(settings=settings) as hub, Client(McpService(hub, options=OPTIONS).server) as client:
        yield client


async def effects(hub: Hub) -> dict[str, int]:
    """How often each call has had its effect."""
    store = hub.store("tides")
    graph = store.graph
    return {
        "post_message": len(await store.episodes.events("team")),
        "write_value": int(await store.shared.exists("marker")),
        "claim_task": (await store.queue("marker").stats()).claimed,
        "remember": sum("marker" in memory.content for memory in await store.memory.list()),
        "save_decision": len(await store.decisions.get_recent_plans("main")),
        "note_fact": await statements(hub),
        "create_entities": (await graph.stats(group_id="reference-memory")).episodes,
    }


async def statements(hub: Hub) -> int:
    """How many episodes state the fact."""
    try:
        [fact] = await hub.store("tides").graph.facts("marker", group_id="main")
    except NotFoundError:
        return 0
    return len(fact.episode_ids)


@pytest.fixture(scope="module")
def redis() -> Any:
    with RedisProcess(tcp=True) as redis:
        yield redis


@pytest.mark.parametrize("tool", CALLS)
async def test_a_retry_elsewhere_has_one_effect(redis: RedisProcess, tool: str) -> None:
    async with Hub.open(url=redis.url) as hub, ChaosProxy(redis.url) as proxy:
        await hub.store("tides").clear()
        for number in range(3):
            await hub.store("tides").queue("marker").put(number)
        async with client_of(proxy.url) as killed, client_of(redis.url) as other:
            # Its connections are open from here on.
            await called(killed, "remember", content="It rains.")
            with proxy.refusing():
                proxy.lose_replies(b"marker")
                lost = asyncio.create_task(killed.call_tool(tool, CALLS[tool], meta=META))
                await proxy.cut.wait()
                answer = await repeated(other, tool)
                again = await repeated(other, tool)
                lost.cancel()
            assert answer == again
            assert (await effects(hub))[tool] == 1


async def repeated(client: Client, tool: str) -> dict[str, Any]:
    while True:
        result = await client.call_tool(tool, CALLS[tool], meta=META)
        if not result.is_error:
            return dict(result.structured_content or {})
        # The other server has begun it; or this one took longer than its short lease, on a busy machine.
        assert any(advice in text_of(result) for advice in ("under way", "no longer yours"))
