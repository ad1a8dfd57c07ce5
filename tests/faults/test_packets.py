"""Entries of the change stream with several changes: they save room, and readers and groups see single changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redis import Redis
from support.closed_iterators import closed_at_exit
from support.example_budget import example_count
from support.faulty_hubs import persistent_settings
from support.footprint import read_changes
from support.redis_process import RedisProcess
from support.waiting import wait_until

from sharedmem import Change, Gap, Hub, SharedMemoryStore
from sharedmem.clock import new_id
from sharedmem.testing import fake_hub

STREAM, OWN, PLACES = "sm:{team}:$changes", "sm:{team}:$split:g", "sm:{team}:$split.places:g"


@pytest.fixture
async def store(bare_server: RedisProcess) -> AsyncIterator[SharedMemoryStore]:
    async with Hub.open(settings=persistent_settings(bare_server.url, change_log_length=10)) as hub:
        yield hub.store("team")


async def write(store: SharedMemoryStore, count: int, prefix: str = "k") -> list[int]:
    """Write keys at the same moment, in one call; return their versions."""
    return await asyncio.gather(*(store.write(f"{prefix}{number}", number) for number in range(count)))


async def take(count: int, changes: AsyncIterator[Change]) -> list[Change]:
    async with asyncio.timeout(60), closed_at_exit(changes) as followed:
        return [await anext(followed) for _ in range(count)]


def entries(raw: Redis, key: str = STREAM) -> list[Any]:
    found: Any = raw.xrange(key)
    return [[id_, told] for id_, told in found]


async def test_changes_of_a_shared_call_are_one_entry_and_a_lone_change_is_an_entry_as_before(
    store: SharedMemoryStore, raw: Redis
) -> None:
    version = await store.write("alone", 1)
    versions = await write(store, 25)

    first, *others = entries(raw)
    assert first == [b"%d-0" % version, {b"op": b"write", b"key": b"team:shared:alone", b"by": b"shared"}]
    packets = [entry for entry in others if b"changes" in entry[1]]
    assert len(others) <= 1 + 2  # the first one may have been sent alone
    assert [list(told) for _, told in packets] == [[b"by", b"changes"]] * 2
    assert packets[-1][0] == b"%d-0" % max(versions)
    assert [change.version for change in read_changes(raw, "team")] == [version, *sorted(versions)]


async def test_a_cursor_within_the_oldest_packet_has_missed_nothing_and_one_before_it_has(
    store: SharedMemoryStore, raw: Redis
) -> None:
    await write(store, 10, "old")
    before = await store.cursor()
    versions = sorted(await write(store, 10))
    while len(entries(raw)) > 1:
        raw.xtrim(STREAM, maxlen=len(entries(raw)) - 1, approximate=False)
    kept = [change.version for change in read_changes(raw, "team")]

    assert [change.version for change in await take(len(kept) - 1, store.watch(since=kept[0]))] == kept[1:]
    assert [change.version for change in await take(1, store.watch(since=kept[-2]))] == kept[-1:] == versions[-1:]
    gap, *rest = await take(1 + len(kept), store.watch(since=before))
    assert isinstance(gap, Gap)
    assert [change.version for change in rest] == kept


async def test_a_reader_of_far_more_changes_than_it_reads_at_once_gets_each_once(
    bare_server: RedisProcess, raw: Redis
) -> None:
    async with Hub.open(settings=persistent_settings(bare_server.url)) as hub:
        store = hub.store("team")
        versions = sorted([version for _ in range(60) for version in await write(store, 25)])
        for number in range(550):
            versions.append(await store.write("single", number))
        changes = await take(len(versions), hub.store("team").watch(since=0))

    assert [change.version for change in changes] == versions
    assert len(entries(raw)) < 60 * 3 + 551


async def test_shared_calls_of_two_hubs_are_watched_in_order_and_divided_among_consumers_of_both(
    bare_server: RedisProcess,
) -> None:
    settings = persistent_settings(bare_server.url)
    async with Hub.open(settings=settings) as first, Hub.open(settings=settings) as second:
        stores = [first.store("team"), second.store("team", actor="bob")]
        handled: list[Change] = []

        async def work(number: int, store: SharedMemoryStore) -> None:
            async with store.consumer("g", f"w{number}", since=0) as consumer:
                async for change in consumer:
                    handled.append(change)
                    assert await consumer.ack(change) == 1

        await stores[0].write("start", 1)
        workers = [asyncio.create_task(work(*each)) for each in enumerate(stores)]
        for _ in range(10):
            await asyncio.gather(*(write(store, 12) for store in stores))
        watched = [await take(241, store.watch(since=0)) for store in stores]
        await wait_until(lambda: len(handled) == 241, description="all changes were handled", within_s=60)
        for worker in workers:
            worker.cancel()
        await asyncio.wait(workers)

    assert watched[0] == watched[1] == sorted(handled, key=lambda change: change.version)
    assert [change.version for change in watched[0]] == sorted({change.version for change in handled})


async def test_the_stream_of_a_group_keeps_no_more_than_was_not_acknowledged_before_the_last_packet(
    store: SharedMemoryStore, raw: Redis
) -> None:
    async with store.consumer("g", "one", since=0) as one:
        for _ in range(5):
            await write(store, 10)
            await one.ack(*await take(10, aiter(one)))
            assert await one.pending() == 0
            assert len(entries(raw, OWN)) <= 10
        await write(store, 10)
        first, *others = await take(10, aiter(one))
        await one.ack(*others)
        await write(store, 10)
        await take(10, aiter(one))
        assert await one.pending() == 11
        assert first.version in [int(id_.partition(b"-")[0]) for id_, _ in entries(raw, OWN) + entries(raw)]

    assert raw.exists(PLACES) == 0


async def test_a_packet_that_is_split_after_a_later_one_is_handed_out_all_the_same(
    store: SharedMemoryStore, raw: Redis
) -> None:
    async with store.consumer("g", "one", since=0) as one:
        earlier = await write(store, 5)
        raw.xreadgroup("g", "dead", {STREAM: ">"})  # it dies before it has split them
        later = await write(store, 5)
        changes = await take(5, aiter(one))
        assert [change.version for change in changes] == sorted(later)

        async with store.consumer("g", "heir", idle=0.001) as heir:
            await one.ack(*changes)
            found = []
            for _ in range(5):
                found += await take(1, aiter(heir))
                assert await heir.ack(found[-1]) == 1
            assert sorted(change.version for change in found) == sorted(earlier)
            assert await heir.pending() == 0
    assert raw.exists(PLACES) == 0


async def test_changes_that_a_consumer_leaves_go_to_others_that_wait(store: SharedMemoryStore) -> None:
    async with store.consumer("g", "one", since=0, max_deliveries=1) as one, store.consumer("g", "two") as two:
        versions = await write(store, 6)
        [first] = await take(1, aiter(one))
        others = await take(5, aiter(two))

    assert sorted(change.version for change in [first, *others]) == sorted(versions)


async def test_what_another_client_has_written_as_a_packet_stops_no_reader(
    store: SharedMemoryStore, raw: Redis
) -> None:
    start = await store.write("start", 1)
    late, missing = f"{start + 2}\nwrite\nabc", f"{start + 4}\nwrite"
    junk: list[Any] = [
        f"{10**18}\na\nb",
        "",
        "no packet",
        late,
        missing,
        b"\xff",
        "9\na\nx\n8\nb\ny",
        f"x\n{start + 7}\na\nb",
    ]
    for number, text in enumerate(junk):
        raw.xadd(STREAM, {"by": "eve", "changes": text}, id=f"{start + 1 + number}-0")
    end = f"{start + 20}-0"
    raw.xadd(STREAM, {"op": "write", "key": "team:shared:end", "by": "eve"}, id=end)

    [seen] = await take(1, store.watch(since=start))
    async with store.consumer("g", "one", since=start) as one:
        handled = await take(len(junk) + 1, aiter(one))
        assert await one.ack(*handled) == len(junk) + 1

    assert (seen.key, seen.cursor) == ("team:shared:end", end)
    assert [change.cursor for change in handled] == [*(f"{start + 1 + number}-0" for number in range(len(junk))), end]


KEYS = st.text(st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="{}:"), min_size=1, max_size=8)
CALLS = st.lists(st.tuples(st.sampled_from(["write", "append", "hset", "incr", "sadd"]), KEYS), min_size=1, max_size=40)


@settings(max_examples=example_count(25, thorough=300), deadline=None)
@given(rounds=st.lists(CALLS, min_size=1, max_size=5), acknowledged=st.randoms(use_true_random=False))
def test_any_mix_of_shared_calls_is_read_once_in_order_from_any_cursor_and_by_any_group(
    rounds: list[list[tuple[str, str]]], acknowledged: Any
) -> None:
    asyncio.run(_play(rounds, acknowledged))


async def _play(rounds: list[list[tuple[str, str]]], dice: Any) -> None:
    async with fake_hub() as hub:
        store = hub.store(f"mix-{new_id(4)}")
        made = 0
        for calls in rounds:
            done = await asyncio.gather(*(_call(store, *call) for call in calls), return_exceptions=True)
            made += sum(result is True for result in done)
        changes = await take(made, store.watch(since=0)) if made else []
        versions = [change.version for change in changes]
        assert versions == sorted(set(versions))
        for at in dice.sample(range(made), min(made, 5)):
            assert await take(made - at - 1, store.watch(since=versions[at])) == changes[at + 1 :]
        since = dice.choice(versions or [0])
        left = [change for change in changes if change.version > since]
        async with store.consumer("g", "one", since=since) as one:
            assert await take(len(left), aiter(one)) == left
            done_with = dice.sample(left, len(left) // 2)
            assert await one.ack(*done_with) == len(done_with)
            rest = [change for change in left if change not in done_with]
            assert await one.pending() == len(rest)
        async with store.consumer("g", "one") as again:
            assert await take(len(rest), aiter(again)) == rest


async def _call(store: SharedMemoryStore, operation: str, key: str) -> bool:
    """Make a change; return whether there is one to announce."""
    if operation == "write":
        return await store.write(key, 1) > 0
    if operation == "append":
        return await store.append(key, 1) > 0
    if operation == "hset":
        return await store.hset(key, "f", 1) >= 0
    if operation == "incr":
        return await store.incr(key) is not None
    return await store.sadd(key, new_id(4)) > 0
