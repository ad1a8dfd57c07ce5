"""Graphs in the FalkorDB module: what the backend keeps, asked directly, with rows made by hand."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from support import falkordb_fixtures
from support.falkordb_fixtures import (
    EVER,
    GROUP,
    NASTY,
    NOW,
    YEAR_1,
    YEAR_9999,
    attribute,
    claim,
    entity,
    episode,
    fact,
    facts_of,
    put,
    vector,
    write,
)
from support.redis_process import RedisProcess

from sharedmem.graph.backends.falkordb import FalkorBackend
from sharedmem.graph.records import (
    LATEST,
    OPEN,
    UNKNOWN_START,
    BitemporalPoint,
    Claim,
    CommitReceipt,
    CommitRequest,
    Edge,
    LookupRequest,
    RecordSearch,
    StaleGroup,
    Version,
)
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.redis.vectors import to_half
from sharedmem.text.analysis import query_terms

server = falkordb_fixtures.server
settings = falkordb_fixtures.settings
hub = falkordb_fixtures.hub
namespace = falkordb_fixtures.namespace
minds = falkordb_fixtures.minds
graph = falkordb_fixtures.graph


# -- rows ----------------------------------------------------------------------------------------


async def test_every_row_comes_back_as_it_was_written(graph: FalkorBackend) -> None:
    said = claim("e1", 0, "ann", "bob"), claim("e1", 1, "bob", "cem")
    written = episode("e1", *said, lines=(("ann>knows>bob", "other"), ()))
    ann, known = entity("ann", aliases=("A", "B"), summary="x"), fact("ann", "bob", Version(1, 5, 2, 8), EVER)
    told = attribute("ann", "age", '{"n":[1,2.5,null]}')

    version = await put(graph, written, ann, known, told)
    seen = await graph.look(
        GROUP, LookupRequest(lines=("ann>knows>bob", "none"), episodes=("e1", "e2"), entities=("ann", "bob"),
                      facts=(known.id, told.id, "none"))
    )  # fmt: skip

    assert seen.version == version
    assert seen.episodes == {"e1": replace(written, version=version)}
    assert seen.entities == {"ann": replace(ann, version=version)}
    assert seen.facts == {row.id: replace(row, version=version) for row in (known, told)}
    assert seen.claims == {"ann>knows>bob": (said[0],), "none": ()}


@pytest.mark.parametrize("text", NASTY, ids=lambda text: ascii(text)[:30])
async def test_no_text_is_ever_part_of_a_query(graph: FalkorBackend, text: str) -> None:
    said = Claim(f"e{text}", 0, "holds", f"a{text}", text, text, f"b{text}", text, text, 1, OPEN, 2, OPEN, text)
    row = episode(f"e{text}", said, lines=((text,),), text=text, session=text, user=text, source=text, digest=text)
    some = entity(f"a{text}", name=text, names=(text,), aliases=(text,), summary=text, type=text)
    known = fact(
        f"a{text}", f"b{text}", id=f"f{text}", type=text, text=text, value=text, lines=(text,), episodes=(text,)
    )

    version = await write(
        graph, CommitRequest((text, f"={text}", f"@{text}"), (row,), (some,), (known,), names=((text, some.id),))
    )
    wanted = LookupRequest((text,), (text,), (row.id,), (some.id,), (known.id,))
    seen = await graph.look(GROUP, wanted)

    assert seen.episodes == {row.id: replace(row, version=version)}
    assert seen.entities == {some.id: replace(some, version=version)}
    assert seen.facts == {known.id: replace(known, version=version)}
    assert seen.claims == {text: (said,)}
    assert seen.names == {text: some.id}
    assert facts_of(await graph.edges(GROUP, some.id, when=NOW, limit=9, types=(text,))) == [known.id]
    assert (await graph.listed(GROUP, "episode", session=text))[0] == [row.id]
    assert (await graph.lines_of(GROUP, [some.id]))[0] == [text]
    assert (await graph.names_of(GROUP, some.id))[0] == [text]
    await graph.search(GROUP, [RecordSearch(("e", "n", "f"), query_terms(text) or ("x",), session=text)])


async def test_a_row_that_is_written_again_leaves_nothing_of_the_former_one(graph: FalkorBackend) -> None:
    first = episode("e1", claim("e1", 0, "ann", "bob"), claim("e1", 1, "ann", "cem"))
    version = await put(graph, first)
    second = replace(first, claims=first.claims[1:], lines=(("moved",),), version=version, letter="e")

    await write(graph, CommitRequest((), (second,), former=(replace(first, version=version),)))
    seen = await graph.look(GROUP, LookupRequest(lines=("ann>knows>bob", "ann>knows>cem", "moved"), episodes=("e1",)))

    assert seen.claims == {"ann>knows>bob": (), "ann>knows>cem": (), "moved": first.claims[1:]}
    assert seen.episodes["e1"].claims == first.claims[1:]
    assert (await graph.lines_of(GROUP, ["ann", "bob"]))[0] == ["moved"]


async def test_a_fact_that_is_over_becomes_a_past_one_and_keeps_its_vector(graph: FalkorBackend) -> None:
    row = fact("ann", "bob", vector=to_half(vector(1)))
    version = await put(graph, row)
    over = replace(row, versions=(Version(1, 5, 2, OPEN),), vector=None, version=version)

    await put(graph, over)
    (now,) = await graph.search(GROUP, [RecordSearch(("f", "p"), vector=vector(1))])
    stats = await graph.stats(GROUP)

    assert [(hit.id, hit.letter) for hit in now.vector] == [(row.id, "p")]
    assert (stats.facts, stats.past_facts) == (0, 1)


async def test_a_former_fact_that_is_not_written_again_goes_with_its_edges(graph: FalkorBackend) -> None:
    gone = fact("ann", "bob"), attribute("ann", "age", "3")
    version = await put(graph, *gone)
    absent = fact("x", "y")

    await write(graph, CommitRequest((), former=(*(replace(row, version=version) for row in gone), absent)))

    assert await graph.edges(GROUP, "ann", when=None, limit=9) == []
    assert (await graph.look(GROUP, LookupRequest(facts=tuple(row.id for row in gone)))).facts == {}


async def test_a_name_can_be_given_to_another_and_taken_away(graph: FalkorBackend) -> None:
    await write(graph, CommitRequest((), entities=(entity("ann"), entity("bob")), names=(("a", "ann"), ("b", "ann"))))
    await write(graph, CommitRequest((), names=(("a", "bob"), ("b", ""))))

    seen = await graph.look(GROUP, LookupRequest(names=("a", "b")))

    assert (seen.names, seen.owners) == ({"a": "bob"}, {"a": "bob"})
    assert await graph.names_of(GROUP, "ann") == ([], "")


async def test_names_and_claims_lead_through_every_merge(graph: FalkorBackend) -> None:
    rows = entity("ann", merged_into="bob"), entity("bob", merged_into="cem"), entity("cem")
    said = episode("e1", claim("e1", 0, "ann", "dan"))
    version = await write(graph, CommitRequest((), (said,), rows, names=(("a", "ann"), ("c", "cem"))))

    seen = await graph.look(GROUP, LookupRequest(names=("a", "c"), lines=("ann>knows>dan",), entities=("bob", "cem")))
    await put(graph, replace(rows[0], merged_into="", version=version))
    apart = await graph.look(GROUP, LookupRequest(names=("a",), lines=("ann>knows>dan",)))

    assert (seen.names, seen.owners) == ({"a": "cem", "c": "cem"}, {"a": "ann", "c": "cem"})
    assert seen.into == {"ann": "cem", "bob": "cem"}
    assert (apart.names, apart.into) == ({"a": "ann"}, {})


# -- commits -------------------------------------------------------------------------------------


@pytest.mark.parametrize("guard", ["ann>knows>", "=ann", "@ann"])
async def test_a_commit_is_behind_when_one_of_its_guards_has_changed(graph: FalkorBackend, guard: str) -> None:
    seen = await put(graph, entity("ann"))
    assert isinstance(await graph.commit(GROUP, CommitRequest((guard,)), seen=seen), CommitReceipt)

    late = await graph.commit(GROUP, CommitRequest((guard,), entities=(entity("late"),)), seen=seen)
    steady = await graph.commit(GROUP, CommitRequest((), entities=(entity("late"),), steady=(guard,)), seen=seen)
    other = await graph.commit(GROUP, CommitRequest((f"{guard}x",), entities=(entity("other"),)), seen=seen)

    assert (late, steady) == (StaleGroup(), StaleGroup())
    assert isinstance(other, CommitReceipt)
    assert (await graph.look(GROUP, LookupRequest(entities=("late", "other")))).entities.keys() == {"other"}


async def test_an_unchanged_guard_rejects_no_commit(graph: FalkorBackend) -> None:
    seen = await put(graph, entity("ann"))

    some = [await graph.commit(GROUP, CommitRequest((), steady=("@ann",)), seen=seen) for _ in range(2)]

    assert all(isinstance(one, CommitReceipt) for one in some)


async def test_a_commit_is_behind_when_an_episode_or_entity_has_changed(graph: FalkorBackend) -> None:
    rows = episode("e1"), entity("ann")
    seen = await put(graph, *rows)

    new = [await graph.commit(GROUP, CommitRequest((), entities=rows[1:]), seen=seen)]
    new.append(await graph.commit(GROUP, CommitRequest((), episodes=rows[:1]), seen=seen))
    old = replace(rows[1], version=seen - 1)
    new.append(await graph.commit(GROUP, CommitRequest((), entities=rows[1:], former=(old,)), seen=seen))
    right = CommitRequest((), entities=rows[1:], former=(replace(rows[1], version=seen),))

    assert new == [StaleGroup()] * 3
    assert isinstance(await graph.commit(GROUP, right, seen=seen), CommitReceipt)


async def test_a_commit_tells_how_many_turns_a_session_has(graph: FalkorBackend) -> None:
    rows = episode("e1"), episode("e2", session=""), episode("s1", letter="s")
    done = await graph.commit(GROUP, CommitRequest((), rows), seen=0)
    assert isinstance(done, CommitReceipt)
    again = replace(rows[0], version=done.version)

    more = await graph.commit(
        GROUP, CommitRequest((), (again, episode("e3"), episode("e4")), former=(again,)), seen=done.version
    )

    assert isinstance(more, CommitReceipt)
    assert (dict(done.turns), more.turns) == ({"s": 1, "": 1}, (("s", 3),))


async def test_versions_rise(graph: FalkorBackend) -> None:
    versions = [await put(graph, entity(f"e{number}")) for number in range(5)]

    assert versions == sorted(set(versions))
    assert (await graph.look(GROUP, LookupRequest())).version == versions[-1]


async def test_of_twenty_commits_at_once_each_is_written_or_behind(
    minds: KnowledgeContext, graph: FalkorBackend, namespace: str
) -> None:
    others = [FalkorBackend(minds, namespace) for _ in range(20)]

    async def tell(number: int) -> int:
        tries = 0
        while True:
            tries += 1
            seen = await others[number].look(GROUP, LookupRequest(lines=("shared",)))
            before = len(seen.claims["shared"])
            said = replace(claim(f"e{number}", before, "ann", "bob"), number=before)
            row = episode(f"e{number}", said, lines=(("shared",),))
            if isinstance(
                await others[number].commit(GROUP, CommitRequest(("shared",), (row,)), seen=seen.version), CommitReceipt
            ):
                return tries

    await asyncio.gather(*map(tell, range(20)))
    seen = await graph.look(GROUP, LookupRequest(lines=("shared",)))

    assert sorted(one.number for one in seen.claims["shared"]) == list(range(20))


async def test_many_callers_that_begin_and_read_a_group_at_once_all_succeed(
    minds: KnowledgeContext, graph: FalkorBackend, namespace: str
) -> None:
    """A query that was planned while the graph got an index has killed the server."""
    others = [FalkorBackend(minds, namespace) for _ in range(12)]

    async def tell(number: int, group: str) -> None:
        search = RecordSearch(("e", "n", "f"), ("marvin",), vector(1))
        await others[number].search(group, [search])
        while isinstance(
            await others[number].commit(
                group,
                CommitRequest((), (episode(f"e{number}"),)),
                seen=(await graph.look(group, LookupRequest())).version,
            ),
            StaleGroup,
        ):
            await others[number].search(group, [search])

    for group in ("g1", "g2", "g3", "g4"):
        await asyncio.gather(*(tell(number, group) for number in range(12)))

    assert [(await graph.stats(group)).episodes for group in ("g1", "g2", "g3", "g4")] == [12] * 4


async def test_deleting_a_group_while_others_tell_it_things_leaves_no_half_of_a_step(
    minds: KnowledgeContext, graph: FalkorBackend, namespace: str
) -> None:
    others = [FalkorBackend(minds, namespace) for _ in range(6)]

    async def tell(number: int) -> None:
        for step in range(15):
            seen = await others[number].look(GROUP, LookupRequest())
            id_ = f"{number}-{step}"
            told = CommitRequest((id_,), (episode(id_),), (entity(id_),), (fact("ann", "bob", id=id_),))
            await others[number].commit(GROUP, told, seen=seen.version)

    async def delete() -> None:
        for _ in range(15):
            await graph.delete(GROUP)

    await asyncio.gather(delete(), *map(tell, range(6)))
    stats = await graph.stats(GROUP)
    deleted = await graph.delete(GROUP)

    assert stats.episodes == stats.entities == stats.facts
    assert deleted == 3 * stats.episodes
    assert await graph.groups() == []


async def test_a_commit_that_comes_after_its_group_has_gone_leaves_nothing(graph: FalkorBackend) -> None:
    late = await graph.commit("gone", CommitRequest(("line",), entities=(entity("ann"),)), seen=5)

    assert late == StaleGroup()
    assert await graph.groups() == []


async def test_a_commit_that_is_sent_twice_is_done_once(graph: FalkorBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    await put(graph, entity("ann"))
    send = graph._asker.write

    async def twice(*args: object) -> list[list[object]]:
        assert await send(*args)  # type: ignore[arg-type]  # handed on as they are
        return await send(*args)  # type: ignore[arg-type]  # likewise

    monkeypatch.setattr(graph._asker, "write", twice)
    version = await write(graph, CommitRequest(("line",), entities=(entity("bob"),)))
    monkeypatch.undo()
    seen = await graph.look(GROUP, LookupRequest(entities=("bob",)))

    assert seen.version == version == seen.entities["bob"].version


# -- time ----------------------------------------------------------------------------------------


async def test_an_edge_holds_in_the_years_1_and_9999_and_at_its_very_bounds(graph: FalkorBackend) -> None:
    await put(
        graph,
        fact("ann", "old", Version(YEAR_1, YEAR_1 + 1, 1, OPEN)),
        fact("ann", "late", Version(YEAR_9999, OPEN, 1, OPEN)),
        fact("ann", "ever", Version(UNKNOWN_START, OPEN, 1, OPEN)),
        fact("ann", "wrong", Version(UNKNOWN_START, OPEN, 1, 5)),
    )

    async def at(world: int, known: int = LATEST) -> list[str]:
        edges = await graph.edges(GROUP, "ann", when=BitemporalPoint(world, known), limit=9)
        return [edge.other for edge in edges]

    assert await at(YEAR_1) == ["old", "ever"]
    assert await at(YEAR_1 + 1) == ["ever"]
    assert await at(YEAR_9999) == ["late", "ever"]
    assert await at(YEAR_9999, 4) == ["late", "ever", "wrong"]
    assert await at(YEAR_9999, 5) == ["late", "ever"]
    assert await at(YEAR_9999, 0) == []


async def test_edges_without_a_time_are_all_versions_and_types_narrow_them(graph: FalkorBackend) -> None:
    versions = Version(2, OPEN, 3, 7), Version(2, 9, 7, OPEN)
    await put(graph, fact("ann", "bob", *versions), attribute("ann", "age", "3"), fact("cem", "ann"))

    ever = await graph.edges(GROUP, "ann", when=None, limit=99)
    told = await graph.edges(GROUP, "ann", when=NOW, limit=9, types=("@",))
    age = await graph.edges(GROUP, "ann", when=NOW, limit=9, types=("@age", "other"))

    assert {edge.version for edge in ever if edge.other == "bob"} == set(versions)
    assert [(edge.other, edge.forward) for edge in ever if edge.other != "bob"] == [("", True), ("cem", False)]
    assert told == age == [Edge("ann", "", True, "@age", "ann-age", EVER)]
    assert len(await graph.edges(GROUP, "ann", when=None, limit=2)) == 2


# -- walks ---------------------------------------------------------------------------------------


async def test_a_walk_tells_the_fewest_steps_through_cycles_and_self_loops(graph: FalkorBackend) -> None:
    pairs = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a"), ("d", "e"), ("a", "a"), ("e", "f")]
    await put(graph, *(fact(*pair) for pair in pairs), attribute("a", "age", "3"))

    walked = await graph.walk(GROUP, ["a"], when=NOW, depth=3, fan_out=9, limit=99)

    first: dict[str, int] = {}
    for distance, edge in walked.edges:
        first.setdefault(edge.other, distance)
    assert first == {"a": 0, "b": 1, "d": 1, "c": 2, "e": 2, "f": 3}
    assert sorted(edge.fact for _, edge in walked.edges) == sorted("-".join(pair) for pair in pairs)
    assert [distance for distance, _ in walked.edges] == sorted(distance for distance, _ in walked.edges)
    assert not walked.truncated


async def test_a_walk_follows_only_what_held(graph: FalkorBackend) -> None:
    await put(
        graph, fact("a", "b", Version(5, 9, 3, OPEN)), fact("b", "c", Version(7, OPEN, 3, 6), Version(8, OPEN, 6, OPEN))
    )

    async def reached(world: int, known: int = LATEST) -> list[str]:
        walked = await graph.walk(GROUP, ["a"], when=BitemporalPoint(world, known), depth=5, fan_out=9, limit=99)
        return [edge.other for _, edge in walked.edges]

    assert await reached(4) == []
    assert await reached(7) == ["b"]
    assert await reached(8) == ["b", "c"]
    assert await reached(7, 5) == ["b", "c"]
    assert await reached(9) == []


async def test_a_hub_with_50000_edges_is_walked_within_bounds_newest_first(
    graph: FalkorBackend, server: RedisProcess, minds: KnowledgeContext, namespace: str
) -> None:
    await put(graph, fact("hub", "one", Version(1, OPEN, 1, OPEN)))
    key = minds.keyspace.record_item("graph", namespace, "falkor", GROUP)
    more = f"""MATCH (h:Entity {{id: 'hub'}}) UNWIND range(2, 50000) AS x
        CREATE (h)-[:FACT {{id: 'f' + x, source: 'hub', target: 'n' + x, type: 'knows',
            versions: [x, {OPEN}, 1, {OPEN}], start: x, end: {OPEN}, recorded: 1,
            superseded: {OPEN}}}]->(:Entity {{id: 'n' + x}})"""
    with server.client() as client:
        client.execute_command("GRAPH.QUERY", key, more)

    walked = await graph.walk(GROUP, ["one"], when=NOW, depth=3, fan_out=20, limit=99)
    small = await graph.walk(GROUP, ["hub"], when=NOW, depth=1, fan_out=99, limit=5)

    assert [edge.other for _, edge in walked.edges] == ["hub", *(f"n{x}" for x in range(50_000, 49_980, -1))]
    assert walked.truncated
    assert len(small.edges) == 5
    assert small.truncated
