"""Graphs in the FalkorDB module: what the backend keeps, asked directly, with rows made by hand."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest
from support.bare_server import BareServer
from support.private_server import need_module

from sharedmem import Hub, InvalidError, Settings, UnsupportedError
from sharedmem.clock import new_id
from sharedmem.knowledge.graph.falkordb import FalkorBackend
from sharedmem.knowledge.graph.records import (
    Behind,
    Changes,
    Claim,
    Committed,
    Edge,
    EntityRow,
    EpisodeRow,
    FactRow,
    Letter,
    Search,
    Version,
    Wanted,
    When,
)
from sharedmem.knowledge.graph.times import LATEST, OPEN, UNKNOWN_START, stamp_of
from sharedmem.knowledge.minds import Minds
from sharedmem.models import EntityMerge
from sharedmem.search.analysis import query_terms
from sharedmem.wire.vectors import Vector, to_half, unit

DIMENSION = 64
GROUP = "acme:s1"
EVER = Version(UNKNOWN_START, OPEN, 1, OPEN)
YEAR_1 = stamp_of("t", datetime(1, 1, 1, tzinfo=UTC))
YEAR_9999 = stamp_of("t", datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC))
NOW = When(stamp_of("t", datetime.now(UTC)), LATEST)
NASTY = (
    *("'", '"', "\\", "\\'", '\\"}) DETACH DELETE n //', "`x`", "$group", "{a: 1}", "]->() DELETE", "a\nb\tc\r"),
    *(
        "\x00",
        "a\x00b",
        "\ue000",
        "\ue0000\x00",
        "CYPHER x=1 RETURN 1",
        "*/ /*",
        "%s",
        "@a:{b}|c",
        "(foo|bar)",
        "-zebra",
    ),
    *("日本語 😀", "\u2028", "\x7f", " a ", "a\x01b\x1fc", "\u3000", "a,b", "A", "a;b|c", "x" * 2000),
)


@pytest.fixture(scope="module")
def server() -> Iterator[BareServer]:
    """A server with the graph module."""
    need_module("graph")
    from sharedmem.wire.binaries import find_server

    with BareServer(loadmodule=find_server().modules["graph"]) as server:
        yield server


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data", embedder="hashing", embedding_dimension=DIMENSION)


@pytest.fixture
async def hub(server: BareServer, settings: Settings) -> AsyncIterator[Hub]:
    async with Hub.open(server.url, settings=settings) as hub:
        yield hub


@pytest.fixture
def namespace() -> str:
    return f"test-{new_id(8)}"


@pytest.fixture
def minds(hub: Hub, namespace: str) -> Minds:
    return hub.store(namespace).memory._minds


@pytest.fixture
async def graph(minds: Minds, hub: Hub, namespace: str) -> AsyncIterator[FalkorBackend]:
    yield FalkorBackend(minds, namespace)
    await hub.store(namespace).clear()


def entity(id_: str, **more: object) -> EntityRow:
    row = EntityRow(id_, id_.title(), "person", (id_,), (id_.title(),), 1, "", 7)
    return replace(row, **more)  # type: ignore[arg-type]  # a test names fields as it likes


def fact(source: str, target: str, *versions: Version, **more: object) -> FactRow:
    row = FactRow(
        id=f"{source}-{target}",
        lines=(f"{source}>knows>{target}",),
        source=source,
        source_name=source.title(),
        type="knows",
        target=target,
        target_name=target.title(),
        value="",
        text=f"{source} knows {target}",
        versions=versions or (EVER,),
        episodes=("e1",),
    )
    return replace(row, **more)  # type: ignore[arg-type]  # likewise


def attribute(source: str, name: str, value: str, *versions: Version) -> FactRow:
    return fact(source, "", *versions, id=f"{source}-{name}", type=f"@{name}", value=value, target_name="")


def claim(episode: str, number: int, source: str, target: str) -> Claim:
    return Claim(episode, number, "holds", source, source.title(), "knows", target, target.title(), "", 3, OPEN, 9)


def episode(id_: str, *claims: Claim, letter: Letter = "e", occurred: int = 5, **more: object) -> EpisodeRow:
    row = EpisodeRow(
        id=id_,
        body=b'{"content":"caf\xc3\xa9"}',
        digest="d1",
        letter=letter,
        occurred=occurred,
        recorded=6,
        session="s",
        user="u",
        source="message",
        text="Marvin met Zelda",
        claims=claims,
        lines=tuple((f"{one.source}>knows>{one.target}",) for one in claims),
    )
    return replace(row, **more)  # type: ignore[arg-type]  # likewise


def vector(*numbers: float) -> Vector:
    wide = np.zeros(DIMENSION, dtype=np.float32)
    wide[: len(numbers)] = numbers
    return unit(wide)


async def put(graph: FalkorBackend, *rows: EpisodeRow | EntityRow | FactRow, group: str = GROUP) -> int:
    """Write some rows over whatever is there."""
    fresh = Changes(
        (),
        tuple(row for row in rows if isinstance(row, EpisodeRow)),
        tuple(row for row in rows if isinstance(row, EntityRow)),
        tuple(row for row in rows if isinstance(row, FactRow)),
    )
    return await write(graph, fresh, group=group)


async def write(graph: FalkorBackend, changes: Changes, *, group: str = GROUP) -> int:
    seen = await graph.look(group, Wanted())
    done = await graph.commit(group, changes, seen=seen.version)
    assert isinstance(done, Committed)
    return done.version


def facts_of(edges: list[Edge]) -> list[str]:
    return [edge.fact for edge in edges]


# -- rows ----------------------------------------------------------------------------------------


async def test_every_row_comes_back_as_it_was_written(graph: FalkorBackend) -> None:
    said = claim("e1", 0, "ann", "bob"), claim("e1", 1, "bob", "cem")
    written = episode("e1", *said, lines=(("ann>knows>bob", "other"), ()))
    ann, known = entity("ann", aliases=("A", "B"), summary="x"), fact("ann", "bob", Version(1, 5, 2, 8), EVER)
    told = attribute("ann", "age", '{"n":[1,2.5,null]}')

    version = await put(graph, written, ann, known, told)
    seen = await graph.look(
        GROUP, Wanted(lines=("ann>knows>bob", "none"), episodes=("e1", "e2"), entities=("ann", "bob"),
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
        graph, Changes((text, f"={text}", f"@{text}"), (row,), (some,), (known,), names=((text, some.id),))
    )
    wanted = Wanted((text,), (text,), (row.id,), (some.id,), (known.id,))
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
    await graph.search(GROUP, [Search(("e", "n", "f"), query_terms(text) or ("x",), session=text)])


async def test_a_row_that_is_written_again_leaves_nothing_of_the_former_one(graph: FalkorBackend) -> None:
    first = episode("e1", claim("e1", 0, "ann", "bob"), claim("e1", 1, "ann", "cem"))
    version = await put(graph, first)
    second = replace(first, claims=first.claims[1:], lines=(("moved",),), version=version, letter="e")

    await write(graph, Changes((), (second,), former=(replace(first, version=version),)))
    seen = await graph.look(GROUP, Wanted(lines=("ann>knows>bob", "ann>knows>cem", "moved"), episodes=("e1",)))

    assert seen.claims == {"ann>knows>bob": (), "ann>knows>cem": (), "moved": first.claims[1:]}
    assert seen.episodes["e1"].claims == first.claims[1:]
    assert (await graph.lines_of(GROUP, ["ann", "bob"]))[0] == ["moved"]


async def test_a_fact_that_is_over_becomes_a_past_one_and_keeps_its_vector(graph: FalkorBackend) -> None:
    row = fact("ann", "bob", vector=to_half(vector(1)))
    version = await put(graph, row)
    over = replace(row, versions=(Version(1, 5, 2, OPEN),), vector=None, version=version)

    await put(graph, over)
    (now,) = await graph.search(GROUP, [Search(("f", "p"), vector=vector(1))])
    stats = await graph.stats(GROUP)

    assert [(hit.id, hit.letter) for hit in now.vector] == [(row.id, "p")]
    assert (stats.facts, stats.past_facts) == (0, 1)


async def test_a_former_fact_that_is_not_written_again_goes_with_its_edges(graph: FalkorBackend) -> None:
    gone = fact("ann", "bob"), attribute("ann", "age", "3")
    version = await put(graph, *gone)
    absent = fact("x", "y")

    await write(graph, Changes((), former=(*(replace(row, version=version) for row in gone), absent)))

    assert await graph.edges(GROUP, "ann", when=None, limit=9) == []
    assert (await graph.look(GROUP, Wanted(facts=tuple(row.id for row in gone)))).facts == {}


async def test_a_name_can_be_given_to_another_and_taken_away(graph: FalkorBackend) -> None:
    await write(graph, Changes((), entities=(entity("ann"), entity("bob")), names=(("a", "ann"), ("b", "ann"))))
    await write(graph, Changes((), names=(("a", "bob"), ("b", ""))))

    seen = await graph.look(GROUP, Wanted(names=("a", "b")))

    assert (seen.names, seen.owners) == ({"a": "bob"}, {"a": "bob"})
    assert await graph.names_of(GROUP, "ann") == ([], "")


async def test_names_and_claims_lead_through_every_merge(graph: FalkorBackend) -> None:
    rows = entity("ann", merged_into="bob"), entity("bob", merged_into="cem"), entity("cem")
    said = episode("e1", claim("e1", 0, "ann", "dan"))
    version = await write(graph, Changes((), (said,), rows, names=(("a", "ann"), ("c", "cem"))))

    seen = await graph.look(GROUP, Wanted(names=("a", "c"), lines=("ann>knows>dan",), entities=("bob", "cem")))
    await put(graph, replace(rows[0], merged_into="", version=version))
    apart = await graph.look(GROUP, Wanted(names=("a",), lines=("ann>knows>dan",)))

    assert (seen.names, seen.owners) == ({"a": "cem", "c": "cem"}, {"a": "ann", "c": "cem"})
    assert seen.into == {"ann": "cem", "bob": "cem"}
    assert (apart.names, apart.into) == ({"a": "ann"}, {})


# -- commits -------------------------------------------------------------------------------------


@pytest.mark.parametrize("guard", ["ann>knows>", "=ann", "@ann"])
async def test_a_commit_is_behind_when_one_of_its_guards_has_changed(graph: FalkorBackend, guard: str) -> None:
    seen = await put(graph, entity("ann"))
    assert isinstance(await graph.commit(GROUP, Changes((guard,)), seen=seen), Committed)

    late = await graph.commit(GROUP, Changes((guard,), entities=(entity("late"),)), seen=seen)
    steady = await graph.commit(GROUP, Changes((), entities=(entity("late"),), steady=(guard,)), seen=seen)
    other = await graph.commit(GROUP, Changes((f"{guard}x",), entities=(entity("other"),)), seen=seen)

    assert (late, steady) == (Behind(), Behind())
    assert isinstance(other, Committed)
    assert (await graph.look(GROUP, Wanted(entities=("late", "other")))).entities.keys() == {"other"}


async def test_a_steady_guard_stands_in_nobodys_way(graph: FalkorBackend) -> None:
    seen = await put(graph, entity("ann"))

    some = [await graph.commit(GROUP, Changes((), steady=("@ann",)), seen=seen) for _ in range(2)]

    assert all(isinstance(one, Committed) for one in some)


async def test_a_commit_is_behind_when_an_episode_or_entity_has_changed(graph: FalkorBackend) -> None:
    rows = episode("e1"), entity("ann")
    seen = await put(graph, *rows)

    new = [await graph.commit(GROUP, Changes((), entities=rows[1:]), seen=seen)]
    new.append(await graph.commit(GROUP, Changes((), episodes=rows[:1]), seen=seen))
    old = replace(rows[1], version=seen - 1)
    new.append(await graph.commit(GROUP, Changes((), entities=rows[1:], former=(old,)), seen=seen))
    right = Changes((), entities=rows[1:], former=(replace(rows[1], version=seen),))

    assert new == [Behind()] * 3
    assert isinstance(await graph.commit(GROUP, right, seen=seen), Committed)


async def test_a_commit_tells_how_many_turns_a_session_has(graph: FalkorBackend) -> None:
    rows = episode("e1"), episode("e2", session=""), episode("s1", letter="s")
    done = await graph.commit(GROUP, Changes((), rows), seen=0)
    assert isinstance(done, Committed)
    again = replace(rows[0], version=done.version)

    more = await graph.commit(
        GROUP, Changes((), (again, episode("e3"), episode("e4")), former=(again,)), seen=done.version
    )

    assert isinstance(more, Committed)
    assert (dict(done.turns), more.turns) == ({"s": 1, "": 1}, (("s", 3),))


async def test_versions_rise(graph: FalkorBackend) -> None:
    versions = [await put(graph, entity(f"e{number}")) for number in range(5)]

    assert versions == sorted(set(versions))
    assert (await graph.look(GROUP, Wanted())).version == versions[-1]


async def test_of_twenty_commits_at_once_each_is_written_or_behind(
    minds: Minds, graph: FalkorBackend, namespace: str
) -> None:
    others = [FalkorBackend(minds, namespace) for _ in range(20)]

    async def tell(number: int) -> int:
        tries = 0
        while True:
            tries += 1
            seen = await others[number].look(GROUP, Wanted(lines=("shared",)))
            before = len(seen.claims["shared"])
            said = replace(claim(f"e{number}", before, "ann", "bob"), number=before)
            row = episode(f"e{number}", said, lines=(("shared",),))
            if isinstance(
                await others[number].commit(GROUP, Changes(("shared",), (row,)), seen=seen.version), Committed
            ):
                return tries

    await asyncio.gather(*map(tell, range(20)))
    seen = await graph.look(GROUP, Wanted(lines=("shared",)))

    assert sorted(one.number for one in seen.claims["shared"]) == list(range(20))


async def test_a_commit_that_is_sent_twice_is_done_once(graph: FalkorBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    await put(graph, entity("ann"))
    send = graph._asker.write

    async def twice(*args: object) -> list[list[object]]:
        assert await send(*args)  # type: ignore[arg-type]  # handed on as they are
        return await send(*args)  # type: ignore[arg-type]  # likewise

    monkeypatch.setattr(graph._asker, "write", twice)
    version = await write(graph, Changes(("line",), entities=(entity("bob"),)))
    monkeypatch.undo()
    seen = await graph.look(GROUP, Wanted(entities=("bob",)))

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
        edges = await graph.edges(GROUP, "ann", when=When(world, known), limit=9)
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
        walked = await graph.walk(GROUP, ["a"], when=When(world, known), depth=5, fan_out=9, limit=99)
        return [edge.other for _, edge in walked.edges]

    assert await reached(4) == []
    assert await reached(7) == ["b"]
    assert await reached(8) == ["b", "c"]
    assert await reached(7, 5) == ["b", "c"]
    assert await reached(9) == []


async def test_a_hub_with_50000_edges_is_walked_within_bounds_newest_first(
    graph: FalkorBackend, server: BareServer, minds: Minds, namespace: str
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


# -- searches ------------------------------------------------------------------------------------


async def test_a_vector_search_answers_the_cosine_similarity_of_each_letter(graph: FalkorBackend) -> None:
    await put(
        graph,
        episode("e1", vector=to_half(vector(1))),
        episode("m1", letter="m", vector=to_half(vector(1))),
        entity("ann", vector=to_half(vector(0.6, 0.8))),
        fact("ann", "bob", vector=to_half(vector(0, 1))),
        fact("ann", "cem", Version(1, 2, 1, OPEN), vector=to_half(vector(-1))),
        fact("ann", "dan"),
        fact("ann", "nil", vector=to_half(vector())),
    )

    wide, narrow = await graph.search(
        GROUP, [Search(("e", "n", "f", "p"), vector=vector(1)), Search(("m",), vector=vector(1), candidates=1)]
    )

    assert [(hit.id, hit.letter) for hit in wide.vector] == [
        ("e1", "e"),
        ("ann", "n"),
        ("ann-bob", "f"),
        ("ann-cem", "p"),
    ]
    assert [hit.score for hit in wide.vector] == pytest.approx([1, 0.6, 0, -1], abs=2e-3)
    assert [hit.id for hit in narrow.vector] == ["m1"]


async def test_words_find_records_whatever_they_say(graph: FalkorBackend) -> None:
    await put(
        graph,
        episode("e1", text="The running zebras will not be there"),
        episode("e2", text="Zebra zebra zebra"),
        fact("ann", "bob", text="Ann owns a zebra"),
        entity("ann", name="Annabel Zebrowski", names=("annabel zebrowski",), aliases=()),
    )

    (found,) = await graph.search(GROUP, [Search(("e", "f"), query_terms("a zebra that will run"))])
    (one,) = await graph.search(GROUP, [Search(("e",), query_terms("running"), candidates=1)])
    (none,) = await graph.search(GROUP, [Search(("e",), ("no",))])

    assert {hit.id for hit in found.text} == {"e1", "e2", "ann-bob"}
    assert all(hit.score > 0 for hit in found.text)
    assert [hit.id for hit in one.text] == ["e1"]
    assert none.text == none.vector == []


async def test_a_filter_by_session_and_time_starves_no_search(graph: FalkorBackend) -> None:
    near = [episode(f"e{x}", session="big", occurred=x, vector=to_half(vector(1))) for x in range(1, 300)]
    await put(graph, *near, episode("far", session="small", occurred=500, vector=to_half(vector(0.1, 1))))
    terms = query_terms("Marvin")

    by_session, by_time = await graph.search(
        GROUP,
        [
            Search(("e",), terms, vector(1), candidates=5, session="small"),
            Search(("e",), terms, vector(1), candidates=5, since=299, until=500),
        ],
    )

    assert [hit.id for hit in by_session.vector] == [hit.id for hit in by_session.text] == ["far"]
    assert [hit.id for hit in by_time.vector] == ["e299", "far"]
    assert {hit.id for hit in by_time.text} == {"e299", "far"}


async def test_a_group_that_began_without_an_embedder_says_so_when_it_is_searched_by_meaning(
    graph: FalkorBackend, server: BareServer, settings: Settings, namespace: str
) -> None:
    async with Hub.open(server.url, settings=settings.model_copy(update={"embedder": "none"})) as bare:
        await put(FalkorBackend(bare.store(namespace).memory._minds, namespace), entity("ann"))

    await put(graph, entity("bob", vector=to_half(vector(1))))

    assert [hit.id for hit in (await graph.search(GROUP, [Search(("n",), ("bob",))]))[0].text] == ["bob"]
    with pytest.raises(UnsupportedError, match="delete the group"):
        await graph.search(GROUP, [Search(("n",), vector=vector(1))])


async def test_a_vector_of_another_dimension_is_refused(graph: FalkorBackend) -> None:
    await put(graph, entity("ann"))

    with pytest.raises(InvalidError, match="64 numbers"):
        await graph.search(GROUP, [Search(("n",), vector=np.ones(3, dtype=np.float32))])


# -- pages, counts, groups -----------------------------------------------------------------------


async def test_lists_come_page_by_page_in_their_order(graph: FalkorBackend) -> None:
    await put(
        graph,
        *(episode(f"e{9 - x}", occurred=x, session="odd" if x % 2 else "even") for x in range(5)),
        episode("s1", letter="s"),
        episode("m1", letter="m"),
        *(entity(f"n{x}") for x in range(3)),
        *(fact(f"n{x}", "z") for x in range(3)),
    )

    async def pages(kind: str, session: str | None = None) -> list[list[str]]:
        found, after = [], ""
        while True:
            ids, after = await graph.listed(GROUP, kind, after=after, limit=2, session=session)
            found.append(ids)
            if not after:
                return found

    assert await pages("episode") == [["e9", "e8"], ["e7", "e6"], ["e5"]]
    assert await pages("episode", "odd") == [["e8", "e6"]]
    assert await pages("episode", "") == [[]]
    assert await pages("summary") == [["s1"]]
    assert await pages("entity") == [["n0", "n1"], ["n2"]]
    assert [len(page) for page in await pages("fact")] == [2, 1]
    assert sorted(id_ for page in await pages("fact") for id_ in page) == ["n0-z", "n1-z", "n2-z"]
    with pytest.raises(InvalidError, match="give one of"):
        await graph.listed(GROUP, "secret")


async def test_facts_are_listed_each_once_in_the_order_of_their_ids(graph: FalkorBackend) -> None:
    ids = [blake2b(str(x).encode(), digest_size=10).hexdigest() for x in range(300)]
    ends = Version(1, 2, 1, OPEN), EVER
    await put(graph, *(fact("ann", f"n{x}", ends[x % 2], id=id_) for x, id_ in enumerate(ids)))

    listed, after = await graph.listed(GROUP, "fact", limit=7)
    while after:
        page, after = await graph.listed(GROUP, "fact", after=after, limit=7)
        assert len(page) == 7 or not after
        listed += page

    assert listed == sorted(ids)


async def test_merges_are_told_oldest_first_and_an_undone_one_replaces_itself(graph: FalkorBackend) -> None:
    at = [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3)]
    log = [EntityMerge(source_id=id_, into_id="z", at=one, by="me") for id_, one in zip("cab", at, strict=True)]
    undone = log[1].model_copy(update={"undone_at": at[2]})

    await write(graph, Changes((), merges=tuple((one.source_id, one.model_dump_json().encode()) for one in log[::-1])))
    await write(graph, Changes((), merges=((undone.source_id, undone.model_dump_json().encode()),)))
    told = [EntityMerge.model_validate_json(one) for one in await graph.merges(GROUP)]

    assert told == [log[0], undone, log[2]]
    assert (await graph.listed(GROUP, "merge"))[0] == ["a", "b", "c"]
    assert (await graph.stats(GROUP)).merges == 3


async def test_groups_of_the_same_names_know_nothing_of_each_other(
    graph: FalkorBackend, minds: Minds, namespace: str
) -> None:
    groups = ["acme:s1", "acme:s2", "acme:s", "Acme:s1", "x/y %2F", "acme:s1:*"]
    elsewhere = FalkorBackend(minds, f"{namespace}-2")
    for group in groups:
        await write(graph, Changes((), entities=(entity("ann", summary=group),), names=(("ann", "ann"),)), group=group)

    for group in groups:
        found = await graph.look(group, Wanted(names=("ann",), entities=("ann",)))
        assert found.entities["ann"].summary == group
    assert await graph.groups() == sorted(groups)
    assert await elsewhere.groups() == []
    assert (await elsewhere.look("acme:s1", Wanted(entities=("ann",)))).entities == {}


async def test_a_group_that_nobody_has_told_anything_is_empty(graph: FalkorBackend) -> None:
    assert (await graph.look("none", Wanted(("a",), ("l",), ("e",), ("n",), ("f",)))).version == 0
    assert await graph.walk("none", ["a"], when=NOW, depth=2, fan_out=2, limit=2) == ([], False)
    assert await graph.edges("none", "a", when=None, limit=2) == []
    assert await graph.listed("none", "fact") == ([], "")
    assert await graph.merges("none") == []
    assert (await graph.stats("none")).entities == 0
    assert await graph.search("none", [Search(("e",), ("a",), vector(1))]) == [([], [])]
    assert await graph.delete("none") == 0
    assert await graph.groups() == []


async def test_a_deleted_group_leaves_no_key_and_who_had_seen_it_is_behind(
    graph: FalkorBackend, server: BareServer, namespace: str
) -> None:
    seen = await put(graph, entity("ann"), episode("e1"), fact("ann", "bob"))
    await put(graph, entity("ann"), group="other")
    told: list[tuple[int, int]] = []

    deleted = await graph.delete(GROUP, progress=lambda done, of: told.append((done, of)))

    assert (deleted, told) == (3, [(3, 3)])
    assert await graph.groups() == ["other"]
    assert await graph.commit(GROUP, Changes(("line",), entities=(entity("bob"),)), seen=seen) == Behind()
    again = await put(graph, entity("cem"))
    assert again > seen
    assert await graph.commit(GROUP, Changes(("line",), entities=(entity("bob"),)), seen=seen) == Behind()
    assert (await graph.look(GROUP, Wanted(entities=("ann", "bob", "cem")))).entities.keys() == {"cem"}


async def test_clearing_the_namespace_removes_its_graphs(
    graph: FalkorBackend, hub: Hub, server: BareServer, namespace: str
) -> None:
    await put(graph, entity("ann"))

    usage = await hub.store(namespace).usage()
    await hub.store(namespace).clear()

    assert usage.types["graphdata"].keys == 1
    assert await graph.groups() == []
    with server.client() as client:
        assert [key for key in client.keys(f"*{namespace}*") if b"$clock" not in key and b"$changes" not in key] == []


# -- what may be missing -------------------------------------------------------------------------


async def test_a_server_without_the_module_is_told_what_it_lacks(hub: Hub, settings: Settings) -> None:
    with BareServer() as bare:
        async with Hub.open(bare.url, settings=settings) as plain:
            graph = FalkorBackend(plain.store("team").memory._minds, "team")
            for call in (
                lambda: graph.look(GROUP, Wanted()),
                lambda: graph.commit(GROUP, Changes(()), seen=0),
                graph.groups,
            ):
                with pytest.raises(UnsupportedError, match="SHAREDMEM_EMBEDDED_MODULES=search,json,graph"):
                    await call()


async def test_the_embedded_server_keeps_no_queries_of_graphs(settings: Settings) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="sm") as folder:
        embedded = Settings(data_dir=Path(folder), embedder="hashing", embedded_modules=("search", "json", "graph"))
        async with Hub.open(settings=embedded) as own:
            assert own.powers.graph
            line = own.store("team").memory._minds.line
            told = await line.call("GRAPH.CONFIG", "GET", "CMD_INFO")

    assert told == [b"CMD_INFO", 0]


async def test_a_missing_client_says_what_to_install(minds: Minds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "falkordb.asyncio.graph", None)

    with pytest.raises(UnsupportedError, match=r"pip install 'sharedmem-hub\[falkordb\]'"):
        FalkorBackend(minds, "team")
