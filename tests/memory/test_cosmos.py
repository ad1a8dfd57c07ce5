"""docs/cosmos.md: memories are in a container of their own, as Cosmos DB's own search expects them."""

from __future__ import annotations

import re
from collections.abc import Callable
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
    TEMPLATE,
    OneContainerSuite,
    assert_template_makes,
    container_in_template,
)

from sharedmem import ConfigError, InvalidError, Settings
from sharedmem.durable.cosmos import memory_container
from sharedmem.durable.cosmos.layout import memories_layout
from sharedmem.durable.cosmos.memory_container import document_of, record_of
from sharedmem.durable.cosmos.record_container import KEPT_AFTER_S, CosmosQuery
from sharedmem.models import DurableRecord
from sharedmem.providers.local_embedders import HashingEmbedder
from sharedmem.testing import fake_hub

pytestmark = cosmos_fixtures.allow_large_bodies
room = cosmos_fixtures.room

ITEM = {
    "memory": "the tide table is wrong on Sundays",
    "thread_id": "harbour",
    "user_id": "ann",
    "hash": "abc",
    "timestamp": "2026-05-01T12:00:00Z",
    "ttl": 86_400,
    "metadata": {"loan": 7, "score": 0.5},
    "tags": ["tides"],
}


@pytest.fixture
def hub_settings(room: EmulatedDatabase, tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path, durable_url=room.emulator.url, cosmos_database=room.database)


# Each run has the suite on records (tests/durable/test_cosmos.py), and what is particular to this container below.
@pytest.mark.nightly
class TestCosmosMemories(OneContainerSuite):
    layouts: ClassVar = {"memories": memories_layout(DIMENSION)}
    charged = ("queries", 2)


def body_of(id_: str = "m1", *, stamp: int = 5, embedding: str | None = HALF, **item: Any) -> str:
    told: dict[str, Any] = {"id": id_, "digest": "d1", "embedding": embedding, "version": stamp, "turn_index": 3}
    told |= {"change": {"change": "added", "actor": "ada"}, "item": ITEM | item}
    return orjson.dumps({name: value for name, value in told.items() if value is not None}).decode()


def memory(id_: str = "m1", stamp: int = 5, namespace: str = "research", **fields: Any) -> DurableRecord:
    plain = {"key": f"{namespace}:$memory:{id_}", "type": "memory", "kind": "log", "version": stamp, "stamp": stamp}
    return DurableRecord.model_validate(plain | {"created": stamp, "body": body_of(id_, stamp=stamp)} | fields)


# -- documents -----------------------------------------------------------------------------------


def test_a_memory_is_a_document_of_its_own_fields_with_numbers_for_its_embedding() -> None:
    document = document_of(memory(), NOW_MS)

    assert (document["id"], document["tenant_id"], document["thread_id"]) == ("m1", "research", "harbour")
    assert document["memory"] == document["content"] == ITEM["memory"]
    assert (document["memory_type"], document["importance"]) == ("long-term", "medium")
    assert (document["user_id"], document["turn_index"], document["version"]) == ("ann", 3, 5)
    assert document["metadata"] == {"loan": 7, "score": 0.5}
    assert np.allclose(document["embedding"], NUMBERS, atol=1e-3)
    assert (document["stamp"], document["key"]) == (5, "research:$memory:m1")
    assert not {"exact", "body", "ttl"} & set(document)


@pytest.mark.parametrize(
    "record",
    [
        memory(),
        memory(body=body_of(embedding=None)),
        memory(body=body_of(metadata={"price": 1.0, "big": 2**60})),
        memory(body=body_of(content="more", thread_id="main", run_id="r", novelty=[1])),
        memory(id_="a/b?c", body=body_of("a/b?c")),
        memory(id_="m2", body=body_of("another")),
        memory(body='{"item":{"thread_id":7}}'),
        memory(body='{"item":{},"embedding":"no base64"}'),
        memory(body='{"item":[]}'),
        memory(body="[" * 200 + "]" * 200),
        memory(body='"text"'),
        memory(expires=NOW_MS + 60_000),
        memory(deleted=True, body="", floor=5),
    ],
    ids=range(13),
)
def test_a_record_comes_back_to_the_letter(record: DurableRecord) -> None:
    stored = orjson.loads(orjson.dumps(document_of(record, NOW_MS)))

    assert record_of(stored) == record


