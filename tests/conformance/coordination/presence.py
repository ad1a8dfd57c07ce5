"""What presence promises on every backend."""

# a test's name is its sentence

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, cast

import pytest

from sharedmem.errors import InvalidError
from sharedmem.models import Change
from sharedmem.store import SharedMemoryStore
from sharedmem.testing.store_fixtures import StoreFixtures, eventually


@asynccontextmanager
async def next_event_named(store: SharedMemoryStore) -> AsyncIterator[AsyncIterator[Change]]:
    """The comings and goings of a namespace from its beginning on."""
    pattern = f"{store.namespace}:$presence:*"
    async with aclosing(cast("AsyncGenerator[Change, None]", store.watch(pattern, since=0))) as changes:
        yield changes


async def next_event(changes: AsyncIterator[Change], count: int) -> list[tuple[str, str]]:
    """(operation, actor) of the next changes."""
    found = [await anext(changes) for _ in range(count)]
    return [(change.operation, change.key.rpartition(":")[2]) for change in found]


class PresenceSuite(StoreFixtures):
    """`presence`."""

    async def test_who_is_here_is_seen_by_all_with_role_and_more(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore, team: SharedMemoryStore
    ) -> None:
        async with ada.presence.here(role="planner", info={"model": "small"}, ttl=30), bob.presence.here():
            everybody = await team.presence.list()
            planners = await bob.presence.list("planner")

        assert [(one.actor, one.role, one.info) for one in everybody] == [
            ("ada", "planner", {"model": "small"}),
            ("bob", "", None),
        ]
        assert [one.actor for one in planners] == ["ada"]
        assert everybody[0].since <= everybody[0].last_seen
        assert 0 < everybody[1].remaining <= 15 < everybody[0].remaining <= 30

    async def test_who_leaves_is_not_here(self, ada: SharedMemoryStore, team: SharedMemoryStore) -> None:
        async with ada.presence.here():
            pass

        assert await team.presence.list() == []
        assert not await ada.presence.leave()

    async def test_the_block_gets_the_presence(self, ada: SharedMemoryStore) -> None:
        async with ada.presence.here() as presence:
            assert [one.actor for one in await presence.list()] == ["ada"]

    async def test_a_heartbeat_keeps_who_is_here_for_longer_than_its_ttl(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore
    ) -> None:
        async with ada.presence.here(ttl=2):
            (first,) = await bob.presence.list()

            async def was_heard_of_thrice() -> bool:
                (now,) = await bob.presence.list()
                return (now.last_seen - first.last_seen).total_seconds() > 1.5 and now.since == first.since

            await eventually(was_heard_of_thrice)

    async def test_coming_and_going_is_told_once_each(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore, team: SharedMemoryStore
    ) -> None:
        async with next_event_named(team) as changes:
            async with ada.presence.here():
                await bob.presence.announce()
                await bob.presence.announce(role="changed")
                assert (await bob.presence.list("changed"))[0].actor == "bob"
                await bob.presence.leave()
            seen = await next_event(changes, 4)

        assert seen == [
            ("presence.join", "ada"),
            ("presence.join", "bob"),
            ("presence.leave", "bob"),
            ("presence.leave", "ada"),
        ]

    async def test_who_is_not_heard_of_lapses_which_is_told_once_in_order_and_joins_anew(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore, team: SharedMemoryStore
    ) -> None:
        async def nobody() -> bool:
            return not await team.presence.list()

        async with next_event_named(team) as changes:
            await bob.presence.announce(ttl=0.3)
            await ada.presence.announce(ttl=0.32)
            await eventually(nobody)
            assert not await ada.presence.leave()
            await bob.presence.announce()
            seen = await next_event(changes, 5)

        assert seen == [
            ("presence.join", "bob"),
            ("presence.join", "ada"),
            ("presence.lapse", "bob"),
            ("presence.lapse", "ada"),
            ("presence.join", "bob"),
        ]

    async def test_of_two_processes_under_one_name_the_last_to_speak_is_seen(
        self, hub: Any, ada: SharedMemoryStore, namespace: str
    ) -> None:
        twin = hub.store(namespace, actor="ada")
        await ada.presence.announce(role="first")
        await twin.presence.announce(role="second")

        assert [(one.actor, one.role) for one in await ada.presence.list()] == [("ada", "second")]
        assert await ada.presence.leave()
        assert await twin.presence.list() == []

    async def test_a_store_seen_on_the_shared_scope_is_the_same_actor(self, ada: SharedMemoryStore) -> None:
        async with ada.shared.presence.here():
            assert [one.actor for one in await ada.presence.list()] == ["ada"]

    async def test_a_store_without_actor_can_look_but_not_be_here(self, team: SharedMemoryStore) -> None:
        assert await team.presence.list() == []
        with pytest.raises(InvalidError, match="actor="):
            await team.presence.announce()
        with pytest.raises(InvalidError, match="actor="):
            await team.presence.leave()
        with pytest.raises(InvalidError, match="actor="):
            async with team.presence.here():
                pass

    @pytest.mark.parametrize(
        "bad",
        [
            {"role": 3},
            {"role": "x" * 129},
            {"info": object()},
            {"info": "x" * 9000},
            {"ttl": 0},
            {"ttl": 0.1},
            {"ttl": float("nan")},
            {"ttl": 90_000},
        ],
    )
    async def test_bad_arguments_are_refused_before_anything_is_written(
        self, ada: SharedMemoryStore, bad: dict[str, Any]
    ) -> None:
        with pytest.raises(InvalidError):
            await ada.presence.announce(**bad)
        with pytest.raises(InvalidError):
            async with ada.presence.here(**bad):
                pass

        assert await ada.presence.list() == []
