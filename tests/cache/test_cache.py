"""The semantic cache, on a real server with a search index and on fakeredis with the exact one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from redis.asyncio import Redis
from support.angle_embedder import AngleEmbedder
from support.waiting import wait_until

from sharedmem import CorruptionError, Hub, InvalidError, Settings, SharedMemoryStore, UnavailableError
from sharedmem.cache import SemanticCache
from sharedmem.clock import new_id
from sharedmem.runtime import JsonFormatter
from sharedmem.testing import connect_to_fake

FRANCE = "what is the capital of France?"


@pytest.fixture
def compass() -> AngleEmbedder:
    """Near prompts within ten degrees of north."""
    return AngleEmbedder(
        **{
            FRANCE: 0,
            "tell me the capital of France": 5,
            "France: its capital": 9,
            "how large is France": 60,
            "what is the capital of Spain?": 1,
        }
    )


@pytest.fixture(params=["server", "fake"])
async def hub(request: pytest.FixtureRequest, settings: Settings, compass: AngleEmbedder) -> AsyncIterator[Hub]:
    """A hub whose embedder is the compass."""
    if request.param == "fake":
        made = Hub(settings=settings, connect=connect_to_fake(), embedder=compass)
    else:
        # Its own prefix: one server's index holds the vectors of one embedder.
        apart = settings.replace(prefix="compass")
        made = Hub(request.getfixturevalue("redis_url"), settings=apart, embedder=compass)
    async with made as hub:
        yield hub


@pytest.fixture
def cache(store: SharedMemoryStore) -> SemanticCache:
    """The cache of the test's namespace."""
    return store.cache


# -- hits and misses --------------------------------------------------------------------------------


async def test_an_answer_is_found_by_the_same_prompt(cache: SemanticCache) -> None:
    id_ = await cache.put(FRANCE, "Paris")

    found = await cache.check(FRANCE)

    assert found is not None
    assert (found.id, found.response, found.similarity, found.exact, found.prompt) == (id_, "Paris", 1.0, True, FRANCE)
    assert 0 <= found.age_s < 60


@pytest.mark.parametrize(
    "same",
    ["What  is the capital\nof FRANCE?", " what is the capital of france? ", "what is the capital of Ｆrance?"],  # noqa: RUF001  # wide letters are the point
)
async def test_blanks_case_and_width_of_letters_do_not_count(cache: SemanticCache, same: str) -> None:
    await cache.put(FRANCE, "Paris")

    found = await cache.check(same)

    assert found is not None
    assert found.exact


async def test_an_answer_is_found_by_a_prompt_that_means_the_same(cache: SemanticCache) -> None:
    await cache.put(FRANCE, "Paris")

    found = await cache.check("tell me the capital of France")

    assert found is not None
    assert (found.response, found.exact, found.prompt) == ("Paris", False, FRANCE)
    assert found.similarity == pytest.approx(0.9962, abs=0.001)


async def test_the_nearest_of_several_answers_is_given(cache: SemanticCache) -> None:
    await cache.put("France: its capital", "Paris, it seems")
    await cache.put(FRANCE, "Paris")

    found = await cache.check("tell me the capital of France", threshold=0.9)

    assert found is not None
    assert found.prompt == "France: its capital"


async def test_the_threshold_says_how_near_is_near_enough(cache: SemanticCache) -> None:
    await cache.put(FRANCE, "Paris")

    assert await cache.check("France: its capital", threshold=0.99) is None
    assert await cache.check("France: its capital", threshold=0.98) is not None
    assert await cache.check("how large is France") is None


async def test_a_near_prompt_about_something_else_is_guarded(cache: SemanticCache) -> None:
    await cache.put(FRANCE, "Paris")

    assert await cache.check("what is the capital of Spain?", threshold=0.5) is None

    stats = await cache.stats()
    assert (stats.guarded, stats.misses, stats.hits) == (1, 1, 0)


async def test_behind_a_guarded_answer_another_one_is_found(cache: SemanticCache, compass: AngleEmbedder) -> None:
    await cache.put(compass.point("what is the capital of Rome?", 5), "there is none")
    await cache.put(FRANCE, "Paris")

    found = await cache.check("tell me the capital of France")

    assert found is not None
    assert found.response == "Paris"


