"""What is committed to the Redis backend of the graph is seen, all or nothing, on a server and without."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import orjson
import pytest
from support import redis_graph_fixtures
from support.graph_rows import entity_row, episode_row, fact_row, version
from support.redis_graph_fixtures import GROUP, NOW, changes_of, episode_with_claims, make_redis_claim, write

from sharedmem import Hub, InvalidError
from sharedmem.errors import InternalError
from sharedmem.graph.backends.redis import RedisBackend
from sharedmem.graph.backends.redis_layout import (
    KIND_CODES,
    decode_row,
    encode_row,
    index_entries,
    parse_claim,
    parse_edge,
)
from sharedmem.graph.backends.redis_writer import MOST_AT_ONCE
from sharedmem.graph.records import UNKNOWN_START, CommitReceipt, Edge, LookupRequest, Row, StaleGroup
from sharedmem.redis.vectors import normalize, to_half

any_hub, backend = redis_graph_fixtures.any_hub, redis_graph_fixtures.backend


# -- rows -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "row",
    [
        fact_row("f1", "Ann", "lives_in", "Rome", version(0, 3, superseded=5), version(0, 2, recorded=5)),
        fact_row("f2", "Ann", "@age", "44", value=44),
        entity_row("Ann", aliases=("Annie",), alias_count=1, merged_into="anna"),
        episode_with_claims(
            "e1",
            make_redis_claim("e1", 0, "ann", "rome"),
            replace(make_redis_claim("e1", 1, "ann", "", "@age"), value="44"),
        ),
    ],
    ids=["fact", "attribute", "entity", "episode"],
)
def test_a_row_comes_back_from_its_body_as_it_was(row: Row) -> None:
    vector = to_half(normalize(np.ones(4, np.float32)))

    back = decode_row(KIND_CODES[type(row)], encode_row(row), version=7, vector=vector)

    assert back == replace(row, version=7, vector=vector)
    assert index_entries(back) == index_entries(row)


@pytest.mark.parametrize(
    "changes",
    [
        {"says": "ends", "target": "", "target_name": ""},
        {"start": UNKNOWN_START, "end": 9},
        {"recorded": 4, "retracted": 6},
        {"number": 5, "episode": "e0"},
        {"value": "44", "text": "Ann is 44"},
    ],
    ids=", ".join,
)
def test_claims_come_back_whatever_their_fields_are(changes: dict[str, Any]) -> None:
    plain = make_redis_claim("e1", 0, "ann", "rome")
    row = episode_with_claims("e1", plain, replace(plain, **{"number": 1} | changes))

    assert decode_row("e", encode_row(row), version=0) == replace(row, version=0)


def test_an_episode_of_an_earlier_release_has_all_fields() -> None:
    claim = make_redis_claim("e1", 0, "ann", "rome")
    text, public = "Ann is in Rome.", b'{"content":"Ann is in Rome.","id":"e1"}'
    row = replace(episode_with_claims("e1", claim), body=public, text=text)
    body = orjson.loads(encode_row(row))
    whole = body | {"text": text, "claims": [asdict(claim)]}

    assert "text" not in body
    assert decode_row("e", orjson.dumps(whole), version=0) == decode_row("e", encode_row(row), version=0) == row


def test_a_body_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="not a record of a graph"):
        decode_row("f", b'{"id": "x"}', version=1)


def test_an_edge_and_a_claim_come_back_from_their_members() -> None:
    row = fact_row("f1", "Ann", "lives_in", "Rome", version(0, 3, superseded=5), version(0, 2, recorded=5), version(0))
    row = replace(row, versions=(*row.versions, version(0, recorded=9)))
    claim = make_redis_claim("e1", 0, "ann", "rome")

    edges = {parse_edge(member.encode()) for member in index_entries(row).edges}
    claims = [
        parse_claim(member.encode())
        for member in index_entries(episode_with_claims("e1", claim)).claims
        if member[0] == "l"
    ]

    forward = {Edge("ann", "rome", True, "lives_in", "f1", one) for one in row.versions}
    assert edges == forward | {Edge("rome", "ann", False, "lives_in", "f1", one) for one in row.versions}
    assert claims == [claim]


# -- looking and committing ------------------------------------------------------------------------


async def test_what_was_committed_is_seen(backend: RedisBackend) -> None:
    fact = fact_row("f1", "Ann", "lives_in", "Rome")
    ann, rome = entity_row("Ann"), entity_row("Rome")
    story = episode_with_claims("e1", make_redis_claim("e1", 0, "ann", "rome"))

    written = await write(backend, story, ann, rome, fact, names=(("ann", "ann"),), guards=("ann>lives_in", "=ann"))
    seen = await backend.look(
        GROUP,
        LookupRequest(
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
    before = (await backend.look(GROUP, LookupRequest())).version
    await backend.commit(GROUP, changes_of(entity_row("Bob"), guards=("=bob",)), seen=before)
    seen = (await backend.look(GROUP, LookupRequest())).version
    await backend.commit(GROUP, changes_of(entity_row("Ann"), guards=("=ann",), steady=("@x",)), seen=seen)

    unrelated = await backend.commit(GROUP, changes_of(entity_row("Eve"), guards=("=eve", "@x")), seen=seen)
    behind = await backend.commit(GROUP, changes_of(entity_row("Ann 2"), guards=("=ann",)), seen=seen)
    unsteady = await backend.commit(GROUP, changes_of(entity_row("Ann 3"), guards=(), steady=("@x",)), seen=seen)

    assert isinstance(unrelated, CommitReceipt)
    assert (behind, unsteady) == (StaleGroup(), StaleGroup())
    assert (await backend.listed(GROUP, "entity"))[0] == ["ann", "bob", "eve"]


async def test_a_record_that_has_changed_leaves_nothing_written(backend: RedisBackend) -> None:
    await write(backend, entity_row("Ann"))
    seen = await backend.look(GROUP, LookupRequest(entities=("ann",)))
    await write(backend, entity_row("Ann", summary="hers"))

    ann = seen.entities["ann"]
    late = await backend.commit(GROUP, changes_of(replace(ann, summary="x"), former=(ann,)), seen=seen.version)
    twice = await backend.commit(GROUP, changes_of(entity_row("Ann")), seen=seen.version)

    assert (late, twice) == (StaleGroup(), StaleGroup())
    with pytest.raises(InternalError, match="former"):
        await backend.commit(GROUP, changes_of(replace(ann, summary="x")), seen=seen.version)


async def test_guards_beyond_those_that_are_kept_count_as_changed(backend: RedisBackend) -> None:
    await write(backend, entity_row("Ann"), guards=("first",))
    seen = (await backend.look(GROUP, LookupRequest())).version
    await write(backend, guards=tuple(f"line {number}" for number in range(5_000)))

    late = await backend.commit(GROUP, changes_of(guards=("first",)), seen=seen)
    fresh = await backend.commit(
        GROUP, changes_of(guards=("first",)), seen=(await backend.look(GROUP, LookupRequest())).version
    )

    assert late == StaleGroup()
    assert isinstance(fresh, CommitReceipt)


async def test_one_of_many_who_race_wins_each_time(backend: RedisBackend) -> None:
    async def count_up(_: int) -> int:
        for tries in range(1, 100):
            seen = await backend.look(GROUP, LookupRequest(entities=("ann",)))
            former = tuple(seen.entities.values())
            grown = replace(entity_row("Ann"), alias_count=former[0].alias_count + 1 if former else 1)
            done = await backend.commit(GROUP, changes_of(grown, former=former, guards=("=ann",)), seen=seen.version)
            if isinstance(done, CommitReceipt):
                return tries
        raise AssertionError

    await asyncio.gather(*map(count_up, range(12)))

    seen = await backend.look(GROUP, LookupRequest(entities=("ann",)))
    assert seen.entities["ann"].alias_count == 12


async def test_a_fact_that_is_no_more_goes_with_all_beside_it(backend: RedisBackend) -> None:
    await write(backend, fact_row("f1", "Ann", "lives_in", "Rome"), fact_row("f2", "Ann", "lives_in", "Bonn"))
    seen = await backend.look(GROUP, LookupRequest(facts=("f1",)))
    ghost = fact_row("f9", "Ann", "lives_in", "Oslo")

    await backend.commit(GROUP, changes_of(former=(seen.facts["f1"], ghost)), seen=seen.version)

    assert [edge.other for edge in await backend.edges(GROUP, "ann", when=None, limit=10)] == ["bonn"]
    assert await backend.edges(GROUP, "rome", when=None, limit=10) == []
    assert (await backend.listed(GROUP, "fact"))[0] == ["f2"]
    assert (await backend.look(GROUP, LookupRequest(facts=("f1",)))).facts == {}


async def test_too_many_records_at_once_are_refused(backend: RedisBackend) -> None:
    with pytest.raises(InvalidError, match=f"at most {MOST_AT_ONCE}"):
        await backend.commit(
            GROUP, changes_of(*(entity_row(f"E{number}") for number in range(MOST_AT_ONCE + 1))), seen=0
        )


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
    store = any_hub.store(backend.keys.namespace)
    told = (("graph.fact", "f1"), ("graph.entity", "ann"), ("graph.episode", "e1"))

    written = await write(backend, entity_row("Ann"), fact_row("f1", "Ann", "knows", "Bob"), events=told)
    feed = store.watch(f"{backend.keys.namespace}:*", since=0)
    changes = [await anext(feed) for _ in told]

    head = f"{backend.keys.namespace}:$graph:acme:support%2F7%25"
    assert [change.operation for change in changes] == ["graph.fact", "graph.entity", "graph.episode"]
    assert [change.key for change in changes] == [f"{head}/f/f1", f"{head}/n/ann", f"{head}/e/e1"]
    assert {change.actor for change in changes} == {"tester"}
    assert changes[-1].version == written.version


# -- merges ----------------------------------------------------------------------------------------


async def test_a_merge_redirects_names_and_an_unmerge_gives_them_back(backend: RedisBackend) -> None:
    story = episode_with_claims("e1", make_redis_claim("e1", 0, "annie", "rome"))
    rows = [entity_row(name) for name in ("Annie", "Ann", "Anna")]
    await write(backend, story, *rows, names=tuple((row.id, row.id) for row in rows))
    merged = [replace(rows[0], merged_into="ann"), replace(rows[1], merged_into="anna")]
    wanted = LookupRequest(names=("annie", "ann", "anna"), lines=("annie>lives_in",), entities=("ann",))

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
    claims = [make_redis_claim("e1", number, "ann", f"b{number:02}", f"type_{number:02}") for number in range(20)]
    claims += [make_redis_claim("e1", 20, "bob", "ann", "knows"), make_redis_claim("e1", 21, "bob", "ann", "knows")]
    await write(backend, episode_with_claims("e1", *claims))

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
    assert (await backend.look(GROUP, LookupRequest(names=("ann", "annie", "bob")))).names == {"ann": "a", "annie": "b"}
