"""docs/durable-format.md: graphs outlive Redis, and are all there again before anything is asked of one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from redis.asyncio import Redis
from support import durable_hub_fixtures, embedded_fixtures
from support.contexts import tier_of
from support.durable_graphs import (
    GROUP,
    day,
    drain_and_flush,
    durable_live_keys,
    durable_live_keys_after_drain,
    found_items,
    query_story,
    reopen_sqlite,
    write_story,
)

from sharedmem import Hub, Settings, SharedMemoryStore
from sharedmem.durable.sqlite_store import SqliteDurable
from sharedmem.errors import DurabilityPendingError, UnavailableError
from sharedmem.graph.graph import Graph
from sharedmem.graph.records import CommitRequest, LookupRequest, StaleGroup
from sharedmem.models import DurableRecord, Put
from sharedmem.providers.local_embedders import HashingEmbedder
from sharedmem.redis.keys import KeySpace
from sharedmem.testing import fake_hub

data_dir = durable_hub_fixtures.data_dir
settings = durable_hub_fixtures.settings
hub = durable_hub_fixtures.hub
store = durable_hub_fixtures.store
SPACE = KeySpace("sm", client="any")
Ask = Callable[[Graph], Awaitable[Any]]


@pytest.fixture
def graph(store: SharedMemoryStore) -> Graph:
    return store.graph


async def test_every_answer_is_the_same_after_redis_has_lost_everything(hub: Hub, graph: Graph) -> None:
    began = datetime.now(UTC)
    await write_story(graph)
    before = await query_story(graph, began)

    await drain_and_flush(hub)

    assert await query_story(graph, began) == before
    assert (await hub.durable.verify("research")).differences == []


async def test_a_hub_that_comes_after_a_loss_answers_the_same(hub: Hub, graph: Graph, settings: Settings) -> None:
    began = datetime.now(UTC)
    await write_story(graph)
    before = await query_story(graph, began)
    await drain_and_flush(hub)

    async with Hub.open(settings=settings, embedder=HashingEmbedder()) as later:
        assert await query_story(later.store("research").graph, began) == before


@pytest.mark.parametrize(
    "ask",
    [
        lambda graph: graph.stats(group_id=GROUP),
        lambda graph: graph.groups(),
        lambda graph: graph.entity("Bob", group_id=GROUP),
        lambda graph: graph.get("e1", group_id=GROUP),
        lambda graph: graph.episodes(group_id=GROUP),
        lambda graph: graph.history("Ann", group_id=GROUP),
        lambda graph: graph.as_of(day(20), group_id=GROUP),
        lambda graph: found_items(graph.vector_search("lives in Rome", group_id=GROUP, kinds=("fact",))),
        lambda graph: found_items(graph.text_search("Lima", group_id=GROUP)),
        lambda graph: graph.path("Bob", "Rome", group_id=GROUP),
    ],
    ids=range(10),
)
async def test_whatever_is_asked_first_after_a_loss_is_answered(hub: Hub, graph: Graph, ask: Ask) -> None:
    await write_story(graph)
    before = await ask(graph)
    await drain_and_flush(hub)

    assert await ask(graph) == before


async def test_a_group_that_is_deleted_right_after_a_loss_is_deleted(hub: Hub, graph: Graph) -> None:
    await write_story(graph)
    records = len(await durable_live_keys_after_drain(hub))
    await drain_and_flush(hub)

    assert await graph.delete_by_group(GROUP) == records

    await drain_and_flush(hub)
    assert await graph.groups() == []


async def test_the_graph_goes_on_after_a_loss_where_it_stood(hub: Hub, graph: Graph) -> None:
    await write_story(graph)
    await drain_and_flush(hub)

    undone = await graph.undo("e1", group_id=GROUP)
    parted = await graph.unmerge("Rob", group_id=GROUP)
    await graph.add_relationship("Bob", "lives_in", "Kyoto", group_id=GROUP, valid_from=day(200))
    again = await graph.add_episode("Ann moved from Oslo to Lima in March 2024.", group_id=GROUP, id="e1")

    assert undone.episode is not None
    assert parted.reason == "the same address"
    assert again.repeated
    homes = [fact.target_name for fact in await graph.facts("Bob", group_id=GROUP, as_of=day(300))]
    assert homes == ["Kyoto"]
    assert [fact.target_name for fact in await graph.facts("Rob", group_id=GROUP, as_of=day(300))] == ["Bern"]
    assert [fact.target_name for fact in await graph.facts("Bob", group_id=GROUP, as_of=day(5))] == ["Paris"]
    before = await graph.history("Bob", group_id=GROUP)
    await drain_and_flush(hub)
    assert await graph.history("Bob", group_id=GROUP) == before


async def test_a_fact_that_has_changed_comes_back_with_its_vector(hub: Hub, graph: Graph) -> None:
    for town, number in (("Paris", 1), ("Rome", 9)):
        await graph.add_relationship("Bob", "lives_in", town, group_id=GROUP, valid_from=day(number))
    async with Redis.from_url(hub.url) as raw:

        async def vectors() -> dict[bytes, Any]:
            return {key: await raw.hget(key, "vector") async for key in raw.scan_iter(match="sm:$graph:{research}:*")}

        before = await vectors()
        await drain_and_flush(hub)
        await graph.stats(group_id=GROUP)

        assert await vectors() == before
    assert sum(vector is not None for key, vector in before.items() if b"/f/" in key) == 2


async def test_more_names_than_a_row_holds_all_come_back(hub: Hub, graph: Graph) -> None:
    await graph.add_entity("Ann", group_id=GROUP, aliases=[f"name {number}" for number in range(150)])
    await graph.add_alias("Ann", "the last one", group_id=GROUP)
    before = await graph.aliases("Ann", group_id=GROUP)
    await hub.durable.drain("research", timeout=60)
    assert (await hub.durable.verify("research")).differences == []
    await drain_and_flush(hub)

    assert await graph.aliases("Ann", group_id=GROUP) == before
    assert len(before) == 152
    assert (await graph.entity("the last one", group_id=GROUP)).name == "Ann"
    await graph.delete_by_group(GROUP)
    await drain_and_flush(hub)
    assert await graph.groups() == []
    assert await durable_live_keys(hub) == []


async def test_what_was_deleted_stays_away(hub: Hub, graph: Graph) -> None:
    await write_story(graph)
    await write_story(graph, "other")
    await hub.durable.drain("research", timeout=60)
    await graph.delete_by_group(GROUP)

    await drain_and_flush(hub)

    assert await graph.groups() == ["other"]
    assert (await graph.stats(group_id=GROUP)).entities == 0
    assert all(":$graph:other/" in key for key in await durable_live_keys(hub))


async def test_what_was_cleared_does_not_come_back(hub: Hub, graph: Graph) -> None:
    await write_story(graph)
    await hub.durable.drain("research", timeout=60)

    await hub.store("research").clear()

    assert await graph.groups() == []
    await drain_and_flush(hub)
    assert await graph.groups() == []


@pytest.mark.parametrize("group", ["a::b", ":x:", "100% {}".replace("{}", "/a"), "ü" * 128, "x" * 256])
async def test_a_group_of_any_name_lasts(hub: Hub, graph: Graph, group: str) -> None:
    await graph.add_episode("Ann lives in Oslo.", group_id=group, id="e::1:")
    await hub.durable.drain("research", timeout=60)
    assert hub.durable is not None
    status = await hub.durable.status()
    assert [lag.dead for lag in status.namespaces] == [0]
    await drain_and_flush(hub)

    assert (await graph.get("e::1:", group_id=group)).group_id == group
    assert await graph.groups() == [group]


async def test_of_several_hubs_that_come_at_once_each_finds_all(settings: Settings) -> None:
    async with AsyncExitStack() as stack:
        hubs = [
            await stack.enter_async_context(Hub.open(settings=settings, embedder=HashingEmbedder())) for _ in range(3)
        ]
        graphs = [hub.store("research").graph for hub in hubs]
        for number in range(30):
            await graphs[0].add_relationship(f"Person {number}", "lives_in", "Oslo", group_id=f"g{number % 3}")
        before = await graphs[0].stats(group_id="g0")
        await drain_and_flush(hubs[0])

        counts = await asyncio.gather(*(graph.stats(group_id="g0") for graph in graphs))

    assert counts == [before] * 3


async def test_ingestion_while_a_graph_comes_back_loses_nothing(hub: Hub, graph: Graph, settings: Settings) -> None:
    for number in range(100):
        await graph.add_relationship(f"Person {number}", "lives_in", "Oslo", group_id=GROUP)
    await drain_and_flush(hub)

    async with Hub.open(settings=settings, embedder=HashingEmbedder()) as other:
        late = other.store("research").graph
        calls = [late.add_relationship(f"Late {number}", "lives_in", "Oslo", group_id=GROUP) for number in range(10)]
        calls += [graph.add_relationship("Person 5", "lives_in", "Rome", group_id=GROUP, valid_from=day(5))]
        await asyncio.gather(*calls, graph.stats(group_id=GROUP))

        assert (await late.stats(group_id=GROUP)).entities == 112
        assert len(await late.history("Person 5", group_id=GROUP)) >= 2
    await drain_and_flush(hub)
    assert (await graph.stats(group_id=GROUP)).entities == 112


async def test_a_step_that_has_looked_before_a_loss_looks_again(hub: Hub, graph: Graph) -> None:
    await graph.add_relationship("Bob", "lives_in", "Paris", group_id=GROUP)
    seen = await graph.backend.look(GROUP, LookupRequest(names=("bob",)))
    await drain_and_flush(hub)

    changes = CommitRequest(guards=("=bob",), names=(("robert", "bob-0000000000"),))

    assert isinstance(await graph.backend.commit(GROUP, changes, seen=seen.version), StaleGroup)
    assert (await graph.backend.look(GROUP, LookupRequest(names=("robert",)))).names == {}


async def test_in_mode_through_a_tier_that_is_away_is_told_and_nothing_is_lost(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    through = settings.replace(log_durability="through")
    async with Hub.open(settings=through, embedder=HashingEmbedder()) as hub:
        graph = hub.store("research").graph
        await graph.add_relationship("Bob", "lives_in", "Paris", group_id=GROUP)
        assert len(await durable_live_keys(hub)) == 4

        async def away(records: list[DurableRecord]) -> list[Put]:
            raise UnavailableError("the tier", f"it is away, with {len(records)} documents for it")

        monkeypatch.setattr(tier_of(hub).store, "put", away)
        with pytest.raises(DurabilityPendingError):
            await graph.add_relationship("Bob", "lives_in", "Rome", group_id=GROUP, valid_from=day(5))
        monkeypatch.undo()

        await drain_and_flush(hub)
        assert "Rome" in [fact.target_name for fact in await graph.history("Bob", group_id=GROUP)]


async def test_a_document_that_cannot_be_read_stays_away_and_the_rest_comes_back(
    hub: Hub, graph: Graph, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    await write_story(graph)
    await hub.durable.drain("research", timeout=60)
    async with reopen_sqlite(settings) as tier:
        first, *_ = await tier.query("research", of_type="episode", where={}, limit=10)
        await tier.put([first.model_copy(update={"stamp": first.stamp + 1, "body": '"nothing"'})])

    await drain_and_flush(hub)

    assert (await graph.entity("Bob", group_id=GROUP)).name == "Bob"
    assert first.key in caplog.text


async def test_restoring_brings_graphs_back_before_anybody_asks(hub: Hub, graph: Graph) -> None:
    await graph.add_relationship("Bob", "lives_in", "Paris", group_id=GROUP)
    await drain_and_flush(hub)

    assert await hub.durable.restore("research") == 4

    async with Redis.from_url(hub.url) as raw:
        assert len(await raw.keys("sm:$graph:{research}:*")) == 4


async def test_redis_and_the_tier_say_the_same_of_graphs(hub: Hub, graph: Graph) -> None:
    await write_story(graph)
    await hub.durable.drain("research", timeout=60)
    verified = await hub.durable.verify("research")
    assert (verified.differences, verified.waiting) == ([], 0)
    bob = await graph.entity("Bob", group_id=GROUP)

    async with Redis.from_url(hub.url) as raw:
        await raw.hset(SPACE.record("graph", "research", f"{GROUP}/n/{bob.id}"), "at", "0.5")
    (difference,) = (await hub.durable.verify("research")).differences

    assert (difference.key, difference.element) == (f"research:$graph:{GROUP}/n/{bob.id}", "at")


async def test_an_archive_carries_graphs_to_another_place(hub: Hub, graph: Graph, tmp_path: Path) -> None:
    began = datetime.now(UTC)
    await write_story(graph)
    await hub.durable.drain("research", timeout=60)
    before = await query_story(graph, began)
    await hub.archive.export("research", tmp_path / "research.jsonl.gz")
    settings = Settings(data_dir=tmp_path, durable_url=f"sqlite://{tmp_path}/other.db")
    async with fake_hub(settings=settings, embedder=HashingEmbedder()) as other:
        far = other.store("research").graph
        await far.add_relationship("Bob", "lives_in", "Paris", group_id="elsewhere")

        await other.archive.import_(tmp_path / "research.jsonl.gz")

        assert await far.groups() == [GROUP, "elsewhere"]
        assert await far.stats(group_id=GROUP) == before["stats"]
        assert await far.history("Ann", group_id=GROUP) == before["history Ann"]
        assert (await far.unmerge("Rob", group_id=GROUP)).reason == "the same address"

    await hub.store("research").clear()
    await hub.archive.import_(tmp_path / "research.jsonl.gz")
    after = await query_story(graph, began)
    assert after == before


async def test_an_archive_without_a_tier_says_that_graphs_are_left_out(tmp_path: Path) -> None:
    async with fake_hub(settings=Settings(data_dir=tmp_path, durable_url="none")) as hub:
        await hub.store("research").graph.add_entity("Bob", group_id=GROUP)

        report = await hub.archive.export("research", tmp_path / "research.jsonl.gz")

    assert report.left_out.count == 1


async def test_while_the_tier_is_away_the_graph_grows_and_what_it_learns_waits(
    hub: Hub, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    await graph.add_relationship("Bob", "lives_in", "Paris", group_id=GROUP)
    await hub.durable.drain("research", timeout=60)
    store = tier_of(hub).store

    async def away(records: list[DurableRecord]) -> list[Put]:
        raise UnavailableError("the tier", f"it is away, with {len(records)} documents for it")

    monkeypatch.setattr(store, "put", away)
    await graph.add_relationship("Bob", "lives_in", "Rome", group_id=GROUP, valid_from=day(5))

    assert (await hub.durable.status()).namespaces[0].waiting >= 1
    monkeypatch.undo()
    await drain_and_flush(hub)
    assert "Rome" in [fact.target_name for fact in await graph.history("Bob", group_id=GROUP)]


async def test_a_server_that_was_set_back_in_time_gets_what_came_later(settings: Settings) -> None:
    async with Hub.open(settings=settings, embedder=HashingEmbedder()) as hub, Redis.from_url(hub.url) as raw:
        graph = hub.store("research").graph
        began = datetime.now(UTC)
        await graph.add_relationship("Bob", "lives_in", "Paris", group_id=GROUP, valid_from=day(1))
        await graph.add_entity("Rob", group_id=GROUP)
        await graph.add_entity("Bobby", group_id=GROUP)
        await graph.merge("Bobby", "Bob", group_id=GROUP)
        await graph.add_entity("Zed", group_id="gone")
        await hub.durable.drain("research", timeout=60)
        keys = [key async for key in raw.scan_iter(match="*{research}*")]
        before = {key: await raw.dump(key) for key in keys}
        await write_story(graph)
        await graph.delete_by_group("gone")
        told = await query_story(graph, began)
        await hub.durable.drain("research", timeout=60)
        now = [key async for key in raw.scan_iter(match="*{research}*")]
        async with raw.pipeline(transaction=True) as at_once:
            at_once.unlink(*now)
            for key, held in before.items():
                if held is not None:
                    at_once.restore(key, 0, held, replace=True)
            await at_once.execute()

        async with Hub.open(settings=settings, embedder=HashingEmbedder()) as later:
            found = await query_story(later.store("research").graph, began)
            verified = await later.durable.verify("research")

    assert found == told
    assert verified.differences == []


async def test_a_server_without_a_query_engine_has_them_back_too(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, durable_url=f"sqlite://{tmp_path}/tier.db")
    began = datetime.now(UTC)
    async with fake_hub(settings=settings, embedder=HashingEmbedder()) as hub:
        await write_story(hub.store("research").graph)
        before = await query_story(hub.store("research").graph, began)
        await hub.durable.drain("research", timeout=60)
    async with fake_hub(settings=settings, embedder=HashingEmbedder()) as anew:
        assert await query_story(anew.store("research").graph, began) == before


async def test_what_was_told_is_there_after_the_server_was_killed_before_the_tier_had_it(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(_tier: SqliteDurable, records: list[DurableRecord]) -> list[Put]:
        raise UnavailableError("the tier", f"it is away, with {len(records)} documents for it")

    settings = Settings(data_dir=data_dir, embedded_fsync="always")
    async with Hub.open(settings=settings, embedder=HashingEmbedder()) as hub:
        graph = hub.store("research").graph
        monkeypatch.setattr(SqliteDurable, "put", away)
        for number in range(5):
            await graph.add_relationship("Bob", "lives_in", f"Town {number}", group_id=GROUP, valid_from=day(number))
        assert await durable_live_keys(hub) == []
        await embedded_fixtures.kill_server(data_dir)
    monkeypatch.undo()
    async with Hub.open(settings=settings, embedder=HashingEmbedder()) as anew:
        graph = anew.store("research").graph
        before = await graph.history("Bob", group_id=GROUP)
        await drain_and_flush(anew)

        assert await graph.history("Bob", group_id=GROUP) == before
    assert {fact.target_name for fact in before} == {f"Town {number}" for number in range(5)}


async def test_each_record_is_a_document_that_other_programs_can_read(
    hub: Hub, graph: Graph, settings: Settings
) -> None:
    await write_story(graph)
    await hub.durable.drain("research", timeout=60)

    async with reopen_sqlite(settings) as tier:
        facts = await tier.query("research", of_type="fact", where={"type": "lives_in"}, limit=100)
        (bob,) = await tier.query("research", of_type="entity", where={"name": "Bob"}, limit=100)

    assert {orjson.loads(one.body)["target_name"] for one in facts} >= {"Paris", "Rome", "Oslo", "Lima"}
    assert bob.key.startswith(f"research:$graph:{GROUP}/n/bob-")