@pytest.mark.parametrize("other", [{"key": "user-2"}, {"model": "small"}, {"prompt_version": "2"}])
async def test_an_answer_is_given_only_under_its_key_model_and_prompt_version(
    cache: SemanticCache, other: dict[str, Any]
) -> None:
    await cache.put(FRANCE, "Paris", key="user-1", model="large", prompt_version="1")
    asked: dict[str, Any] = {"key": "user-1", "model": "large", "prompt_version": "1"}

    assert await cache.check(FRANCE, **asked) is not None
    assert await cache.check(FRANCE, **(asked | other)) is None
    assert await cache.check("tell me the capital of France", **(asked | other)) is None


async def test_parts_of_a_scope_cannot_run_into_each_other(cache: SemanticCache) -> None:
    await cache.put(FRANCE, "Paris", key="ab", model="c")

    assert await cache.check(FRANCE, key="a", model="bc") is None


async def test_an_answer_must_have_all_tags_that_are_asked_for(cache: SemanticCache) -> None:
    await cache.put(FRANCE, "Paris", tags=["geo", "Europe, west"])

    assert await cache.check(FRANCE, tags=["geo", "Europe, west"]) is not None
    assert await cache.check("tell me the capital of France", tags=["Europe, west"]) is not None
    assert await cache.check(FRANCE, tags=["geo", "asia"]) is None
    assert await cache.check("tell me the capital of France", tags=["europe, west"]) is None


async def test_the_cache_of_another_namespace_is_another_one(hub: Hub, cache: SemanticCache) -> None:
    await cache.put(FRANCE, "Paris")

    assert await hub.store(f"other-{new_id(8)}").cache.check(FRANCE) is None


async def test_all_actors_of_a_namespace_share_its_cache(hub: Hub, namespace: str) -> None:
    await hub.store(namespace, actor="ann").cache.put(FRANCE, "Paris")

    found = await hub.store(namespace, actor="ben").cache.check("tell me the capital of France")

    assert found is not None


@pytest.mark.parametrize(
    "response", [None, "", {"a": [1, {"b": None}]}, b"\x00\xff", datetime(2026, 1, 2, tzinfo=UTC), 1.5]
)
async def test_a_response_is_any_value_that_can_be_written(cache: SemanticCache, response: object) -> None:
    await cache.put(FRANCE, response)

    found = await cache.check(FRANCE)

    assert found is not None
    assert found.response == response


async def test_a_later_answer_takes_the_place_of_an_earlier_one(cache: SemanticCache) -> None:
    await cache.put(FRANCE, "Lyon", tags=["draft"])
    await cache.put(FRANCE, "Paris")

    found = await cache.check("tell me the capital of France")

    assert found is not None
    assert found.response == "Paris"
    assert await cache.check(FRANCE, tags=["draft"]) is None
    assert (await cache.stats()).entries == 1


# -- time -------------------------------------------------------------------------------------------


async def test_an_answer_is_gone_when_its_time_is_over(cache: SemanticCache) -> None:
    await cache.put(FRANCE, "Paris", ttl=0.05)

    async def is_gone() -> bool:
        return await cache.check(FRANCE) is None and await cache.check("tell me the capital of France") is None

    await wait_until(is_gone, description="the answer has expired")


async def test_what_expired_is_told_in_the_log_and_counted_no_more(hub: Hub, cache: SemanticCache) -> None:
    await cache.put(FRANCE, "Paris", ttl=0.05)

    async def entries() -> bool:
        return (await cache.stats()).entries == 0

    await wait_until(entries, description="the answer is counted no more")


# -- forgetting -------------------------------------------------------------------------------------


async def test_answers_are_invalidated_by_tag(cache: SemanticCache) -> None:
    await cache.put(FRANCE, "Paris", tags=["geo"])
    await cache.put("how large is France", "543,940 km²", tags=["geo", "numbers"])

    assert await cache.delete(tag="numbers") == 1
    assert await cache.check("how large is France") is None
    assert await cache.check(FRANCE) is not None
    assert await cache.delete(tag="geo") == 1
    assert await cache.delete(tag="geo") == 0
    assert await cache.check("tell me the capital of France") is None


