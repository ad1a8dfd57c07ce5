"""What holds of memory whatever is remembered and asked: random memories, scopes, filters, queries and times."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from support.example_budget import example_count
from support.redis_process import RedisProcess

from sharedmem import Hub, Settings
from sharedmem.clock import new_id
from sharedmem.embedded.binaries import find_server
from sharedmem.errors import AccessDeniedError, InvalidError, NotFoundError, VersionConflictError
from sharedmem.memory.memories import Memories
from sharedmem.models import Hit, MemoryItem, MemoryMessage
from sharedmem.testing import ManualClock, fake_hub

HASHING = Settings(embedder="hashing")
_CHECKS = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
# Each example opens a hub: to find a smaller one would take minutes.
_PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
FEW = settings(
    max_examples=example_count(10, thorough=25), deadline=None, suppress_health_check=_CHECKS, phases=_PHASES
)
FEWER = settings(FEW, max_examples=10)
NAMESPACES = ("team", "team2")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

# Names that begin alike, mean something to a query engine, or are the same but for case.
NAMES = st.sampled_from(["a", "ab", "A", "a|b", "a{b", "*"])
THREADS = NAMES.filter(lambda name: "{" not in name)
WORDS = st.sampled_from(["zebra", "horse", "deploy", "invoice", "harbour", "the", "not", "42", "Ada", "港", "🦓"])
TEXTS = st.lists(WORDS, min_size=1, max_size=6).map(" ".join)
_SYNTAX = (
    "|",
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    "@ns:{team2}",
    "@user:{a}",
    "-",
    "~",
    "*",
    "%%",
    "=>",
    "$v",
    '"',
    "\\",
    "'",
)
QUERIES = st.lists(WORDS | st.sampled_from(_SYNTAX) | st.text(max_size=4), min_size=1, max_size=8).map(" ".join)


class Fact(NamedTuple):
    """A memory, as the model sees it."""

    namespace: str
    text: str
    user_id: str | None
    agent_id: str | None
    thread_id: str
    category: str | None
    tags: tuple[str, ...]
    hour: int
    ttl: int

    def item(self) -> MemoryItem:
        fields = self._asdict()
        del fields["namespace"], fields["text"], fields["hour"]
        return MemoryItem(memory=self.text, timestamp=NOON + timedelta(hours=self.hour), **fields)


class Asked(NamedTuple):
    """Which memories are meant."""

    namespace: str
    scope: dict[str, str]
    filters: dict[str, Any]

    def means(self, fact: Fact) -> bool:
        wanted = {**self.filters, **self.scope}
        since, tags = wanted.pop("since", None), wanted.pop("tags", ())
        others = wanted.keys() & self.filters.keys() & self.scope.keys()
        return (
            fact.namespace == self.namespace
            and all(getattr(fact, name) == value for name, value in wanted.items())
            and all(self.filters[name] == self.scope[name] for name in others)
            and set(tags) <= set(fact.tags)
            and (since is None or fact.item().timestamp >= since)
        )


OPTIONAL = st.none() | NAMES
FACTS = st.builds(
    Fact,
    st.sampled_from(NAMESPACES),
    TEXTS,
    OPTIONAL,
    NAMES,
    THREADS,
    OPTIONAL,
    st.lists(NAMES, max_size=3, unique=True).map(tuple),
    st.integers(-5, 5),
    st.sampled_from([-1, -1, 60, 3600]),
)
SCOPES = st.fixed_dictionaries({}, optional={"user_id": NAMES, "agent_id": NAMES, "thread_id": THREADS})
FILTERS = st.fixed_dictionaries(
    {},
    optional={
        "user_id": NAMES,
        "thread_id": THREADS,
        "category": NAMES,
        "tags": st.lists(NAMES, max_size=2).map(tuple),
        "since": st.integers(-5, 5).map(lambda hour: NOON + timedelta(hours=hour)),
    },
)
ASKED = st.builds(Asked, st.sampled_from(NAMESPACES), SCOPES, FILTERS)


@asynccontextmanager
async def emptied(hub: Hub) -> AsyncIterator[dict[str, str]]:
    """Names for the namespaces of one example, which are emptied after it."""
    names = {name: f"{name}-{new_id(8)}" for name in NAMESPACES}
    try:
        yield names
    finally:
        for name in names.values():
            await hub.store(name).clear()


async def remembered(hub: Hub, names: dict[str, str], facts: Sequence[Fact]) -> dict[str, Fact]:
    """The facts by the ids that they got."""
    kept: dict[str, Fact] = {}
    for namespace, name in names.items():
        own = [fact for fact in facts if fact.namespace == namespace]
        results = await hub.store(name).memory.add_many([fact.item() for fact in own], dedup=False)
        kept |= {result.id: fact for result, fact in zip(results, own, strict=True)}
    return kept


async def check_answers(memory: Memories, kept: dict[str, Fact], asked: Asked, query: str) -> None:
    """What is asked is answered with what is meant, and with nothing else."""
    meant = {id_ for id_, fact in kept.items() if asked.means(fact)}
    narrow = memory.within(**asked.scope)

    for mode in ("hybrid", "keywords", "semantic"):
        try:
            hits = await narrow.search(query, limit=100, filters=asked.filters, mode=mode)
        except InvalidError:
            assert not query.strip()
            break
        ids = [hit.item.id for hit in hits]
        assert set(ids) <= meant
        assert len(ids) == len(set(ids))
        if mode == "semantic" and not hits.degraded:
            vectors = [await memory.get(id_, embedding=True) for id_ in meant]
            assert len(ids) == sum(item is not None and item.embedding is not None for item in vectors)
    assert {item.id for item in await narrow.list(asked.filters)} == meant
    assert {item.id async for item in narrow.export(asked.filters)} == meant
    assert (await narrow.stats(asked.filters)).count == len(meant)


# -- scopes and filters ------------------------------------------------------------------------------------


@FEW
@given(
    facts=st.lists(FACTS, min_size=1, max_size=20),
    asked=st.lists(ASKED, min_size=1, max_size=3),
    query=QUERIES,
    passed_s=st.sampled_from([0, 61, 4000]),
    data=st.data(),
)
async def test_answers_are_always_within_scope_and_filters_and_never_expired(
    facts: list[Fact], asked: list[Asked], query: str, passed_s: int, data: st.DataObject
) -> None:
    clock = ManualClock(NOON)
    async with fake_hub(settings=HASHING, clock=clock) as hub, emptied(hub) as names:
        kept = await remembered(hub, names, facts)
        gone = data.draw(st.sets(st.sampled_from(sorted(kept)), max_size=3))
        for id_ in gone:
            assert await hub.store(names[kept[id_].namespace]).memory.delete(id_)
        clock.advance(passed_s)
        living = {
            id_: fact for id_, fact in kept.items() if id_ not in gone and (fact.ttl == -1 or fact.ttl > passed_s)
        }

        for one in asked:
            memory = hub.store(names[one.namespace]).memory
            await check_answers(memory, living, one, query)
            for id_ in kept.keys() - living.keys():
                assert await memory.get(id_) is None


@FEWER
@given(facts=st.lists(FACTS, min_size=1, max_size=20), asked=st.lists(ASKED, min_size=1, max_size=3), query=QUERIES)
async def test_answers_of_a_query_engine_are_always_within_scope_and_filters(
    redis_url: str, facts: list[Fact], asked: list[Asked], query: str
) -> None:
    async with Hub.open(redis_url, settings=HASHING) as hub, emptied(hub) as names:
        kept = await remembered(hub, names, facts)

        for one in asked:
            await check_answers(hub.store(names[one.namespace]).memory, kept, one, query)


# -- queries -----------------------------------------------------------------------------------------------


@pytest.fixture(params=["exact", "redisearch"])
async def filled(request: pytest.FixtureRequest) -> AsyncIterator[Memories]:
    """Three memories, and one of another tenant."""
    if request.param == "exact":
        async with fake_hub(settings=HASHING) as hub, emptied(hub) as names:
            yield await _filled(hub, names)
        return
    async with Hub.open(request.getfixturevalue("redis_url"), settings=HASHING) as hub, emptied(hub) as names:
        yield await _filled(hub, names)


async def _filled(hub: Hub, names: dict[str, str]) -> Memories:
    memory = hub.store(names["team"]).memory
    await memory.add_many(["Our zebra is called Marvin", "Invoices are sent on Friday", "Boats leave the harbour"])
    await hub.store(names["team2"]).memory.add("A zebra of the others")
    return memory


# Without quotation marks: a phrase between them must be in the memory (test_phrases.py).
ANYTHING = (st.text(max_size=40) | QUERIES).map(lambda text: re.sub('["\u201c\u201d]', " ", text))


@FEW
@given(before=ANYTHING, after=ANYTHING)
@example("the | and |", "")
@example("@terms:(", ")=>{$weight:0}")
@example("\\", "\\")
@example("a" * 9_000, "")
async def test_no_text_around_a_word_changes_what_it_finds(filled: Memories, before: str, after: str) -> None:
    texts = [hit.item.memory for hit in await filled.search_keywords(f"{before} Marvin {after}")]
    hits = await filled.search(f"{before} Marvin {after}", limit=100)

    assert "Our zebra is called Marvin" in texts
    assert "A zebra of the others" not in texts
    assert len({hit.item.id for hit in hits}) == len(hits) <= 3
    assert (await filled.stats()).count == 3


# -- ids ---------------------------------------------------------------------------------------------------


@FEW
@given(fact=FACTS, scope=SCOPES, namespace=st.sampled_from(NAMESPACES))
async def test_an_id_does_nothing_outside_of_its_scope(fact: Fact, scope: dict[str, str], namespace: str) -> None:
    async with fake_hub(settings=HASHING) as hub:
        home = hub.store(fact.namespace).memory
        added = await home.add(fact.item())
        await home.update(added.id, importance="high")
        before = await home.get(added.id)
        visitor = hub.store(namespace).memory.within(**scope)

        if Asked(namespace, scope, {}).means(fact):
            assert await visitor.get(added.id) == before
            assert len(await visitor.history(added.id)) == 2
            return
        assert await visitor.get(added.id) is None
        assert await visitor.history(added.id) == []
        assert not await visitor.delete(added.id)
        for refused in (visitor.update(added.id, importance="low"), visitor.undo(added.id)):
            with pytest.raises(NotFoundError):
                await refused
        assert await home.get(added.id) == before
        assert len(await home.history(added.id)) == 2


@FEW
@given(adds=st.lists(st.tuples(SCOPES, TEXTS), min_size=2, max_size=12), at_once=st.booleans())
@example(adds=[({}, "zebra"), ({}, "zebra zebra"), ({}, "zebra zebra zebra")], at_once=False)
@example(adds=[({}, "zebra"), ({}, "🦓 zebra")], at_once=False)
async def test_what_is_added_in_a_scope_is_answered_merged_and_kept_in_that_scope(
    adds: list[tuple[dict[str, str], str]], at_once: bool
) -> None:
    async with fake_hub(settings=HASHING) as hub:
        memory = hub.store("team").memory
        adding = [memory.within(**scope).add(text) for scope, text in adds]
        results = await asyncio.gather(*adding) if at_once else [await one for one in adding]

        for (scope, text), result in zip(adds, results, strict=True):
            item = await memory.within(**scope).get(result.id)
            assert item is not None
            assert text.casefold() in item.content.casefold()
        items = await memory.list()
        assert sum(item.occurrences for item in items) == len(adds)
        assert {item.id for item in items} == {result.id for result in results}


@FEW
@given(tenant=st.text(max_size=20), text=TEXTS)
async def test_no_item_of_another_tenant_gets_in(tenant: str, text: str) -> None:
    async with fake_hub(settings=HASHING) as hub:
        memory = hub.store("team").memory
        item = {"id": "x", "memory": text, "tenant_id": tenant}
        if tenant in {"", "team"}:
            assert (await memory.add(item)).id == "x"
            return
        with pytest.raises((AccessDeniedError, InvalidError)):
            await memory.add(item)
        assert await memory.list() == []


@FEW
@given(texts=st.lists(TEXTS, min_size=1, max_size=10), repeats=st.integers(2, 3))
async def test_a_repeat_with_the_same_ids_changes_nothing(texts: list[str], repeats: int) -> None:
    items = [MemoryItem(id=f"m{number}", memory=text) for number, text in enumerate(texts)]
    async with fake_hub(settings=HASHING) as hub:
        memory = hub.store("team").memory
        await memory.add_many(items, dedup=False)
        before = await memory.list()

        for _ in range(repeats):
            results = await memory.add_many(items, dedup=False)

            assert [result.id for result in results] == [item.id for item in items]
        assert await memory.list() == before
        with pytest.raises(VersionConflictError):
            await memory.add(MemoryItem(id="m0", memory=f"not {texts[0]}"))


# -- both indexes --------------------------------------------------------------------------------------------

_THINGS = ("bridge", "harbour", "library", "market", "garden", "station", "theatre", "museum", "bakery", "school")
_DEEDS = ("opens", "closes", "was painted", "is repaired", "was sold")
_WHEN = ("on Monday", "at noon", "in winter", "every night", "last year", "by the mayor")
_SPEAKERS = ("Ann", "Ben", "Cleo")


def _turn(number: int, chance: random.Random) -> MemoryItem:
    text = f"The {chance.choice(_THINGS)} {chance.choice(_DEEDS)} {chance.choice(_WHEN)}"
    name = _SPEAKERS[number % 3]
    said = MemoryMessage(role="user", name=name, content=text)
    return MemoryItem(
        id=f"m{number:03}",
        memory=text,
        messages=(said,) if number % 2 else (),
        thread_id=f"talk-{number % 4}",
        user_id=name,
        category=(None, "news", "gossip")[number % 3],
        importance=("low", "medium", "high")[number % 3],
        timestamp=NOON + timedelta(hours=number),
    )


def _question(number: int, chance: random.Random) -> tuple[str, dict[str, Any]]:
    query = f"When did {chance.choice(_SPEAKERS)} say the {chance.choice(_THINGS)} {chance.choice(_DEEDS)}?"
    filters: tuple[dict[str, Any], ...] = (
        {},
        {"user_id": "Ann"},
        {"category": ("news", "gossip")},
        {"thread_id": "talk-1", "since": NOON + timedelta(hours=100)},
    )
    return (query if number % 2 else query.split(" say ")[1]), filters[number % 4]


def _same(one: Sequence[Hit], other: Sequence[Hit], *, within: float) -> bool:
    """Whether two answers are the same ranking: what stands apart by more than rounding, in the same order."""
    scores = {hit.item.id: hit.rank_score for hit in other}
    if [pytest.approx(hit.rank_score, abs=within) for hit in one] != [hit.rank_score for hit in other]:
        return False
    last = other[-1].rank_score if other else 0.0
    return all(
        hit.rank_score == pytest.approx(scores[hit.item.id], abs=within)
        if hit.item.id in scores
        else hit.rank_score <= last + within
        for hit in one
    )


async def test_both_indexes_rank_alike_through_the_memory() -> None:
    if "search" not in (modules := find_server().modules):
        pytest.skip("the search module is not installed on this platform")
    chance = random.Random(5)
    items = [_turn(number, chance) for number in range(300)]
    questions = [_question(number, chance) for number in range(40)]
    # A server of its own: in a shared index, the words of others count for how rare a word is.
    with RedisProcess(loadmodule=modules["search"]) as server:
        async with fake_hub(settings=HASHING) as exact, Hub.open(server.url, settings=HASHING) as searching:
            memories = [hub.store("team").memory for hub in (exact, searching)]
            for memory in memories:
                await memory.add_many(items, dedup=False)

            for query, filters in questions:
                for mode in ("hybrid", "keywords", "semantic"):
                    one, other = [await memory.search(query, filters=filters, mode=mode) for memory in memories]
                    assert len(one) == 10
                    # The server compares vectors in half precision.
                    assert _same(one, other, within=0.003), (query, filters, mode)
