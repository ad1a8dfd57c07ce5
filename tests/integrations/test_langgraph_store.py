"""The long-term store and the cache of LangGraph: as LangGraph's own store in memory, on any server."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypedDict

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from langgraph.graph import START, StateGraph
from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore
from langgraph.types import CachePolicy
from redis import Redis
from support import embedded_fixtures
from support.redis_loss import lose_redis

from sharedmem import ConfigError, CorruptionError, Hub, InvalidError, Settings, SharedMemoryStore, WrongTypeError
from sharedmem import sync as blocking
from sharedmem.clock import new_id
from sharedmem.integrations.langgraph import SharedMemCache, SharedMemStore
from sharedmem.testing import fake_hub

data_dir = embedded_fixtures.data_dir


@pytest.fixture
async def items(store: SharedMemoryStore) -> SharedMemStore:
    return SharedMemStore(store)


def letters(texts: Sequence[str]) -> list[list[float]]:
    """An embedder: how often each letter is in a text."""
    return [[float(text.lower().count(letter)) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts]


async def keys_of(found: Any) -> list[str]:
    return [item.key for item in await found]


# -- as LangGraph's own store ---------------------------------------------------------------------

PARTS = st.sampled_from(["users", "u1", "u:2", "a/b", "ä*", "docs"])
NAMESPACES = st.lists(PARTS, min_size=1, max_size=3).map(tuple)
KEYS = st.sampled_from(["k", "k 2", "ü:{}", "*", "x/y"])
VALUES = st.fixed_dictionaries(
    {"text": st.sampled_from(["alpha", "beta", "beta gamma"]), "n": st.integers(-3, 3)},
    optional={"deep": st.fixed_dictionaries({"list": st.lists(st.integers(0, 2), max_size=2)})},
)
FILTERS = st.sampled_from(
    [
        None,
        {"n": 1},
        {"n": {"$gte": 0}},
        {"n": {"$gt": -1, "$lt": 2}},
        {"text": {"$ne": "beta"}},
        {"text": {"$eq": "alpha"}, "n": {"$lte": 0}},
        {"deep": {"list": [1]}},
    ]
)
MATCHES = st.builds(
    MatchCondition,
    match_type=st.sampled_from(["prefix", "suffix"]),
    path=st.lists(PARTS | st.just("*"), min_size=1, max_size=2).map(tuple),
)
LISTINGS = st.builds(
    lambda conditions, depth, limit, offset: [ListNamespacesOp(tuple(conditions), depth, limit, offset)],
    st.lists(MATCHES, max_size=2),
    st.integers(1, 3) | st.none(),
    st.integers(1, 4),
    st.integers(0, 2),
)
PUTS = st.tuples(NAMESPACES, KEYS, VALUES | st.none()).map(lambda parts: PutOp(*parts))
GETS = st.tuples(NAMESPACES, KEYS).map(lambda parts: GetOp(*parts))
SEARCHES = st.builds(
    lambda prefix, conditions: SearchOp(tuple(prefix), conditions, 50), st.lists(PARTS, max_size=2), FILTERS
)
BATCHES = LISTINGS | st.lists(PUTS | PUTS | GETS | SEARCHES, max_size=6)


def plain(result: Any) -> Any:
    """A result without times, and without the order, which is not promised."""
    if isinstance(result, list):
        return sorted((plain(each) for each in result), key=repr)
    return (result.namespace, result.key, result.value) if hasattr(result, "key") else result


@hypothesis_settings(deadline=None)  # on a busy machine the first hub takes long
@given(batches=st.lists(BATCHES, max_size=6))
def test_it_answers_as_the_store_in_memory_does(batches: list[list[Any]]) -> None:
    async def compare() -> None:
        model = InMemoryStore()
        async with fake_hub() as hub:
            ours = SharedMemStore(hub.store("team"))
            for ops in batches:
                expected, found = await model.abatch(ops), await ours.abatch(ops)
                for namespace in [name for name, held in model._data.items() if not held]:
                    del model._data[namespace]  # the model goes on listing namespaces that are empty by now
                for op, wanted, got in zip(ops, expected, found, strict=True):
                    assert plain(got) == plain(wanted), op

    asyncio.run(compare())


# -- items ----------------------------------------------------------------------------------------


async def test_an_item_has_the_times_of_its_first_and_its_last_change(items: SharedMemStore) -> None:
    await items.aput(("users", "ada"), "likes", {"colour": "blue"})
    first = await items.aget(("users", "ada"), "likes")
    await items.aput(("users", "ada"), "likes", {"colour": "red"})
    second = await items.aget(("users", "ada"), "likes")

    assert first is not None
    assert second is not None
    assert (second.namespace, second.key, second.value) == (("users", "ada"), "likes", {"colour": "red"})
    assert first.created_at == first.updated_at == second.created_at < second.updated_at
    await items.adelete(("users", "ada"), "likes")
    await items.adelete(("users", "ada"), "likes")
    assert await items.aget(("users", "ada"), "likes") is None
    assert await items.alist_namespaces() == []


async def test_a_batch_answers_in_order_and_writes_the_last_change_of_each_item(items: SharedMemStore) -> None:
    await items.aput(("a",), "old", {"n": 0})

    results = await items.abatch(
        [
            PutOp(("a",), "new", {"n": 1}),
            GetOp(("a",), "old"),
            PutOp(("b",), "other", {"n": 2}),
            GetOp(("a",), "new"),
            PutOp(("a",), "new", {"n": 3}),
            SearchOp(("a",)),
            ListNamespacesOp(None, None, 10, 0),
            PutOp(("a",), "old", None),
        ]
    )

    assert [plain(each) for each in results] == [
        None,
        (("a",), "old", {"n": 0}),
        None,
        None,
        None,
        [(("a",), "old", {"n": 0})],
        [("a",)],
        None,
    ]
    assert plain(await items.asearch(())) == [(("a",), "new", {"n": 3}), (("b",), "other", {"n": 2})]


async def test_thousands_of_items_and_namespaces_are_paged(items: SharedMemStore) -> None:
    await items.abatch([PutOp(("many",), f"k{n}", {"n": n}) for n in range(1200)])
    await items.abatch([PutOp(("users", f"u{n}", "notes"), "k", {"n": n}) for n in range(300)])

    pages = [await keys_of(items.asearch(("many",), limit=500, offset=at)) for at in range(0, 1500, 500)]
    filtered = await keys_of(items.asearch(("many",), filter={"n": {"$gte": 1195}}, limit=50))
    listed = [await items.alist_namespaces(prefix=("users",), limit=200, offset=at) for at in (0, 200)]
    shallow = await items.alist_namespaces(max_depth=1)

    assert [len(page) for page in pages] == [500, 500, 200]
    assert {key for page in pages for key in page} == {f"k{n}" for n in range(1200)}
    assert sorted(filtered) == [f"k{n}" for n in range(1195, 1200)]
    assert [len(page) for page in listed] == [200, 100]
    assert shallow == [("many",), ("users",)]


async def test_prefixes_and_suffixes_match_whole_parts_only(items: SharedMemStore) -> None:
    for namespace in (("user",), ("users",), ("users", "u1"), ("users", "u10"), ("users", "u1", "docs"), ("docs",)):
        await items.aput(namespace, "k", {"in": "/".join(namespace)})

    assert await items.alist_namespaces(prefix=("users",)) == [
        ("users",),
        ("users", "u1"),
        ("users", "u1", "docs"),
        ("users", "u10"),
    ]
    assert await items.alist_namespaces(prefix=("users", "u1")) == [("users", "u1"), ("users", "u1", "docs")]
    assert await items.alist_namespaces(suffix=("docs",)) == [("docs",), ("users", "u1", "docs")]
    assert await items.alist_namespaces(prefix=("users", "*", "docs")) == [("users", "u1", "docs")]
    assert sorted(item.value["in"] for item in await items.asearch(("users", "u1"))) == ["users/u1", "users/u1/docs"]


async def test_a_namespace_may_be_a_list(items: SharedMemStore) -> None:
    parts: Any = ["users", "ada"]
    await items.aput(parts, "k", {"n": 1})
    found = await items.asearch(parts[:1]), await items.alist_namespaces(prefix=parts)
    assert plain(await items.aget(parts, "k")) == (("users", "ada"), "k", {"n": 1})
    assert [plain(each) for each in found] == [[(("users", "ada"), "k", {"n": 1})], [("users", "ada")]]


async def test_the_index_can_be_read_from_the_store(store: SharedMemoryStore) -> None:
    index = {"dims": 26, "embed": letters, "fields": ["text"]}
    items = SharedMemStore(store, index=index)
    assert items.index_config == index
    assert items.embeddings is not None
    assert items.embeddings.embed_query("ab")[:3] == [1.0, 1.0, 0.0]
    assert SharedMemStore(store).index_config is None


@pytest.mark.parametrize("size", [10, 3_000_000])
async def test_values_of_any_size_come_back_and_can_be_searched(items: SharedMemStore, size: int) -> None:
    value = {"text": "ä\n{}" * (size // 4), "deep": {"list": [1, [2, None]], "yes": True}}
    await items.aput(("big",), "k", {"old": "x" * size})
    await items.aput(("big",), "k", value)

    found = await items.aget(("big",), "k")

    assert found is not None
    assert found.value == value
    assert [item.value for item in await items.asearch(("big",), filter={"deep": {"yes": True}})] == [value]
    await items.adelete(("big",), "k")
    assert await items.asearch(("big",)) == []


# -- lifetimes ------------------------------------------------------------------------------------


async def test_an_item_that_is_over_is_not_seen_and_swept(store: SharedMemoryStore) -> None:
    items = SharedMemStore(store, ttl={"default_ttl": 60, "refresh_on_read": False})
    await items.aput(("a",), "usual", {"n": 1})
    await items.aput(("a",), "for ever", {"n": 2}, ttl=None)
    await items.aput(("b",), "short", {"n": 3}, ttl=0.001 / 60)

    async def is_over() -> bool:
        return await items.aget(("b",), "short") is None

    async with asyncio.timeout(60):
        while not await is_over():  # noqa: ASYNC110  # the server's clock cannot be turned
            await asyncio.sleep(0.001)

    assert await items.asearch(("b",)) == []
    assert sorted(await keys_of(items.asearch(()))) == ["for ever", "usual"]
    assert await items.asweep_ttl() == 1
    assert await items.asweep_ttl() == 0
    assert await items.alist_namespaces() == [("a",)]


async def test_reading_begins_a_lifetime_anew_if_asked(store: SharedMemoryStore) -> None:
    items = SharedMemStore(store, ttl={"default_ttl": 60})
    await items.aput(("a",), "k", {"n": 1})
    hash_key = f"{store.namespace}:shared:langgraph:items:a"

    async def ends() -> int:
        return int(str((await store.hgetall(hash_key))["k"]).split()[2])

    first = await ends()
    await items.aget(("a",), "k", refresh_ttl=False)
    await items.asearch(("a",), refresh_ttl=False)
    unchanged = await ends()
    await asyncio.sleep(0.002)
    await items.aget(("a",), "k")
    read = await ends()
    await asyncio.sleep(0.002)
    await items.asearch(("a",))

    assert first == unchanged < read < await ends()
    found = await items.aget(("a",), "k")
    assert found is not None
    assert found.updated_at - found.created_at == timedelta(0)


# -- by meaning -----------------------------------------------------------------------------------


async def test_the_nearest_items_come_first_with_their_scores(store: SharedMemoryStore) -> None:
    items = SharedMemStore(store, index={"dims": 26, "embed": letters, "fields": ["text", "tags[*]"]})
    await items.aput(("docs",), "cab", {"text": "abc abc", "year": 1})
    await items.aput(("docs",), "fed", {"text": "zzz", "tags": ["xyz", "def"], "year": 2})
    await items.aput(("docs",), "hidden", {"text": "abc", "year": 1}, index=False)
    await items.aput(("docs",), "other", {"text": "nothing", "title": "abc"}, index=["title"])

    by_text = await items.asearch(("docs",), query="cab")
    by_tag = await items.asearch(("docs",), query="fed", limit=1)
    filtered = await items.asearch(("docs",), query="cab", filter={"year": 2})
    plain_order = await items.asearch(("docs",))

    assert [item.key for item in by_text][:2] in (["cab", "other"], ["other", "cab"])
    assert [item.key for item in by_text][-1] == "hidden"
    assert by_text[0].score == pytest.approx(1)
    assert by_text[-1].score is None
    assert [item.key for item in by_tag] == ["fed"]
    assert by_tag[0].score == pytest.approx(1)
    assert [item.key for item in filtered] == ["fed"]
    assert {item.score for item in plain_order} == {None}


async def test_an_update_is_found_by_its_new_text_alone(store: SharedMemoryStore) -> None:
    items = SharedMemStore(store, index={"dims": 26, "embed": letters})
    await items.aput(("docs",), "k", {"text": "aaaa"})
    await items.aput(("docs",), "k", {"text": "zzzz"})

    (found,) = await items.asearch(("docs",), query="zzzz text")

    assert found.score is not None
    assert found.score > 0.9


async def test_without_an_embed_function_the_embedder_of_the_hub_is_used(store: SharedMemoryStore) -> None:
    items = SharedMemStore(store, index={"fields": ["text"]})
    await items.aput(("docs",), "boats", {"text": "sailing boats in the harbour"})
    await items.aput(("docs",), "bread", {"text": "bread and butter"})

    found = await items.asearch(("docs",), query="boats in the harbour", limit=1)

    assert [item.key for item in found] == ["boats"]


async def test_without_an_embedder_an_index_is_refused() -> None:
    async with fake_hub(settings=Settings(embedder="none")) as hub:
        with pytest.raises(ConfigError, match="embedder"):
            SharedMemStore(hub.store("team"), index={"fields": ["text"]})


# -- other actors, other threads, other times -----------------------------------------------------


async def test_another_scope_or_namespace_sees_nothing(settings: Settings, redis_url: str) -> None:
    async with Hub.open(redis_url, settings=settings) as hub:
        names = [f"test-{new_id(8)}" for _ in range(2)]
        stores = [hub.store(names[0], actor="ada"), hub.store(names[0], actor="bob"), hub.store(names[1], actor="ada")]
        all_items = [SharedMemStore(store) for store in stores]
        await all_items[0].aput(("users",), "k", {"n": 1})

        seen = [len(await each.asearch(())) for each in all_items]
        listed = [await each.alist_namespaces() for each in all_items]
        for store in stores:
            await store.clear()

    assert (seen, listed) == ([1, 0, 0], [[("users",)], [], []])


async def test_writers_of_one_namespace_lose_nothing(items: SharedMemStore) -> None:
    async def write(name: str) -> None:
        for n in range(20):
            await items.aput(("a",), f"{name}{n}", {"n": n})
            await items.adelete(("a",), f"{name}{n - 10}")

    await asyncio.gather(*(write(name) for name in "abcde"))

    assert len(await items.asearch(("a",), limit=1000)) == 50


async def test_items_that_redis_lost_come_back_from_the_durable_tier(data_dir: Path) -> None:
    settings = Settings(data_dir=data_dir, kind_rules={"team:*:langgraph:*": "knowledge"}, embedder="hashing")
    async with Hub.open(settings=settings) as hub:
        items = SharedMemStore(hub.store("team"))
        await items.aput(("users", "ada"), "k", {"n": 1})
        await items.aput(("users", "bob"), "k", {"n": 2})
        await items.adelete(("users", "bob"), "k")

        await lose_redis(hub)

        assert plain(await items.aget(("users", "ada"), "k")) == (("users", "ada"), "k", {"n": 1})
        await lose_redis(hub)
        assert await items.alist_namespaces() == [("users", "ada")]
        assert plain(await items.asearch(("users",))) == [(("users", "ada"), "k", {"n": 1})]


def test_a_store_without_await_is_used_without_await(redis_url: str, settings: Settings) -> None:
    with blocking.Hub.open(redis_url, settings=settings) as hub:
        store = hub.store(f"test-{new_id(8)}")
        items = SharedMemStore(store)
        items.put(("a",), "k", {"n": 1})
        cache: SharedMemCache[int] = SharedMemCache(store)
        cache.set({(("c",), "k"): (1, None)})

        found = items.search(("a",)), items.list_namespaces(), items.get(("a",), "none"), items.sweep_ttl()
        cached = cache.get([(("c",), "k"), (("c",), "none")])
        cache.clear()

        assert [plain(each) for each in found] == [[(("a",), "k", {"n": 1})], [("a",)], None, 0]
        assert cached == {(("c",), "k"): 1}
        assert cache.get([(("c",), "k")]) == {}
        store.clear()


class Question(TypedDict, total=False):
    text: str
    answer: str


async def test_nodes_of_a_graph_use_both(store: SharedMemoryStore) -> None:
    asked: list[str] = []

    async def answer(state: Question, *, store: BaseStore) -> Question:
        asked.append(state["text"])
        await store.aput(("answers",), hashlib.sha256(state["text"].encode()).hexdigest(), {"text": state["text"]})
        return {"answer": state["text"].upper()}

    builder: Any = StateGraph(Question)
    builder.add_node("answer", answer, cache_policy=CachePolicy(ttl=60)).add_edge(START, "answer")
    items = SharedMemStore(store)
    graphs = [builder.compile(store=items, cache=SharedMemCache(store)) for _ in range(2)]

    answers = [(await graph.ainvoke({"text": "tides?"}))["answer"] for graph in graphs]

    assert (answers, asked) == (["TIDES?", "TIDES?"], ["tides?"])
    assert [item.value for item in await items.asearch(("answers",))] == [{"text": "tides?"}]


async def test_a_cache_keeps_values_of_any_kind_by_namespace(store: SharedMemoryStore) -> None:
    cache: SharedMemCache[Any] = SharedMemCache(store)
    pairs: Any = {
        (("a", "b.c"), "k"): ({"set": {1, 2}, "at": timedelta(1)}, None),
        (("a",), "b.c/k"): (b"\x00bytes", 60),
        ((), "k"): (None, None),
    }
    await cache.aset(pairs)

    assert await cache.aget(list(pairs)) == {key: value for key, (value, _) in pairs.items()}
    await cache.aclear([("a",)])
    assert set(await cache.aget(list(pairs))) == {(("a", "b.c"), "k"), ((), "k")}
    await cache.aclear()
    assert await cache.aget(list(pairs)) == {}


# -- bad input ------------------------------------------------------------------------------------


async def test_what_cannot_be_stored_is_refused_before_anything_is_written(
    items: SharedMemStore, store: SharedMemoryStore
) -> None:
    cases: list[tuple[list[Any], type[Exception], str]] = [
        ([PutOp(("a.b",), "k", {})], InvalidNamespaceError, "periods"),
        ([PutOp(("a",), "", {})], InvalidError, "key"),
        ([PutOp(("a",), "k\r", {})], InvalidError, "carriage"),
        ([PutOp(("a",), "k", {"x": object()})], InvalidError, "value"),
        ([PutOp(("a",), "k", [1])], InvalidError, "dict"),  # type: ignore[arg-type]
        ([PutOp(("a",), "k", {}, None, -1)], InvalidError, "ttl"),
        ([PutOp(("x" * 600,), "k", {})], InvalidError, "512 bytes"),
        ([SearchOp(("a",), {"n": {"$like": 1}})], InvalidError, "choose"),
        ([SearchOp(("a",), None, -1)], InvalidError, "limit"),
        ([ListNamespacesOp((MatchCondition("middle", ("a",)),))], InvalidError, "prefix or suffix"),  # type: ignore[arg-type]
    ]
    for ops, error, sentence in cases:
        with pytest.raises(error, match=sentence):
            await items.abatch([PutOp(("fine",), "k", {"n": 1}), *ops])

    assert [key async for key in store.keys("*")] == []


async def test_what_another_client_has_damaged_is_named(settings: Settings, redis_url: str) -> None:
    async with Hub.open(redis_url, settings=settings) as hub:
        store = hub.store(f"test-{new_id(8)}")
        items = SharedMemStore(store)
        await items.aput(("a",), "k", {"n": 1})
        with Redis.from_url(redis_url) as raw:
            raw.hset(f"sm:{{{store.namespace}}}:shared:langgraph:items:a", "k", "1 2 0 0\njunk")
            raw.set(f"sm:{{{store.namespace}}}:shared:langgraph:items:b", "junk")

        with pytest.raises(CorruptionError, match="langgraph:items:a"):
            await items.aget(("a",), "k")
        with pytest.raises(CorruptionError, match="langgraph:items:a"):
            await items.asearch(("a",))
        with pytest.raises(WrongTypeError, match="langgraph:items:b"):
            await items.aput(("b",), "k", {"n": 1})
        await store.clear()
