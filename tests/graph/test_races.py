"""Many processes tell one group at the same time, die over it and undo each other: nothing is lost or half there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from support.chaos_proxy import ChaosProxy
from support.episode_processes import (
    GROUP,
    NAMESPACE,
    SETTINGS,
    open_scripted_graph,
    random_episodes,
    read_all_facts,
    running_writers,
)
from support.faulty_hubs import persistent_settings
from support.redis_process import RedisProcess

from sharedmem import Hub
from sharedmem.embedded.binaries import find_server
from sharedmem.graph.graph import Graph
from sharedmem.graph.records import LookupRequest
from sharedmem.models import EntityMerge, Episode
from sharedmem.redis.scripts.loader import scripts
from sharedmem.testing import fake_hub

COMMIT = scripts()["graph_commit"].digest.encode()


@pytest.fixture(scope="module")
def module_server() -> Iterator[RedisProcess]:
    modules = find_server().modules
    with RedisProcess(loadmodule=modules["search"]) if "search" in modules else RedisProcess() as server:
        yield server


@pytest.fixture
def server(module_server: RedisProcess) -> RedisProcess:
    """It is empty."""
    module_server.tell("FLUSHALL")
    return module_server


@pytest.fixture
async def hub(server: RedisProcess) -> AsyncIterator[Hub]:
    async with Hub.open(server.url, settings=SETTINGS) as hub:
        yield hub


@pytest.fixture
def graph(hub: Hub) -> Graph:
    return open_scripted_graph(hub)


@pytest.fixture
async def sequential() -> dict[str, set[tuple[object, ...]]]:
    """What is there when one agent tells everything, one after the other."""
    async with fake_hub(settings=SETTINGS) as hub:
        graph = open_scripted_graph(hub)
        for story in random_episodes():
            await graph.add_episodes([story])
        return await read_all_facts(graph)


async def is_whole(graph: Graph) -> list[str]:
    """The facts follow from the claims, and each episode says all that it has to say; which these are."""
    assert (await graph.check(group_id=GROUP)).problems == ()
    told = await graph.episodes(group_id=GROUP, limit=1000)
    lines = {story.id: str(story.content).count("\n") + 1 for story in random_episodes()}
    seen = await graph.backend.look(GROUP, LookupRequest(episodes=tuple(one.id for one in told)))
    assert {row.id: len(row.claims) for row in seen.episodes.values()} == {one.id: lines[one.id] for one in told}
    return [one.id for one in told]


async def test_eight_processes_that_share_the_stories_leave_what_one_after_the_other_leaves(
    server: RedisProcess, graph: Graph, sequential: dict[str, set[tuple[object, ...]]]
) -> None:
    async with running_writers(8, "share", server.url) as tellers:
        told = await asyncio.gather(*(teller.rest() for teller in tellers))

    assert told == [[["done"]]] * 8
    assert await read_all_facts(graph) == sequential
    assert len(await is_whole(graph)) == len(random_episodes())


async def test_processes_that_tell_the_same_at_once_tell_it_once(
    server: RedisProcess, graph: Graph, sequential: dict[str, set[tuple[object, ...]]]
) -> None:
    async with running_writers(3, "tell", server.url) as tellers:
        told = await asyncio.gather(*(teller.rest() for teller in tellers))

    assert all(lines[-1] == ["done"] for lines in told)
    assert await read_all_facts(graph) == sequential
    assert (await graph.stats(group_id=GROUP)).episodes == len(random_episodes())


async def test_eight_processes_that_tell_undo_merge_and_part_leave_what_follows_from_the_claims(
    server: RedisProcess, graph: Graph
) -> None:
    async with running_writers(8, "meddle", server.url) as meddlers:
        told = await asyncio.gather(*(meddler.rest() for meddler in meddlers))

    assert all(lines[-1] == ["done"] for lines in told)
    await gone_on_with(graph)
    assert len(await is_whole(graph)) == len(random_episodes())


async def gone_on_with(graph: Graph) -> None:
    """Call every merge and parting again: those that others came between tell their callers to do that."""
    for told in await graph.backend.merges(GROUP):
        merge = EntityMerge.model_validate_json(told)
        if merge.undone_at is None:
            await graph.merge(merge.source_id, merge.into_id, group_id=GROUP)
        else:
            await graph.unmerge(merge.source_id, group_id=GROUP)


async def test_of_a_process_that_is_killed_each_episode_is_there_wholly_or_not_at_all(
    server: RedisProcess, graph: Graph, sequential: dict[str, set[tuple[object, ...]]]
) -> None:
    async with running_writers(2, "tell", server.url) as (first, second):
        said = [await first.line() for _ in range(20)]
        first.kill()
        await second.line()
        second.kill()
        await asyncio.gather(first.end(), second.end())

    there = await is_whole(graph)
    assert {line[0] for line in said} <= set(there)
    assert len(there) < len(random_episodes())
    await graph.add_episodes(random_episodes())
    assert await read_all_facts(graph) == sequential


async def test_deleting_the_group_while_others_tell_leaves_only_whole_episodes_of_later(
    server: RedisProcess, graph: Graph, sequential: dict[str, set[tuple[object, ...]]]
) -> None:
    async with running_writers(3, "tell", server.url) as tellers:
        for _ in range(3):
            await tellers[0].line()
            await graph.delete_by_group(GROUP)
        told = await asyncio.gather(*(teller.rest() for teller in tellers))

    assert all(lines[-1] == ["done"] for lines in told)
    await is_whole(graph)
    await graph.delete_by_group(GROUP)
    assert await graph.groups() == []
    assert [key for key in server.client().scan_iter("*$graph*") if GROUP.encode() in key] == []
    await graph.add_episodes(random_episodes())
    assert await read_all_facts(graph) == sequential


@pytest.mark.parametrize("times", [1, 2])
async def test_an_episode_told_under_lost_replies_is_there_once(server: RedisProcess, graph: Graph, times: int) -> None:
    story = Episode(content="Anna Berg | lives_in | Rome | 3", group_id=GROUP, id="story", session="s")
    settings = persistent_settings(server.url, embedder="hashing", durable_url="none", graph_summary_every=2)
    async with ChaosProxy(server.url) as proxy, Hub.open(proxy.url, settings=settings) as stormy:
        through = open_scripted_graph(stormy)
        proxy.lose_replies(COMMIT, times)

        told = await through.add_episodes([story])

        assert proxy.cuts == times
        assert not told[0].repeated
        proxy.lose_replies(COMMIT, times)
        undone = await through.undo("story", group_id=GROUP)
        assert not undone.repeated

    assert (await graph.stats(group_id=GROUP)).episodes == 1
    (version,) = await graph.history("Anna Berg", group_id=GROUP)
    assert version.episode_ids == ("story",)
    assert version.superseded_at is not None
    with server.client() as raw:
        client: Any = raw  # redis-py types its answers for both of its faces at once
        changes = [told[b"op"] for _, told in client.xrange(f"sm:{{{NAMESPACE}}}:$changes")]
    assert changes.count(b"graph.episode") == changes.count(b"graph.undone") == 1
