"""The exact index does what every index does, and follows its namespace whatever becomes of the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import numpy as np
import pytest
from support.contexts import client_of

from sharedmem import Hub, Settings, UnavailableError
from sharedmem.clock import SystemClock, new_id
from sharedmem.record_family import RecordFamily
from sharedmem.redis.client import RedisClient
from sharedmem.redis.keys import KeySpace
from sharedmem.search import exact_index
from sharedmem.search.exact_index import ExactIndex
from sharedmem.search.protocol import ALL, Every, IndexQuery, Tagged
from sharedmem.testing import ManualClock
from sharedmem.testing.fakes import connect_to_fake
from sharedmem.testing.index_suite import IndexedNamespace, IndexSuite
from sharedmem.testing.index_suite.base import direction, search_by_vector, search_by_words, suite_family

APPLE = IndexQuery(terms=("appl",), vector=direction(1))


@pytest.fixture
def keyspace() -> KeySpace:
    return KeySpace(f"exact-{new_id(6)}", "tests")


@pytest.fixture
async def fake_line(clock: ManualClock) -> AsyncIterator[RedisClient]:
    """A line to fakeredis, whose time is the clock's."""
    connection = await connect_to_fake()(Settings(), clock)
    yield connection.client
    await connection.client.close()


class TestExactIndexOnFakeredis(IndexSuite):
    """Where there is no server at all."""

    @pytest.fixture
    async def line(self) -> AsyncIterator[RedisClient]:
        connection = await connect_to_fake()(Settings(), SystemClock())
        yield connection.client
        await connection.client.close()

    @pytest.fixture
    def index(self, line: RedisClient, keyspace: KeySpace, suite_family: RecordFamily) -> ExactIndex:
        return ExactIndex(line, keyspace, suite_family, SystemClock())


@pytest.mark.nightly
class TestExactIndexOnAServer(IndexSuite):
    """On a real server."""

    @pytest.fixture
    def line(self, hub: Hub) -> RedisClient:
        return client_of(hub)

    @pytest.fixture
    def index(self, line: RedisClient, keyspace: KeySpace, suite_family: RecordFamily) -> ExactIndex:
        return ExactIndex(line, keyspace, suite_family, SystemClock())


class CountingLine:
    """A line that counts what is asked of the server, and can be cut."""

    def __init__(self, line: RedisClient) -> None:
        self._line = line
        self.address = line.address
        self.trips = 0
        self.is_cut = False
        self.gate: asyncio.Event | None = None

    def __getattr__(self, name: str) -> Callable[..., object]:
        method = getattr(self._line, name)

        async def counted(*args: object, **kwargs: object) -> object:
            self.trips += 1
            if self.is_cut:
                raise UnavailableError("Redis", "it is cut off")
            reply = await method(*args, **kwargs)
            if self.gate is not None:
                await self.gate.wait()
            return reply

        return counted


class Mirrored:
    """An index over one shelf, and the line between them."""

    def __init__(self, line: RedisClient, keyspace: KeySpace, clock: ManualClock) -> None:
        self.raw = line
        self.keyspace = keyspace
        self.line = CountingLine(line)
        self.family = suite_family()
        self.index = ExactIndex(self.line, keyspace, self.family, clock)  # type: ignore[arg-type]  # replaces one
        self.shelf = self.of("team")

    def of(self, namespace: str) -> IndexedNamespace:
        return IndexedNamespace(self.raw, self.keyspace, self.family, namespace)

    async def apples(self) -> list[str]:
        return await search_by_words(self.index, self.shelf, "apple")

    async def trips_of_a_search(self) -> int:
        before = self.line.trips
        await self.apples()
        return self.line.trips - before

    @property
    def log(self) -> bytes:
        return self.keyspace.record_log(self.family.name, "team")


@pytest.fixture
def mirrored(fake_line: RedisClient, keyspace: KeySpace, clock: ManualClock) -> Mirrored:
    return Mirrored(fake_line, keyspace, clock)


async def test_a_search_takes_one_trip_while_nothing_changes_and_two_when_something_has(mirrored: Mirrored) -> None:
    await mirrored.shelf.put("a", "apple")
    await mirrored.apples()

    assert await mirrored.trips_of_a_search() == 1
    await mirrored.shelf.put("b", "apple")
    assert await mirrored.trips_of_a_search() == 2
    assert await mirrored.trips_of_a_search() == 1


