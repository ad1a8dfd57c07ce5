"""What only the Redis backend of the graph can do, and how it does what every backend does, on a server and without."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import numpy as np
import orjson
import pytest

from sharedmem import ConflictError, Hub, InvalidError
from sharedmem.clock import new_id
from sharedmem.errors import InternalError
from sharedmem.knowledge.graph.records import (
    Behind,
    Changes,
    Claim,
    Committed,
    Edge,
    EntityRow,
    EpisodeRow,
    FactRow,
    Row,
    Search,
    Wanted,
    When,
)
from sharedmem.knowledge.graph.redis import RedisBackend
from sharedmem.knowledge.graph.redis.rows import KINDS, claim_of, decode, edge_of, encode, entries
from sharedmem.knowledge.graph.times import LATEST, OPEN
from sharedmem.testing.fakes import fake_hub
from sharedmem.wire.vectors import from_half, to_half, unit
from tests.support.graph_rows import entity_row, episode_row, fact_row, stamp, version

GROUP = "acme:support/7%"
NOW = When(stamp(1_000), LATEST)


@pytest.fixture(params=["server", "fake"])
async def any_hub(request: pytest.FixtureRequest) -> AsyncIterator[Hub]:
    if request.param == "server":
        request.getfixturevalue("redis_url")
        async with Hub.open(request.getfixturevalue("redis_url"), settings=request.getfixturevalue("settings")) as hub:
            yield hub
    else:
        async with fake_hub() as hub:
            yield hub


@pytest.fixture
async def backend(any_hub: Hub) -> AsyncIterator[RedisBackend]:
    namespace = f"test-{new_id(8)}"
    yield RedisBackend(any_hub._thinking(), namespace, b"tester")
    await any_hub.store(namespace).clear()


async def write(backend: RedisBackend, *rows: Row, group: str = GROUP, **more: object) -> Committed:
    """Write rows as who has just looked at them."""
    asked: dict[str, list[str]] = {"e": [], "n": [], "f": []}
    for row in rows:
        asked[KINDS[type(row)]].append(row.id)
    wanted = Wanted(episodes=tuple(asked["e"]), entities=tuple(asked["n"]), facts=tuple(asked["f"]))
    seen = await backend.look(group, wanted)
    former = (*seen.episodes.values(), *seen.entities.values(), *seen.facts.values())
    written = await backend.commit(group, changes_of(*rows, former=former, **more), seen=seen.version)
    assert isinstance(written, Committed)
    return written


def changes_of(*rows: Row, **more: object) -> Changes:
    sorted_rows = {
        "episodes": tuple(row for row in rows if isinstance(row, EpisodeRow)),
        "entities": tuple(row for row in rows if isinstance(row, EntityRow)),
        "facts": tuple(row for row in rows if isinstance(row, FactRow)),
    }
    return Changes(**({"guards": ()} | sorted_rows | more))  # type: ignore[arg-type]  # as the caller names them


def told_by(id_: str, *claims: Claim) -> EpisodeRow:
    return replace(
        episode_row(id_, f"story of {id_}"),
        claims=claims,
        lines=tuple((f"{claim.source}>{claim.type}",) for claim in claims),
    )


def said(episode: str, number: int, source: str, target: str, type_: str = "lives_in") -> Claim:
    return Claim(
        episode, number, "holds", source, source.title(), type_, target, target.title(), "", stamp(0), OPEN, stamp(0)
    )


async def keys_left(hub: Hub, namespace: str) -> list[bytes]:
    line, keyspace = hub._thinking().line, hub._thinking().keyspace
    found = [key async for page in line.scan(keyspace.belongings(namespace), near=None) for key in page]
    return [key for key in found if keyspace.belongs(key, namespace)]


# -- rows -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "row",
    [
        fact_row("f1", "Ann", "lives_in", "Rome", version(0, 3, superseded=5), version(0, 2, recorded=5)),
        fact_row("f2", "Ann", "@age", "44", value=44),
        entity_row("Ann", aliases=("Annie",), alias_count=1, merged_into="anna"),
        told_by("e1", said("e1", 0, "ann", "rome"), replace(said("e1", 1, "ann", "", "@age"), value="44")),
    ],
    ids=["fact", "attribute", "entity", "episode"],
)
def test_a_row_comes_back_from_its_body_as_it_was(row: Row) -> None:
    vector = to_half(unit(np.ones(4, np.float32)))

    back = decode(KINDS[type(row)], encode(row), version=7, vector=vector)

    assert back == replace(row, version=7, vector=vector)
    assert entries(back) == entries(row)


def test_a_body_that_is_none_is_refused() -> None:
    with pytest.raises(InternalError, match="another client"):
        decode("f", b'{"id": "x"}', version=1)


def test_an_edge_and_a_claim_come_back_from_their_members() -> None:
    row = fact_row("f1", "Ann", "lives_in", "Rome", version(0, 3, superseded=5), version(0, 2, recorded=5), version(0))
    row = replace(row, versions=(*row.versions, version(0, recorded=9)))
    claim = said("e1", 0, "ann", "rome")

    edges = {edge_of(member.encode()) for member in entries(row).edges}
    claims = [claim_of(member.encode()) for member in entries(told_by("e1", claim)).claims if member[0] == "l"]

    forward = {Edge("ann", "rome", True, "lives_in", "f1", one) for one in row.versions}
    assert edges == forward | {Edge("rome", "ann", False, "lives_in", "f1", one) for one in row.versions}
    assert claims == [claim]


# -- looking and committing ------------------------------------------------------------------------


async def test_what_was_committed_is_seen(backend: RedisBackend) -> None:
    fact = fact_row("f1", "Ann", "lives_in", "Rome")
    ann, rome = entity_row("Ann"), entity_row("Rome")
    story = told_by("e1", said("e1", 0, "ann", "rome"))

    written = await write(backend, story, ann, rome, fact, names=(("ann", "ann"),), guards=("ann>lives_in", "=ann"))
    seen = await backend.look(
        GROUP,
        Wanted(
            names=("ann", "bob"),
            lines=("ann>lives_in", "bob>lives_in"),
            episodes=("e1",),
            entities=("ann", "bob"),
            facts=("f1",),
        ),
    )

    assert seen.version == written.version
    assert seen.names == seen.owners == {"ann": "ann"}
    assert seen.claims == {"ann>lives_in": story.claims, "bob>lives_in": ()}
    assert seen.entities == {"ann": replace(ann, version=written.version)}
    assert seen.facts == {"f1": replace(fact, version=written.version)}
    assert seen.episodes == {"e1": replace(story, version=written.version)}
    assert seen.into == {}


async def test_a_guard_that_has_changed_leaves_nothing_written(backend: RedisBackend) -> None:
    before = (await backend.look(GROUP, Wanted())).version
    await backend.commit(GROUP, changes_of(entity_row("Bob"), guards=("=bob",)), seen=before)
    seen = (await backend.look(GROUP, Wanted())).version
    await backend.commit(GROUP, changes_of(entity_row("Ann"), guards=("=ann",), steady=("@x",)), seen=seen)

    unrelated = await backend.commit(GROUP, changes_of(entity_row("Eve"), guards=("=eve", "@x")), seen=seen)
    behind = await backend.commit(GROUP, changes_of(entity_row("Ann 2"), guards=("=ann",)), seen=seen)
    unsteady = await backend.commit(GROUP, changes_of(entity_row("Ann 3"), guards=(), steady=("@x",)), seen=seen)

    assert isinstance(unrelated, Committed)
    assert (behind, unsteady) == (Behind(), Behind())
    assert (await backend.listed(GROUP, "entity"))[0] == ["ann", "bob", "eve"]


async def test_a_record_that_has_changed_leaves_nothing_written(backend: RedisBackend) -> None:
    await write(backend, entity_row("Ann"))
    seen = await backend.look(GROUP, Wanted(entities=("ann",)))
    await write(backend, entity_row("Ann", summary="hers"))

    ann = seen.entities["ann"]
    late = await backend.commit(GROUP, changes_of(replace(ann, summary="x"), former=(ann,)), seen=seen.version)
    twice = await backend.commit(GROUP, changes_of(entity_row("Ann")), seen=seen.version)

    assert (late, twice) == (Behind(), Behind())
    with pytest.raises(InternalError, match="former"):
        await backend.commit(GROUP, changes_of(replace(ann, summary="x")), seen=seen.version)


async def test_guards_beyond_those_that_are_kept_count_as_changed(backend: RedisBackend) -> None:
    await write(backend, entity_row("Ann"), guards=("first",))
    seen = (await backend.look(GROUP, Wanted())).version
    await write(backend, guards=tuple(f"line {number}" for number in range(5_000)))

    late = await backend.commit(GROUP, changes_of(guards=("first",)), seen=seen)
    fresh = await backend.commit(
        GROUP, changes_of(guards=("first",)), seen=(await backend.look(GROUP, Wanted())).version
    )

    assert late == Behind()
    assert isinstance(fresh, Committed)


async def test_one_of_many_who_race_wins_each_time(backend: RedisBackend) -> None:
    async def count_up(_: int) -> int:
        for tries in range(1, 100):
            seen = await backend.look(GROUP, Wanted(entities=("ann",)))
            former = tuple(seen.entities.values())
            grown = replace(entity_row("Ann"), alias_count=former[0].alias_count + 1 if former else 1)
            done = await backend.commit(GROUP, changes_of(grown, former=former, guards=("=ann",)), seen=seen.version)
            if isinstance(done, Committed):
                return tries
        raise AssertionError

    await asyncio.gather(*map(count_up, range(12)))

    seen = await backend.look(GROUP, Wanted(entities=("ann",)))
    assert seen.entities["ann"].alias_count == 12


async def test_a_fact_that_is_no_more_goes_with_all_beside_it(backend: RedisBackend) -> None:
    await write(backend, fact_row("f1", "Ann", "lives_in", "Rome"), fact_row("f2", "Ann", "lives_in", "Bonn"))
    seen = await backend.look(GROUP, Wanted(facts=("f1",)))
    ghost = fact_row("f9", "Ann", "lives_in", "Oslo")

    await backend.commit(GROUP, changes_of(former=(seen.facts["f1"], ghost)), seen=seen.version)

    assert [edge.other for edge in await backend.edges(GROUP, "ann", when=None, limit=10)] == ["bonn"]
    assert await backend.edges(GROUP, "rome", when=None, limit=10) == []
    assert (await backend.listed(GROUP, "fact"))[0] == ["f2"]
    assert (await backend.look(GROUP, Wanted(facts=("f1",)))).facts == {}


async def test_too_many_records_at_once_are_refused(backend: RedisBackend) -> None:
    with pytest.raises(InvalidError, match="at most 500"):
        await backend.commit(GROUP, changes_of(*(entity_row(f"E{number}") for number in range(501))), seen=0)


async def test_hundreds_of_records_are_written_in_one_step(backend: RedisBackend) -> None:
    facts = [fact_row(f"f{number}", "Hub", "knows", f"e{number}") for number in range(500)]

    await write(backend, *facts, names=tuple((f"name {number}", "hub") for number in range(3_000)))

    assert len(await backend.edges(GROUP, "hub", when=NOW, limit=1_000)) == 500
    names, after = await backend.names_of(GROUP, "hub", limit=2_000)
    rest, end = await backend.names_of(GROUP, "hub", after=after, limit=2_000)
    assert sorted({*names, *rest}) == sorted(f"name {number}" for number in range(3_000))
    assert end == ""


async def test_who_adds_to_a_session_hears_how_many_turns_it_has(backend: RedisBackend) -> None:
    first = replace(episode_row("e1", "one"), session="s")
    await write(backend, first, replace(episode_row("e2", "two"), session="t"))

    written = await write(
        backend, replace(episode_row("e3", "three"), session="s"), episode_row("e4", "four"),
        replace(episode_row("s1", "sum", letter="s"), session="s"), first,
    )  # fmt: skip

    assert written.turns == (("s", 2), ("", 1))


async def test_the_stream_tells_of_what_was_written(any_hub: Hub, backend: RedisBackend) -> None:
    store = any_hub.store(backend._namespace)
    told = (("graph.fact", "f1"), ("graph.entity", "ann"), ("graph.episode", "e1"))

    written = await write(backend, entity_row("Ann"), fact_row("f1", "Ann", "knows", "Bob"), told=told)
    feed = store.watch(f"{backend._namespace}:*", since=0)
    changes = [await anext(feed) for _ in told]

    head = f"{backend._namespace}:$graph:acme:support%2F7%25"
    assert [change.operation for change in changes] == ["graph.fact", "graph.entity", "graph.episode"]
    assert [change.key for change in changes] == [f"{head}/f/f1", f"{head}/n/ann", f"{head}/e/e1"]
    assert {change.actor for change in changes} == {"tester"}
    assert changes[-1].version == written.version


# -- merges ----------------------------------------------------------------------------------------


async def test_a_merge_redirects_names_and_an_unmerge_gives_them_back(backend: RedisBackend) -> None:
    story = told_by("e1", said("e1", 0, "annie", "rome"))
    rows = [entity_row(name) for name in ("Annie", "Ann", "Anna")]
    await write(backend, story, *rows, names=tuple((row.id, row.id) for row in rows))
    merged = [replace(rows[0], merged_into="ann"), replace(rows[1], merged_into="anna")]
    wanted = Wanted(names=("annie", "ann", "anna"), lines=("annie>lives_in",), entities=("ann",))

    await write(backend, *merged)
    seen = await backend.look(GROUP, wanted)
    await write(backend, rows[0])
    apart = await backend.look(GROUP, wanted)

    assert seen.names == {"annie": "anna", "ann": "anna", "anna": "anna"}
    assert seen.owners == {"annie": "annie", "ann": "ann", "anna": "anna"}
    assert seen.into == {"annie": "anna", "ann": "anna"}
    assert apart.names == {"annie": "annie", "ann": "anna", "anna": "anna"}
    assert apart.into == {"ann": "anna"}


async def test_merges_are_told_oldest_first(backend: RedisBackend) -> None:
    told = [
        ("b", orjson.dumps({"source_id": "b", "at": "2026-03-01T00:00:00Z"})),
        ("a", orjson.dumps({"source_id": "a", "at": "2026-04-01T00:00:00+00:00"})),
        ("c", orjson.dumps({"source_id": "c", "at": "2026-01-01T00:00:00Z"})),
    ]

    await write(backend, merges=tuple(told))

    assert await backend.merges(GROUP) == [told[2][1], told[0][1], told[1][1]]
    assert await backend.listed(GROUP, "merge", limit=2) == (["a", "b"], "b")
    assert await backend.listed(GROUP, "merge", after="b", limit=2) == (["c"], "")


async def test_lines_are_found_by_whom_they_are_about_page_by_page(backend: RedisBackend) -> None:
    claims = [said("e1", number, "ann", f"b{number:02}", f"type_{number:02}") for number in range(20)]
    claims += [said("e1", 20, "bob", "ann", "knows"), said("e1", 21, "bob", "ann", "knows")]
    await write(backend, told_by("e1", *claims))

    found: list[str] = []
    after, pages = "", 0
    while pages == 0 or after:
        lines, after = await backend.lines_of(GROUP, ("bob", "ann"), after=after, limit=7)
        found += lines
        pages += 1

    assert set(found) == {*(f"ann>type_{number:02}" for number in range(20)), "bob>knows"}
    assert pages == 4
    assert await backend.lines_of(GROUP, ("eve",)) == ([], "")


async def test_names_go_with_their_owner(backend: RedisBackend) -> None:
    await write(backend, names=(("ann", "a"), ("annie", "a"), ("bob", "b")))

    await write(backend, names=(("annie", "b"), ("bob", "")))

    assert await backend.names_of(GROUP, "a") == (["ann"], "")
    assert await backend.names_of(GROUP, "b") == (["annie"], "")
    assert (await backend.look(GROUP, Wanted(names=("ann", "annie", "bob")))).names == {"ann": "a", "annie": "b"}


# -- edges and walks -------------------------------------------------------------------------------


async def test_edges_are_those_that_hold_at_a_time_as_known_at_a_time(backend: RedisBackend) -> None:
    moved = fact_row("f1", "Ann", "lives_in", "Rome", version(0, superseded=5), version(0, 4, recorded=5))
    now = fact_row("f2", "Ann", "lives_in", "Bonn", version(4, recorded=5))
    age = fact_row("f3", "Ann", "@age", "44", version(1), value=44)
    await write(backend, moved, now, age)

    async def at(world: float, known: float | None = None, *types: str) -> list[str]:
        when = When(stamp(world), LATEST if known is None else stamp(known))
        return [edge.fact for edge in await backend.edges(GROUP, "ann", when=when, limit=9, types=types)]

    assert await at(0.5) == ["f1"]
    assert await at(3.9, None, "lives_in") == ["f1"]
    assert await at(4, None, "lives_in") == ["f2"]
    assert await at(6) == ["f2", "f3"]
    assert await at(6, 4.9, "lives_in") == ["f1"]
    assert await at(6, 5, "lives_in") == ["f2"]
    assert await at(-1) == []
    assert await at(6, None, "@") == await at(6, None, "@age") == ["f3"]
    assert await at(6, None, "@size") == await at(6, None, "knows") == []
    assert await at(6, None, "@", "lives_in") == ["f2", "f3"]


async def test_every_version_of_an_edge_is_told(backend: RedisBackend) -> None:
    versions = (version(0, superseded=5), version(0, 4, recorded=5))
    await write(
        backend, fact_row("f1", "Ann", "lives_in", "Rome", *versions), fact_row("f2", "Ann", "@age", "4", value=4)
    )

    every = await backend.edges(GROUP, "rome", when=None, limit=10)
    typed = await backend.edges(GROUP, "ann", when=None, limit=10, types=("@",))

    assert {edge.version for edge in every} == set(versions)
    assert [edge.forward for edge in every] == [False, False]
    assert [edge.fact for edge in typed] == ["f2"]
    assert len(await backend.edges(GROUP, "ann", when=None, limit=2)) == 2


async def test_a_walk_tells_true_distances_through_cycles_and_loops(backend: RedisBackend) -> None:
    pairs = ["ab", "bc", "cd", "de", "ea", "aa", "ac", "xy"]
    await write(backend, *(fact_row(pair, pair[0], "to", pair[1]) for pair in pairs))

    walked = await backend.walk(GROUP, ["a"], when=NOW, depth=5, fan_out=10, limit=100)
    near = await backend.walk(GROUP, ["a"], when=NOW, depth=1, fan_out=10, limit=100)

    assert {edge.fact for _, edge in walked.edges} == set(pairs) - {"xy"}
    first: dict[str, int] = {}
    for distance, edge in walked.edges:
        first.setdefault(edge.other, distance)
    assert first == {"a": 0, "b": 1, "c": 1, "e": 1, "d": 2}
    assert [distance for distance, _ in walked.edges] == sorted(distance for distance, _ in walked.edges)
    assert {edge.fact for _, edge in near.edges} == {"aa", "ab", "ea", "ac"}
    assert not walked.truncated
    assert not near.truncated


async def test_a_walk_of_the_past_sees_what_was_known_then(backend: RedisBackend) -> None:
    await write(
        backend,
        fact_row("f1", "Ann", "knows", "Bob", version(0, superseded=5), version(0, 2, recorded=5)),
        fact_row("f2", "Bob", "knows", "Eve", version(1)),
    )

    async def at(world: float, known: float) -> list[str]:
        when = When(stamp(world), stamp(known))
        walked = await backend.walk(GROUP, ["ann"], when=when, depth=2, fan_out=5, limit=50)
        return [edge.fact for _, edge in walked.edges]

    assert await at(3, 4) == ["f1", "f2"]
    assert await at(3, 6) == []
    assert await at(1.5, 6) == ["f1", "f2"]
    assert await at(0.5, 4) == ["f1"]


async def test_a_walk_keeps_to_its_bounds_and_says_so(backend: RedisBackend) -> None:
    spokes = [fact_row(f"f{number:03}", "Hub", "knows", f"E{number:03}", version(number)) for number in range(60)]
    await write(backend, *spokes)
    when = When(stamp(100), LATEST)

    fanned = await backend.walk(GROUP, ["hub"], when=when, depth=2, fan_out=5, limit=50)
    cut = await backend.walk(GROUP, ["hub"], when=when, depth=2, fan_out=50, limit=7)
    all_of_it = await backend.walk(GROUP, ["hub"], when=when, depth=2, fan_out=60, limit=60)

    assert [edge.fact for _, edge in fanned.edges] == ["f059", "f058", "f057", "f056", "f055"]
    assert fanned.truncated
    assert (len(cut.edges), cut.truncated) == (7, True)
    assert (len(all_of_it.edges), all_of_it.truncated) == (60, False)


async def test_a_long_history_is_found_in_the_middle(backend: RedisBackend) -> None:
    places = [
        fact_row(f"f{number:03}", "Ann", "lives_in", f"P{number}", version(number, number + 1)) for number in range(400)
    ]
    await write(backend, *places)

    edges = await backend.edges(GROUP, "ann", when=When(stamp(123.5), LATEST), limit=10)

    assert [edge.fact for edge in edges] == ["f123"]


# -- searching -------------------------------------------------------------------------------------


def searching(**fields: object) -> Search:
    return Search(**({"letters": ("e", "n", "f", "p")} | fields))  # type: ignore[arg-type]  # as named


async def test_records_are_found_by_words_and_meaning_in_one_packet(any_hub: Hub, backend: RedisBackend) -> None:
    index = any_hub._thinking().graphs
    near = unit(np.ones(index.family.dimension, np.float32))
    await write(
        backend,
        replace(episode_row("e1", "the parcel arrived", 3), session="chat", vector=to_half(near)),
        replace(fact_row("f1", "Ann", "ordered", "parcel"), vector=to_half(-near)),
        fact_row("f2", "Ann", "returned", "parcel", version(0, 2)),
        entity_row("Parcel"),
    )
    await write(backend, episode_row("e1", "another parcel"), group="other")
    searches = [
        searching(letters=("f", "p"), terms=("parcel",)),
        searching(letters=("e",), terms=("parcel",), vector=near),
        searching(terms=("parcel",), session="chat"),
        searching(terms=("parcel",), letters=("e", "f", "p"), since=stamp(3), until=stamp(3)),
        searching(vector=near),
    ]

    facts, episodes, of_chat, of_day, meant = await backend.search(GROUP, searches)

    assert {(hit.id, hit.letter) for hit in facts.text} == {("f1", "f"), ("f2", "p")}
    assert [(hit.id, hit.letter) for hit in episodes.text] == [("e1", "e")]
    assert [hit.id for hit in episodes.vector] == [hit.id for hit in of_chat.text] == ["e1"]
    assert [hit.id for hit in of_day.text] == ["e1"]
    assert [hit.id for hit in meant.vector] == ["e1", "f1"]


async def test_a_changed_record_keeps_its_vector_and_is_found_by_its_new_words(
    any_hub: Hub, backend: RedisBackend
) -> None:
    near = unit(np.ones(any_hub._thinking().graphs.family.dimension, np.float32))
    await write(backend, replace(entity_row("Ann"), vector=to_half(near)))

    await write(backend, entity_row("Ann", summary="a gardener"))
    (found,) = await backend.search(GROUP, [searching(terms=("garden",), vector=near)])

    assert [hit.id for hit in found.text] == [hit.id for hit in found.vector] == ["ann"]
    assert from_half(to_half(near)).shape == near.shape


# -- listing ---------------------------------------------------------------------------------------


async def test_episodes_are_listed_by_when_they_happened(backend: RedisBackend) -> None:
    rows = [
        replace(episode_row(f"e{9 - number}", "x", number), session="s" if number % 2 else "") for number in range(8)
    ]
    await write(backend, *rows, episode_row("m1", "told", 1, letter="m"), episode_row("s1", "sum", 2, letter="s"))

    first, after = await backend.listed(GROUP, "episode", limit=5)
    second, end = await backend.listed(GROUP, "episode", after=after, limit=5)

    assert first + second == [f"e{9 - number}" for number in range(8)]
    assert end == ""
    assert (await backend.listed(GROUP, "episode", session="s"))[0] == ["e8", "e6", "e4", "e2"]
    assert (await backend.listed(GROUP, "episode", session=""))[0] == ["e9", "e7", "e5", "e3"]
    assert (await backend.listed(GROUP, "summary"))[0] == ["s1"]
    with pytest.raises(InvalidError, match="episode, summary"):
        await backend.listed(GROUP, "thing")


async def test_what_a_group_holds_is_counted(backend: RedisBackend) -> None:
    await write(
        backend,
        episode_row("e1", "x"),
        episode_row("s1", "y", letter="s"),
        entity_row("Ann"),
        entity_row("Annie", merged_into="ann"),
        fact_row("f1", "Ann", "knows", "Bob"),
        fact_row("f2", "Ann", "knows", "Eve", version(0, 2)),
        fact_row("f3", "Ann", "knows", "Joe", version(0, 9_000_00)),
        fact_row("f4", "Ann", "knows", "Kim", version(0, superseded=4)),
        merges=(("annie", b"{}"),),
    )

    stats = await backend.stats(GROUP)

    assert (stats.episodes, stats.summaries, stats.entities) == (1, 1, 1)
    assert (stats.facts, stats.past_facts, stats.merges) == (2, 2, 1)


# -- deleting --------------------------------------------------------------------------------------


async def test_a_deleted_group_leaves_nothing_and_can_begin_anew(any_hub: Hub, backend: RedisBackend) -> None:
    facts = [fact_row(f"f{number}", "Ann", "knows", f"E{number}") for number in range(300)]
    story = told_by("e1", said("e1", 0, "ann", "rome"))
    await write(backend, story, entity_row("Ann"), *facts, names=(("ann", "ann"),), guards=("=ann",))
    await write(backend, entity_row("Ann"), group="other")
    progress: list[tuple[int, int]] = []

    deleted = await backend.delete(GROUP, progress=lambda done, total: progress.append((done, total)))

    assert deleted == 302
    assert progress[-1] == (302, 302)
    assert await backend.groups() == ["other"]
    left = [key for key in await keys_left(any_hub, backend._namespace) if b"acme" in key]
    assert left == []
    assert await backend.delete(GROUP) == 0
    (found,) = await backend.search(GROUP, [searching(terms=("ann",))])
    assert found.text == []
    await write(backend, entity_row("Ann"))
    assert (await backend.listed(GROUP, "entity"))[0] == ["ann"]
    assert await backend.groups() == [GROUP, "other"]


async def test_an_ingestion_that_has_looked_before_a_deletion_begins_anew(backend: RedisBackend) -> None:
    await write(backend, entity_row("Ann"))
    before = await backend.look(GROUP, Wanted())
    token, _ = await backend._close(GROUP) or ("", 0)
    during = await backend.look(GROUP, Wanted())

    with pytest.raises(ConflictError, match="being deleted"):
        await backend.commit(GROUP, changes_of(entity_row("Bob")), seen=during.version)
    joined = await backend._close(GROUP)
    await backend.delete(GROUP)
    late = [
        await backend.commit(GROUP, changes_of(entity_row("Bob")), seen=seen)
        for seen in (before.version, during.version)
    ]

    assert joined == (token, 1)
    assert late == [Behind(), Behind()]
    assert await backend.groups() == []
    assert await backend._forget_page(GROUP, token) == ("over", 0)


async def test_whoever_writes_next_finishes_a_deletion_that_was_left_undone(
    backend: RedisBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write(backend, entity_row("Ann"), entity_row("Bob"))
    monkeypatch.setattr("sharedmem.knowledge.graph.redis.deleting._LEASE_MS", 0)
    await backend._close(GROUP)
    monkeypatch.undo()

    seen = await backend.look(GROUP, Wanted())
    answer = await backend.commit(GROUP, changes_of(entity_row("Eve")), seen=seen.version)

    assert answer == Behind()
    await write(backend, entity_row("Eve"))
    assert (await backend.listed(GROUP, "entity"))[0] == ["eve"]


async def test_several_who_delete_a_group_at_once_delete_it_once(backend: RedisBackend) -> None:
    await write(backend, *(entity_row(f"E{number}") for number in range(450)))

    deleted = await asyncio.gather(*(backend.delete(GROUP) for _ in range(4)))

    assert sum(deleted) == 450
    assert await backend.groups() == []


async def test_a_cleared_namespace_keeps_nothing_of_its_graphs(any_hub: Hub, backend: RedisBackend) -> None:
    await write(backend, entity_row("Ann"), fact_row("f1", "Ann", "knows", "Bob"), guards=("=ann",))
    seen = await backend.look(GROUP, Wanted())

    await any_hub.store(backend._namespace).clear()

    kept = [key for key in await keys_left(any_hub, backend._namespace) if b"graph" in key]
    assert kept == []
    assert await backend.commit(GROUP, changes_of(entity_row("Bob")), seen=seen.version) == Behind()
    assert await backend.groups() == []
