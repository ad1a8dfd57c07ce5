"""Graphs in the FalkorDB module: searches, pages, counts and groups, and what may be missing."""

from __future__ import annotations

import sys
import tempfile
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest
from support import falkordb_fixtures
from support.contexts import knowledge_of
from support.falkordb_fixtures import EVER, GROUP, NOW, entity, episode, fact, put, vector, write
from support.redis_process import RedisProcess

from sharedmem import Hub, InvalidError, Settings, UnsupportedError
from sharedmem.graph.backends.falkordb import FalkorBackend
from sharedmem.graph.records import OPEN, CommitRequest, LookupRequest, RecordSearch, StaleGroup, Version
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.models import EntityMerge
from sharedmem.redis.keys import PERMANENT_SERVICE_KEYS
from sharedmem.redis.vectors import to_half
from sharedmem.text.analysis import query_terms

server = falkordb_fixtures.server
settings = falkordb_fixtures.settings
hub = falkordb_fixtures.hub
namespace = falkordb_fixtures.namespace
minds = falkordb_fixtures.minds
graph = falkordb_fixtures.graph


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
        GROUP,
        [RecordSearch(("e", "n", "f", "p"), vector=vector(1)), RecordSearch(("m",), vector=vector(1), candidates=1)],
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

    (found,) = await graph.search(GROUP, [RecordSearch(("e", "f"), query_terms("a zebra that will run"))])
    (one,) = await graph.search(GROUP, [RecordSearch(("e",), query_terms("running"), candidates=1)])
    (none,) = await graph.search(GROUP, [RecordSearch(("e",), ("no",))])

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
            RecordSearch(("e",), terms, vector(1), candidates=5, session="small"),
            RecordSearch(("e",), terms, vector(1), candidates=5, since=299, until=500),
        ],
    )

    assert [hit.id for hit in by_session.vector] == [hit.id for hit in by_session.text] == ["far"]
    assert [hit.id for hit in by_time.vector] == ["e299", "far"]
    assert {hit.id for hit in by_time.text} == {"e299", "far"}


async def test_a_group_that_began_without_an_embedder_says_so_when_it_is_searched_by_meaning(
    graph: FalkorBackend, server: RedisProcess, settings: Settings, namespace: str
) -> None:
    async with Hub.open(server.url, settings=settings.model_copy(update={"embedder": "none"})) as bare:
        await put(FalkorBackend(knowledge_of(bare), namespace), entity("ann"))

    await put(graph, entity("bob", vector=to_half(vector(1))))

    assert [hit.id for hit in (await graph.search(GROUP, [RecordSearch(("n",), ("bob",))]))[0].text] == ["bob"]
    with pytest.raises(UnsupportedError, match="delete the group"):
        await graph.search(GROUP, [RecordSearch(("n",), vector=vector(1))])


async def test_a_vector_of_another_dimension_is_refused(graph: FalkorBackend) -> None:
    await put(graph, entity("ann"))

    with pytest.raises(InvalidError, match="64 numbers"):
        await graph.search(GROUP, [RecordSearch(("n",), vector=np.ones(3, dtype=np.float32))])


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

    await write(
        graph, CommitRequest((), merges=tuple((one.source_id, one.model_dump_json().encode()) for one in log[::-1]))
    )
    await write(graph, CommitRequest((), merges=((undone.source_id, undone.model_dump_json().encode()),)))
    told = [EntityMerge.model_validate_json(one) for one in await graph.merges(GROUP)]

    assert told == [log[0], undone, log[2]]
    assert (await graph.listed(GROUP, "merge"))[0] == ["a", "b", "c"]
    assert (await graph.stats(GROUP)).merges == 3


async def test_groups_of_the_same_names_know_nothing_of_each_other(
    graph: FalkorBackend, minds: KnowledgeContext, namespace: str
) -> None:
    groups = ["acme:s1", "acme:s2", "acme:s", "Acme:s1", "x/y %2F", "acme:s1:*"]
    elsewhere = FalkorBackend(minds, f"{namespace}-2")
    for group in groups:
        await write(
            graph, CommitRequest((), entities=(entity("ann", summary=group),), names=(("ann", "ann"),)), group=group
        )

    for group in groups:
        found = await graph.look(group, LookupRequest(names=("ann",), entities=("ann",)))
        assert found.entities["ann"].summary == group
    assert await graph.groups() == sorted(groups)
    assert await elsewhere.groups() == []
    assert (await elsewhere.look("acme:s1", LookupRequest(entities=("ann",)))).entities == {}


