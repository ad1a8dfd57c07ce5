"""Messages and changes: subscribers receive messages, and readers of the feed miss nothing."""
# a test's name is its sentence

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import TypeVar

import pytest

from sharedmem.errors import AccessDeniedError, InvalidError
from sharedmem.hub import Hub
from sharedmem.models import Change
from sharedmem.store import SharedMemoryStore
from sharedmem.testing.store_fixtures import StoreFixtures, eventually

_T = TypeVar("_T")
_PATIENCE_S = 60.0


async def take_first(count: int, items: AsyncIterator[_T]) -> list[_T]:
    """The first of what comes."""
    found: list[_T] = []
    async with asyncio.timeout(_PATIENCE_S):
        async for item in items:
            found.append(item)
            if len(found) == count:
                break
    if (close := getattr(items, "aclose", None)) is not None:
        await close()
    return found


class MessageTests(StoreFixtures):
    """Publish and subscribe."""

    async def test_a_subscriber_gets_each_message_in_order(
        self, hub: Hub, ada: SharedMemoryStore, bob: SharedMemoryStore
    ) -> None:
        heard: list[object] = []
        unsubscribe = await bob.subscribe("news", heard.append)

        receivers = [await ada.publish("news", message) for message in ("one", {"two": 2}, b"\x03", None)]
        await eventually(lambda: len(heard) == 4)
        await unsubscribe()

        assert heard == ["one", {"two": 2}, b"\x03", None]
        if hub.powers.mode != "cluster":  # there a publisher is told of the subscribers of one server
            assert receivers == [1, 1, 1, 1]

    async def test_a_message_without_subscribers_is_gone(self, ada: SharedMemoryStore) -> None:
        assert await ada.publish("news", "hello") == 0

    async def test_a_former_subscriber_receives_no_more(self, ada: SharedMemoryStore) -> None:
        heard: list[object] = []
        unsubscribe = await ada.subscribe("news", heard.append)
        await unsubscribe()

        await eventually(lambda: _has_no_subscribers(ada))
        assert heard == []

    async def test_a_failing_callback_does_not_end_the_subscription(self, ada: SharedMemoryStore) -> None:
        heard: list[object] = []

        def callback(message: object) -> None:
            heard.append(message)
            if message == "bad":
                raise ValueError(message)

        unsubscribe = await ada.subscribe("news", callback)
        for message in ("bad", "good"):
            await ada.publish("news", message)
        await eventually(lambda: heard == ["bad", "good"])
        await unsubscribe()

    async def test_a_pattern_hears_every_channel_that_matches(self, ada: SharedMemoryStore) -> None:
        heard: list[object] = []
        unsubscribe = await ada.subscribe("news-*", heard.append)

        await ada.publish("news-science", 1)
        await ada.publish("other", 2)
        await ada.publish("news-arts", 3)
        await eventually(lambda: heard == [1, 3])
        await unsubscribe()

    async def test_a_subscription_can_be_iterated(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore, namespace: str
    ) -> None:
        async with bob.subscription("news", "weather") as messages:
            await ada.publish("news", 1)
            await ada.publish("weather", 2)
            found = await take_first(2, messages)

        assert [(message.channel, message.value) for message in found] == [
            (f"{namespace}:shared:news", 1),
            (f"{namespace}:shared:weather", 2),
        ]

    async def test_channels_of_other_namespaces_are_closed(self, ada: SharedMemoryStore) -> None:
        with pytest.raises(AccessDeniedError, match="may not write"):
            await ada.publish("elsewhere:shared:news", 1)
        with pytest.raises(AccessDeniedError, match="may not read"):
            await ada.subscribe("elsewhere:shared:news", print)


async def _has_no_subscribers(store: SharedMemoryStore) -> bool:
    return await store.publish("news", "is anybody there?") == 0


