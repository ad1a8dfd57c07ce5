"""Watchers, consumers and subscribers whose connections break: nothing is doubled, and what is missed is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from itertools import pairwise

import pytest
from redis import Redis
from support.chaos_proxy import ChaosProxy
from support.closed_iterators import closed_at_exit
from support.faulty_hubs import impatient_settings, persistent_settings
from support.redis_process import RedisProcess
from support.waiting import wait_until

from sharedmem import Change, Gap, Hub, Message, Missed, SharedMemoryStore, UnavailableError
from sharedmem.redis import pubsub

CHANGES, RESETS = 10_000, 50


@pytest.fixture
async def direct(bare_server: RedisProcess) -> AsyncIterator[SharedMemoryStore]:
    """The store as agents see it whom no fault reaches."""
    async with Hub.open(settings=persistent_settings(bare_server.url)) as hub:
        yield hub.store("team")


@pytest.fixture
async def shaken(proxy: ChaosProxy) -> AsyncIterator[SharedMemoryStore]:
    """The same store behind the proxy."""
    async with Hub.open(settings=persistent_settings(proxy.url)) as hub:
        yield hub.store("team")


# Watchers


async def test_a_watcher_sees_10000_changes_across_50_resets_each_once_and_in_order(
    direct: SharedMemoryStore, shaken: SharedMemoryStore, proxy: ChaosProxy
) -> None:
    seen: list[Change] = []
    resets = 0

    def follows(number: int) -> bool:
        return len(seen) > number - 500

    async def write() -> None:
        for number in range(0, CHANGES, 20):
            await asyncio.gather(*(direct.write(f"k{number + i}", number) for i in range(20)))
            # The watcher keeps pace, so that the resets meet it at work.
            await wait_until(partial(follows, number), description="the watcher follows", within_s=60)

    async with closed_at_exit(shaken.watch(since=0)) as changes:
        writing = asyncio.create_task(write())
        async for change in changes:
            seen.append(change)
            if len(seen) % (CHANGES // RESETS) == 100:
                resets += proxy.reset_all() > 0
            if len(seen) == CHANGES:
                break
        await writing

    assert resets == RESETS
    assert [change.key for change in seen] == [f"team:shared:k{number}" for number in range(CHANGES)]
    assert all(one.version < next_one.version for one, next_one in pairwise(seen))


def waiting_reads(raw: Redis) -> int:
    """How many connections wait in a read of a stream."""
    return sum(row["cmd"] == "xread" and "b" in row["flags"] for row in raw.client_list())


async def test_watchers_of_a_hub_wait_on_one_connection_and_each_sees_all(
    direct: SharedMemoryStore, raw: Redis
) -> None:
    start = await direct.write("start", 0)

    async def follow(count: int) -> list[str]:
        seen: list[str] = []
        async with closed_at_exit(direct.watch(since=start)) as changes:
            async for change in changes:
                seen.append(change.key)
                if len(seen) == count:
                    return seen
        raise AssertionError("a watch never ends")

    watchers = [asyncio.create_task(follow(count)) for count in (1, 2, 3, 3, 3)]
    for number, left in enumerate((5, 4, 3)):
        await wait_until(lambda: waiting_reads(raw) == 1, description="the watchers wait")
        assert sum(not watcher.done() for watcher in watchers) == left
        await direct.write(f"k{number}", number)
        await wait_until(
            partial(lambda left: sum(not watcher.done() for watcher in watchers) < left, left),
            description="a watcher has seen enough",
        )

    keys = [f"team:shared:k{number}" for number in range(3)]
    assert await asyncio.gather(*watchers) == [keys[:1], keys[:2], keys, keys, keys]


async def test_a_waiting_watcher_is_told_what_was_trimmed_in_the_step_that_woke_it(
    direct: SharedMemoryStore, raw: Redis
) -> None:
    start = await direct.write("start", 0)
    stream = "sm:{team}:$changes"
    async with closed_at_exit(direct.watch(since=start)) as changes:
        watching = asyncio.ensure_future(anext(changes))
        await wait_until(lambda: waiting_reads(raw) == 1, description="the watcher waits")
        with raw.pipeline(transaction=True) as step:
            for number in range(3):
                step.xadd(
                    stream, {"op": "write", "key": f"team:shared:k{number}", "by": "a"}, id=f"{start + 1 + number}-0"
                )
            step.xtrim(stream, maxlen=1, approximate=False)
            step.execute()

        gap, change = await watching, await anext(changes)

    assert isinstance(gap, Gap)
    assert change.key == "team:shared:k2"


async def test_a_watcher_whose_replies_are_lost_sees_each_change_once(
    direct: SharedMemoryStore, shaken: SharedMemoryStore, proxy: ChaosProxy
) -> None:
    proxy.lose_replies(b"XRANGE", times=10, skip=1)
    proxy.lose_replies(b"XREAD", times=5, skip=1)
    async with closed_at_exit(shaken.watch(since=0)) as changes:
        for number in range(50):
            await direct.incr("n")
            change = await anext(changes)
            assert (change.key, change.operation) == ("team:shared:n", "incr"), number

    assert proxy.cuts >= 10


async def test_a_watcher_that_comes_back_to_a_trimmed_stream_is_told_of_the_gap_and_goes_on_in_order(
    bare_server: RedisProcess,
) -> None:
    async with Hub.open(settings=persistent_settings(bare_server.url, change_log_length=100)) as hub:
        store = hub.store("team")
        await store.write("first", 1)
        async with closed_at_exit(store.watch(since=0)) as changes:
            last = await anext(changes)
        for number in range(1_000):
            await store.write("k", number)
        await store.write("last", 1)

        async with closed_at_exit(store.watch(since=last.cursor)) as changes:
            gap = await anext(changes)
            rest = [await anext(changes)]
            while rest[-1].key != "team:shared:last":
                rest.append(await anext(changes))

    assert isinstance(gap, Gap)
    assert gap.cursor == last.cursor
    assert not any(isinstance(change, Gap) for change in rest)
    assert 100 <= len(rest) < 1_000
    assert gap.version == rest[0].version > last.version
    assert all(one.version < next_one.version for one, next_one in pairwise(rest))


async def test_a_watcher_overtaken_by_the_trimming_while_it_is_cut_off_is_told_of_the_gap(
    bare_server: RedisProcess, proxy: ChaosProxy
) -> None:
    async with (
        Hub.open(settings=persistent_settings(bare_server.url, change_log_length=100)) as writer,
        Hub.open(settings=persistent_settings(proxy.url)) as watcher,
    ):
        store = writer.store("team")
        await store.write("first", 1)
        async with closed_at_exit(watcher.store("team").watch(since=0)) as changes:
            assert (await anext(changes)).key == "team:shared:first"
            with proxy.refusing():
                proxy.reset_all()
                for number in range(1_000):
                    await store.write("k", number)
            assert isinstance(await anext(changes), Gap)
            assert (await anext(changes)).key == "team:shared:k"


async def test_a_watcher_from_the_start_is_told_what_a_trimmed_stream_no_longer_holds(
    bare_server: RedisProcess,
) -> None:
    async with Hub.open(settings=persistent_settings(bare_server.url, change_log_length=10)) as hub:
        store = hub.store("team")
        for number in range(500):
            await store.write("k", number)
        async with closed_at_exit(store.watch(since=0)) as changes:
            assert isinstance(await anext(changes), Gap)


async def test_a_watcher_whose_server_stays_away_too_long_is_told_and_goes_on_from_its_cursor(
    direct: SharedMemoryStore, proxy: ChaosProxy
) -> None:
    await direct.write("first", 1)
    async with Hub.open(settings=impatient_settings(proxy.url)) as hub:
        store = hub.store("team")
        async with closed_at_exit(store.watch(since=0)) as changes:
            last = await anext(changes)
            with proxy.refusing():
                proxy.reset_all()
                await direct.write("second", 1)
                with pytest.raises(UnavailableError):
                    await anext(changes)

        async with closed_at_exit(store.watch(since=last.cursor)) as changes:
            assert (await anext(changes)).key == "team:shared:second"


# Consumers


async def handled(consumer: AsyncIterator[Change], number: int) -> list[str]:
    return [(await anext(consumer)).key.rpartition(":")[2] for _ in range(number)]


async def test_what_a_dead_consumer_held_goes_to_another_one(direct: SharedMemoryStore, raw: Redis) -> None:
    async with direct.consumer("g", "first", since=0) as first, direct.consumer("g", "second", idle=0.05) as second:
        for name in "abc":
            await direct.write(name, 1)
        mine = aiter(first)
        assert await handled(mine, 1) == ["a"]  # it got all three, and dies before it handles the others

        # The server counts the silence: the second one asks again until it has been long enough.
        async with closed_at_exit(aiter(second)) as theirs:
            changes: dict[str, Change] = {}
            while len(changes) < 3:  # on a busy machine one of them has been silent for long enough to come again
                change = await anext(theirs)
                changes.setdefault(change.key[-1], change)
        assert list(changes) == ["a", "b", "c"]
        assert await second.pending() == 3
        assert await second.ack(*changes.values()) == 3
        assert await first.ack(*changes.values()) == 0
        assert await first.pending() == 0


async def test_a_consumer_that_restarts_gets_first_what_it_had_not_acknowledged(direct: SharedMemoryStore) -> None:
    for name in "abc":
        await direct.write(name, 1)
    async with direct.consumer("g", "one", since=0) as before:
        change = await anext(aiter(before))
        await before.ack(change)

    async with direct.consumer("g", "one") as after:
        await direct.write("d", 1)
        assert await handled(aiter(after), 3) == ["b", "c", "d"]


@pytest.mark.parametrize("names", [["eater"], ["eater1", "eater2", "eater3"]], ids=["of one name", "of many names"])
async def test_a_change_that_kills_its_consumers_becomes_a_dead_letter_and_the_others_are_handled(
    names: list[str], direct: SharedMemoryStore
) -> None:
    await direct.write("poison", 1)
    deliveries = lives = meals = 0
    letters: list[Change] = []
    while not letters:
        await direct.write("food", 1)
        name = names[lives % len(names)]
        async with direct.consumer("g", name, since=0, idle=0.01, max_deliveries=3) as consumer:
            change = await anext(aiter(consumer))
            lives += 1
            if change.key.endswith("poison"):
                deliveries += 1  # and dies of it
            else:
                meals += await consumer.ack(change)
            letters = await consumer.dead_letters()

    async with direct.consumer("g", "heir", idle=0.01, max_deliveries=3) as consumer:
        async with closed_at_exit(aiter(consumer)) as rest:
            while meals < lives:
                meals += await consumer.ack(await anext(rest))
        assert (await consumer.pending(), len(await consumer.dead_letters())) == (0, 1)
    assert deliveries == 3
    assert [letter.key for letter in letters] == ["team:shared:poison"]


async def test_a_group_handles_every_change_while_its_connections_are_reset(
    direct: SharedMemoryStore, shaken: SharedMemoryStore, proxy: ChaosProxy
) -> None:
    number, handled_keys = 400, set[str]()

    async def work(name: str) -> None:
        async with shaken.consumer("g", name, since=0, idle=0.2, max_deliveries=50) as consumer:
            async for change in consumer:
                handled_keys.add(change.key)
                await consumer.ack(change)

    await direct.write("k0", 0)
    workers = [asyncio.create_task(work(f"w{i}")) for i in range(3)]
    for written in range(1, number):
        await direct.write(f"k{written}", written)
        if written % 40 == 0:
            proxy.reset_all()
    await wait_until(lambda: len(handled_keys) == number, description="all changes were handled", within_s=60)
    for worker in workers:
        worker.cancel()
    await asyncio.wait(workers)

    assert handled_keys == {f"team:shared:k{written}" for written in range(number)}


# Subscribers


async def test_a_subscriber_is_told_wherever_a_reset_may_have_cost_it_messages(
    direct: SharedMemoryStore, shaken: SharedMemoryStore, proxy: ChaosProxy
) -> None:
    heard: list[Message] = []
    async with shaken.subscription("news") as messages:

        async def listen_on() -> None:
            async for message in messages:
                heard.append(message)
                if message.value == "the end":
                    return

        listening = asyncio.create_task(listen_on())
        for number in range(2_000):
            await direct.publish("news", number)
            if number % 200 == 100:
                proxy.reset_all()
        await wait_until(lambda: _losses(heard) >= 1, description="the subscriber was told of the last loss")
        while not listening.done():
            await direct.publish("news", "the end")
            await asyncio.sleep(0)
        await listening

    assert 1 <= _losses(heard) <= 10
    numbers = [message.value for message in heard if type(message) is Message and message.value != "the end"]
    assert numbers == sorted(set(numbers)), "a message came twice or out of order"
    untold = [
        (one.value, next_one.value)
        for one, next_one in pairwise(heard)
        if type(one) is type(next_one) is Message and next_one.value not in ("the end", one.value + 1)
    ]
    assert untold == []


async def test_every_channel_and_pattern_is_subscribed_again_and_each_subscriber_is_told(
    direct: SharedMemoryStore, shaken: SharedMemoryStore, proxy: ChaosProxy
) -> None:
    heard: list[tuple[str, object]] = []

    def receive(channel: str, value: object) -> None:
        heard.append((channel, value))

    for channel in ("news", "chat-*", "wea?her"):
        await shaken.subscribe(
            channel,
            partial(receive, channel),
            on_missed=lambda missed: heard.append(("missed", type(missed.value))),
        )
    proxy.reset_all()
    await wait_until(lambda: len(heard) == 3, description="all three were told")
    for channel in ("news", "chat-a", "weather"):
        assert await direct.publish(channel, "hello") == 1

    await wait_until(lambda: len(heard) == 6, description="all three heard the next message")
    assert heard == [("missed", str)] * 3 + [(channel, "hello") for channel in ("news", "chat-*", "wea?her")]


async def test_a_subscriber_that_is_told_of_a_loss_misses_nothing_from_then_on(
    direct: SharedMemoryStore, shaken: SharedMemoryStore, proxy: ChaosProxy
) -> None:
    published: list[asyncio.Task[int]] = []
    heard: list[object] = []

    def publish(_: object) -> None:
        published.append(asyncio.create_task(direct.publish("news", "hello")))

    await shaken.subscribe("news", heard.append, on_missed=publish)
    with proxy.delayed(0.2):  # the new subscription is under way for so long
        proxy.reset_all()
        await wait_until(lambda: bool(published), description="it was told")
        assert await published[0] == 1
        await wait_until(lambda: bool(heard), description="it heard the next message")

    assert heard == ["hello"]


@pytest.mark.parametrize("times", [1, 3])
async def test_a_subscription_whose_confirmation_is_lost_is_made_all_the_same(
    times: int, direct: SharedMemoryStore, shaken: SharedMemoryStore, proxy: ChaosProxy
) -> None:
    heard: list[object] = []
    proxy.lose_replies(b"SUBSCRIBE", times)

    unsubscribe = await shaken.subscribe("news", heard.append, on_missed=heard.append)

    assert await direct.publish("news", 1) == 1
    await wait_until(lambda: heard == [1], description="the message was heard, and nothing before it was missed")
    await unsubscribe()


async def test_who_was_subscribed_is_told_of_a_connection_that_another_subscription_lost(
    direct: SharedMemoryStore, shaken: SharedMemoryStore, proxy: ChaosProxy
) -> None:
    heard: list[object] = []
    await shaken.subscribe("news", heard.append, on_missed=lambda missed: heard.append(type(missed)))
    proxy.lose_replies(b"SUBSCRIBE")

    await shaken.subscribe("chat", lambda _: None)

    assert await direct.publish("news", 1) == 1
    await wait_until(lambda: heard == [Missed, 1], description="the loss was told, and then the message came")


async def test_subscriptions_that_come_and_go_while_connections_are_reset_leave_one_connection(
    direct: SharedMemoryStore, shaken: SharedMemoryStore, proxy: ChaosProxy, raw: Redis
) -> None:
    heard: list[object] = []

    async def come(number: int) -> None:
        while True:
            try:
                await shaken.subscribe(f"c{number}", heard.append)
            except UnavailableError:
                continue
            return

    await shaken.subscribe("always", heard.append)
    for round_ in range(10):
        coming = [asyncio.create_task(come(round_ * 10 + number)) for number in range(10)]
        await asyncio.sleep(0)
        proxy.reset_all()
        await asyncio.gather(*coming)
    await wait_until(lambda: len(_listening(raw)) == 1, description="one connection listens")
    for number in range(100):
        await wait_until(partial(_publish_once, direct, f"c{number}"), description=f"channel {number} is heard")


async def test_a_connection_that_dies_in_silence_is_noticed_and_told(
    direct: SharedMemoryStore, shaken: SharedMemoryStore, proxy: ChaosProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pubsub, "_PING_AFTER_S", 0.1)
    heard: list[object] = []
    await shaken.subscribe("news", heard.append, on_missed=heard.append)

    with proxy.black_hole():
        await direct.publish("news", "into the void")
        # Neither the connection that died nor one that is swallowed while it opens is waited for for ever.
        for _ in range(2):
            proxy.connected.clear()
            async with asyncio.timeout(60):
                await proxy.connected.wait()

    await wait_until(lambda: any(isinstance(item, Missed) for item in heard), description="the loss was told")


async def test_a_failing_callback_is_counted_and_never_ends_the_subscription(bare_server: RedisProcess) -> None:
    async with Hub.open(settings=persistent_settings(bare_server.url)) as hub:
        store = hub.store("team")
        heard: list[object] = []

        def fail(value: object) -> None:
            heard.append(value)
            raise RuntimeError(value)

        async def fail_later(value: object) -> None:
            await asyncio.sleep(0)
            fail(value)

        for callback in (fail, fail_later):
            await store.subscribe("news", callback, on_missed=fail)
        for number in range(5):
            await store.publish("news", number)

        await wait_until(lambda: len(heard) == 10, description="both were called for each message")
        assert hub.counters.read("callback_failures") == 10


async def test_a_subscriber_too_slow_for_its_queue_is_told_how_much_it_missed(bare_server: RedisProcess) -> None:
    async with Hub.open(settings=persistent_settings(bare_server.url, subscriber_queue_length=10)) as hub:
        store = hub.store("team")
        async with store.subscription("news", "end") as messages:
            for number in range(25):
                await store.publish("news", number)
            await store.publish("end", "the end")
            heard = [await anext(messages)]
            while heard[-1].value != "the end":
                heard.append(await anext(messages))

    assert isinstance(heard[0], Missed)
    assert "10 messages" in heard[0].value
    told = [message.value for message in heard[1:-1]]
    assert told == list(range(25 - len(told), 25))


def _listening(raw: Redis) -> list[object]:
    return list(raw.client_list(_type="pubsub"))


async def _publish_once(store: SharedMemoryStore, channel: str) -> bool:
    return await store.publish(channel, "hello") == 1


def _losses(heard: list[Message]) -> int:
    return sum(isinstance(message, Missed) for message in heard)


@pytest.mark.parametrize(
    ("channel", "garbage"),
    [
        (b"sm:{team}:shared:news", b"\x01\xc1"),
        (b"sm:{team}:shared:news", b"\x01\xc7\x01\x7f?"),
        (b"sm:{team}:shared:\xff\xfe", b"1"),
    ],
    ids=["no msgpack", "an unknown type", "a name that is no text"],
)
async def test_garbage_of_a_foreign_client_does_not_end_the_subscriptions(
    channel: bytes, garbage: bytes, direct: SharedMemoryStore, raw: Redis
) -> None:
    async with direct.subscription("news", "team:shared:*") as messages:
        raw.publish(channel, garbage)
        await direct.publish("news", "hello")
        async with asyncio.timeout(60):
            while (await anext(messages)).value != "hello":
                pass