def test_what_cosmos_would_not_give_back_stands_beside_it_as_text() -> None:
    assert "exact" not in document_of(memory(), NOW_MS)
    assert document_of(memory(id_="m2", body=body_of("m2", novelty=1)), NOW_MS)["exact"]


def test_the_document_of_a_memory_that_expires_goes_by_itself_some_days_later() -> None:
    document = document_of(memory(expires=NOW_MS + 60_000), NOW_MS)

    assert document["ttl"] == 60 + KEPT_AFTER_S
    assert document["lives_s"] == ITEM["ttl"]


def test_a_tombstone_stays_in_the_thread_of_its_memory() -> None:
    held = document_of(memory(), NOW_MS)

    assert document_of(memory(stamp=6, deleted=True, body=""), NOW_MS, held)["thread_id"] == "harbour"
    assert "embedding" not in document_of(memory(stamp=6, deleted=True, body=""), NOW_MS, held)


# -- the container -------------------------------------------------------------------------------


async def test_memories_lie_apart_and_are_walked_through_with_the_others(room: EmulatedDatabase) -> None:
    notes = [
        DurableRecord(key=f"research:{scope}:note", type="value", kind="knowledge", version=1, stamp=1)
        for scope in ("!early", "shared")
    ]
    memories = [memory(f"m{number}", stamp=10 + number) for number in range(3)]
    async with room.opened(memories=memories_layout(DIMENSION)) as store:
        await store.put([*memories, *notes])

        walked = [one async for page in store.iterate("research") for one in page]
        assert walked == [notes[0], *memories, notes[1]]
        later = store.iterate("research", after=("research:$memory:m1", ""))
        assert [one async for page in later for one in page] == [memories[2], notes[1]]
        assert await store.get("research:$memory:m1") == memories[1]
        assert await store.query("research", of_type="memory", where={"item.user_id": "ann"}) == memories[::-1]
        assert await store.highest("research") == 12
        assert await store.namespaces() == ["research"]
        assert await store.check() == []
        assert store.charges().request_units > 0
    async with room.client() as client:
        container = client.get_database_client(room.database).get_container_client("memories")
        seen = await container.read_item("m1", partition_key=["research", "harbour"])
        assert (seen["memory"], seen["embedding"][0]) == (ITEM["memory"], 0.5)


async def test_a_memory_that_moves_to_another_thread_is_one_memory(room: EmulatedDatabase) -> None:
    async with room.opened(memories=memories_layout(DIMENSION)) as store:
        await store.put([memory()])
        moved = memory(stamp=7, body=body_of(stamp=7, thread_id="quay"))

        await store.put([moved])
        await store.put([memory(stamp=6)])

        assert await store.get(moved.key) == moved
        assert [one async for page in store.iterate("research") for one in page] == [moved]


def test_the_template_makes_the_container_that_we_make() -> None:
    """docs/cosmos.md: deploy/cosmos.bicep makes the container of memories too."""
    layout = memories_layout(256)
    policies, indexing = container_in_template("memories", "graphs")

    assert_template_makes(layout, policies, indexing)
    assert layout.vectors is not None
    (vectors,) = layout.vectors["vectorEmbeddings"]
    assert all(f"{name}: '{vectors[name]}'" in policies for name in ("path", "dataType", "distanceFunction"))
    assert "param memoryDimensions int = 256" in TEMPLATE.read_text()