async def test_a_writer_finds_its_record_although_another_search_is_under_way(mirrored: Mirrored) -> None:
    await mirrored.shelf.put("a", "apple")
    await mirrored.apples()
    mirrored.line.gate = asyncio.Event()
    early = asyncio.create_task(mirrored.apples())
    await asyncio.sleep(0)
    await mirrored.shelf.put("b", "apple")
    late = [asyncio.create_task(mirrored.apples()) for _ in range(5)]
    await asyncio.sleep(0)
    mirrored.line.gate.set()

    await early
    assert await asyncio.gather(*late) == [["a", "b"]] * 5


async def test_searches_that_wait_together_share_their_look_at_the_server(mirrored: Mirrored) -> None:
    await mirrored.shelf.put("a", "apple")
    await mirrored.apples()
    before = mirrored.line.trips

    await asyncio.gather(*[mirrored.apples() for _ in range(20)])

    assert mirrored.line.trips - before <= 2


async def test_a_search_that_is_given_up_does_not_spoil_those_behind_it(mirrored: Mirrored) -> None:
    await mirrored.shelf.put("a", "apple")
    mirrored.line.gate = asyncio.Event()
    first = asyncio.create_task(mirrored.apples())
    await asyncio.sleep(0)
    second = asyncio.create_task(mirrored.apples())
    await asyncio.sleep(0)
    first.cancel()
    mirrored.line.gate.set()

    assert await second == ["a"]


async def test_a_cleared_namespace_is_empty_and_may_be_filled_again(mirrored: Mirrored) -> None:
    for id_ in "abc":
        await mirrored.shelf.put(id_, "apple")
    await mirrored.apples()
    await mirrored.shelf.clear()

    assert await mirrored.apples() == []
    await mirrored.shelf.put("c", "apple")
    assert await mirrored.apples() == ["c"]


async def test_a_namespace_cleared_and_filled_between_two_searches_holds_nothing_old(mirrored: Mirrored) -> None:
    for id_ in "abc":
        await mirrored.shelf.put(id_, "apple")
    await mirrored.apples()
    await mirrored.shelf.clear()
    for id_ in "cde":
        await mirrored.shelf.put(id_, "apple pear")
    await mirrored.shelf.put("f", "apple")
    await mirrored.shelf.delete("f")

    found = await mirrored.index.search("team", APPLE)

    assert [hit.id for hit in found.text] == ["c", "d", "e"]
    assert (await mirrored.index.status())[0].documents == 3


async def test_a_flushed_server_is_noticed(mirrored: Mirrored) -> None:
    await mirrored.shelf.put("a", "apple")
    await mirrored.apples()
    await mirrored.raw.call("FLUSHALL")

    assert await mirrored.apples() == []


async def test_a_log_that_has_gone_back_is_read_anew(mirrored: Mirrored) -> None:
    await mirrored.shelf.put("a", "apple")
    await mirrored.shelf.put("b", "apple")
    await mirrored.apples()
    await mirrored.shelf.put("b", "pear")
    # As if an older copy of the server's data had been put back.
    await mirrored.raw.call("ZADD", mirrored.log, 1, "a", 2, "b")

    assert await mirrored.apples() == ["a"]


async def test_the_log_may_forget_what_was_deleted_long_ago(mirrored: Mirrored) -> None:
    for id_ in "abcde":
        await mirrored.shelf.put(id_, "apple")
    await mirrored.shelf.delete("b")
    await mirrored.apples()
    await mirrored.raw.call("ZREM", mirrored.log, "b")
    await mirrored.raw.call("ZADD", mirrored.log, 1795245066000000 + 86_400_000_000, "c")

    assert await mirrored.apples() == ["a", "c", "d", "e"]
    assert await mirrored.trips_of_a_search() == 1


async def test_a_deletion_that_the_log_has_forgotten_is_noticed_nevertheless(mirrored: Mirrored) -> None:
    for id_ in "abc":
        await mirrored.shelf.put(id_, "apple")
    await mirrored.apples()
    await mirrored.shelf.delete("b")
    await mirrored.raw.call("ZREM", mirrored.log, "b")
    await mirrored.shelf.put("d", "apple")

    assert await mirrored.apples() == ["a", "c", "d"]


async def test_more_changes_than_one_answer_holds_are_all_seen(mirrored: Mirrored) -> None:
    await mirrored.shelf.put("first", "apple")
    await mirrored.apples()
    for number in range(1200):
        await mirrored.shelf.put(f"n{number}", "apple")

    assert (await mirrored.index.matching("team", ALL)).total == 1201


