"""Episodic memory on every face and server; lives and caps; what a lost reply leaves; rivals of the substring."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import cast

import pytest
from conformance.episodes import EpisodeSuite
from redis import Redis
from support.angle_embedder import AngleEmbedder
from support.backends import OnFakeredis, ThroughTheSyncFace
from support.chaos_proxy import ChaosProxy
from support.contexts import context_of, scope_of
from support.faulty_hubs import hub_without_ids, persistent_settings
from support.redis_process import RedisProcess

from sharedmem import Hub, Settings, SharedMemoryStore, UnavailableError
from sharedmem.episodes import EpisodeFilter, EpisodeLog, Episodes
from sharedmem.redis.scripts import scripts
from sharedmem.redis.scripts.knowledge import EpisodeScripts
from sharedmem.testing import ManualClock, fake_hub

APPEND, SUMMARIZE = (scripts()[name].digest.encode() for name in ("episode_append", "episode_summarize"))


class TestEpisodesOnFakeredis(OnFakeredis, EpisodeSuite):
    """Every promise, on fakeredis."""


class TestEpisodesOnARealServer(EpisodeSuite):
    """Every promise, on a real server."""


@pytest.mark.nightly
class TestEpisodesThroughTheSyncFace(ThroughTheSyncFace, EpisodeSuite):
    """Every promise, through the sync face."""


def log_of(store: SharedMemoryStore) -> EpisodeLog:
    """What the episodes of a store are read from."""
    return EpisodeLog(context_of(store).client, scope_of(store))


# -- lives and caps -------------------------------------------------------------------------------


async def test_an_episode_keeps_its_newest_events(redis_url: str, settings: Settings, namespace: str) -> None:
    async with Hub.open(redis_url, settings=settings.replace(episode_events=3)) as hub:
        episodes = hub.store(namespace).episodes
        lengths = [await episodes.append_event("s1", number) for number in range(6)]

        assert lengths == [1, 2, 3, 3, 3, 3]
        assert [event.event for event in await episodes.events("s1")] == [3, 4, 5]


async def test_an_episode_is_forgotten_when_nothing_happens_any_more() -> None:
    clock = ManualClock()
    async with fake_hub(clock=clock, settings=Settings(session_ttl_s=60)) as hub:
        episodes = hub.store("n").episodes
        await episodes.append_event("old", "long ago")
        await episodes.append_event("lively", "long ago")
        await episodes.summarize_episode("lively")
        clock.advance(45)
        await episodes.append_event("lively", "just now")
        clock.advance(45)

        assert await episodes.sessions() == ["lively"]
        assert await episodes.retrieve("long ago", k=9) == ["long ago", "long ago"]
        assert await episodes.events("old") == []


async def test_the_index_forgets_sessions_that_have_expired() -> None:
    clock = ManualClock()
    async with fake_hub(clock=clock, settings=Settings(session_ttl_s=60)) as hub:
        store = hub.store("n")
        for number in range(5):
            await store.episodes.append_event(f"old-{number}", "long ago")
        clock.advance(30)
        await store.episodes.append_event("new", "now")
        clock.advance(40)
        await store.episodes.append_event("new", "now")

        visits = [visit.session async for page in log_of(store).session_activity() for visit in page]
        assert visits == ["new"]


async def test_a_session_that_moves_on_during_a_search_is_not_passed_over(store: SharedMemoryStore) -> None:
    for number in range(3):
        await store.episodes.append_event(f"s{number}", "note")
    pages = log_of(store).session_activity()
    first = await anext(pages)
    await store.episodes.append_event("s0", "moved on")
    rest = [visit.session async for page in pages for visit in page]

    assert [visit.session for visit in first] == ["s2", "s1", "s0"]
    assert rest == ["s0"]


# -- faults ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bare_server() -> Iterator[RedisProcess]:
    with RedisProcess() as server:
        yield server


@pytest.fixture
async def proxy(bare_server: RedisProcess) -> AsyncIterator[ChaosProxy]:
    bare_server.tell("FLUSHALL")
    async with ChaosProxy(bare_server.url) as proxy:
        yield proxy


@pytest.mark.parametrize("times", [1, 2])
async def test_an_event_whose_reply_was_lost_is_appended_once(proxy: ChaosProxy, times: int) -> None:
    async with Hub.open(settings=persistent_settings(proxy.url)) as hub:
        episodes = hub.store("n", actor="a").episodes
        proxy.lose_replies(APPEND, times)

        assert await episodes.append_event("s1", "once") == 1
        assert [event.event for event in await episodes.events("s1")] == ["once"]
    assert proxy.cuts == times


async def test_control_without_operation_ids_an_event_is_appended_twice(proxy: ChaosProxy) -> None:
    async with hub_without_ids(persistent_settings(proxy.url)) as hub:
        episodes = hub.store("n", actor="a").episodes
        proxy.lose_replies(APPEND, 1)

        assert await episodes.append_event("s1", "once") == 2


async def test_a_summary_whose_reply_was_lost_is_kept(proxy: ChaosProxy, bare_server: RedisProcess) -> None:
    async with Hub.open(settings=persistent_settings(proxy.url)) as hub:
        episodes = hub.store("n", actor="a").episodes
        await episodes.append_event("s1", "All is said.")
        proxy.lose_replies(SUMMARIZE, 1)

        assert await episodes.summarize_episode("s1") == "All is said."
    with bare_server.client() as client:
        kept = cast("bytes", client.get("sm:{n}:$episode.summary:shared:s1"))
    assert kept.endswith(b" All is said.")


async def test_an_older_summary_never_replaces_a_newer_one(store: SharedMemoryStore, redis_url: str) -> None:
    episodes = store.episodes
    await episodes.append_event("s1", "First.")
    log = log_of(store)
    target, keys = log.place("s1", "write")
    _, first = await log.state(keys)
    await episodes.append_event("s1", "Second.")
    newest = await episodes.summarize_episode("s1")

    kept = await EpisodeScripts(context_of(store).executor).episode_summarize(
        target.space, keys.episode, keys.summary, b"late", upto=first, text=b"First."
    )

    assert not kept
    assert await episodes.summarize_episode("s1") == newest
    with Redis.from_url(redis_url) as client:
        assert cast("int", client.pttl(keys.summary)) > 0


async def test_readers_and_writers_of_many_sessions_do_not_disturb_each_other(store: SharedMemoryStore) -> None:
    async def live(session: str) -> None:
        for number in range(10):
            await store.episodes.append_event(session, f"event {number}")
            await store.episodes.retrieve("event 3")
        assert await store.episodes.summarize_episode(session)

    await asyncio.gather(*(live(f"s{number}") for number in range(8)))

    assert len(await store.episodes.sessions()) == 8
    assert len(await store.episodes.retrieve("event", k=1000, filters={"since": 0})) == 88


# -- words and meaning ----------------------------------------------------------------------------


@pytest.fixture
async def compass() -> AsyncIterator[tuple[SharedMemoryStore, AngleEmbedder]]:
    embedder = AngleEmbedder()
    async with fake_hub(embedder=embedder) as hub:
        yield hub.store("pier", actor="ada"), embedder


async def test_what_no_event_contains_is_found_by_its_words(compass: tuple[SharedMemoryStore, AngleEmbedder]) -> None:
    store, _ = compass
    for text in ("The pump has failed twice.", "Tea is served at four.", "A failure of the pumps in the harbour"):
        await store.episodes.append_event("night", text)

    found = await store.episodes.retrieve("pumps failed")

    assert found == ["The pump has failed twice.", "A failure of the pumps in the harbour"]


async def test_what_shares_no_word_is_found_by_its_meaning(compass: tuple[SharedMemoryStore, AngleEmbedder]) -> None:
    store, embedder = compass
    for text, degrees in (("She moved to York.", 20), ("Tea is served at four.", 80)):
        await store.episodes.append_event("night", embedder.point(text, degrees))
    embedder.point("Which city is home?", 0)

    assert await store.episodes.retrieve("Which city is home?") == ["She moved to York."]


async def test_an_exact_quote_asks_no_embedder(compass: tuple[SharedMemoryStore, AngleEmbedder]) -> None:
    store, embedder = compass
    await store.episodes.append_event("night", "The pump has failed twice.")

    assert await store.episodes.retrieve("PUMP has") == ["The pump has failed twice."]
    assert embedder.asked == []


async def test_filters_hold_for_words_and_meaning_too(compass: tuple[SharedMemoryStore, AngleEmbedder]) -> None:
    store, _ = compass
    await store.episodes.append_event("night", "The pump has failed twice.")
    await store.episodes.append_event("day", "The pumps are failing again.")

    assert await store.episodes.retrieve("failing pump", filters={"session": "night"}) == ["The pump has failed twice."]
    assert await store.episodes.retrieve("failing pump", filters={"actor": "bob"}) == []


async def test_an_embedder_that_cannot_be_reached_is_named(compass: tuple[SharedMemoryStore, AngleEmbedder]) -> None:
    store, embedder = compass
    await store.episodes.append_event("night", "The pump has failed twice.")
    embedder.failure = UnavailableError("the embedder", "it is away")

    with pytest.raises(UnavailableError, match="it is away"):
        await store.episodes.retrieve("failing pump")


# -- the door for other ways to find --------------------------------------------------------------


class Parrot:
    """A finder that answers what it was asked."""

    async def find(self, query: str, k: int, wanted: EpisodeFilter) -> list[str]:
        return [f"{query} {k} {wanted.session}"]


async def test_another_finder_can_take_the_place_of_the_substring(store: SharedMemoryStore) -> None:
    episodes = Episodes(context_of(store), scope_of(store), finder=Parrot())

    assert await episodes.retrieve("tides", k=2, filters={"session": "s1"}) == ["tides 2 s1"]