async def test_a_group_without_episodes_is_empty(graph: FalkorBackend) -> None:
    assert (await graph.look("none", LookupRequest(("a",), ("l",), ("e",), ("n",), ("f",)))).version == 0
    assert await graph.walk("none", ["a"], when=NOW, depth=2, fan_out=2, limit=2) == ([], False)
    assert await graph.edges("none", "a", when=None, limit=2) == []
    assert await graph.listed("none", "fact") == ([], "")
    assert await graph.merges("none") == []
    assert (await graph.stats("none")).entities == 0
    assert await graph.search("none", [RecordSearch(("e",), ("a",), vector(1))]) == [([], [])]
    assert await graph.delete("none") == 0
    assert await graph.groups() == []


async def test_a_deleted_group_leaves_no_key_and_who_had_seen_it_is_behind(
    graph: FalkorBackend, server: RedisProcess, namespace: str
) -> None:
    seen = await put(graph, entity("ann"), episode("e1"), fact("ann", "bob"))
    await put(graph, entity("ann"), group="other")
    told: list[tuple[int, int]] = []

    deleted = await graph.delete(GROUP, progress=lambda done, of: told.append((done, of)))

    assert (deleted, told) == (3, [(3, 3)])
    assert await graph.groups() == ["other"]
    assert await graph.commit(GROUP, CommitRequest(("line",), entities=(entity("bob"),)), seen=seen) == StaleGroup()
    again = await put(graph, entity("cem"))
    assert again > seen
    assert await graph.commit(GROUP, CommitRequest(("line",), entities=(entity("bob"),)), seen=seen) == StaleGroup()
    assert (await graph.look(GROUP, LookupRequest(entities=("ann", "bob", "cem")))).entities.keys() == {"cem"}


async def test_clearing_the_namespace_removes_its_graphs(
    graph: FalkorBackend, hub: Hub, server: RedisProcess, namespace: str
) -> None:
    await put(graph, entity("ann"))

    usage = await hub.store(namespace).usage()
    await hub.store(namespace).clear()

    assert usage.types["graphdata"].keys == 1
    assert await graph.groups() == []
    with server.client() as client:
        left = {key.rpartition(b":")[2] for key in client.keys(f"*{namespace}*")}
        assert left <= {name.encode() for name in PERMANENT_SERVICE_KEYS}


# -- what may be missing -------------------------------------------------------------------------


async def test_a_server_without_the_module_is_told_what_it_lacks(hub: Hub, settings: Settings) -> None:
    with RedisProcess() as bare:
        async with Hub.open(bare.url, settings=settings) as plain:
            graph = FalkorBackend(knowledge_of(plain), "team")
            for call in (
                lambda: graph.look(GROUP, LookupRequest()),
                lambda: graph.commit(GROUP, CommitRequest(()), seen=0),
                graph.groups,
            ):
                with pytest.raises(UnsupportedError, match="SHAREDMEM_EMBEDDED_MODULES=search,json,graph"):
                    await call()


async def test_the_embedded_server_keeps_no_queries_of_graphs(settings: Settings) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="sm") as folder:
        embedded = Settings(data_dir=Path(folder), embedder="hashing", embedded_modules=("search", "json", "graph"))
        async with Hub.open(settings=embedded) as own:
            assert own.powers.graph
            line = knowledge_of(own).client
            told = await line.call("GRAPH.CONFIG", "GET", "CMD_INFO")

    assert told == [b"CMD_INFO", 0]


async def test_a_missing_client_says_what_to_install(minds: KnowledgeContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "falkordb.asyncio.graph", None)

    with pytest.raises(UnsupportedError, match=r"pip install 'sharedmem-hub\[falkordb\]'"):
        FalkorBackend(minds, "team")