async def test_answers_are_listed_in_pages_and_by_tag(cache: SemanticCache) -> None:
    await cache.put(FRANCE, {"city": "Paris"}, ttl=300, tags=["geo", "city"], cost=0.5, tokens=20)
    await cache.put("how large is France", "543,940 km²", ttl=600, tags=["geo"])
    await cache.put("what is the capital of Spain?", "Madrid", ttl=100)

    first = await cache.list(limit=2)
    rest = await cache.list(limit=2, cursor=first.cursor)
    assert [one.prompt for one in first.answers] == ["how large is France", FRANCE]
    assert ([one.response for one in rest.answers], rest.cursor) == (["Madrid"], None)
    paris = first.answers[1]
    assert (paris.response, paris.tags, paris.cost, paris.tokens) == ({"city": "Paris"}, ("city", "geo"), 0.5, 20)
    assert paris.expires_at is not None
    assert round((paris.expires_at - paris.created_at).total_seconds()) == 300

    tagged = [page := await cache.list("geo", limit=1), await cache.list("geo", limit=1, cursor=page.cursor)]
    assert {one.prompt for page in tagged for one in page.answers} == {FRANCE, "how large is France"}
    assert (await cache.list("none")).answers == []
    for wrong in ({"limit": 0}, {"limit": 1001}, {"cursor": "x"}, {"tag": "x" * 2000}):
        with pytest.raises(InvalidError):
            await cache.list(**wrong)


async def test_answers_are_invalidated_by_prompt_whatever_the_model(cache: SemanticCache) -> None:
    await cache.put(FRANCE, "Paris", model="small")
    await cache.put(FRANCE, "Paris!", model="large")
    await cache.put("how large is France", "large")

    assert await cache.delete(prompt="What is the capital of france?") == 2
    assert (await cache.stats()).entries == 1


async def test_answers_are_invalidated_by_key_and_by_all_that_is_said(cache: SemanticCache) -> None:
    await cache.put(FRANCE, "Paris", key="user-1", tags=["geo"])
    await cache.put("how large is France", "large", key="user-1")
    await cache.put(FRANCE, "Paris", key="user-2", tags=["geo"])

    assert await cache.delete(key="user-1", tag="geo") == 1
    assert await cache.delete(key="user-1") == 1
    assert (await cache.stats()).entries == 1


async def test_to_invalidate_nothing_in_particular_is_refused(cache: SemanticCache) -> None:
    with pytest.raises(InvalidError, match="give a tag"):
        await cache.delete()


async def test_a_cleared_cache_is_empty_and_can_be_filled_again(cache: SemanticCache) -> None:
    await asyncio.gather(*(cache.put(f"question {number}", number) for number in range(600)))

    assert await cache.clear() == 600
    assert await cache.clear() == 0
    assert await cache.check("question 7") is None
    await cache.put("question 7", "seven")
    assert await cache.check("question 7") is not None


# -- how it does ------------------------------------------------------------------------------------


async def test_hits_misses_and_what_they_saved_are_counted(hub: Hub, cache: SemanticCache) -> None:
    await cache.put(FRANCE, "Paris", cost=0.25, tokens=40)
    await cache.check(FRANCE)
    await cache.check("tell me the capital of France")
    await cache.check("how large is France")

    stats = await cache.stats()

    assert (stats.hits, stats.exact_hits, stats.misses, stats.entries) == (2, 1, 1, 1)
    assert (stats.saved_cost, stats.saved_tokens) == (0.5, 80)
    assert stats.hit_rate == pytest.approx(2 / 3)
    assert [hub.counters.read("cache_checks", outcome=what) for what in ("exact", "near", "miss")] == [1, 1, 1]


async def test_a_false_hit_that_is_reported_is_counted(cache: SemanticCache) -> None:
    found = await cache.put(FRANCE, "Paris")

    await cache.report_false_hit(found)

    assert (await cache.stats()).false_hits == 1


async def test_counts_are_not_lost_when_the_hub_closes(
    redis_url: str, settings: Settings, hub: Hub, namespace: str
) -> None:
    if hub.url != redis_url and "fake" in hub.url:
        pytest.skip("a fake server is gone with its hub")
    async with Hub(redis_url, settings=settings.replace(prefix="compass"), embedder=AngleEmbedder()) as another:
        for _ in range(20):
            await another.store(namespace).cache.check("never asked")

    assert (await hub.store(namespace).cache.stats()).misses == 20


