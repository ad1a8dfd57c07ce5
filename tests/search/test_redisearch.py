"""The index on the server's query engine: the whole suite, and what only a server can get wrong."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support import embedded_fixtures
from support.contexts import server_context

from sharedmem import ConfigError, Settings, UnavailableError
from sharedmem.clock import SystemClock, new_id
from sharedmem.embedded.server import EmbeddedServer
from sharedmem.record_family import RecordFamily
from sharedmem.redis.address import parse_address
from sharedmem.redis.client import RedisClient
from sharedmem.redis.connect import open_client
from sharedmem.redis.keys import KeySpace
from sharedmem.redis.vectors import Vector, normalize, to_half
from sharedmem.search.protocol import ALL, Every, IndexQuery, Tagged
from sharedmem.search.redisearch import RediSearchIndex, queries
from sharedmem.search.redisearch.queries import near_hits
from sharedmem.testing.index_suite import IndexedNamespace, IndexSuite
from sharedmem.testing.index_suite import suite_family as new_family
from sharedmem.testing.index_suite.base import (
    DIMENSION,
    IndexFixtures,
    OpenIndexedNamespace,
    direction,
    ids_of,
    search_by_vector,
    search_by_words,
)
from sharedmem.testing.store_fixtures import eventually
from sharedmem.text.analysis import namespace_term_prefix

data_dir = embedded_fixtures.data_dir
Open = Callable[..., RediSearchIndex]


async def _open_line(url: str, settings: Settings) -> RedisClient:
    line = open_client(parse_address(url, settings), settings, SystemClock())
    await line.open()
    return line


@pytest.fixture
async def line(redis_url: str, settings: Settings) -> AsyncIterator[RedisClient]:
    line = await _open_line(redis_url, settings)
    yield line
    await line.close()


@pytest.fixture
async def own_line(data_dir: Path, settings: Settings) -> AsyncIterator[RedisClient]:
    """A server of this test alone, whose data may be thrown away."""
    embedded_fixtures.need_module("search")
    server = await EmbeddedServer.join(data_dir)
    line = await _open_line(server.url, settings)
    yield line
    await line.close()
    await server.leave()


@pytest.fixture
def keyspace() -> KeySpace:
    return KeySpace("sm", new_id(8))


@pytest.fixture
async def index(
    line: RedisClient, keyspace: KeySpace, suite_family: RecordFamily, settings: Settings
) -> AsyncIterator[RediSearchIndex]:
    index = RediSearchIndex(server_context(line, keyspace, settings), suite_family, on_cluster=False)
    yield index
    for status in await index.status():
        await line.call("FT.DROPINDEX", status.name)


@pytest.fixture
def open_index(line: RedisClient, keyspace: KeySpace, index: RediSearchIndex, settings: Settings) -> Open:
    """Opens another view of the same records, as another process would; with another family or settings if given."""

    def opened(family: RecordFamily | None = None, **changed: int) -> RediSearchIndex:
        server = server_context(line, keyspace, settings.model_copy(update=changed))
        return RediSearchIndex(server, family or index.family, on_cluster=False)

    return opened


class TestRediSearchIndex(IndexSuite):
    """The suite, on indexes of each test's own."""


@pytest.mark.nightly
class TestRediSearchIndexOnACluster(IndexSuite):
    """The suite, as on a cluster, where each namespace has its own index from the beginning."""

    @pytest.fixture
    async def index(
        self, line: RedisClient, keyspace: KeySpace, suite_family: RecordFamily, settings: Settings
    ) -> AsyncIterator[RediSearchIndex]:
        server = server_context(line, keyspace, settings)
        yield RediSearchIndex(server, suite_family, on_cluster=True)
        for status in await RediSearchIndex(server, suite_family, on_cluster=False).status():
            await line.call("FT.DROPINDEX", status.name)


async def _fill(shelf: IndexedNamespace, count: int) -> list[str]:
    for number in range(count):
        await shelf.put(f"n{number:04}", "apple", user=f"u{number % 10}", vector=direction(1, number / 100))
    return [f"n{number:04}" for number in range(count)]


