"""Both indexes answer alike: the same records, scores and order, whatever is remembered and asked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.contexts import client_of, server_context
from support.example_budget import example_count

from sharedmem import Hub, Settings
from sharedmem.clock import SystemClock, new_id
from sharedmem.redis.client import RedisClient
from sharedmem.redis.keys import KeySpace
from sharedmem.redis.vectors import Vector, normalize
from sharedmem.search.exact_index import ExactIndex
from sharedmem.search.protocol import ALL, Between, Condition, Every, Index, IndexHit, IndexQuery, Tagged
from sharedmem.search.redisearch import RediSearchIndex
from sharedmem.testing.index_suite import IndexedNamespace
from sharedmem.testing.index_suite.base import DIMENSION, suite_family
from sharedmem.text.analysis import query_terms

WORDS = [*(f"word{number}" for number in range(12)), "日本", "ünï", "the"]
USERS = ["u1", "u2", "U1", "u 1", "日"]
TAGS = ["red", "big", "a,b", " odd"]
CLOSE = {"text": 1e-4, "vector": 3e-3}
"""How far scores may differ: by words hardly, by meaning as much as half precision does."""


class Document(NamedTuple):
    words: list[str]
    user: str | None
    tags: list[str]
    at: int | None
    seed: int | None


def vector_of(seed: int | None) -> Vector | None:
    if seed is None:
        return None
    return normalize(np.random.default_rng(seed).standard_normal(DIMENSION).astype(np.float32))


WORD = st.sampled_from(WORDS)
DOCUMENTS = st.lists(
    st.builds(
        Document,
        words=st.lists(WORD, max_size=15),
        user=st.none() | st.sampled_from(USERS),
        tags=st.lists(st.sampled_from(TAGS), max_size=3, unique=True),
        at=st.none() | st.integers(0, 10),
        seed=st.none() | st.integers(0, 30),
    ),
    min_size=1,
    max_size=25,
)
CONDITIONS: st.SearchStrategy[Condition] = st.one_of(
    st.builds(Tagged, st.just("user"), st.lists(st.sampled_from(USERS), max_size=3).map(tuple)),
    st.builds(Tagged, st.just("tags"), st.lists(st.sampled_from(TAGS), min_size=1, max_size=2).map(tuple)),
    st.builds(Between, st.just("at"), st.none() | st.integers(0, 10), st.none() | st.integers(0, 10)),
)
FILTERS = st.lists(CONDITIONS, max_size=3).map(lambda conditions: Every(tuple(conditions)))
ASKED = st.tuples(
    st.lists(WORD, max_size=6, unique=True), st.integers(0, 30), FILTERS, st.sampled_from([1, 3, 10, 100])
)


class Both(NamedTuple):
    shelf: IndexedNamespace
    exact: Index
    server: Index


@asynccontextmanager
async def both_over(line: RedisClient, *, on_cluster: bool = True) -> AsyncIterator[Both]:
    """Two indexes over one shelf, which is cleared afterwards."""
    keyspace, family = KeySpace(f"equal-{new_id(6)}", "tests"), suite_family()
    shelf = IndexedNamespace(line, keyspace, family, "team")
    server = RediSearchIndex(server_context(line, keyspace, Settings()), family, on_cluster=on_cluster)
    await server.ensure("team")
    try:
        yield Both(shelf, ExactIndex(line, keyspace, family, SystemClock()), server)
    finally:
        await server.forget("team")
        for status in await server.status():
            await line.call("FT.DROPINDEX", status.name)
        await shelf.clear()


@pytest.fixture
def line(hub: Hub) -> RedisClient:
    if not hub.powers.search:
        pytest.skip("this server has no query engine")
    return client_of(hub)


async def fill(shelf: IndexedNamespace, documents: Sequence[Document]) -> None:
    for number, one in enumerate(documents):
        text, vector = " ".join(one.words), vector_of(one.seed)
        await shelf.put(f"n{number:03}", text, vector=vector, user=one.user, tags=one.tags, at=one.at)


def query_of(words: list[str], seed: int, filters: Every, candidates: int) -> IndexQuery:
    return IndexQuery(query_terms(" ".join(words)), vector_of(seed), filters, candidates)


def assert_alike(one: list[IndexHit], other: list[IndexHit], *, close: float) -> None:
    """The same scores place by place, and the same records in them; what is equally good may change places."""
    assert [hit.score for hit in one] == pytest.approx([hit.score for hit in other], abs=close)
    scores = {hit.id: hit.score for hit in other}
    for hit in one:
        # At the end of the list, an equally good one may stand outside.
        assert scores.get(hit.id, other[-1].score) == pytest.approx(hit.score, abs=close)


efforts = settings(max_examples=example_count(12, thorough=30), deadline=None, suppress_health_check=list(HealthCheck))


@efforts
@given(documents=DOCUMENTS, asked=st.lists(ASKED, min_size=1, max_size=4))
async def test_any_query_is_answered_alike(
    line: RedisClient, documents: list[Document], asked: list[tuple[list[str], int, Every, int]]
) -> None:
    async with both_over(line) as (shelf, exact, server):
        await fill(shelf, documents)
        for one in asked:
            query = query_of(*one)
            mine, theirs = [await index.search("team", query) for index in (exact, server)]

            assert_alike(mine.text, theirs.text, close=CLOSE["text"])
            assert_alike(mine.vector, theirs.vector, close=CLOSE["vector"])
            assert mine.version == theirs.version


@efforts
@given(documents=DOCUMENTS, filters=FILTERS)
async def test_any_filter_lets_the_same_through(line: RedisClient, documents: list[Document], filters: Every) -> None:
    async with both_over(line) as (shelf, exact, server):
        await fill(shelf, documents)
        mine, theirs = [await index.matching("team", filters) for index in (exact, server)]

        assert (sorted(mine.ids), mine.total) == (sorted(theirs.ids), theirs.total)
        for tag in ("user", "tags"):
            assert await exact.counts("team", filters, tag) == await server.counts("team", filters, tag)


@efforts
@given(documents=DOCUMENTS, offset=st.integers(0, 10), limit=st.integers(0, 10))
async def test_pages_in_an_order_have_the_same_numbers(
    line: RedisClient, documents: list[Document], offset: int, limit: int
) -> None:
    async with both_over(line) as (shelf, exact, server):
        await fill(shelf, documents)
        mine, theirs = [
            await index.matching("team", ALL, newest="at", offset=offset, limit=limit) for index in (exact, server)
        ]

    numbers = {f"n{number:03}": one.at for number, one in enumerate(documents)}
    assert [numbers[id_] for id_ in mine.ids] == [numbers[id_] for id_ in theirs.ids]


async def test_a_thousand_records_are_ranked_alike_in_a_shared_index(line: RedisClient) -> None:
    chance = np.random.default_rng(5)
    async with both_over(line, on_cluster=False) as (shelf, exact, server):
        documents = [
            Document(list(chance.choice(WORDS, chance.integers(1, 15))), f"u{number % 4}", ["red"], number, number)
            for number in range(1000)
        ]
        await fill(shelf, documents)
        for filters in (ALL, Every((Tagged("user", ("u1", "u3")), Between("at", 100, 800)))):
            query = query_of(["word3", "word7", "ünï"], 12, filters, 50)
            mine, theirs = [await index.search("team", query) for index in (exact, server)]

            assert_alike(mine.text, theirs.text, close=CLOSE["text"])
            assert_alike(mine.vector, theirs.vector, close=CLOSE["vector"])
            assert len(mine.text) == len(mine.vector) == 50
