"""Many processes write into one group at the same time, die and undo each other: nothing is lost or half there.

`SHAREDMEM_RACES=200` plays each race with 200 seeds instead of one.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator

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
from support.example_budget import example_count
from support.faulty_hubs import persistent_settings
from support.footprint import read_changes
from support.redis_process import RedisProcess

from sharedmem import Hub
from sharedmem.embedded.binaries import find_server
from sharedmem.graph.graph import Graph
from sharedmem.graph.records import LookupRequest
from sharedmem.models import EntityMerge, Episode
from sharedmem.redis.scripts import scripts
from sharedmem.testing import fake_hub

RACES = int(os.environ.get("SHAREDMEM_RACES", example_count(1, thorough=10)))
Facts = dict[str, set[tuple[object, ...]]]
COMMIT = scripts()["graph_commit"].digest.encode()


@pytest.fixture(scope="module")
def module_server() -> Iterator[RedisProcess]:
    modules = find_server().modules
    with RedisProcess(loadmodule=modules["search"]) if "search" in modules else RedisProcess() as server:
        yield server


@pytest.fixture(params=range(RACES), ids=lambda seed: f"seed {seed}")
def seed(request: pytest.FixtureRequest) -> int:
    """Decides the episodes, and the order in which each process adds them."""
    number: int = request.param
    return number


@pytest.fixture
def episodes(seed: int) -> list[Episode]:
    return random_episodes(seed=seed)


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
async def sequential(episodes: list[Episode]) -> Facts:
    """What is there when one agent adds all of them, one after the other."""
    async with fake_hub(settings=SETTINGS) as hub:
        graph = open_scripted_graph(hub)
        for episode in episodes:
            await graph.add_episodes([episode])
        return await read_all_facts(graph)


async def whole_episodes(graph: Graph, episodes: list[Episode]) -> list[str]:
    """The facts follow from the claims, and each episode has all of its claims; return which episodes are there."""
    assert (await graph.check(group_id=GROUP)).problems == ()
    found = [one.id for one in await graph.episodes(group_id=GROUP, limit=1000)]
    lines = {one.id: str(one.content).count("\n") + 1 for one in episodes}
    seen = await graph.backend.look(GROUP, LookupRequest(episodes=tuple(found)))
    assert {row.id: len(row.claims) for row in seen.episodes.values()} == {id_: lines[id_] for id_ in found}
    return found


async def test_eight_processes_that_share_the_episodes_leave_what_one_after_the_other_leaves(
    server: RedisProcess, graph: Graph, episodes: list[Episode], sequential: Facts, seed: int
) -> None:
    async with running_writers(8, "share", server.url, seed=seed) as writers:
        printed = await asyncio.gather(*(writer.rest() for writer in writers))

    assert printed == [[["done"]]] * 8
    assert await read_all_facts(graph) == sequential
    assert len(await whole_episodes(graph, episodes)) == len(episodes)


async def test_processes_that_add_the_same_at_once_add_it_once(
    server: RedisProcess, graph: Graph, episodes: list[Episode], sequential: Facts, seed: int
) -> None:
    async with running_writers(3, "all", server.url, seed=seed) as writers:
        printed = await asyncio.gather(*(writer.rest() for writer in writers))

    assert all(lines[-1] == ["done"] for lines in printed)
    assert await read_all_facts(graph) == sequential
    assert (await graph.stats(group_id=GROUP)).episodes == len(episodes)


async def test_eight_processes_that_add_undo_merge_and_part_leave_what_follows_from_the_claims(
    server: RedisProcess, graph: Graph, episodes: list[Episode], seed: int
) -> None:
    async with running_writers(8, "change", server.url, seed=seed) as writers:
        printed = await asyncio.gather(*(writer.rest() for writer in writers))

    assert all(lines[-1] == ["done"] for lines in printed)
    assert not [
        merge for merge in map(EntityMerge.model_validate_json, await graph.backend.merges(GROUP)) if merge.pending
    ]
    assert len(await whole_episodes(graph, episodes)) == len(episodes)


async def test_of_a_process_that_is_killed_each_episode_is_there_wholly_or_not_at_all(
    server: RedisProcess, graph: Graph, episodes: list[Episode], sequential: Facts, seed: int
) -> None:
    async with running_writers(2, "until killed", server.url, seed=seed) as (first, second):
        printed = [await first.line() for _ in range(len(episodes) // 6)]
        first.kill()
        await second.line()
        second.kill()
        await asyncio.gather(first.end(), second.end())

    there = await whole_episodes(graph, episodes)
    assert {line[0] for line in printed} <= set(there)
    await graph.add_episodes(episodes)
    assert await read_all_facts(graph) == sequential


async def test_deleting_the_group_while_others_write_leaves_only_whole_episodes_of_later(
    server: RedisProcess, graph: Graph, episodes: list[Episode], sequential: Facts, seed: int
) -> None:
    async with running_writers(3, "all", server.url, seed=seed) as writers:
        for _ in range(3):
            await writers[0].line()
            await graph.delete_by_group(GROUP)
        printed = await asyncio.gather(*(writer.rest() for writer in writers))

    assert all(lines[-1] == ["done"] for lines in printed)
    await whole_episodes(graph, episodes)
    await graph.delete_by_group(GROUP)
    assert await graph.groups() == []
    assert [key for key in server.client().scan_iter("*$graph*") if GROUP.encode() in key] == []
    await graph.add_episodes(episodes)
    assert await read_all_facts(graph) == sequential


@pytest.mark.parametrize("times", [1, 2])
async def test_an_episode_added_under_lost_replies_is_there_once(
    server: RedisProcess, graph: Graph, times: int
) -> None:
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
        changes = [change.operation for change in read_changes(raw, NAMESPACE)]
    assert changes.count("graph.episode") == changes.count("graph.undone") == 1
