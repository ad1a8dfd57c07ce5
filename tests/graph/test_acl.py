"""docs/security.md: a Redis ACL user reaches the graphs of its namespace and no others, whatever it sends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError
from support import embedded_fixtures
from support.graph_rows import day

from sharedmem import AccessDeniedError, Hub, Settings
from sharedmem.providers.local_embedders import HashingEmbedder

data_dir = embedded_fixtures.data_dir
PASSWORD, GROUP = "correct horse", "acme:talk"
READS = {b"hash": "HGETALL", b"zset": "ZCARD", b"string": "GET"}


@pytest.fixture
async def operator(data_dir: Path) -> AsyncIterator[Hub]:
    settings = Settings(data_dir=data_dir, durable_url="none")
    async with Hub.open(settings=settings, embedder=HashingEmbedder()) as hub:
        for namespace, town in (("research", "Oslo"), ("payroll", "Bergen")):
            graph = hub.store(namespace).graph
            await graph.add_relationship("Ann", "lives_in", town, group_id=GROUP, valid_from=day(1), episode="e1")
        await hub.store("research", actor="ada").access.apply("ada", password=PASSWORD)
        yield hub


@pytest.fixture
async def limited(operator: Hub) -> AsyncIterator[Hub]:
    """A hub logged in as the user of ada in `research`."""
    settings = operator.settings.replace(redis_url=operator.url, redis_username="ada", redis_password=PASSWORD)
    async with Hub.open(settings=settings, embedder=HashingEmbedder()) as hub:
        yield hub


@pytest.fixture
async def raw(operator: Hub) -> AsyncIterator[Any]:
    async with Redis.from_url(operator.url, username="ada", password=PASSWORD, protocol=2) as client:
        yield client


async def test_a_user_tells_and_asks_the_graphs_of_its_namespace(operator: Hub, limited: Hub) -> None:
    await operator.index.promote("research", family="graph")
    graph = limited.store("research", actor="ada").graph

    told = await graph.add_episode("Ann moved to Hamar.", group_id=GROUP, id="e2", occurred_at=day(9), session="s")
    await graph.add_relationship("Annie", "likes", "Tea", group_id=GROUP, valid_from=day(2))
    await graph.merge("Annie", "Ann", group_id=GROUP)
    await graph.undo("e2", group_id=GROUP)

    assert told.episode.extraction == "done"
    assert sorted(fact.target_name for fact in await graph.facts("Ann", group_id=GROUP)) == ["Oslo", "Tea"]
    assert (await graph.traverse_from_entities(["Ann"], group_id=GROUP)).reached
    assert len(await graph.text_search("oslo", group_id=GROUP, kinds=["fact"])) == 1
    assert (await graph.retrieve("Where does Ann live?", group_id=GROUP)).items
    assert await graph.groups() == [GROUP]
    assert await graph.delete_by_group(GROUP) > 0


async def test_a_user_is_refused_the_graphs_of_others(limited: Hub) -> None:
    theirs = limited.store("payroll", actor="ada").graph

    for refused in (
        theirs.facts("Ann", group_id=GROUP),
        theirs.get("e1", group_id=GROUP),
        theirs.groups(),
        theirs.delete_by_group(GROUP),
        theirs.add_relationship("Ann", "likes", "Tea", group_id=GROUP),
    ):
        with pytest.raises(AccessDeniedError):
            await refused


async def test_the_server_refuses_what_would_show_or_forge_another_tenants_graph(operator: Hub, raw: Any) -> None:
    async with Redis.from_url(operator.url) as root:
        theirs = [key async for key in root.scan_iter("*{payroll}*graph*", count=1000)]
        theirs += [key async for key in root.scan_iter("*graph*{payroll}*", count=1000)]
        kinds: list[Any] = [await root.type(key) for key in theirs]

    assert any(b"/f/" in key for key in theirs)
    assert any(b"$graph.edges" in key for key in theirs)
    for key, kind in zip(theirs, kinds, strict=True):
        for command in (READS[kind], "DUMP", "DEL"):
            with pytest.raises(ResponseError, match=r"(?i)no permissions"):
                await raw.execute_command(command, key)
