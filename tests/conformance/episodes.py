"""What every backend of episodic memory has to do, as tests that a backend's test file inherits."""
# a test's name is its sentence

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from sharedmem.errors import InvalidError
from sharedmem.hub import Hub
from sharedmem.store import SharedMemoryStore
from sharedmem.testing.pytest_required import pytest
from sharedmem.testing.store_fixtures import StoreFixtures

_PAGE = 100


class EpisodeSuite(StoreFixtures):
    """The whole public API of `store.episodes`; a backend's test class gives the fixture `hub`, an open `Hub`."""

    # -- events -----------------------------------------------------------------------------------

    async def test_events_come_back_in_order_with_who_and_when(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore
    ) -> None:
        before = datetime.now(UTC) - timedelta(minutes=1)
        assert await ada.episodes.append_event("s1", "The lock is free.") == 1
        assert await bob.episodes.append_event("s1", {"by": "bob", "text": "Mine then."}) == 2

        first, second = await ada.episodes.events("s1")

        assert (first.actor, first.event) == ("ada", "The lock is free.")
        assert (second.actor, second.event) == ("bob", {"by": "bob", "text": "Mine then."})
        assert before < first.at < second.at < before + timedelta(minutes=10)

    @pytest.mark.parametrize("event", ["", "zwölf 🦆", 7, 2.5, None, True, [1, {"a": []}], b"\x00raw", {"n": 2**70}])
    async def test_an_event_keeps_its_value(self, ada: SharedMemoryStore, event: Any) -> None:
        await ada.episodes.append_event("s1", event)

        assert [kept.event for kept in await ada.episodes.events("s1")] == [event]
        assert len(await ada.episodes.retrieve("")) == 1
        assert await ada.episodes.summarize_episode("s1") is not None

    async def test_a_session_without_events_is_empty(self, ada: SharedMemoryStore) -> None:
        assert await ada.episodes.events("nothing") == []
        assert await ada.episodes.summarize_episode("nothing") is None
        assert await ada.episodes.retrieve("anything") == []
        assert await ada.episodes.sessions() == []

    async def test_a_reader_goes_on_after_the_cursor_it_has(self, ada: SharedMemoryStore) -> None:
        await asyncio.gather(*(ada.episodes.append_event("s1", number) for number in range(2 * _PAGE + 30)))

        whole = await ada.episodes.events("s1")
        start = await ada.episodes.events("s1", limit=_PAGE + 10)
        rest = await ada.episodes.events("s1", since=start[-1].cursor)

        assert start + rest == whole
        assert sorted(event.event for event in whole) == list(range(2 * _PAGE + 30))

    async def test_events_are_read_since_a_moment(self, ada: SharedMemoryStore) -> None:
        await ada.episodes.append_event("s1", "first")
        (first,) = await ada.episodes.events("s1")
        await ada.episodes.append_event("s1", "second")

        version = int(first.cursor.partition("-")[0])
        for since in (first.cursor, version, first.at, first.at.isoformat()):
            assert [event.event for event in await ada.episodes.events("s1", since=since)] == ["second"]
        assert len(await ada.episodes.events("s1", since=0)) == 2

    async def test_racing_appends_are_all_kept_and_counted(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore
    ) -> None:
        counts = await asyncio.gather(
            *(store.episodes.append_event("s1", number) for number in range(25) for store in (ada, bob))
        )

        assert sorted(counts) == list(range(1, 51))

    @pytest.mark.parametrize("session", ["", "a:b", "a b", "a*", "$own", "x" * 200, None, 7])
    async def test_a_session_without_a_sound_name_is_refused(self, ada: SharedMemoryStore, session: Any) -> None:
        refusals = (
            ada.episodes.append_event(session, "text"),
            ada.episodes.events(session),
            ada.episodes.summarize_episode(session),
            ada.episodes.retrieve("x", filters={"session": session or ""}),
        )
        for refused in refusals:
            with pytest.raises(InvalidError, match="session"):
                await refused

        assert await ada.episodes.sessions() == []

    async def test_what_cannot_be_an_event_is_refused(self, ada: SharedMemoryStore) -> None:
        for event in (object(), {"deep": {1.5: 2}}, "x" * 300_000):
            with pytest.raises(InvalidError):
                await ada.episodes.append_event("s1", event)

        assert await ada.episodes.sessions() == []

    @pytest.mark.parametrize("asked", [{"limit": 0}, {"limit": True}, {"since": "yesterday"}, {"since": -1}])
    async def test_an_impossible_span_is_refused(self, ada: SharedMemoryStore, asked: dict[str, Any]) -> None:
        with pytest.raises(InvalidError):
            await ada.episodes.events("s1", **asked)

    async def test_an_event_is_announced(self, ada: SharedMemoryStore, namespace: str) -> None:
        await ada.episodes.append_event("s1", "hello")

        change = await anext(ada.watch(f"{namespace}:*", since=0))

        assert (change.operation, change.actor) == ("episode.append", "ada")
        assert change.key.endswith(":s1")
        assert change.cursor == (await ada.episodes.events("s1"))[0].cursor

    # -- sessions ---------------------------------------------------------------------------------

    async def test_sessions_are_listed_by_their_newest_event(self, ada: SharedMemoryStore) -> None:
        for session in ("one", "two", "three", "one"):
            await ada.episodes.append_event(session, "something")

        assert await ada.episodes.sessions() == ["one", "three", "two"]

    async def test_namespaces_do_not_see_each_others_sessions(self, hub: Hub, ada: SharedMemoryStore) -> None:
        await ada.episodes.append_event("s1", "a secret")
        stranger = hub.store("suite-stranger", actor="ada")

        assert await stranger.episodes.events("s1") == []
        assert await stranger.episodes.sessions() == []
        assert await stranger.episodes.retrieve("secret") == []
        assert await stranger.episodes.summarize_episode("s1") is None

    async def test_clearing_the_namespace_forgets_its_episodes(
        self, ada: SharedMemoryStore, team: SharedMemoryStore
    ) -> None:
        await ada.episodes.append_event("s1", "something")
        await ada.episodes.summarize_episode("s1")
        await team.clear()

        assert await ada.episodes.sessions() == []
        assert await ada.episodes.summarize_episode("s1") is None
        assert await ada.episodes.append_event("s1", "anew") == 1

    # -- summaries --------------------------------------------------------------------------------

    async def test_a_summary_quotes_the_session(self, ada: SharedMemoryStore) -> None:
        await ada.episodes.append_event("s1", {"by": "ada", "text": "Order 4711 was filled at 101.25."})
        await ada.episodes.append_event("s1", "Order 4711 was filled at 101.25.")

        told = "ada: Order 4711 was filled at 101.25.\nOrder 4711 was filled at 101.25."
        assert await ada.episodes.summarize_episode("s1") == told

    async def test_a_summary_is_kept_until_something_happens(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore
    ) -> None:
        await ada.episodes.append_event("s1", "The kettle boils.")
        first = await ada.episodes.summarize_episode("s1")
        kept = await bob.episodes.retrieve("KETTLE", k=9)
        await bob.episodes.append_event("s1", "Tea is served.")

        assert kept == ["The kettle boils.", first]
        assert await bob.episodes.summarize_episode("s1") == "The kettle boils.\nTea is served."

    async def test_a_long_session_has_a_short_summary(self, ada: SharedMemoryStore) -> None:
        filler = (f"Nothing happened in minute {number}." for number in range(150))
        await asyncio.gather(*(ada.episodes.append_event("s1", text) for text in filler))

        summary = await ada.episodes.summarize_episode("s1")

        assert summary is not None
        assert 0 < len(summary.splitlines()) <= 7
        assert set(summary.splitlines()) <= {event.event for event in await ada.episodes.events("s1")}

    # -- finding ----------------------------------------------------------------------------------

    async def test_the_newest_matches_come_first_whatever_the_session(self, ada: SharedMemoryStore) -> None:
        for number in range(12):
            await ada.episodes.append_event(f"s{number % 3}", f"Report {number} of the STRASSE")

        found = await ada.episodes.retrieve("straße", k=4)

        assert found == [f"Report {number} of the STRASSE" for number in (11, 10, 9, 8)]
        assert len(await ada.episodes.retrieve("report")) == 5
        assert await ada.episodes.retrieve("report 7 ") == ["Report 7 of the STRASSE"]

    async def test_an_old_match_behind_many_events_is_found(self, ada: SharedMemoryStore) -> None:
        await ada.episodes.append_event("s1", "the needle")
        await asyncio.gather(*(ada.episodes.append_event("s1", f"hay {n}") for n in range(2 * _PAGE + 10)))

        assert await ada.episodes.retrieve("needle") == ["the needle"]
        assert len(await ada.episodes.retrieve("hay", k=1000)) == 2 * _PAGE + 10

    @pytest.mark.parametrize("query", ["*", "%", ".*", "a.c", "[a-z]", "') OR 1=1", "@actor:{ada}", "\\"])
    async def test_a_query_means_what_it_says(self, ada: SharedMemoryStore, query: str) -> None:
        await ada.episodes.append_event("s1", "plain words, abc")
        await ada.episodes.append_event("s1", f"odd: {query}!")

        assert await ada.episodes.retrieve(query) == [f"odd: {query}!"]

    async def test_filters_narrow_the_search(self, ada: SharedMemoryStore, bob: SharedMemoryStore) -> None:
        await ada.episodes.append_event("s1", "note one")
        await bob.episodes.append_event("s1", "note two")
        await ada.episodes.append_event("s2", "note three")
        one, two = await ada.episodes.events("s1")

        async def found(**filters: object) -> list[str]:
            return await ada.episodes.retrieve("note", k=9, filters=filters)

        assert await found(session="s1") == ["note two", "note one"]
        assert await found(actor="ada") == ["note three", "note one"]
        assert await found(session="s1", actor="bob") == ["note two"]
        assert await found(since=one.cursor) == ["note three", "note two"]
        assert await found(until=two.cursor) == ["note two", "note one"]
        assert await found(since=one.at, until=two.at.isoformat()) == ["note two"]
        assert await found(session="elsewhere") == []
        assert await found(session=None) == ["note three", "note two", "note one"]

    async def test_a_summary_is_as_old_as_what_it_tells_and_has_no_one_author(self, ada: SharedMemoryStore) -> None:
        await ada.episodes.append_event("s1", "note one")
        summary = await ada.episodes.summarize_episode("s1")
        await ada.episodes.append_event("s1", "note two")
        one, two = await ada.episodes.events("s1")

        async def found(**filters: object) -> list[str]:
            return await ada.episodes.retrieve("note", k=9, filters=filters)

        assert await found() == ["note two", "note one", summary]
        assert await found(actor="ada") == ["note two", "note one"]
        assert await found(since=one.cursor) == ["note two"]
        assert await found(until=one.cursor) == ["note one", summary]
        assert await found(until=int(one.cursor.partition("-")[0]) - 1) == []
        assert await found(since=two.cursor) == []

    @pytest.mark.parametrize(
        "asked",
        [
            {"k": 0},
            {"k": 1.5},
            {"filters": {"mood": "good"}},
            {"filters": {"actor": "a b"}},
            {"filters": {"since": datetime(2026, 1, 1)}},  # noqa: DTZ001  # without a zone it is no moment
            {"query": b"bytes"},
        ],
    )
    async def test_an_impossible_search_is_refused(self, ada: SharedMemoryStore, asked: dict[str, Any]) -> None:
        with pytest.raises(InvalidError):
            await ada.episodes.retrieve(**{"query": "x", **asked})
