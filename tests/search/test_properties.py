"""No text of a user can change what a query means, or harm the server: random words, tags, keys and filters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.contexts import server_context
from support.example_budget import example_count

from sharedmem import Settings
from sharedmem.clock import SystemClock, new_id
from sharedmem.redis.address import parse_address
from sharedmem.redis.client import RedisClient
from sharedmem.redis.connect import open_client
from sharedmem.redis.keys import KeySpace
from sharedmem.search.protocol import ALL, Between, Condition, Every, IndexQuery, Tagged
from sharedmem.search.redisearch import RediSearchIndex
from sharedmem.search.redisearch.queries import render_filter, search_by_words, within_namespace
from sharedmem.testing.index_suite import IndexedNamespace, suite_family
from sharedmem.testing.index_suite.base import direction, ids_of
from sharedmem.text.analysis import TAG_SEPARATOR, document_terms, encode_tag, join_tags, query_terms, split_tags

FAMILY = suite_family()
_SYNTAX = ("|", "(", ")", "{", "}", "[", "]", "@ns:{theirs}", "-", "~", "*", "%", "=>", "$t0", "$v", "the", "and", ":")
_BLANKS = (" ", "\t", "\n", "\x00", "\x1f", "\\", "\\ ", "'", '"', ",", ";", "a", "A", "ä", "語", "\u200b", "\u00a0")
TEXTS = st.lists(st.sampled_from(_SYNTAX + _BLANKS), max_size=6).map("".join) | st.text(max_size=12)
STORABLE = TEXTS.filter(lambda text: not any("\ud800" <= sign <= "\udfff" for sign in text))
TAGGED = st.builds(Tagged, st.sampled_from(["user", "tags"]), st.lists(STORABLE, max_size=3).map(tuple))
BOUNDS = st.none() | st.floats(-10, 10, allow_nan=False)
CONDITIONS = st.recursive(
    TAGGED | st.builds(Between, st.just("at"), BOUNDS, BOUNDS),
    lambda inner: st.builds(Every, st.lists(inner, max_size=3).map(tuple)),
    max_leaves=5,
)
FILTERS = st.builds(Every, st.lists(CONDITIONS, max_size=3).map(tuple))
_FEW = settings(
    max_examples=example_count(20, thorough=60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


class Item(NamedTuple):
    """A record, as the model sees it."""

    text: str
    user: str | None
    tags: tuple[str, ...]
    at: float | None


ITEMS = st.builds(
    Item,
    st.lists(st.sampled_from(["apple", "pear", "plum", "|", "the", "@ns"]), max_size=5).map(" ".join),
    st.none() | STORABLE,
    st.lists(STORABLE, max_size=3).map(tuple),
    st.none() | st.integers(-10, 10).map(float),
)


def _passes(item: Item, condition: Condition) -> bool:
    if isinstance(condition, Every):
        return all(_passes(item, each) for each in condition.conditions)
    if isinstance(condition, Between):
        low, high = condition.low, condition.high
        # Without a bound nothing is asked of the number but that it is there.
        return item.at is not None and (low is None or low <= item.at) and (high is None or item.at <= high)
    assert isinstance(condition, Tagged)
    held = item.tags if condition.field == "tags" else (item.user,)
    return any(value in held for value in condition.values)


# -- without a server -----------------------------------------------------------------------------


@given(STORABLE, STORABLE)
@example("a", "a ")
@example("%20a", " a")
@example("", "%")
def test_two_values_are_never_spelled_alike(one: str, other: str) -> None:
    assert (encode_tag(one) == encode_tag(other)) == (one == other)


@given(STORABLE)
def test_what_is_spelled_survives_a_server_that_trims_and_parts(value: str) -> None:
    lies_there = encode_tag(value)

    assert lies_there
    assert lies_there.strip() == lies_there
    assert not {"\x00", TAG_SEPARATOR} & set(lies_there)


@given(st.lists(STORABLE))
def test_values_come_back_from_a_tag_field(values: list[str]) -> None:
    assert split_tags(join_tags(values)) == values


def _blanked(condition: Condition) -> Condition:
    """The same filter with other values."""
    if isinstance(condition, Tagged):
        return Tagged(condition.field, tuple("x" for _ in condition.values))
    if isinstance(condition, Between):
        return Between(condition.field, None if condition.low is None else 1.0, None if condition.high is None else 2.0)
    assert isinstance(condition, Every)
    return Every(tuple(map(_blanked, condition.conditions)))


@given(FILTERS, st.lists(TEXTS, max_size=40))
def test_the_text_of_a_query_does_not_depend_on_what_users_say(filters: Every, terms: list[str]) -> None:
    blank = Every(tuple(map(_blanked, filters.conditions)))
    said, unsaid = render_filter(filters, FAMILY), render_filter(blank, FAMILY)

    assert said.text == unsaid.text
    assert within_namespace(said, "team").text == within_namespace(unsaid, "other").text
    query = search_by_words(terms, (), said, scorer="BM25STD", limit=1)
    assert query[0] == search_by_words(["x"] * len(terms), (), unsaid, scorer="BM25STD", limit=1)[0]


# -- against the server ---------------------------------------------------------------------------


class World(NamedTuple):
    """An index, in which another namespace has a record, and the loop in which it lives."""

    runner: asyncio.Runner
    line: RedisClient
    keyspace: KeySpace
    searched: RediSearchIndex


@asynccontextmanager
async def _opened(url: str) -> AsyncIterator[tuple[RedisClient, KeySpace, RediSearchIndex]]:
    chosen = Settings()
    line, keyspace = open_client(parse_address(url, chosen), chosen, SystemClock()), KeySpace("sm", new_id(8))
    await line.open()
    index = RediSearchIndex(server_context(line, keyspace, chosen), FAMILY, on_cluster=False)
    theirs = IndexedNamespace(line, keyspace, FAMILY, "theirs")
    await theirs.put("secret", "apple pear plum the ns", user="a", tags=("a",), at=0, vector=direction(1))
    # It outlives each of the tests here.
    await theirs.expire("secret", 600_000)
    await line.call("EXPIRE", keyspace.record_log(FAMILY.name, "theirs"), 600)
    yield line, keyspace, index
    await theirs.clear()
    for status in await index.status():
        await line.call("FT.DROPINDEX", status.name)
    await line.close()


@pytest.fixture(scope="module")
def world(redis_url: str) -> Iterator[World]:
    with asyncio.Runner() as runner:
        opened = _opened(redis_url)
        yield World(runner, *runner.run(opened.__aenter__()))
        runner.run(opened.__aexit__(None, None, None))


@asynccontextmanager
async def _shelved(world: World, items: list[Item]) -> AsyncIterator[IndexedNamespace]:
    shelf = IndexedNamespace(world.line, world.keyspace, FAMILY, f"mine-{new_id(6)}")
    try:
        for number, item in enumerate(items):
            await shelf.put(f"n{number}", item.text, user=item.user, tags=item.tags, at=item.at, vector=direction(1))
        yield shelf
    finally:
        await shelf.clear()


@_FEW
@given(items=st.lists(ITEMS, max_size=5), filters=FILTERS, words=TEXTS)
@example(items=[Item("apple", "a", (), None)], filters=ALL, words="the | and | interview")
def test_a_search_finds_what_its_words_and_filters_say_and_nothing_else(
    world: World, items: list[Item], filters: Every, words: str
) -> None:
    async def search() -> None:
        async with _shelved(world, items) as shelf:
            query = IndexQuery(query_terms(f"{words} apple"), direction(1), filters)
            found = await world.searched.search(shelf.namespace, query)
            page = await world.searched.matching(shelf.namespace, filters)
        passing = {f"n{number}": item for number, item in enumerate(items) if _passes(item, filters)}
        spoken = {id_ for id_, item in passing.items() if {*query.terms} & {*document_terms(item.text)}}
        assert set(ids_of(found.text)) == spoken
        assert set(ids_of(found.vector)) == set(page.ids) == set(passing)
        assert page.total == len(passing)

    world.runner.run(search())


@_FEW
@given(terms=st.lists(TEXTS, max_size=5), filters=FILTERS)
@example(terms=["the", "|", "and", "|", "interview"], filters=ALL)
def test_words_that_were_not_analysed_do_no_harm(world: World, terms: list[str], filters: Every) -> None:
    async def search() -> None:
        async with _shelved(world, [Item("apple", "a", ("a",), 0)]) as shelf:
            found = await world.searched.search(shelf.namespace, IndexQuery(tuple(terms), direction(1), filters))
        assert set(ids_of(found.text)) <= {"n0"}
        assert set(ids_of(found.vector)) <= {"n0"}

    world.runner.run(search())


@_FEW
@given(
    # A server's index ends keys at a NUL, and every record has a name.
    id_=STORABLE.filter(lambda text: text and "\x00" not in text),
    namespace=st.from_regex(
        r"[^\s:*?\[\]\\{}$\x00-\x1f\x7f-\x9f\ud800-\udfff][^\s:*?\[\]\\{}\x00-\x1f\x7f-\x9f\ud800-\udfff]{0,20}",
        fullmatch=True,
    ),
)
def test_any_key_is_found_in_its_namespace_alone(world: World, id_: str, namespace: str) -> None:
    async def search() -> None:
        shelf = IndexedNamespace(world.line, world.keyspace, FAMILY, namespace)
        try:
            await shelf.put(id_, "apple", vector=direction(1))
            found = await world.searched.search(namespace, IndexQuery(query_terms("apple"), direction(1)))
            counted = await world.searched.counts(namespace, ALL, "ns")
        finally:
            await shelf.clear()
        assert ids_of(found.text) == ids_of(found.vector) == [id_]
        assert sum(counted.values()) == 1

    world.runner.run(search())
