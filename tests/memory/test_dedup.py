"""What says the same becomes one memory, and nothing else does."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.contexts import knowledge_of
from support.example_budget import example_count

from sharedmem import Hub, Settings
from sharedmem.clock import new_id
from sharedmem.memory.dedup import merge_items
from sharedmem.memory.memories import Memories
from sharedmem.models import AddResult, MemoryItem, MemoryMessage
from sharedmem.providers.protocol import TABLE, cache_similarity, dedup_similarity, low_dedup_thresholds
from sharedmem.testing import fake_hub

HARBOUR = "The quiet old harbour of Bergen opens its gates early in the morning"
AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(params=["exact", "redisearch"])
async def hub(request: pytest.FixtureRequest, settings: Settings) -> AsyncIterator[Hub]:
    chosen = settings.replace(embedder="hashing")
    if request.param == "exact":
        async with fake_hub(settings=chosen) as hub:
            yield hub
        return
    async with Hub.open(request.getfixturevalue("redis_url"), settings=chosen) as hub:
        yield hub


async def item_of(memory: Memories, id_: str) -> MemoryItem:
    item = await memory.get(id_)
    assert item is not None
    return item


async def test_the_same_text_is_merged_whatever_its_case_and_blanks(memory: Memories) -> None:
    first = await memory.add("Ada likes tea", tags=("a",), metadata={"n": 1, "m": 1})

    again = await memory.add("  ada LIKES\n tea ", tags=("b",), metadata={"n": 2}, importance="high")

    item = await item_of(memory, first.id)
    assert again == AddResult(id=first.id, merged=True, similarity=1.0, version=item.version)
    assert (item.memory, item.content, item.occurrences) == ("Ada likes tea", "Ada likes tea", 2)
    assert (item.tags, item.metadata, item.importance) == (("a", "b"), {"n": 2, "m": 1}, "high")
    assert item.updated_at is not None


async def test_what_is_near_in_meaning_is_merged_and_its_words_are_kept(memory: Memories) -> None:
    first = await memory.add(HARBOUR)

    again = await memory.add(f"{HARBOUR} hours")

    item = await item_of(memory, first.id)
    assert again.id == first.id
    assert again.similarity is not None
    assert 0.95 <= again.similarity < 1
    assert item.memory == HARBOUR
    assert item.content == f"{HARBOUR}\n{HARBOUR} hours"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (f"{HARBOUR} at 6", f"{HARBOUR} at 7"),
        (HARBOUR, HARBOUR.replace("opens", "never opens")),
        (HARBOUR, HARBOUR.replace("Bergen", "Tromso")),
    ],
)
async def test_guards_keep_apart_what_is_near_but_not_the_same(memory: Memories, one: str, other: str) -> None:
    first, second = await memory.add(one), await memory.add(other)

    assert first.id != second.id


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"category": "a"}, {"category": "b"}),
        ({"category": "a"}, {}),
        ({}, {"category": "a"}),
        ({"user_id": "ada"}, {"user_id": "bob"}),
        ({}, {"user_id": "bob"}),
    ],
)
async def test_nothing_is_merged_across_categories_and_users(
    memory: Memories, one: dict[str, Any], other: dict[str, Any]
) -> None:
    ids = {(await memory.add(text, **fields)).id for fields in (one, other) for text in (HARBOUR, f"{HARBOUR}!")}

    assert len(ids) == 2


async def test_a_duplicate_is_found_behind_many_nearer_ones_of_others(memory: Memories) -> None:
    mine = await memory.add(HARBOUR, user_id="ada")
    for number in range(12):
        await memory.add(f"{HARBOUR} hours", user_id=f"user-{number}")

    again = await memory.add(f"{HARBOUR} hours", user_id="ada")

    assert (again.id, again.merged) == (mine.id, True)


async def test_very_many_at_once_are_compared_with_what_is_there_and_with_each_other(memory: Memories) -> None:
    lighthouse = HARBOUR.replace("harbour of Bergen", "lighthouse of Hammerfest")
    there, of_bob = await memory.add(HARBOUR, user_id="ada"), await memory.add(HARBOUR, user_id="bob")
    items = [MemoryItem(memory=f"{new_id(8)} {new_id(8)} {new_id(8)}", user_id="ada") for _ in range(600)]
    items[100] = MemoryItem(memory=f"{HARBOUR} hours", user_id="ada")
    items[200] = MemoryItem(memory=lighthouse, user_id="ada")
    items[400] = MemoryItem(memory=HARBOUR.replace("Bergen", "Tromso"), user_id="ada")
    items[599] = MemoryItem(memory=f"{lighthouse} hours", user_id="ada")

    results = await memory.add_many(items)

    assert (results[100].id, results[599].id) == (there.id, results[200].id)
    assert [place for place, result in enumerate(results) if result.merged] == [100, 599]
    assert of_bob.id not in {result.id for result in results}


async def test_a_merge_in_a_large_addition_counts_for_what_comes_after_it(memory: Memories) -> None:
    of_log = {"source": "log"}
    items = [MemoryItem(memory=f"{new_id(8)} {new_id(8)} {new_id(8)}", metadata=of_log) for _ in range(600)]
    items[0] = MemoryItem(memory=HARBOUR, metadata=of_log)
    items[200] = MemoryItem(memory=f"{HARBOUR} hours", metadata={"source": "log", "shift": "early"})
    items[400] = MemoryItem(memory=f"{HARBOUR} ports", metadata=of_log)
    items[599] = MemoryItem(memory=f"{HARBOUR} docks", metadata={"source": "chart"})

    results = await memory.add_many(items, dedup_keys=("source",))

    merged = await item_of(memory, results[0].id)
    assert [place for place, result in enumerate(results) if result.merged] == [200, 400]
    assert {results[200].id, results[400].id} == {results[0].id}
    assert (merged.occurrences, merged.metadata) == (3, {"source": "log", "shift": "early"})


@pytest.mark.parametrize("dimension", [64, 256])
async def test_very_many_are_merged_into_exactly_those_that_are_near_enough(settings: Settings, dimension: int) -> None:
    chance = np.random.default_rng(dimension)
    common, own, others = (normalized(chance.normal(size=(count, dimension))) for count in (1, 1_200, 600))
    there = normalized(common + own)
    # Near enough are the first half of the added ones: the threshold of this embedder is 0.95.
    cosines = np.where(np.arange(600) < 300, 0.96, 0.94)[:, None]
    across = normalized(others - np.vecdot(others, there[:600])[:, None] * there[:600])
    added = cosines * there[:600] + np.sqrt(1 - cosines**2) * across
    chosen = settings.replace(embedder="hashing", embedding_dimension=dimension)
    async with fake_hub(settings=chosen) as hub:
        memory = hub.store("shore").memory
        held = await memory.add_many(map(shore, range(1_200), there.tolist()), dedup=False)

        results = await memory.add_many(map(shore, range(5_000, 5_600), added.tolist()))

    assert [result.id for result in results[:300]] == [one.id for one in held[:300]]
    assert [result.merged for result in results] == [True] * 300 + [False] * 300


async def test_of_very_many_near_ones_each_is_merged_into_its_own(settings: Settings) -> None:
    chance = np.random.default_rng(7)
    common = normalized(chance.normal(size=(1, 64)))
    there = normalized(common + 0.015 * chance.normal(size=(700, 64)))
    assert (there @ there.T).min() > 0.96  # the threshold of this embedder is 0.95: each is near to all others
    again = normalized(there[:600] + 0.0005 * chance.normal(size=(600, 64)))
    chosen = settings.replace(embedder="hashing", embedding_dimension=64)
    async with fake_hub(settings=chosen) as hub:
        memory = hub.store("orders").memory
        held = await memory.add_many(map(order, range(700), there.tolist()))

        results = await memory.add_many([order(n, vector, "at last") for n, vector in enumerate(again.tolist())])

    assert len({result.id for result in held}) == 700  # numbers that differ keep them apart
    assert [result.id for result in results] == [one.id for one in held[:600]]


def order(number: int, embedding: list[float], more: str = "") -> MemoryItem:
    return MemoryItem(memory=f"Order {number} was shipped {more}", embedding=tuple(embedding))


def normalized(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    unit: NDArray[np.float64] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


def shore(number: int, embedding: list[float]) -> MemoryItem:
    letters = str(number).translate(str.maketrans("0123456789", "abcdefghij"))
    return MemoryItem(memory=f"{HARBOUR} w{letters}", embedding=embedding)


async def test_nothing_is_merged_across_namespaces(hub: Hub, memory: Memories) -> None:
    other = hub.store(f"other-{new_id(8)}")

    first, second = await memory.add(HARBOUR), await other.memory.add(HARBOUR)

    assert (first.merged, second.merged) == (False, False)
    assert await other.memory.delete_all({}) == 1
    await other.clear()


async def test_agents_and_threads_share_what_they_know(hub: Hub, namespace: str) -> None:
    first = await hub.store(namespace, actor="ann").memory.add(HARBOUR, thread_id="one")
    second = await hub.store(namespace, actor="ben").memory.add(HARBOUR, thread_id="two")

    assert second.id == first.id


async def test_a_narrowed_view_merges_only_into_what_it_sees(memory: Memories) -> None:
    open_ = await memory.add(HARBOUR, thread_id="elsewhere")
    mine = memory.within(thread_id="here")

    first, second = await mine.add(HARBOUR), await mine.add(f"{HARBOUR}.")

    assert first.id != open_.id
    assert second.id == first.id


async def test_metadata_may_have_to_agree(memory: Memories) -> None:
    async def add(text: str, **metadata: Any) -> str:
        return (await memory.add(text, metadata=metadata, dedup_keys=("project",))).id

    one, two = await add(HARBOUR, project="a"), await add(HARBOUR, project="b")
    near, same = await add(f"{HARBOUR}!", project="a", more=1), await add(HARBOUR, project="b")

    assert one != two
    assert (near, same) == (one, two)


async def test_without_dedup_everything_stays_apart(memory: Memories) -> None:
    results = [await memory.add(HARBOUR, dedup=False) for _ in range(3)]
    results += await memory.add_many([HARBOUR] * 3, dedup=False)

    assert len({result.id for result in results}) == 6
    assert not any(result.merged for result in results)


async def test_turns_of_a_conversation_stay_turns(memory: Memories) -> None:
    def said(who: str, **fields: Any) -> MemoryItem:
        return MemoryItem(messages=(MemoryMessage(role="user", name=who, content="Thank you!"),), **fields)

    ann, ben = await memory.add(said("Ann", timestamp=AT)), await memory.add(said("Ben", timestamp=AT))
    later = await memory.add(said("Ann", timestamp=AT.replace(hour=5)))
    elsewhere = await memory.add(said("Ann", timestamp=AT, thread_id="other"))
    repeated = await memory.add(said("Ann", timestamp=AT))
    fact = await memory.add("Thank you!")

    assert len({ann.id, ben.id, later.id, elsewhere.id, fact.id}) == 5
    assert (repeated.id, repeated.merged) == (ann.id, True)


async def test_duplicates_inside_one_call_are_merged_too(memory: Memories) -> None:
    texts = [HARBOUR, "Ada likes tea", HARBOUR, f"{HARBOUR}!", "Ada likes tea"]

    results = await memory.add_many(texts)

    assert results[0].id == results[2].id == results[3].id
    assert results[1].id == results[4].id != results[0].id
    assert [result.merged for result in results] == [False, False, True, True, True]
    assert (await item_of(memory, results[0].id)).occurrences == 3


async def test_many_that_are_near_to_each_other_end_as_one(memory: Memories) -> None:
    marks = [f"{'.' * (n % 7)}{'!' * (n // 7)}" for n in range(100)]

    results = await memory.add_many([f"{HARBOUR}{mark}" for mark in marks])

    assert len({result.id for result in results}) == 1
    assert (await item_of(memory, results[0].id)).occurrences == 100


async def test_a_merge_with_what_lives_for_ever_lives_for_ever(hub: Hub, memory: Memories, namespace: str) -> None:
    first = await memory.add(HARBOUR, memory_type="short-term")

    await memory.add(HARBOUR)

    item, context = await item_of(memory, first.id), knowledge_of(hub)
    assert (item.memory_type, item.ttl) == ("long-term", -1)
    assert await context.client.call("TTL", context.keyspace.record("memory", namespace, first.id)) == -1


async def test_what_has_expired_is_added_anew(hub: Hub, memory: Memories, namespace: str) -> None:
    first = await memory.add(HARBOUR, ttl=60)
    context = knowledge_of(hub)
    # As an expiry does it: without a word to anybody.
    await context.client.call("DEL", context.keyspace.record("memory", namespace, first.id))

    again = await memory.add(HARBOUR)
    third = await memory.add(HARBOUR)

    assert again.id != first.id
    assert not again.merged
    assert third.id == again.id


# -- properties -------------------------------------------------------------------------------------------

TEXTS = st.sampled_from(
    [HARBOUR, f"{HARBOUR}!", HARBOUR.upper(), f"{HARBOUR} hours", "Ada likes tea", "ada likes TEA."]
)
PLACES = st.tuples(
    st.sampled_from(["one", "two"]), st.sampled_from([None, "a", "b"]), st.sampled_from([None, "u", "v"])
)


@settings(
    max_examples=example_count(12, thorough=30),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(adds=st.lists(st.tuples(PLACES, TEXTS), min_size=1, max_size=25), together=st.booleans())
async def test_dedup_never_merges_across_namespaces_categories_and_users(
    adds: list[tuple[tuple[str, str | None, str | None], str]], together: bool
) -> None:
    async with fake_hub(settings=Settings(embedder="hashing")) as hub:
        places: dict[str, set[tuple[str, str | None, str | None]]] = {}
        for namespace in ("one", "two"):
            memory = hub.store(namespace).memory
            chosen = [(place, text) for place, text in adds if place[0] == namespace]
            items = [MemoryItem(memory=text, category=place[1], user_id=place[2]) for place, text in chosen]
            results = await memory.add_many(items) if together else [await memory.add(item) for item in items]
            for (place, _), result in zip(chosen, results, strict=True):
                places.setdefault(result.id, set()).add(place)
            assert sum([item.occurrences async for item in memory.export()]) == len(chosen)
        assert all(len(found) == 1 for found in places.values())


ITEMS = st.builds(
    MemoryItem,
    memory=st.sampled_from(["a fact", "another fact", "A Fact!"]),
    content=st.sampled_from(["a fact", "a fact and more", "something else"]),
    tags=st.lists(st.sampled_from(["x", "y", "z"]), unique=True).map(tuple),
    metadata=st.dictionaries(st.sampled_from(["k", "l"]), st.integers(0, 3)),
    importance=st.sampled_from(["low", "medium", "high", "critical"]),
    occurrences=st.integers(1, 5),
    ttl=st.sampled_from([-1, 60, 3600]),
)


@given(old=ITEMS, new=ITEMS)
def test_a_merge_loses_nothing(old: MemoryItem, new: MemoryItem) -> None:
    one = merge_items(old, new, AT)

    assert one.memory == old.memory
    assert old.content in one.content
    assert new.memory.lower().strip("!") in one.content.lower() or new.memory.lower().strip("!") in one.memory.lower()
    assert one.occurrences == old.occurrences + new.occurrences
    assert set(one.tags) == {*old.tags, *new.tags}
    assert one.metadata.keys() == old.metadata.keys() | new.metadata.keys()
    assert one.metadata | new.metadata == one.metadata
    assert one.ttl == (-1 if -1 in {old.ttl, new.ttl} else max(old.ttl or 0, new.ttl or 0))


@pytest.mark.parametrize(("threshold", "warnings"), [(0.8, 1), (0.95, 0)])
async def test_a_threshold_below_the_recommended_one_is_warned_of_once(
    caplog: pytest.LogCaptureFixture, threshold: float, warnings: int
) -> None:
    with caplog.at_level(logging.WARNING, logger="sharedmem"):
        async with fake_hub(settings=Settings(dedup_similarity=threshold)) as hub:
            await hub.store("research").memory.add("the crane is broken")
            await hub.store("harbour").memory.add("the crane is broken")

    found = [record for record in caplog.records if "dedup_similarity" in record.message]
    assert len(found) == warnings
    assert all(vars(record)["recommended"] == 0.95 for record in found)


@pytest.mark.parametrize(
    ("embedder", "least"), [("wordllama:l2_supercat-256", 0.936), ("wordllama:l2_supercat-64", 0.949), ("other", 0.95)]
)
def test_the_recommended_threshold_is_that_of_the_embedder(embedder: str, least: float) -> None:
    below = Settings(dedup_similarity=least - 0.001)

    assert low_dedup_thresholds(Settings(dedup_similarity=least), embedder) == []
    assert [one.recommended for one in low_dedup_thresholds(below, embedder)] == [least]


def test_without_a_setting_the_threshold_is_that_of_the_embedder() -> None:
    """docs/memory.md: one table has the thresholds of all embedders; a setting overrules it."""
    chosen = Settings(dedup_similarity=0.9, cache_similarity=0.97)

    for embedder, row in TABLE.items():
        assert row.recall <= row.noise <= row.link < row.dedup < row.cache or not row.measured
        assert (dedup_similarity(Settings(), embedder), cache_similarity(Settings(), embedder)) == (
            row.dedup,
            row.cache,
        )
        assert (dedup_similarity(chosen, embedder), cache_similarity(chosen, embedder)) == (0.9, 0.97)
    assert dedup_similarity(Settings(), "unknown") == 0.95


def test_the_threshold_of_a_namespace_is_warned_of_too() -> None:
    chosen = Settings(namespace_settings={"lab-*": {"dedup_similarity": 0.8}, "desk": {"dedup_similarity": 0.97}})

    (low,) = low_dedup_thresholds(chosen, "other")

    assert low.warning.startswith("dedup_similarity of the namespaces lab-* is 0.8, below 0.95")
