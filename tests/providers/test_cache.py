"""docs/providers.md: the same text is paid for once, in a process and in a team."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from support import embedded_fixtures
from support.contexts import knowledge_of, parts_of
from support.redis_process import RedisProcess
from support.waiting import wait_until

from sharedmem import Hub, Settings
from sharedmem.clock import new_id
from sharedmem.errors import UnavailableError
from sharedmem.providers.embedding import CachedEmbedder, SharedCacheEmbedder
from sharedmem.providers.local_embedders import HashingEmbedder
from sharedmem.providers.protocol import Embedder, Embeddings, Purpose
from sharedmem.redis.client import RedisClient
from sharedmem.redis.keys import KeySpace
from sharedmem.runtime import Counters
from sharedmem.testing import fake_hub
from sharedmem.testing.clock import ManualClock
from sharedmem.testing.provider_suite import EmbedderSuite

data_dir = embedded_fixtures.data_dir


class Slow(HashingEmbedder):
    """Answers when it is let, and notes what it was asked."""

    is_remote = True

    def __init__(self) -> None:
        super().__init__(32)
        self.asked: list[list[str]] = []
        self.lets = asyncio.Event()
        self.lets.set()
        self.fails: Exception | None = None

    async def embed(self, texts: Sequence[str], *, purpose: Purpose = "document") -> Embeddings:
        self.asked.append(list(texts))
        await self.lets.wait()
        if self.fails is not None:
            raise self.fails
        vectors, _ = await super().embed(texts, purpose=purpose)
        return Embeddings(vectors, sum(bool(text.strip()) for text in texts))


@pytest.fixture
def slow() -> Slow:
    return Slow()


def cached(slow: Slow, clock: ManualClock, counters: Counters, *, ttl_s: int = 60, items: int = 3) -> CachedEmbedder:
    return CachedEmbedder(slow, clock=clock, ttl_s=ttl_s, items=items, counters=counters)


@pytest.fixture
def embedder(slow: Slow, clock: ManualClock, counters: Counters) -> CachedEmbedder:
    return cached(slow, clock, counters)


# -- of a process ---------------------------------------------------------------------------------


async def test_a_text_is_asked_for_once(embedder: CachedEmbedder, slow: Slow, counters: Counters) -> None:
    first = await embedder.embed(["one", "two", "one"])

    again = await embedder.embed(["two", "one"])

    assert slow.asked == [["one", "two"]]
    assert np.array_equal(first.vectors[0], again.vectors[1])
    assert (first.tokens, again.tokens) == (2, 0)
    assert counters.read("embedding_cache", outcome="miss") == 2
    assert counters.read("embedding_cache", outcome="process") == 2


async def test_queries_and_documents_are_remembered_apart(embedder: CachedEmbedder, slow: Slow) -> None:
    await embedder.embed(["one"], purpose="document")
    await embedder.embed(["one"], purpose="query")

    assert slow.asked == [["one"], ["one"]]


async def test_what_is_old_is_asked_for_again(embedder: CachedEmbedder, slow: Slow, clock: ManualClock) -> None:
    await embedder.embed(["one"])
    clock.advance(59)
    await embedder.embed(["one"])
    clock.advance(1)

    await embedder.embed(["one"])

    assert slow.asked == [["one"], ["one"]]


async def test_what_was_not_used_for_longest_goes_first(embedder: CachedEmbedder, slow: Slow) -> None:
    await embedder.embed(["one", "two", "three"])
    await embedder.embed(["one"])
    await embedder.embed(["four"])

    await embedder.embed(["one", "three", "four"])
    await embedder.embed(["two"])

    assert slow.asked[2:] == [["two"]]


@pytest.mark.parametrize(("ttl_s", "items"), [(0, 3), (60, 0)])
async def test_a_cache_may_be_off(slow: Slow, clock: ManualClock, counters: Counters, ttl_s: int, items: int) -> None:
    embedder = cached(slow, clock, counters, ttl_s=ttl_s, items=items)

    await embedder.embed(["one"])
    vectors, _ = await embedder.embed(["one", "one"])

    assert slow.asked == [["one"], ["one"]]
    assert vectors.shape == (2, 32)


async def test_equal_texts_asked_for_at_the_same_time_are_asked_for_once(embedder: CachedEmbedder, slow: Slow) -> None:
    slow.lets.clear()
    calls = [asyncio.create_task(embedder.embed(["one", f"own {number}"])) for number in range(3)]
    await asyncio.sleep(0)
    slow.lets.set()

    answers = await asyncio.gather(*calls)

    assert slow.asked == [["one", "own 0"], ["own 1"], ["own 2"]]
    assert all(np.array_equal(answer.vectors[0], answers[0].vectors[0]) for answer in answers)
    assert [answer.tokens for answer in answers] == [2, 1, 1]


async def test_an_error_is_everybodys_and_is_not_remembered(embedder: CachedEmbedder, slow: Slow) -> None:
    slow.lets.clear()
    slow.fails = UnavailableError("provider", "gone")
    calls = [asyncio.create_task(embedder.embed(["one"])) for _ in range(3)]
    await asyncio.sleep(0)
    slow.lets.set()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    slow.fails = None

    vectors, _ = await embedder.embed(["one"])

    assert [type(outcome) for outcome in outcomes] == [UnavailableError] * 3
    assert len(slow.asked) == 2
    assert vectors.any()


async def test_who_waits_for_a_cancelled_call_asks_itself(embedder: CachedEmbedder, slow: Slow) -> None:
    slow.lets.clear()
    first = asyncio.create_task(embedder.embed(["one"]))
    await asyncio.sleep(0)
    second = asyncio.create_task(embedder.embed(["one"]))
    await asyncio.sleep(0)
    first.cancel()
    slow.lets.set()

    vectors, _ = await second

    assert vectors.any()
    assert first.cancelled()
    assert slow.asked == [["one"], ["one"]]


async def test_what_is_given_out_may_be_changed_without_harm(embedder: CachedEmbedder) -> None:
    first, _ = await embedder.embed(["one"])
    first[:] = 0

    again, _ = await embedder.embed(["one"])

    assert again.any()


# -- of a team ------------------------------------------------------------------------------------


class Team:
    """Hubs of one namespace, each with a process cache of its own."""

    def __init__(self, hub: Hub, slow: Slow, counters: Counters) -> None:
        parts = parts_of(hub)
        self.client: RedisClient = parts.connection.client
        self.keyspace: KeySpace = parts.context.keyspace
        self.slow = slow
        self.counters = counters

    def member(self, namespace: str, *, ttl_s: int = 60) -> SharedCacheEmbedder:
        inner = cached(self.slow, ManualClock(), self.counters)
        return SharedCacheEmbedder(inner, self.client, self.keyspace, namespace, ttl_s=ttl_s, counters=self.counters)

    async def keys(self, namespace: str) -> list[bytes]:
        """The keys of the embeddings that Redis has of a namespace."""
        pages = [page async for page in self.client.scan(b"*$memory.embedding:*", near=None)]
        return [key for page in pages for key in page if namespace.encode() in key]


@pytest.fixture
def team(hub: Hub, slow: Slow, counters: Counters) -> Team:
    return Team(hub, slow, counters)


class TestTeamEmbedder(EmbedderSuite):
    @pytest.fixture
    def embedder(self, team: Team, namespace: str) -> Embedder:
        return team.member(namespace)


async def test_what_one_hub_has_paid_for_costs_the_others_nothing(
    team: Team, namespace: str, slow: Slow, counters: Counters
) -> None:
    first = await team.member(namespace).embed(["one", "two"])

    second = await team.member(namespace).embed(["two", "one", "three", "two"])

    assert slow.asked == [["one", "two"], ["three"]]
    assert np.array_equal(second.vectors[1], first.vectors[0]), "the same text has the same vector"
    assert (first.tokens, second.tokens) == (2, 1)
    assert counters.read("embedding_cache", outcome="team") == 2
    assert counters.read("embedding_cache", outcome="miss") == 3


async def test_what_the_process_knows_is_not_read_from_redis(
    team: Team, namespace: str, slow: Slow, counters: Counters
) -> None:
    member = team.member(namespace)
    await member.embed(["one"])

    await member.embed(["one"])

    assert len(slow.asked) == 1
    assert counters.read("embedding_cache", outcome="process") == 1
    assert counters.read("embedding_cache", outcome="team") == 0


async def test_namespaces_share_no_embeddings(team: Team, namespace: str, slow: Slow) -> None:
    other = f"test-{new_id(8)}"
    await team.member(namespace).embed(["one"])

    await team.member(other).embed(["one"])

    assert slow.asked == [["one"], ["one"]]


async def test_embeddings_expire_and_are_two_bytes_a_number(team: Team, namespace: str) -> None:
    await team.member(namespace, ttl_s=50).embed(["one"])

    mine = await team.keys(namespace)
    assert len(mine) == 1
    assert await team.client.call("STRLEN", mine[0]) == 64
    left = await team.client.call("TTL", mine[0])
    assert isinstance(left, int)
    assert 0 < left <= 50
    assert team.keyspace.is_part(mine[0])


async def test_a_foreign_entry_of_the_cache_is_rejected(team: Team, namespace: str, slow: Slow) -> None:
    await team.member(namespace).embed(["one"])
    for key in await team.keys(namespace):
        await team.client.call("SET", key, b"no vector", "EX", 60)

    vectors, _ = await team.member(namespace).embed(["one"])

    assert slow.asked == [["one"], ["one"]]
    assert vectors.any()


async def test_a_thousand_texts_are_kept_and_found(team: Team, namespace: str, slow: Slow) -> None:
    texts = [f"text {number}" for number in range(1_100)]
    first, _ = await team.member(namespace).embed(texts)

    again, tokens = await team.member(namespace).embed(texts)

    assert tokens == 0
    assert np.array_equal(first, again)


async def test_without_redis_the_provider_is_asked(namespace: str, slow: Slow, counters: Counters) -> None:
    with RedisProcess() as server:
        async with Hub(settings=Settings(redis_url=server.url, retry_for_s=1)) as other:
            member = Team(other, slow, counters).member(namespace)
            server.kill()

            vectors, _ = await member.embed(["one"])

    assert vectors.any()
    assert counters.read("embedding_cache_failures", call="read") == 1
    assert counters.read("embedding_cache_failures", call="write") == 1


@pytest.mark.parametrize(
    ("home", "subscribes", "asked", "told"),
    [("research", [], 1, 0), ("elsewhere", ["research"], 1, 1), ("elsewhere", [], 2, 2)],
    ids=["remembers", "looks", "stranger"],
)
async def test_an_acl_user_uses_the_cache_as_far_as_its_rights_go_and_else_goes_on_without(
    data_dir: Path,
    slow: Slow,
    counters: Counters,
    caplog: pytest.LogCaptureFixture,
    home: str,
    subscribes: list[str],
    asked: int,
    told: int,
) -> None:
    async with Hub.open(settings=Settings(data_dir=data_dir)) as operator:
        ada = operator.store(home, actor="ada", subscribe=subscribes)
        await ada.access.apply("ada", password="correct horse")
        await Team(operator, slow, counters).member("research").embed(["one"])
        login = {"redis_url": operator.url, "redis_username": "ada", "redis_password": "correct horse"}
        async with Hub.open(settings=operator.settings.replace(**login)) as limited:
            member = Team(limited, slow, counters).member("research")
            for text in ("one", "two", "three"):
                await member.embed([text])

    assert slow.asked.count(["one"]) == asked
    assert len(caplog.records) == told, "each once"


async def test_a_hub_gives_a_namespace_the_cache_of_its_team(
    redis_url: str, settings: Settings, namespace: str, slow: Slow, counters: Counters
) -> None:
    for _ in range(2):
        embedder = cached(slow, ManualClock(), counters)
        async with Hub.open(redis_url, settings=settings, embedder=embedder) as hub:
            one = knowledge_of(hub).embedder_of(namespace)
            assert one is knowledge_of(hub).embedder_of(namespace)
            assert one is not None
            await one.embed(["one"])

    assert slow.asked == [["one"]]


@pytest.mark.parametrize(("is_remote", "ttl_s"), [(False, 60), (True, 0)])
async def test_a_cache_that_would_slow_things_down_is_left_out(
    redis_url: str, settings: Settings, namespace: str, slow: Slow, counters: Counters, is_remote: bool, ttl_s: int
) -> None:
    slow.is_remote = is_remote
    embedder = cached(slow, ManualClock(), counters)

    async with Hub.open(redis_url, settings=settings.replace(embedding_cache_s=ttl_s), embedder=embedder) as hub:
        assert not isinstance(knowledge_of(hub).embedder_of(namespace), SharedCacheEmbedder)


@pytest.mark.parametrize("is_remote", [True, False])
async def test_what_one_namespace_has_embedded_another_is_not_told(slow: Slow, is_remote: bool) -> None:
    """docs/providers.md: the time of a reply would reveal what another tenant has embedded."""
    slow.is_remote = is_remote
    async with fake_hub(embedder=slow) as hub:
        for _ in range(2):
            for namespace in ("desk", "lobby"):
                await hub.store(namespace).memory.search("our secret plan")

    assert slow.asked == [["our secret plan"]] * 2


async def test_a_caller_does_not_wait_for_a_question_of_another_namespace(slow: Slow) -> None:
    async with fake_hub(embedder=slow) as hub:
        slow.lets.clear()
        asking = [
            asyncio.ensure_future(hub.store(namespace).memory.search("our secret plan"))
            for namespace in ("desk", "desk", "lobby")
        ]
        await wait_until(lambda: len(slow.asked) >= 2, description="both namespaces have asked")
        slow.lets.set()
        await asyncio.gather(*asking)

    assert slow.asked == [["our secret plan"]] * 2
