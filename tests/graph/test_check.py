"""docs/graph.md: `check` reports and repairs every difference between a graph and what follows from its episodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest
from support import graph_fixtures
from support.episode_processes import GROUP, random_episodes, read_all_facts
from support.held_graph_steps import hold_backend
from support.scripted_extractor import ScriptedExtractor

from sharedmem.graph.backends.redis import RedisBackend
from sharedmem.graph.graph import Graph
from sharedmem.graph.records import CommitRequest, FactRow, LookupRequest
from sharedmem.models import GraphCheck

falkor_server = graph_fixtures.falkor_server
fake_graph = graph_fixtures.fake_graph
real_graph = graph_fixtures.real_graph
falkor_graph = graph_fixtures.falkor_graph
graph = graph_fixtures.graph


@pytest.fixture
async def told(graph: Graph) -> Graph:
    """A graph of some stories on each kind of server, with a merge and an episode that was undone."""
    told = graph.using(extractor=ScriptedExtractor())
    await told.add_episodes(random_episodes(18))
    await told.merge("Anna Berg", "Boris Ivanov", group_id=GROUP)
    await told.undo("story-7", group_id=GROUP)
    return told


@pytest.fixture(params=["fake_graph", "real_graph"])
def redis_graph(request: pytest.FixtureRequest) -> Graph:
    """Graphs in Redis itself."""
    found: Graph = request.getfixturevalue(request.param)
    return found


@pytest.fixture
async def in_redis(redis_graph: Graph) -> tuple[Graph, RedisBackend]:
    """A small graph there, with its backend."""
    graph = redis_graph
    await graph.add_relationship("Anna Berg", "married_to", "Carl Cole", group_id=GROUP)
    await graph.add_alias("Anna Berg", "Annie", group_id=GROUP)
    await graph.add_entity("Dora Dunn", group_id=GROUP, attributes={"tier": "gold"})
    await graph.merge("Dora Dunn", "Carl Cole", group_id=GROUP)
    backend = graph.backend
    assert isinstance(backend, RedisBackend)
    return graph, backend


async def a_fact(graph: Graph) -> FactRow:
    """One that has been superseded, and is known to end."""
    ids, _ = await graph.backend.listed(GROUP, "fact", limit=1000)
    rows = (await graph.backend.look(GROUP, LookupRequest(facts=tuple(ids)))).facts
    return next(rows[id_] for id_ in sorted(rows) if len(rows[id_].versions) > 1 and rows[id_].target)


async def written(graph: Graph, *facts: FactRow, former: tuple[FactRow, ...]) -> None:
    """Write facts that follow from nothing."""
    seen = await graph.backend.look(GROUP, LookupRequest(entities=("none",)))
    await graph.backend.commit(GROUP, CommitRequest(guards=(), facts=facts, former=former), seen=seen.version)


def ending_early(row: FactRow) -> FactRow:
    newest = row.versions[-1]
    return replace(row, versions=(*row.versions[:-1], newest._replace(end=newest.start + 1)))


def superseded_late(row: FactRow) -> FactRow:
    oldest = row.versions[0]
    return replace(row, versions=(oldest._replace(superseded=oldest.superseded + 1), *row.versions[1:]))


async def test_nothing_is_wrong_with_what_was_only_told(told: Graph) -> None:
    check = await told.check(group_id=GROUP)

    assert check.problems == ()
    assert check.is_clean
    assert check.episodes == 18
    assert check.facts > 10 < check.claims


async def test_a_group_that_is_not_there_is_clean(graph: Graph) -> None:
    check = await graph.check(group_id="acme:nobody", repair=True)

    assert (check.problems, check.episodes, check.facts) == ((), 0, 0)


@pytest.mark.parametrize(
    ("kind", "spoil"),
    [
        ("missing_fact", lambda _: None),
        ("superfluous_fact", lambda row: replace(row, id="0123456789abcdef0123", version=0)),
        ("wrong_interval", ending_early),
        ("wrong_superseded", superseded_late),
        ("wrong_fact", lambda row: replace(row, text="something else")),
    ],
)
async def test_a_fact_that_does_not_follow_is_reported_and_repaired(
    told: Graph, kind: str, spoil: Callable[[FactRow], FactRow | None]
) -> None:
    right = await read_all_facts(told)
    row = await a_fact(told)
    spoilt = spoil(row)
    is_another = spoilt is not None and spoilt.id != row.id
    await written(told, *([spoilt] if spoilt else []), former=() if is_another else (row,))

    found = await told.check(group_id=GROUP)
    mended = await told.check(group_id=GROUP, repair=True)

    expected = spoilt.id if spoilt is not None else row.id
    assert [(problem.kind, problem.id, problem.repaired) for problem in found.problems] == [(kind, expected, False)]
    assert not found.is_clean
    assert [(problem.kind, problem.repaired) for problem in mended.problems] == [(kind, True)]
    assert mended.is_clean
    assert (await told.check(group_id=GROUP)).problems == ()
    assert await read_all_facts(told) == right


async def test_a_merge_that_was_cut_off_is_reported_and_finished(told: Graph) -> None:
    holding, backend = hold_backend(told, 5)
    merge = asyncio.ensure_future(holding.merge("Chloe Martin", "Elif Demir", group_id=GROUP))
    await backend.is_held.wait()
    merge.cancel()
    with suppress(asyncio.CancelledError):
        await merge

    found = await told.check(group_id=GROUP)
    await told.check(group_id=GROUP, repair=True)

    assert "misplaced_claim" in {problem.kind for problem in found.problems}
    assert (await told.check(group_id=GROUP)).problems == ()
    mended = await read_all_facts(told)
    await told.merge("Chloe Martin", "Elif Demir", group_id=GROUP)
    assert await read_all_facts(told) == mended


async def test_what_others_write_meanwhile_is_not_reported(graph: Graph) -> None:
    told = graph.using(extractor=ScriptedExtractor())

    async def tell() -> None:
        for story in random_episodes(30):
            await told.add_episodes([story])
        await told.undo("story-3", group_id=GROUP)

    telling = asyncio.ensure_future(tell())
    checks: list[GraphCheck] = []
    while not telling.done():
        checks.append(await told.check(group_id=GROUP, repair=len(checks) % 2 == 1))
    await telling

    assert [check.problems for check in checks if check.problems] == []
    assert (await told.check(group_id=GROUP)).problems == ()


@pytest.mark.parametrize("part", ["edges", "claims", "names", "merges", "told"])
async def test_a_lost_index_is_reported_and_written_anew(in_redis: tuple[Graph, RedisBackend], part: str) -> None:
    graph, backend = in_redis
    right = await read_all_facts(graph)
    await backend.client.call("DEL", backend.keys.part(GROUP, part))

    found = await graph.check(group_id=GROUP)
    await graph.check(group_id=GROUP, repair=True)

    assert "missing_entry" in {problem.kind for problem in found.problems}
    assert (await graph.check(group_id=GROUP)).problems == ()
    assert await read_all_facts(graph) == right
    assert (await graph.entity("annie", group_id=GROUP)).name == "Anna Berg"


@pytest.mark.parametrize(
    ("part", "entry"),
    [
        ("edges", "nobody\x1frc{0}{0}>likes\x1fnobody\x1ff00"),
        ("claims", "bnobody\x1fnobody>likes>tea\x1fe00#0"),
        ("told", "ff00"),
        ("told", "garbage"),
        ("edges", "garbage"),
    ],
)
async def test_an_index_entry_of_no_record_is_reported_and_removed(
    in_redis: tuple[Graph, RedisBackend], part: str, entry: str
) -> None:
    graph, backend = in_redis
    await backend.client.call("ZADD", backend.keys.part(GROUP, part), 0, entry.format("0" * 18))

    found = await graph.check(group_id=GROUP)
    await graph.check(group_id=GROUP, repair=True)

    assert [problem.kind for problem in found.problems] == ["dangling_entry"]
    assert (await graph.check(group_id=GROUP)).problems == ()


async def test_an_entity_without_a_record_is_reported_and_has_one_again(
    in_redis: tuple[Graph, RedisBackend],
) -> None:
    graph, backend = in_redis
    anna = await graph.entity("Anna Berg", group_id=GROUP)
    await backend.client.call("DEL", backend.keys.record(f"{GROUP}/n/{anna.id}"))

    found = await graph.check(group_id=GROUP)
    await graph.check(group_id=GROUP, repair=True)

    assert ("missing_entity", anna.id) in {(problem.kind, problem.id) for problem in found.problems}
    assert (await graph.check(group_id=GROUP)).problems == ()
    assert [(await graph.entity(name, group_id=GROUP)).name for name in ("Anna Berg", "Annie")] == ["Anna Berg"] * 2