async def test_changes_of_one_version_are_all_seen(mirrored: Mirrored) -> None:
    for id_ in "abcd":
        await mirrored.shelf.put(id_, "apple")
    await mirrored.raw.call("ZADD", mirrored.log, 5, "a", 5, "b", 5, "c", 5, "d")
    await mirrored.apples()
    await mirrored.shelf.put("e", "apple")
    await mirrored.raw.call("ZADD", mirrored.log, 5, "e")

    assert await mirrored.apples() == ["a", "b", "c", "d", "e"]


async def test_an_expired_record_is_not_found_once_its_time_has_come(mirrored: Mirrored, clock: ManualClock) -> None:
    await mirrored.shelf.put("a", "apple", user="x")
    await mirrored.shelf.expire("a", 60_000)
    await mirrored.shelf.put("b", "apple")
    assert await mirrored.apples() == ["a", "b"]

    clock.advance(61)

    assert await mirrored.apples() == ["b"]
    assert await mirrored.index.counts("team", ALL, "user") == {"": 1}


async def test_a_lost_connection_while_loading_loses_nothing(mirrored: Mirrored) -> None:
    for number in range(250):
        await mirrored.shelf.put(f"n{number:03}", "apple")
    mirrored.line.gate = asyncio.Event()
    first = asyncio.create_task(mirrored.apples())
    await asyncio.sleep(0)
    mirrored.line.is_cut = True
    mirrored.line.gate.set()
    with pytest.raises(UnavailableError):
        await first

    mirrored.line.is_cut = False

    assert (await mirrored.index.matching("team", ALL)).total == 250


async def test_a_record_that_changes_often_does_not_grow_the_mirror(mirrored: Mirrored) -> None:
    for round_ in range(30):
        for number in range(25):
            await mirrored.shelf.put(f"n{number:02}", f"apple round{round_}", user=f"u{round_}", vector=direction(1))
        await mirrored.apples()

    (status,) = await mirrored.index.status()

    assert status.documents == 25
    assert status.bytes < 400_000
    assert await mirrored.apples() == [f"n{number:02}" for number in range(25)]
    assert await search_by_words(mirrored.index, mirrored.shelf, "round28") == []
    assert len(await search_by_words(mirrored.index, mirrored.shelf, "round29")) == 25
    assert len(await search_by_vector(mirrored.index, mirrored.shelf, direction(1))) == 25
    assert await mirrored.index.counts("team", ALL, "user") == {"u29": 25}


async def test_namespaces_not_searched_for_longest_give_way(
    mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exact_index, "MOST_NAMESPACES", 2)
    for name in ("a", "b", "c"):
        await mirrored.of(name).put(name, "apple")
        await search_by_words(mirrored.index, mirrored.of(name), "apple")

    assert [status.namespaces for status in await mirrored.index.status()] == [("b",), ("c",)]
    assert await search_by_words(mirrored.index, mirrored.of("a"), "apple") == ["a"]


async def test_a_large_namespace_is_searched_aside_and_alike(
    mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(50):
        await mirrored.shelf.put(f"n{number:02}", "apple", vector=direction(1, number / 50), user=f"u{number % 2}")
    query = IndexQuery(("appl",), direction(1), Every((Tagged("user", ("u1",)),)))
    small = await mirrored.index.search("team", query)
    monkeypatch.setattr(exact_index, "_LARGE", 0)

    large = await mirrored.index.search("team", query)

    assert (large.text, large.vector) == (small.text, small.vector)
    assert len(large.vector) == 25


async def test_a_damaged_vector_is_told_and_does_no_harm(mirrored: Mirrored) -> None:
    await mirrored.shelf.put("a", "apple", vector=direction(1))
    await mirrored.shelf.put("b", "apple")
    await mirrored.shelf.damage("b")
    await mirrored.shelf.put("c", "apple", vector=np.full(8, np.nan, np.float32))

    assert await mirrored.apples() == ["a", "b", "c"]
    assert await search_by_vector(mirrored.index, mirrored.shelf, direction(1)) == ["a"]
    (status,) = await mirrored.index.status()
    assert (status.algorithm, status.documents, status.failures) == ("exact", 3, 2)


async def test_rebuilding_reads_everything_anew_and_tells_of_it(mirrored: Mirrored) -> None:
    await mirrored.shelf.put("a", "apple")
    await mirrored.apples()
    told: list[tuple[int, int]] = []

    await mirrored.index.rebuild("team", progress=lambda done, total: told.append((done, total)))

    assert told == [(1, 1)]
    assert await mirrored.apples() == ["a"]
