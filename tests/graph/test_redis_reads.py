"""The Redis backend of the graph finds, lists and counts what is there, on a server and without."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import orjson
import pytest
from support import redis_graph_fixtures
from support.contexts import knowledge_of
from support.graph_rows import entity_row, episode_row, fact_row, stamp, version
from support.redis_graph_fixtures import GROUP, NOW, make_redis_claim, write

from sharedmem import Hub, InvalidError
from sharedmem.graph.backends.redis import RedisBackend
from sharedmem.graph.records import (
    LATEST,
    BitemporalPoint,
    CommitRequest,
    LookupRequest,
    RecordSearch,
    StaleGroup,
)
from sharedmem.redis.vectors import from_half, normalize, to_half

any_hub, backend = redis_graph_fixtures.any_hub, redis_graph_fixtures.backend


# -- edges and walks -------------------------------------------------------------------------------


async def test_edges_are_those_that_hold_at_a_time_as_known_at_a_time(backend: RedisBackend) -> None:
    moved = fact_row("f1", "Ann", "lives_in", "Rome", version(0, superseded=5), version(0, 4, recorded=5))
    now = fact_row("f2", "Ann", "lives_in", "Bonn", version(4, recorded=5))
    age = fact_row("f3", "Ann", "@age", "44", version(1), value=44)
    await write(backend, moved, now, age)

    async def at(world: float, known: float | None = None, *types: str) -> list[str]:
        when = BitemporalPoint(stamp(world), LATEST if known is None else stamp(known))
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
        when = BitemporalPoint(stamp(world), stamp(known))
        walked = await backend.walk(GROUP, ["ann"], when=when, depth=2, fan_out=5, limit=50)
        return [edge.fact for _, edge in walked.edges]

    assert await at(3, 4) == ["f1", "f2"]
    assert await at(3, 6) == []
    assert await at(1.5, 6) == ["f1", "f2"]
    assert await at(0.5, 4) == ["f1"]


async def test_a_walk_keeps_to_its_bounds_and_says_so(backend: RedisBackend) -> None:
    spokes = [fact_row(f"f{number:03}", "Hub", "knows", f"E{number:03}", version(number)) for number in range(60)]
    await write(backend, *spokes)
    when = BitemporalPoint(stamp(100), LATEST)

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

    edges = await backend.edges(GROUP, "ann", when=BitemporalPoint(stamp(123.5), LATEST), limit=10)

    assert [edge.fact for edge in edges] == ["f123"]


# -- searching -------------------------------------------------------------------------------------


def searching(**fields: object) -> RecordSearch:
    return RecordSearch(**({"letters": ("e", "n", "f", "p")} | fields))  # type: ignore[arg-type]  # as named


async def test_records_are_found_by_words_and_meaning_in_one_packet(any_hub: Hub, backend: RedisBackend) -> None:
    index = knowledge_of(any_hub).graphs
    near = normalize(np.ones(index.family.dimension, np.float32))
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


async def test_a_search_without_letters_returns_the_same_records_with_their_kinds(
    any_hub: Hub, backend: RedisBackend
) -> None:
    near = normalize(np.ones(knowledge_of(any_hub).graphs.family.dimension, np.float32))
    await write(
        backend,
        replace(episode_row("s1", "the parcel arrived", letter="s"), vector=to_half(near)),
        fact_row("f1", "Ann", "ordered", "parcel", version(0, 2)),
        entity_row("Parcel"),
    )
    search = RecordSearch(("e", "s", "n", "f", "p"), ("parcel",), near)

    whole, bare = await backend.search(GROUP, [search, replace(search, with_letters=False)])

    assert {(hit.id, hit.letter) for hit in whole.text} == {("s1", "s"), ("f1", "p"), ("parcel", "n")}
    assert {(hit.id, hit.letter) for hit in bare.text} == {("s1", "e"), ("f1", "f"), ("parcel", "n")}
    assert [(hit.id, hit.score) for hit in bare.text] == [(hit.id, hit.score) for hit in whole.text]
    assert [(hit.id, hit.score) for hit in bare.vector] == [(hit.id, hit.score) for hit in whole.vector]


async def test_an_episode_read_without_its_claims_cannot_be_committed(backend: RedisBackend) -> None:
    claims = (replace(make_redis_claim("e1", 0, "ann", "bob"), text='She said ,"claims":[ and ,"undone":1'),)
    content = {"content": {"a": 1, "claims": [2], "undone": 3}, "group_id": GROUP, "id": "e1"}
    row = replace(
        episode_row("e1", "Ann knows Bob", 3), body=orjson.dumps(content), claims=claims, lines=(("ann>lives_in",),)
    )
    await write(backend, row)

    whole = await backend.look(GROUP, LookupRequest(episodes=("e1",)))
    bare = await backend.look(GROUP, LookupRequest(episodes=("e1",), with_claims=False))

    read = bare.episodes["e1"]
    assert (read.text, read.body, read.claims, read.lines, read.version) == (row.text, row.body, (), (), 0)
    outcome = await backend.commit(GROUP, CommitRequest((), episodes=(read,), former=(read,)), seen=bare.version)
    assert outcome == StaleGroup()
    assert (await backend.look(GROUP, LookupRequest(episodes=("e1",)))).episodes == whole.episodes


async def test_a_changed_record_keeps_its_vector_and_is_found_by_its_new_words(
    any_hub: Hub, backend: RedisBackend
) -> None:
    near = normalize(np.ones(knowledge_of(any_hub).graphs.family.dimension, np.float32))
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
