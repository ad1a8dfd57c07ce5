"""docs/cosmos.md: knowledge graphs in a container of their own, with what people and its own search ask for."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import orjson
import pytest
from support import cosmos_fixtures
from support.cosmos_emulator import EmulatedDatabase
from support.cosmos_fixtures import (
    DIMENSION,
    HALF,
    NOW_MS,
    NUMBERS,
    OneContainerSuite,
    assert_template_makes,
    container_in_template,
)

from sharedmem import ConfigError, InvalidError, Settings
from sharedmem.durable.cosmos import graph_container
from sharedmem.durable.cosmos.graph_container import document_of, record_of
from sharedmem.durable.cosmos.layout import graphs_layout, memories_layout
from sharedmem.durable.cosmos.record_container import CosmosQuery
from sharedmem.models import DurableRecord
from sharedmem.providers.local_embedders import HashingEmbedder
from sharedmem.testing import fake_hub

pytestmark = cosmos_fixtures.allow_large_bodies
room = cosmos_fixtures.room

OPEN = 999_999_999_999_999_999
STARTS, ENDS, LEARNT = 63_840_000_000_000_001, 63_860_000_000_000_001, 63_850_000_000_000_001
VERSIONS = [[0, OPEN, STARTS, LEARNT], [STARTS, ENDS, LEARNT, OPEN]]
FACT: dict[str, Any] = {
    "id": "f1",
    "lines": ["ann>lives_in"],
    "source": "ann-1",
    "source_name": "Ann",
    "type": "lives_in",
    "target": "oslo-2",
    "target_name": "Oslo",
    "value": "",
    "text": "Ann lives in Oslo",
    "versions": VERSIONS,
    "episodes": ["e1"],
}


def body_of(version: int = 5, *, embedding: str | None = HALF, **row: Any) -> str:
    told: dict[str, Any] = {"version": version} | ({"embedding": embedding} if embedding else {})
    return orjson.dumps(told | FACT | row).decode()


def fact(id_: str = "f1", stamp: int = 5, group: str = "acme", **fields: Any) -> DurableRecord:
    key = f"research:$graph:{group}/f/{id_}"
    plain = {"key": key, "type": "fact", "kind": "log", "version": stamp, "stamp": stamp, "created": stamp}
    return DurableRecord.model_validate(plain | {"body": body_of(stamp, id=id_)} | fields)


# Each run has the suite on records (tests/durable/test_cosmos.py), and what is particular to this container below.
@pytest.mark.nightly
class TestCosmosGraphs(OneContainerSuite):
    layouts: ClassVar = {"graphs": graphs_layout(DIMENSION)}
    charged = ("reads", 2)


# -- documents -----------------------------------------------------------------------------------


def test_a_fact_is_a_document_with_its_times_as_texts_and_numbers_for_its_embedding() -> None:
    document = document_of(fact(), NOW_MS)

    assert (document["id"], document["namespace"], document["group_id"]) == ("f.f1", "research", "acme")
    assert (document["fact"], document["relation"], document["type"]) == ("Ann lives in Oslo", "lives_in", "fact")
    assert (document["source"], document["target"], document["episode_ids"]) == ("Ann", "Oslo", ["e1"])
    assert document["valid_from"] == "2024-01-04T21:20:00.000000Z"
    assert (document["valid_to"], document["superseded_at"]) == ("2024-08-23T08:53:20.000000Z", None)
    assert document["versions"][0]["valid_from"] is None
    assert np.allclose(document["embedding"], NUMBERS, atol=1e-3)
    assert HALF not in document["exact"]


@pytest.mark.parametrize(
    "record",
    [
        fact(),
        fact(body=body_of(embedding=None)),
        fact(body=body_of(embedding="")),
        fact(body=body_of(value='{"a":1.0}', target="", versions=[])),
        fact(body=body_of(versions="none")),
        fact(body=body_of(embedding="no base64")),
        fact(group="a%2Fb%25", id_="x"),
        fact(group="a:b", id_="söö/ß"),
        fact(body="[" * 200 + "]" * 200),
        fact(body='"text"'),
        fact(body='{"version":5,"embedding":"ADg="}'),
        fact(version=4),
        fact(deleted=True, body="", floor=5),
    ],
    ids=range(13),
)
def test_a_record_comes_back_to_the_letter(record: DurableRecord) -> None:
    stored = orjson.loads(orjson.dumps(document_of(record, NOW_MS)))

    assert record_of(stored) == record


# -- the container -------------------------------------------------------------------------------


async def test_graphs_and_memories_lie_apart_and_are_walked_through_with_the_others(room: EmulatedDatabase) -> None:
    scopes = ("!early", "$h", "$memory", "$z", "shared")
    notes = [
        DurableRecord(key=f"research:{scope}:note", type="value", kind="log", version=1, stamp=1) for scope in scopes
    ]
    facts = [fact(f"f{number}", stamp=10 + number) for number in range(3)]
    async with room.opened(memories=memories_layout(DIMENSION), graphs=graphs_layout(DIMENSION)) as store:
        await store.put([*notes, *facts])

        walked = [one async for page in store.iterate("research") for one in page]
        assert walked == [notes[0], *facts, *notes[1:]]
        later = store.iterate("research", after=("research:$graph:acme/f/f1", ""))
        assert [one async for page in later for one in page] == [facts[2], *notes[1:]]
        assert await store.get(facts[1].key) == facts[1]
        assert await store.query("research", of_type="fact", where={"source": "ann-1"}) == facts[::-1]
        assert await store.check() == []
    async with room.client() as client:
        container = client.get_database_client(room.database).get_container_client("graphs")
        seen = await container.read_item("f.f1", partition_key=["research", "acme"])
        assert (seen["fact"], seen["embedding"][0]) == ("Ann lives in Oslo", 0.5)


def test_the_template_makes_the_container_that_we_make() -> None:
    """docs/cosmos.md: deploy/cosmos.bicep makes the container of graphs too."""
    layout = graphs_layout(256)
    policies, indexing = container_in_template("graphs", "right")

    assert_template_makes(layout, policies, indexing)


async def test_a_container_for_other_vectors_is_refused_when_it_is_opened(room: EmulatedDatabase) -> None:
    async with room.opened(graphs=graphs_layout(256)):
        pass

    with pytest.raises(ConfigError, match=r"(?s)cosmos_graphs.*256 numbers.*384"):
        await room.durable(graphs=graphs_layout(384)).open()


# -- what its own search can be asked ----------------------------------------------------------------

HERE = graph_container.GraphQueryScope("research", "acme")
HOSTILE = "x') OR 1=1 --\""
WORLD, KNOWN = datetime(2024, 3, 1, tzinfo=UTC), datetime(2025, 1, 1, tzinfo=UTC)
ALL = [
    graph_container.entity_facts(HERE, HOSTILE, 5, as_of=WORLD, known_at=KNOWN),
    graph_container.entity_history(graph_container.GraphQueryScope(HOSTILE, HOSTILE), HOSTILE, 5),
    graph_container.session_episodes(HERE, HOSTILE, 5),
    graph_container.nearest(HERE, [0.5], 7),
    graph_container.with_phrase(HERE, HOSTILE, 7, of_type="entity"),
]
# As documented: `SELECT TOP <number> <list> FROM c WHERE <conditions> ORDER BY <what>`.
ORDERS = r"c\.(valid_from|recorded_at) DESC|c\.occurred_at ASC|VectorDistance\(c\.embedding, @vector\)"
GRAMMAR = re.compile(rf"SELECT TOP \d+ [^'\"]+ FROM c WHERE [^'\"]+ ORDER BY ({ORDERS})")


@pytest.mark.parametrize("query", ALL, ids=range(5))
def test_a_query_is_as_the_service_documents_it_and_holds_nothing_of_a_users(query: CosmosQuery) -> None:
    assert GRAMMAR.fullmatch(query.text)
    assert "OR 1=1" not in query.text
    assert set(re.findall(r"@(\w+)", query.text)) == set(query.values)
    assert query.partition is not None
    assert not re.search(r"VectorDistance\([^)]*\) (ASC|DESC)", query.text)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: graph_container.session_episodes(HERE, "s", 0),
        lambda: graph_container.session_episodes(HERE, "s", True),
        lambda: graph_container.nearest(HERE, [0.5], 1, of_type="c.id; --"),  # type: ignore[arg-type]  # what is refused
        lambda: graph_container.entity_facts(HERE, "ann", 1, as_of=WORLD.replace(tzinfo=None), known_at=KNOWN),
    ],
)
def test_what_cannot_be_asked_is_refused(ask: Callable[[], CosmosQuery]) -> None:
    with pytest.raises(InvalidError):
        ask()


async def test_the_store_alone_knows_what_held_when_and_what_was_known(room: EmulatedDatabase) -> None:
    late = fact("f2", body=body_of(id="f2", text="Ann lives in Rome", versions=[[ENDS, OPEN, ENDS, OPEN]]))
    async with room.opened(graphs=graphs_layout(DIMENSION)) as store:
        await store.put([fact(), late, fact("f3", deleted=True, body=""), fact("f9", group="other")])
    async with room.client() as client:
        container = client.get_database_client(room.database).get_container_client("graphs")

        async def told(as_of: datetime, known_at: datetime) -> list[str]:
            query = graph_container.entity_facts(HERE, "ann-1", 9, as_of=as_of, known_at=known_at)
            rows = container.query_items(query.text, parameters=query.parameters, partition_key=query.partition)
            return [row["fact"] async for row in rows]

        long_ago, before = datetime(1990, 1, 1, tzinfo=UTC), WORLD
        assert await told(WORLD, KNOWN) == ["Ann lives in Oslo"]
        assert await told(KNOWN, KNOWN) == ["Ann lives in Rome"]
        assert await told(long_ago, before) == ["Ann lives in Oslo"]
        assert await told(long_ago, KNOWN) == []
        assert await told(KNOWN, before - timedelta(days=900)) == []


async def test_a_hub_keeps_its_graphs_there_and_finds_them_again(room: EmulatedDatabase, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, durable_url=room.emulator.url, cosmos_database=room.database)
    async with fake_hub(settings=settings, embedder=HashingEmbedder(dimension=8)) as hub:
        graph = hub.store("research").graph
        await graph.add_episode("Ann lives in Oslo.", group_id="acme:7/x", id="e1", session="s")
        await graph.add_relationship("Ann", "lives_in", "Rome", group_id="acme:7/x", valid_from=WORLD)
        await graph.add_entity("Annie", group_id="acme:7/x")
        await graph.merge("Annie", "Ann", group_id="acme:7/x")
        before = await graph.history("Ann", group_id="acme:7/x"), await graph.stats(group_id="acme:7/x")
        await hub.durable.drain("research", timeout=60)
        assert (await hub.durable.verify("research")).differences == []
        async with room.client() as client:
            container = client.get_database_client(room.database).get_container_client("graphs")
            query = graph_container.session_episodes(graph_container.GraphQueryScope("research", "acme:7/x"), "s", 5)
            rows = container.query_items(query.text, parameters=query.parameters, partition_key=query.partition)
            assert [row["text"] async for row in rows] == ["Ann lives in Oslo."]

    async with fake_hub(settings=settings, embedder=HashingEmbedder(dimension=8)) as anew:
        graph = anew.store("research").graph
        assert (await graph.history("Ann", group_id="acme:7/x"), await graph.stats(group_id="acme:7/x")) == before
        assert (await graph.unmerge("Annie", group_id="acme:7/x")).undone_at is not None
        await graph.delete_by_group("acme:7/x")
        await anew.durable.drain("research", timeout=60)
    async with fake_hub(settings=settings, embedder=HashingEmbedder(dimension=8)) as empty:
        assert await empty.store("research").graph.groups() == []
