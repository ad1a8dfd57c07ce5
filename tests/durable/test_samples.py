"""docs/durable.md: sample queries on the memories of the tier, without Redis."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support import cosmos_fixtures
from support.cosmos_emulator import EmulatedDatabase

from sharedmem import Hub, InvalidError, Settings
from sharedmem.durable.cosmos.layout import memories_layout
from sharedmem.durable.cosmos.memory_container import sample_query, sample_rows
from sharedmem.durable.samples import SAMPLES, MemorySamples, NativeAnswer, SampleRequest, check_sample
from sharedmem.durable.sqlite_store import SqliteDurable
from sharedmem.providers.local_embedders import HashingEmbedder
from sharedmem.testing import ManualClock, fake_hub

room = cosmos_fixtures.room
EMBEDDER = HashingEmbedder(dimension=64)
TURNS = ("the tide table is wrong", "the harbour opens at six", "a ferry leaves at seven", "the tide is high at noon")
NAMESPACE = "research"


async def vector_of(text: str) -> list[float]:
    numbers: list[float] = (await EMBEDDER.embed([text])).vectors[0].tolist()
    return numbers


async def remember(hub: Hub) -> list[str]:
    """Four turns of a thread, one of another, an expired one, a deleted one, and one of another namespace."""
    memory = hub.store(NAMESPACE).memory
    ids = []
    for number, text in enumerate(TURNS):
        when = datetime(2026, 1, 1 + number, tzinfo=UTC)
        metrics = {"input_tokens": number, "output_tokens": 10}
        ids.append((await memory.add(text, thread_id="harbour", timestamp=when, metrics=metrics, category="sea")).id)
    when = datetime(2026, 2, 1, tzinfo=UTC)
    ids.append((await memory.add("the tide table is right", thread_id="office", timestamp=when)).id)
    gone = await memory.add("the tide is gone", thread_id="harbour")
    await memory.delete(gone.id)
    await hub.store("payroll").memory.add("the tide is paid", thread_id="harbour")
    await hub.durable.drain(timeout=60)
    return ids


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite://{tmp_path}/tier.db"


@pytest.fixture
async def hub(url: str) -> AsyncIterator[Hub]:
    async with fake_hub(settings=Settings(durable_url=url), embedder=EMBEDDER) as hub:
        yield hub


@pytest.fixture
async def tier(hub: Hub, url: str) -> AsyncIterator[SqliteDurable]:
    """The store of the hub, as another process opens it."""
    store = SqliteDurable.at(url)
    await store.open()
    yield store
    await store.close()


async def found_ids(hub: Hub, name: str, **given: Any) -> list[str]:
    result = await hub.durable.run_sample(name, NAMESPACE, **given)
    assert (result.name, result.namespace, result.query) == (name, NAMESPACE, "")
    return [row["id"] for row in result.rows]


async def test_each_sample_answers_from_the_tier_alone(hub: Hub) -> None:
    a, b, c, d, office = await remember(hub)
    tide = await vector_of(TURNS[0])

    assert await found_ids(hub, "recent-turns", thread_id="harbour", limit=3) == [d, c, b]
    assert await found_ids(hub, "recent", limit=2) == [office, d]
    assert await found_ids(hub, "recent", thread_id="harbour", limit=1) == [d]
    assert (await found_ids(hub, "nearest", vector=tide, limit=2))[0] == a
    assert await found_ids(hub, "nearest", vector=tide, thread_id="office") == [office]
    assert await found_ids(hub, "words", text="When is TIDE and noon?", thread_id="harbour", limit=2) == [d, a]
    assert (await found_ids(hub, "hybrid", text="the tide table is wrong", vector=tide, limit=3))[0] == a
    assert await found_ids(hub, "phrase", text="Tide table") == [office, a]
    assert await found_ids(hub, "phrase", text="tide table", thread_id="harbour") == [a]
    assert await found_ids(hub, "duplicates", vector=tide) == [a]
    assert await found_ids(hub, "duplicates", vector=tide, category="land") == []


async def test_a_row_has_what_a_person_wants_to_see(hub: Hub) -> None:
    (a, *_) = await remember(hub)

    (row,) = (await hub.durable.run_sample("duplicates", NAMESPACE, vector=await vector_of(TURNS[0]))).rows

    assert (row["id"], row["thread_id"], row["memory"], row["content"]) == (a, "harbour", TURNS[0], TURNS[0])
    assert row["timestamp"].startswith("2026-01-01")
    assert row["similarity"] == pytest.approx(1, abs=0.01)


async def test_statistics_and_counts_are_one_row(hub: Hub) -> None:
    await remember(hub)

    (statistics,) = (await hub.durable.run_sample("thread-statistics", NAMESPACE, thread_id="harbour")).rows
    (everywhere,) = (await hub.durable.run_sample("count", NAMESPACE)).rows
    (nowhere,) = (await hub.durable.run_sample("thread-statistics", NAMESPACE, thread_id="desert")).rows

    assert (statistics["turn_count"], statistics["total_tokens"]) == (4, 46)
    assert statistics["first_turn_at"].startswith("2026-01-01")
    assert statistics["last_turn_at"].startswith("2026-01-04")
    assert everywhere == {"count": 5}
    assert nowhere == {"turn_count": 0, "first_turn_at": None, "last_turn_at": None, "total_tokens": 0}


async def test_what_has_expired_is_left_out(hub: Hub, tier: SqliteDurable) -> None:
    memory = hub.store(NAMESPACE).memory
    await memory.add("for a minute", ttl=60)
    await memory.add("for ever", ttl=-1)
    await hub.durable.drain(timeout=60)
    later = ManualClock(datetime.now(UTC).replace(year=2090))

    (row,) = (await MemorySamples(tier, later).run("recent", NAMESPACE, limit=5)).rows

    assert row["memory"] == "for ever"


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("newest", {}, "sample 'newest' is refused: give one of recent-turns"),
        ("recent-turns", {}, "thread_id None is refused: the sample recent-turns requires it"),
        ("nearest", {}, "vector None is refused"),
        ("nearest", {"vector": []}, "finite numbers"),
        ("nearest", {"vector": [1.0, float("nan")]}, "finite numbers"),
        ("nearest", {"vector": ["x"]}, "give numbers"),
        ("nearest", {"vector": [1.0], "text": "tide"}, "does not take it"),
        ("phrase", {"text": "  "}, "give a text of 1 to"),
        ("phrase", {"text": "?!"}, "letter or digit"),
        ("phrase", {"text": "x" * 3_000}, "give a text of 1 to"),
        ("recent", {"limit": 0}, "ask for 1 to 1,000"),
        ("recent", {"limit": True}, "ask for 1 to 1,000"),
        ("recent", {"limit": 1001}, "ask for 1 to 1,000"),
        ("count", {"category": "sea"}, "does not take it"),
    ],
)
async def test_a_sample_that_cannot_be_run_is_refused(hub: Hub, name: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidError, match=re.escape(message)):
        await hub.durable.run_sample(name, NAMESPACE, **given)


async def test_what_is_no_namespace_is_refused(hub: Hub) -> None:
    with pytest.raises(InvalidError, match="namespace 'a:b'"):
        await hub.durable.run_sample("count", "a:b")


async def test_a_document_that_cannot_be_read_is_left_out(hub: Hub, tier: SqliteDurable) -> None:
    await remember(hub)
    (head,) = await tier.query(NAMESPACE, of_type="memory", limit=1)
    await tier.put([head.model_copy(update={"key": f"{NAMESPACE}:$memory:odd", "body": '{"item": 5}'})])

    (row,) = (await hub.durable.run_sample("count", NAMESPACE)).rows

    assert row == {"count": 5}


# -- Cosmos DB --------------------------------------------------------------------------------------

GIVEN = {"thread_id": "harbour", "text": "high tide", "vector": [0.5, 0.25], "category": "sea"}


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_in_cosmos_db_each_sample_is_a_query_of_parameters(sample: Any) -> None:
    given = {name: GIVEN[name] for name in (*sample.requires, *sample.takes)}
    request = check_sample(sample.name, NAMESPACE, 1_800_000_000_000, {**given, "limit": 7})

    query = sample_query(request)

    assert query.text.startswith("SELECT ")
    assert set(re.findall(r"@(\w+)", query.text)) == set(query.values)
    assert query.values["tenant"] == NAMESPACE
    assert not any(str(value) in query.text for value in ("harbour", "high tide", "sea"))


def test_rows_of_cosmos_db_have_the_fields_of_every_store() -> None:
    request = SampleRequest("nearest", NAMESPACE, 0, 5)

    (row,) = sample_rows(request, [{"id": "m", "memory": "tide", "similarity": 0.5, "thread_id": "harbour"}])

    assert (row["id"], row["turn_index"], row["metadata"], row["similarity"]) == ("m", None, {}, 0.5)
    assert sample_rows(request._replace(name="count"), [3]) == [{"count": 3}]


async def test_what_the_emulator_knows_of_it_is_what_other_stores_answer(room: EmulatedDatabase, hub: Hub) -> None:
    settings = Settings(durable_url=room.emulator.url, cosmos_database=room.database)
    async with fake_hub(settings=settings, embedder=EMBEDDER) as other:
        for one in (hub, other):
            await remember(one)

        for name, given in (
            ("recent-turns", {"thread_id": "harbour", "limit": 3}),
            ("thread-statistics", {"thread_id": "harbour"}),
            ("count", {"thread_id": "harbour"}),
        ):
            here = await hub.durable.run_sample(name, NAMESPACE, **given)
            there = await other.durable.run_sample(name, NAMESPACE, **given)

            assert there.query.startswith("SELECT ")
            assert [{**row, "id": ""} for row in there.rows] == [{**row, "id": ""} for row in here.rows]


async def test_without_a_container_of_memories_they_are_read(room: EmulatedDatabase) -> None:
    async with room.opened() as store:
        assert await store.sample_memories(SampleRequest("count", NAMESPACE, 0, 5)) is None
    async with room.opened(memories=memories_layout(4)) as store:
        answer = await store.sample_memories(SampleRequest("count", NAMESPACE, 0, 5))
        assert isinstance(answer, NativeAnswer)
        assert answer.rows == [{"count": 0}]