async def test_counts_of_several_hubs_add_up(hub: Hub, namespace: str) -> None:
    stores = [hub.store(namespace, actor=f"a{number}") for number in range(5)]

    await asyncio.gather(*(store.cache.check("never asked") for store in stores for _ in range(10)))

    assert (await stores[0].cache.stats()).misses == 50


# -- bad input and faults ---------------------------------------------------------------------------


@pytest.mark.parametrize("prompt", ["", "  \n ", None, 7, b"bytes", "half \ud83d"])
async def test_what_is_no_prompt_is_refused(cache: SemanticCache, prompt: Any) -> None:
    with pytest.raises(InvalidError, match="prompt"):
        await cache.check(prompt)
    with pytest.raises(InvalidError, match="prompt"):
        await cache.put(prompt, "answer")


@pytest.mark.parametrize("threshold", [0, -0.5, 1.01, float("nan"), True, "high"])
async def test_a_threshold_out_of_range_is_refused(cache: SemanticCache, threshold: Any) -> None:
    with pytest.raises(InvalidError, match="threshold"):
        await cache.check(FRANCE, threshold=threshold)


@pytest.mark.parametrize(
    "wrong",
    [
        {"ttl": 0},
        {"ttl": "soon"},
        {"tags": "geo"},
        {"tags": [""]},
        {"tags": [7]},
        {"tags": [str(number) for number in range(65)]},
        {"key": "x" * 1025},
        {"model": None},
        {"cost": -1},
        {"cost": float("inf")},
        {"tokens": 1.5},
    ],
)
async def test_a_wrong_argument_changes_nothing(cache: SemanticCache, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidError):
        await cache.put(FRANCE, "Paris", **wrong)

    assert (await cache.stats()).entries == 0


async def test_a_response_that_cannot_be_coded_is_refused(cache: SemanticCache) -> None:
    with pytest.raises(InvalidError, match="value"):
        await cache.put(FRANCE, object())


async def test_a_prompt_of_a_megabyte_is_found_by_its_exact_text(cache: SemanticCache, compass: AngleEmbedder) -> None:
    prompt = "one more word, " * 70_000

    await cache.put(prompt, "that was long")

    found = await cache.check(prompt.upper())
    assert found is not None
    assert found.response == "that was long"
    assert await cache.check(prompt + "!") is None
    assert not compass.asked


@pytest.mark.parametrize("prompt", ["🙂", "מה הבירה", "首都是哪里", "@ns:{*} | (-x)", "%s \x1f {} \x00", "?!"])
async def test_odd_prompts_are_kept_and_found(cache: SemanticCache, compass: AngleEmbedder, prompt: str) -> None:
    compass.point(prompt, 200)
    await cache.put(prompt, "an answer", key=prompt, tags=[prompt])

    assert await cache.check(prompt, key=prompt, tags=[prompt]) is not None
    assert await cache.check(compass.point(f"{prompt} ", 200), key=prompt, tags=[prompt]) is not None
    assert await cache.check(prompt, key=prompt, tags=[f"{prompt}*"]) is None
    assert await cache.delete(tag=prompt) == 1


async def test_prompts_without_a_meaning_are_near_to_nothing(cache: SemanticCache, hub: Hub) -> None:
    await cache.put("zero", "nothing")

    assert await cache.check("naught", threshold=0.01) is None
    assert await cache.check("zero") is not None
    assert hub.counters.read("cache_blind", reason="zero") == 2


async def test_while_the_provider_is_down_the_same_prompt_is_still_found(
    cache: SemanticCache, compass: AngleEmbedder, hub: Hub
) -> None:
    compass.failure = UnavailableError("the provider", "it is down")
    await cache.put(FRANCE, "Paris")

    assert await cache.check(FRANCE) is not None
    assert await cache.check("tell me the capital of France") is None
    assert hub.counters.read("cache_blind", reason="failed") == 2


async def test_an_index_of_another_embedder_is_told_and_the_same_prompt_still_found_by_calls(
    redis_url: str, settings: Settings, namespace: str, hub: Hub, cache: SemanticCache
) -> None:
    if "fake" in hub.url:
        pytest.skip("an index of this process forgets with it")
    await cache.put(FRANCE, "Paris", key="k")
    await cache.check("how large is France")

    async with Hub(redis_url, settings=settings.replace(prefix="compass", embedder="hashing")) as another:
        other = another.store(namespace).cache

        assert await other.cached(key="k")(_never)(FRANCE) == "Paris"
        assert await other.cached(key="k")(_echo)("something else") == "something else"
        assert await other.cached(key="k")(_never)("something else") == "something else"