async def _put_many(line: RedisClient, keyspace: KeySpace, family: RecordFamily, count: int) -> None:
    """Many records with many words, in few packets."""
    home, prefix = keyspace.records(family.name, "team"), namespace_term_prefix("team")
    text = " ".join(f"{prefix}word{number}" for number in range(40))
    vector = to_half(direction(1))
    for start in range(0, count, 500):
        numbers = range(start, start + 500)
        words = ("terms", text, "vector", vector, "ns", "team", "pool", "1")
        await asyncio.gather(*(line.call("HSET", f"{home}n{number}", *words) for number in numbers))


class TestOnOneServer(IndexFixtures):
    """What the engine's server may do to us, and we to it."""

    async def test_the_first_search_of_many_tasks_makes_one_index(
        self, index: RediSearchIndex, shelf: IndexedNamespace
    ) -> None:
        await shelf.put("a", "apple")

        found = await asyncio.gather(*(search_by_words(index, shelf, "apple") for _ in range(30)))

        assert found == [["a"]] * 30
        assert len(await index.status()) == 1

    async def test_a_dropped_index_is_made_anew_and_is_complete(
        self, index: RediSearchIndex, shelf: IndexedNamespace, line: RedisClient
    ) -> None:
        expected = await _fill(shelf, 300)
        assert len(await search_by_words(index, shelf, "apple")) == 100

        await line.call("FT.DROPINDEX", (await index.status())[0].name)
        found = await index.search(shelf.namespace, IndexQuery(("appl",), candidates=500))

        assert ids_of(found.text) == expected

    async def test_a_dropped_index_of_its_own_is_made_anew(
        self, index: RediSearchIndex, shelf: IndexedNamespace, line: RedisClient
    ) -> None:
        expected = await _fill(shelf, 20)
        await index.promote(shelf.namespace)
        (own,) = (status for status in await index.status() if status.namespaces)

        await line.call("FT.DROPINDEX", own.name)

        assert await search_by_words(index, shelf, "apple") == expected

    async def test_a_search_elsewhere_notices_that_the_namespace_has_moved(
        self, index: RediSearchIndex, shelf: IndexedNamespace, open_index: Open
    ) -> None:
        expected = await _fill(shelf, 20)
        elsewhere, query = open_index(), IndexQuery(("appl",), direction(1))
        await elsewhere.search(shelf.namespace, query)
        await index.promote(shelf.namespace)

        first, second = [await elsewhere.search(shelf.namespace, query) for _ in range(2)]

        assert ids_of(first.text) == ids_of(first.vector) == expected
        assert (first.round_trips, second.round_trips) == (2, 1)

    @pytest.mark.parametrize("crash_at", [0, 1, 2, 3])
    async def test_a_promotion_that_crashed_goes_on_when_called_again(
        self, index: RediSearchIndex, shelf: IndexedNamespace, open_index: Open, crash_at: int
    ) -> None:
        await index.ensure(shelf.namespace)
        expected = await _fill(shelf, 450)
        told = 0

        def crash(done: int, total: int) -> None:
            nonlocal told
            told += 1
            if told > crash_at:
                raise RuntimeError("crash")

        with pytest.raises(RuntimeError, match="crash"):
            await index.promote(shelf.namespace, progress=crash)
        query = IndexQuery(("appl",), direction(1), candidates=500)
        between = await open_index().search(shelf.namespace, query)
        await open_index().promote(shelf.namespace)
        after = await index.search(shelf.namespace, query)

        assert sorted(ids_of(between.text)) == sorted(ids_of(between.vector)) == expected
        assert sorted(ids_of(after.text)) == sorted(ids_of(after.vector)) == expected
        by_namespace = {status.namespaces: status.documents for status in await index.status() if not status.problems}
        assert by_namespace == {(): 0, (shelf.namespace,): 450}

    async def test_a_grown_namespace_of_its_own_becomes_approximate(
        self, index: RediSearchIndex, shelf: IndexedNamespace, open_index: Open
    ) -> None:
        await index.promote(shelf.namespace)
        await _fill(shelf, 60)
        grown = open_index(hnsw_above=50)

        await grown.promote(shelf.namespace)

        (own,) = (status for status in await grown.status() if status.namespaces)
        assert (own.algorithm, own.documents, own.problems) == ("HNSW", 60, ())

    @pytest.mark.parametrize("values", [("u1",), ("u1", "u2", "u3", "u4", "u5"), ()])
    async def test_an_approximate_index_finds_nearly_all_of_the_nearest(
        self, shelf: IndexedNamespace, open_index: Open, values: tuple[str, ...]
    ) -> None:
        index, chance = open_index(hnsw_above=50), np.random.default_rng(7)
        vectors: dict[str, Vector] = {}
        for number in range(600):
            vector = normalize(chance.normal(size=DIMENSION).astype(np.float32))
            vectors[f"n{number}"] = vector
            await shelf.put(f"n{number}", user="u1" if number < 5 else f"u{2 + number % 8}", vector=vector)
        await index.promote(shelf.namespace)
        filters = Every((Tagged("user", values),)) if values else ALL
        asked = normalize(chance.normal(size=DIMENSION).astype(np.float32))
        passing = set((await index.matching(shelf.namespace, filters, limit=1000)).ids)
        best = sorted(passing, key=lambda id_: -float(vectors[id_] @ asked))[:20]

        found = await index.nearest(shelf.namespace, asked, filters=filters, k=20)
        again = await index.nearest(shelf.namespace, asked, filters=filters, k=20)

        assert len(set(ids_of(found.vector)) & set(best)) >= 0.9 * len(best)
        assert again.vector == found.vector
        assert again.round_trips == 1

    @pytest.mark.parametrize("matching", [None, 10, 20_000])
    async def test_the_server_takes_each_way_to_search_an_approximate_index(
        self, shelf: IndexedNamespace, open_index: Open, line: RedisClient, matching: int | None
    ) -> None:
        expected = await _fill(shelf, 20)
        index = open_index(hnsw_above=10)
        await index.promote(shelf.namespace)
        (own,) = (status.name for status in await index.status() if status.namespaces)
        users = queries.render_filter(
            Every((Tagged("user", tuple(f"u{number}" for number in range(10))),)), index.family
        )
        filters = queries.NO_FILTER if matching is None else users

        policy = queries.hybrid_policy(matching)
        query = queries.search_by_vector(to_half(direction(1)), filters, k=20, policy=policy)
        reply = await line.call("FT.SEARCH", own, *query)

        home = index._home(shelf.namespace)
        assert ids_of(near_hits(reply, home)) == expected

    @pytest.mark.parametrize(
        ("changed", "sentence"),
        [
            ({"dimension": 16}, "dimension 8, this hub expects 16"),
            ({"model": "other"}, "model suite-model, this hub expects other"),
            ({"schema_version": 2}, "schema version 1, this hub expects 2"),
            ({"tags": ("ns", "user", "tags", "mood")}, r"none named mood \(TAG\)"),
        ],
    )
    async def test_an_index_of_another_kind_is_refused_and_left_alone(
        self,
        index: RediSearchIndex,
        shelf: IndexedNamespace,
        open_index: Open,
        changed: dict[str, object],
        sentence: str,
    ) -> None:
        await shelf.put("a", "apple", vector=direction(1))
        await index.ensure(shelf.namespace)
        other = open_index(replace(index.family, **changed))  # type: ignore[arg-type]  # one of its fields each

        for _ in range(2):
            with pytest.raises(ConfigError, match=sentence):
                await other.ensure(shelf.namespace)
        with pytest.raises(ConfigError, match=sentence):
            await other.search(shelf.namespace, IndexQuery(("appl",)))

        assert await search_by_words(index, shelf, "apple") == ["a"]
        problems = [problem for status in await other.status() for problem in status.problems]
        assert len(problems) == 1
        assert re.search(sentence, problems[0])

    async def test_a_foreign_index_under_our_name_is_refused(
        self, index: RediSearchIndex, shelf: IndexedNamespace, line: RedisClient, open_index: Open
    ) -> None:
        await index.ensure(shelf.namespace)
        (status,) = await index.status()
        await line.call("FT.DROPINDEX", status.name)
        metric = ("VECTOR", "FLAT", 6, "TYPE", "FLOAT16", "DIM", DIMENSION, "DISTANCE_METRIC", "L2")
        await line.call("FT.CREATE", status.name, "SCHEMA", "terms", "TEXT", "vector", *metric)
        await line.call("FT.ALIASADD", f"{status.name.partition('suite-model')[0]}current", status.name)

        with pytest.raises(ConfigError, match="metric L2, this hub expects COSINE"):
            await open_index().search(shelf.namespace, IndexQuery(("appl",)))

    async def test_rebuilding_brings_the_index_of_a_new_schema(
        self, index: RediSearchIndex, shelf: IndexedNamespace, open_index: Open
    ) -> None:
        await shelf.put("a", "apple", vector=direction(1))
        await index.ensure(shelf.namespace)
        newer = open_index(replace(index.family, schema_version=2))

        await newer.rebuild()

        assert await search_by_words(newer, shelf, "apple") == ["a"]
        assert [(status.schema_version, status.documents) for status in await newer.status()] == [(2, 1)]
        # A hub of the older version goes on until it connects anew.
        assert await search_by_words(index, shelf, "apple") == ["a"]

    async def test_who_has_no_embedder_searches_any_index_by_words(
        self, index: RediSearchIndex, shelf: IndexedNamespace, open_index: Open
    ) -> None:
        await shelf.put("a", "apple", vector=direction(1))
        await index.ensure(shelf.namespace)

        wordless = open_index(replace(index.family, model="", dimension=0))

        assert await search_by_words(wordless, shelf, "apple") == ["a"]

    async def test_vectors_can_come_later_by_rebuilding(
        self, shelf: IndexedNamespace, open_index: Open, index: RediSearchIndex
    ) -> None:
        await open_index(replace(index.family, model="", dimension=0)).ensure(shelf.namespace)
        await shelf.put("a", "apple", vector=direction(1))
        with pytest.raises(ConfigError, match="sharedmem index rebuild"):
            await index.ensure(shelf.namespace)

        await index.rebuild()

        assert await search_by_vector(index, shelf, direction(1)) == ["a"]

    async def test_a_record_that_cannot_be_indexed_is_told_by_name(
        self, index: RediSearchIndex, shelf: IndexedNamespace
    ) -> None:
        await _fill(shelf, 3)
        await index.ensure(shelf.namespace)
        await shelf.damage("n0001")

        (status,) = await index.status()

        assert status.failures == 1
        assert "n0001" in status.problems[0]
        assert sorted(await search_by_words(index, shelf, "apple")) == ["n0000", "n0002"]

    async def test_a_build_that_has_not_ended_is_told(self, index: RediSearchIndex, shelf: IndexedNamespace) -> None:
        await _fill(shelf, 3)
        await index.ensure(shelf.namespace)

        def crash(done: int, total: int) -> None:
            raise RuntimeError("crash")

        with pytest.raises(RuntimeError, match="crash"):
            await index.rebuild(progress=crash)
        told = [problem for status in await index.status() for problem in status.problems]
        await index.rebuild()

        # The server may still be at it.
        assert [problem for problem in told if "partly built" not in problem] == [told[-1]]
        assert "not in use" in told[-1]
        assert [status.problems for status in await index.status()] == [()]

    async def test_forgetting_a_namespace_drops_its_own_index(
        self, index: RediSearchIndex, shelves: OpenIndexedNamespace
    ) -> None:
        for name in ("team", "teams"):
            await _fill(shelves(name), 3)
            await index.promote(name)

        await index.forget("team")

        assert [status.namespaces for status in await index.status() if status.namespaces] == [("teams",)]

    async def test_a_common_word_of_changed_records_scores_nothing_until_the_server_has_swept(
        self, index: RediSearchIndex, shelf: IndexedNamespace
    ) -> None:
        """docs/adr/0019: the engine's count of the records without the word has wrapped round."""
        await index.ensure(shelf.namespace)
        for _ in range(2):
            for number in range(20):
                await shelf.put(f"n{number:02}", "loan", user=f"u{number % 2}")
        await shelf.put("rare", "loan of gold", user="u0")
        query = IndexQuery(("loan", "gold"), filters=Every((Tagged("user", ("u0",)),)))

        first, second = [await index.search(shelf.namespace, query) for _ in range(2)]

        assert ids_of(first.text) == ["rare", *(f"n{number:02}" for number in range(0, 20, 2))]
        assert second == first._replace(round_trips=1)
        assert [hit.score for hit in first.text[1:]] == [0] * 10

    async def test_records_of_a_shared_prefix_are_dropped_by_their_key(
        self, index: RediSearchIndex, shelves: OpenIndexedNamespace, line: RedisClient, keyspace: KeySpace
    ) -> None:
        """Two namespaces may spell their words alike by chance."""
        await shelves("mine").put("a", "apple")
        key = keyspace.record(index.family.name, "theirs", "b")
        await line.call("HSET", key, "terms", f"{namespace_term_prefix('mine')}appl", "ns", "theirs", "pool", "1")
        await line.call("EXPIRE", key, 60)

        assert await search_by_words(index, shelves("mine"), "apple") == ["a"]

    async def test_an_index_that_is_still_built_says_so(
        self, line: RedisClient, keyspace: KeySpace, index: RediSearchIndex, open_index: Open
    ) -> None:
        await _put_many(line, keyspace, index.family, 4000)
        hasty = open_index(search_timeout_ms=1)

        with pytest.raises(UnavailableError, match="partly built"):
            await hasty.search("team", IndexQuery(("word1",)))

        async def is_complete() -> bool:
            return (await index.matching("team", ALL, limit=0)).total == 4000

        await eventually(is_complete)

    async def test_a_search_that_takes_too_long_fails_and_answers_no_part(
        self, line: RedisClient, keyspace: KeySpace, index: RediSearchIndex, open_index: Open
    ) -> None:
        await index.ensure("team")
        await _put_many(line, keyspace, index.family, 6000)
        hasty = open_index(search_timeout_ms=1)

        with pytest.raises(UnavailableError, match="search_timeout_ms"):
            await hasty.search("team", IndexQuery(tuple(f"word{number}" for number in range(40))))

    @pytest.fixture(autouse=True)
    async def _nothing_put_past_the_shelves_stays(
        self, line: RedisClient, keyspace: KeySpace, suite_family: RecordFamily
    ) -> AsyncIterator[None]:
        yield
        async for keys in line.scan(f"{keyspace.family(suite_family.name)}*".encode(), near=None):
            await line.call("DEL", *keys)