class FeedTests(StoreFixtures):
    """The change feed."""

    async def test_every_mutation_is_announced_once_and_in_order(
        self, ada: SharedMemoryStore, team: SharedMemoryStore, namespace: str
    ) -> None:
        written = await ada.write("value", 1)
        await ada.append("list", 1)
        await ada.hset("hash", "f", 1)
        await ada.hincrby("hash", "n")
        await ada.hdel("hash", "f")
        await ada.sadd("set", 1, 2)
        await ada.srem("set", 1)
        await ada.smove("set", "other", 2)
        await ada.spop("other")
        await ada.incr("count")
        await ada.expire("value", 100)
        await ada.persist("value")
        await ada.delete("value")

        changes = await take_first(14, team.watch(since=0))

        told = [(change.operation, change.key.rpartition(":")[2]) for change in changes]
        assert told == [
            ("write", "value"),
            ("append", "list"),
            ("hset", "hash"),
            ("hincrby", "hash"),
            ("hdel", "hash"),
            ("sadd", "set"),
            ("srem", "set"),
            ("srem", "set"),
            ("sadd", "other"),
            ("spop", "other"),
            ("incr", "count"),
            ("expire", "value"),
            ("persist", "value"),
            ("delete", "value"),
        ]
        assert (changes[0].version, changes[0].actor, changes[0].key) == (written, "ada", f"{namespace}:ada:value")
        assert all(before.version < after.version for before, after in pairwise(changes))

    async def test_what_changes_nothing_is_not_announced(self, ada: SharedMemoryStore, team: SharedMemoryStore) -> None:
        await ada.sadd("set", 1)
        await ada.sadd("set", 1)
        await ada.srem("set", "missing")
        await ada.hdel("hash", "missing")
        await ada.delete("missing")
        await ada.expire("missing", 100)
        await ada.write("end", 1)

        changes = await take_first(2, team.watch(since=0))

        assert [change.operation for change in changes] == ["sadd", "write"]

    async def test_a_watcher_sees_what_happens_from_now_on(
        self, ada: SharedMemoryStore, team: SharedMemoryStore
    ) -> None:
        await ada.write("old", 1)
        watching = asyncio.create_task(take_first(1, team.watch()))
        await eventually(lambda: _write_until_done(ada, watching))

        [change] = await watching
        assert change.key.endswith(":ada:new")

    async def test_a_watcher_goes_on_after_a_cursor(self, ada: SharedMemoryStore, team: SharedMemoryStore) -> None:
        for number in range(6):
            await ada.write(f"k{number}", number)

        seen = await take_first(2, team.watch(since=0))
        rest = await take_first(4, team.watch(since=seen[-1].cursor))

        assert [change.key[-2:] for change in seen + rest] == ["k0", "k1", "k2", "k3", "k4", "k5"]

    async def test_a_watcher_from_where_the_feed_stands_misses_nothing_from_there_on(
        self, ada: SharedMemoryStore, team: SharedMemoryStore
    ) -> None:
        await ada.write("old", 1)
        here = await team.cursor()
        await ada.write("new", 1)

        [change] = await take_first(1, team.watch(since=here))

        assert change.key.endswith(":ada:new")

    async def test_a_pattern_lets_only_matching_keys_through(
        self, ada: SharedMemoryStore, bob: SharedMemoryStore, namespace: str
    ) -> None:
        for store in (ada, bob):
            await store.write("note-1", 1)
            await store.write("other", 1)
        await ada.write("note-2", 1)

        everyones = await take_first(3, ada.watch("note-*", since=0))
        bobs = await take_first(2, ada.watch(f"{namespace}:bob:*", since=0))

        assert [change.key for change in everyones] == [
            f"{namespace}:ada:note-1",
            f"{namespace}:bob:note-1",
            f"{namespace}:ada:note-2",
        ]
        assert [change.key for change in bobs] == [f"{namespace}:bob:note-1", f"{namespace}:bob:other"]

    async def test_what_is_no_cursor_is_refused(self, ada: SharedMemoryStore) -> None:
        with pytest.raises(InvalidError, match="since"):
            await take_first(1, ada.watch(since="yesterday"))

    async def test_consumers_of_a_group_share_the_changes(
        self, ada: SharedMemoryStore, team: SharedMemoryStore
    ) -> None:
        for number in range(6):
            await ada.write(f"k{number}", number)

        async with team.consumer("indexers", "one", since=0) as one, team.consumer("indexers", "two") as two:
            found = await take_first(6, aiter(one))
            assert await one.pending() == 6
            assert await one.ack(*found) == 6
            assert await one.pending() == 0
            await ada.write("k6", 6)
            [change] = await take_first(1, aiter(two))
            assert change.key.endswith("k6")
            await two.ack(change)

        assert [change.key[-2:] for change in found] == ["k0", "k1", "k2", "k3", "k4", "k5"]

    async def test_what_was_not_acknowledged_comes_again(self, ada: SharedMemoryStore, team: SharedMemoryStore) -> None:
        await ada.write("key", 1)
        async with team.consumer("indexers", "one", since=0) as one:
            [before] = await take_first(1, aiter(one))

        async with team.consumer("indexers", "one") as again:
            [change] = await take_first(1, aiter(again))
            await again.ack(change)

        assert change == before

    async def test_what_a_dead_consumer_held_goes_to_another(
        self, ada: SharedMemoryStore, team: SharedMemoryStore
    ) -> None:
        await ada.write("key", 1)
        async with team.consumer("indexers", "dead", since=0) as dead:
            [held] = await take_first(1, aiter(dead))

        async with team.consumer("indexers", "heir", idle=0.001) as heir:
            [inherited] = await take_first(1, aiter(heir))
            await heir.ack(inherited)

        assert inherited == held

    async def test_what_is_delivered_too_often_becomes_a_dead_letter(
        self, ada: SharedMemoryStore, team: SharedMemoryStore
    ) -> None:
        await ada.write("poison", 1)
        for name in ("one", "two"):
            async with team.consumer("workers", name, since=0, idle=0.001, max_deliveries=2) as consumer:
                await take_first(1, aiter(consumer))

        letters: list[Change] = []
        async with team.consumer("workers", "three", idle=0.001, max_deliveries=2) as consumer, asyncio.timeout(60):
            while not letters:
                await ada.write("good", 1)
                [change] = await take_first(1, aiter(consumer))
                assert change.key.endswith("good")
                await consumer.ack(change)
                letters = await consumer.dead_letters()

        assert [letter.key.rpartition(":")[2] for letter in letters] == ["poison"]

    async def test_a_stranger_does_not_watch_a_namespace(self, hub: Hub, namespace: str) -> None:
        stranger = hub.store("elsewhere", actor="eve")

        with pytest.raises(AccessDeniedError, match="may not read"):
            await take_first(1, stranger.watch(f"{namespace}:*"))


async def _write_until_done(store: SharedMemoryStore, watching: asyncio.Task[list[Change]]) -> bool:
    await store.write("new", 1)
    return watching.done()