async def _never(prompt: str) -> str:
    raise AssertionError(prompt)


async def _echo(prompt: str) -> str:
    return prompt


async def test_a_setting_that_was_chosen_goes_before_what_was_calibrated(
    settings: Settings, compass: AngleEmbedder
) -> None:
    compass.name = "wordllama:l2_supercat-64"  # 0.982
    compass.point("the capital of France", 11)  # 0.9816
    for chosen, is_found in ((settings, False), (settings.replace(cache_similarity=0.97), True)):
        async with Hub(settings=chosen, connect=connect_to_fake(), embedder=compass) as hub:
            await hub.store("n").cache.put(FRANCE, "Paris")

            assert (await hub.store("n").cache.check("the capital of France") is not None) is is_found


async def test_who_may_not_write_the_cache_may_read_it(hub: Hub, namespace: str, cache: SemanticCache) -> None:
    await cache.put(FRANCE, "Paris")
    reader = hub.store(namespace, actor="reader").cache

    assert await reader.check(FRANCE) is not None


async def test_the_cache_of_a_namespace_is_gone_when_the_namespace_is_cleared(store: SharedMemoryStore) -> None:
    await store.cache.put(FRANCE, "Paris")
    await store.cache.stats()

    await store.clear()

    assert await store.cache.check("tell me the capital of France") is None
    assert (await store.cache.stats()).entries == 0


async def test_a_foreign_value_in_the_place_of_an_answer_is_told(
    redis_url: str, hub: Hub, namespace: str, cache: SemanticCache
) -> None:
    if "fake" in hub.url:
        pytest.skip("no other client can write to this one")
    id_ = await cache.put(FRANCE, "Paris")
    async with Redis.from_url(redis_url) as foreigner:
        await foreigner.delete(f"compass:$cache:{{{namespace}}}:{id_}")
        await foreigner.set(f"compass:$cache:{{{namespace}}}:{id_}", "foreign", ex=60)

        with pytest.raises(CorruptionError, match="should be a hash; delete it: the question is asked again"):
            await cache.check(FRANCE)
        assert await cache.cached(key="")(_echo)(FRANCE) == FRANCE
        await cache.put(FRANCE, "Paris")
        assert await cache.check(FRANCE) is not None


async def test_many_answers_come_and_go_without_leaving_traces(store: SharedMemoryStore) -> None:
    for number in range(40):
        await store.cache.put(f"question {number}", number, ttl=0.001)

    async def is_swept() -> bool:
        await store.cache.put("the last one", "answer")
        return (await store.cache.stats()).entries == 1

    await wait_until(is_swept, description="expired answers are swept")
    assert await store.cache.clear() >= 1
    assert await store.cache.clear() == 0


async def test_changes_of_the_cache_are_announced(store: SharedMemoryStore) -> None:
    id_ = await store.cache.put(FRANCE, "Paris")
    await store.cache.delete(prompt=FRANCE)

    seen = []
    async for change in store.watch(f"{store.namespace}:$cache:*", since="0"):
        seen.append((change.operation, change.key))
        if len(seen) == 2:
            break

    assert seen == [
        ("cache.put", f"{store.namespace}:$cache:{id_}"),
        ("cache.dropped", f"{store.namespace}:$cache:{id_}"),
    ]


async def test_a_hit_is_logged_with_what_it_saved_and_without_texts(
    store: SharedMemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    id_ = await store.cache.put(FRANCE, "Paris", cost=0.002, tokens=120)
    with caplog.at_level(logging.INFO, logger="sharedmem.cache"):
        await store.cache.check("a prompt without an answer")
        await store.cache.check(FRANCE)

    (record,) = [record for record in caplog.records if record.message == "cache hit"]
    fields = vars(record)
    assert (fields["answer_id"], fields["exact"], fields["similarity"]) == (id_, True, 1.0)
    assert (fields["saved_cost"], fields["saved_tokens"]) == (0.002, 120)
    assert fields["latency_ms"] > 0
    assert "Paris" not in JsonFormatter().format(record)
    assert FRANCE not in JsonFormatter().format(record)