def test_the_documented_memory_is_a_real_one() -> None:
    """docs/cosmos.md: what a memory looks like."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "cosmos.md").read_text()
    shown = orjson.loads(page.partition("## Memories")[2].partition("```json\n")[2].partition("```")[0])

    assert document_of(record_of(shown), NOW_MS) == shown


async def test_a_container_for_other_vectors_is_refused_when_it_is_opened(room: EmulatedDatabase) -> None:
    async with room.opened(memories=memories_layout(256)):
        pass

    with pytest.raises(ConfigError, match=r"256 numbers.*384"):
        await room.durable(memories=memories_layout(384)).open()
    async with room.opened(memories=memories_layout(256)):
        pass


# -- what its own search can be asked ----------------------------------------------------------------

HERE = memory_container.MemoryQueryScope("research", NOW_MS, "harbour")
EVERYWHERE = memory_container.MemoryQueryScope("research", NOW_MS)
VECTOR = [0.5, 0.25]
HOSTILE = "x') OR 1=1 --\""
ALL = [
    memory_container.recent(HERE, 5),
    memory_container.recent(EVERYWHERE, 5, by="timestamp"),
    memory_container.nearest(HERE, VECTOR, 7),
    memory_container.hybrid(HERE, VECTOR, ["tide", HOSTILE], 7, weights=[2, 1, 1]),
    memory_container.ranked(EVERYWHERE, ["tide"], 7),
    memory_container.with_phrase(EVERYWHERE, HOSTILE, 7),
    memory_container.cached(memory_container.MemoryQueryScope("research", NOW_MS, HOSTILE), VECTOR),
    memory_container.duplicates(EVERYWHERE, VECTOR, category=HOSTILE),
    memory_container.thread_statistics(HERE),
    memory_container.count(memory_container.MemoryQueryScope(HOSTILE, NOW_MS, equal={"user_id": HOSTILE})),
]
# As documented: `SELECT [TOP <number>] <list> FROM c WHERE <conditions> [ORDER BY <what>]`.
ORDERS = (
    r"c\.(turn_index|timestamp) DESC"
    r"|VectorDistance\(c\.embedding, @vector\)"
    r"|RANK (RRF\(VectorDistance\(c\.embedding, @vector\), {score}, {score}(, \[[\d., ]+\])?\)|{score})"
).replace("{score}", r"FullTextScore\(c\.(content|memory), @word\d+(, @word\d+)*\)")
GRAMMAR = re.compile(
    rf"SELECT (TOP \d+ )?[^@']* FROM c WHERE [^'\"]*( ORDER BY ({ORDERS}))?".replace("[^@']*", "[^']*?")
)


@pytest.mark.parametrize("query", ALL, ids=lambda query: query.text[:60])
def test_a_query_is_as_the_service_documents_it_and_holds_nothing_of_a_users(query: CosmosQuery) -> None:
    assert GRAMMAR.fullmatch(query.text.replace('"memory"', "memory"))
    assert "OR 1=1" not in query.text
    assert set(re.findall(r"@(\w+)", query.text)) == set(query.values)
    assert "c.tenant_id = @tenant" in query.text
    # A score of words may be in an order alone, and an order by distance has no direction.
    assert "FullTextScore" not in query.text.partition("ORDER BY")[0]
    assert not re.search(r"VectorDistance\([^)]*\) (ASC|DESC)", query.text)


def test_similarity_rises_so_that_what_is_near_enough_lies_above_a_threshold() -> None:
    cached = memory_container.cached(HERE, VECTOR)
    same = memory_container.duplicates(EVERYWHERE, VECTOR, category="rates")

    assert cached.text.startswith("SELECT TOP 1 ")
    assert "VectorDistance(c.embedding, @vector) > @least" in cached.text
    assert (cached.values["least"], same.values["least"]) == (0.98, 0.95)
    assert (cached.values["equal0"], same.values["equal0"]) == ("semantic-cache", "rates")
    assert same.text.startswith("SELECT TOP 5 ")


def test_no_more_keywords_are_asked_for_than_the_service_takes() -> None:
    query = memory_container.ranked(HERE, [f"w{number}" for number in range(50)] * 2, 5)

    assert len([name for name in query.values if name.startswith("word")]) == 30


def test_a_question_within_a_thread_is_for_one_partition() -> None:
    assert memory_container.recent(HERE, 1).partition == ["research", "harbour"]
    assert memory_container.recent(EVERYWHERE, 1).partition is None


@pytest.mark.parametrize(
    "ask",
    [
        lambda: memory_container.recent(HERE, 0),
        lambda: memory_container.recent(HERE, 1001),
        lambda: memory_container.recent(HERE, True),
        lambda: memory_container.recent(HERE, 1, by="c.id; --"),  # type: ignore[arg-type]  # what is refused
        lambda: memory_container.recent(HERE._replace(equal={"x = 1 OR c.id": 1}), 1),
        lambda: memory_container.nearest(HERE, VECTOR, 1, least=1.5),
        lambda: memory_container.ranked(HERE, ["", ""], 1),
        lambda: memory_container.hybrid(HERE, VECTOR, ["a"], 1, weights=[1]),
        lambda: memory_container.thread_statistics(EVERYWHERE),
    ],
)
def test_what_cannot_be_asked_is_refused(ask: Callable[[], CosmosQuery]) -> None:
    with pytest.raises(InvalidError):
        ask()


async def test_what_the_emulator_knows_of_it_it_answers(room: EmulatedDatabase) -> None:
    async with room.opened(memories=memories_layout(DIMENSION)) as store:
        turns = [memory(f"m{n}", stamp=n, body=body_of(f"m{n}", stamp=n, metrics={"input_tokens": n})) for n in (1, 2)]
        await store.put([*turns, memory("m3", stamp=3, deleted=True, body=""), memory("m4", stamp=4, expires=1)])
        await store.put([memory("m9", namespace="payroll")])
    async with room.client() as client:
        container = client.get_database_client(room.database).get_container_client("memories")

        async def ask(query: CosmosQuery) -> list[Any]:
            rows = container.query_items(query.text, parameters=query.parameters, partition_key=query.partition)
            return [row async for row in rows]

        assert {row["id"] for row in await ask(memory_container.recent(HERE, 5))} == {"m1", "m2"}
        assert len(await ask(memory_container.recent(EVERYWHERE, 1, by="timestamp"))) == 1
        assert await ask(memory_container.count(EVERYWHERE._replace(equal={"user_id": "ann"}))) == [2]
        (stats,) = await ask(memory_container.thread_statistics(HERE))
        assert (stats["turn_count"], stats["total_tokens"]) == (2, 3)
        assert stats["first_turn_at"] == stats["last_turn_at"] == ITEM["timestamp"]


async def test_a_hub_keeps_its_memories_there_and_finds_them_again(
    room: EmulatedDatabase, hub_settings: Settings
) -> None:
    async with fake_hub(settings=hub_settings, embedder=HashingEmbedder(dimension=8)) as hub:
        added = await hub.store("research").memory.add("the tide table is wrong", thread_id="harbour")
        await hub.durable.drain("research", timeout=60)
        async with room.client() as client:
            container = client.get_database_client(room.database).get_container_client("memories")
            seen = await container.read_item(added.id, partition_key=["research", "harbour"])
    assert (seen["memory"], len(seen["embedding"])) == ("the tide table is wrong", 8)
    assert "exact" not in seen

    async with fake_hub(settings=hub_settings, embedder=HashingEmbedder(dimension=8)) as anew:
        assert [hit.item.id for hit in await anew.store("research").memory.search("tide table")] == [added.id]
        assert anew.durable is not None

    with pytest.raises(ConfigError, match="is for vectors of 8 numbers"):
        async with fake_hub(settings=hub_settings, embedder=HashingEmbedder(dimension=16)):
            pass