class TestOnAServerOfItsOwn(IndexFixtures):
    """What would disturb others."""

    @pytest.fixture
    def line(self, own_line: RedisClient) -> RedisClient:
        return own_line

    @pytest.fixture
    def suite_family(self) -> RecordFamily:
        return new_family()

    async def test_after_a_flush_there_is_an_index_again(
        self, index: RediSearchIndex, shelf: IndexedNamespace, line: RedisClient
    ) -> None:
        await _fill(shelf, 5)
        await index.promote(shelf.namespace)
        assert len(await search_by_words(index, shelf, "apple")) == 5

        await line.call("FLUSHALL")
        nothing = await index.search(shelf.namespace, IndexQuery(("appl",), direction(1)))
        await shelf.put("new", "apple", vector=direction(1))

        assert (nothing.text, nothing.vector, nothing.version) == ([], [], 0)
        assert await search_by_words(index, shelf, "apple") == ["new"]
        assert await search_by_vector(index, shelf, direction(1)) == ["new"]

    async def test_a_server_that_was_killed_comes_back_with_its_indexes(
        self, index: RediSearchIndex, shelf: IndexedNamespace, line: RedisClient, data_dir: Path
    ) -> None:
        expected = await _fill(shelf, 30)
        await index.rebuild()
        await index.promote(shelf.namespace)
        await line.call("WAITAOF", 1, 0, 1000)

        await embedded_fixtures.kill_server(data_dir)
        await EmbeddedServer.join(data_dir)

        assert await search_by_words(index, shelf, "apple") == expected
        assert await search_by_vector(index, shelf, direction(1)) == expected
