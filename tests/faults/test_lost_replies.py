"""A call whose reply was lost is repeated, and has happened once: every mutator, and what happens without the ids."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis.asyncio
from redis import Redis
from support.chaos_proxy import ChaosProxy
from support.faulty_hubs import hub_without_ids, persistent_settings
from support.footprint import Footprint, read_changes, take_footprint

from sharedmem import Hub, SharedMemoryStore, VersionConflictError
from sharedmem.redis.scripts import scripts

NAMESPACE, CALM = "storm", "calm"
Act = Callable[[SharedMemoryStore], Awaitable[object]]


async def nothing(_: SharedMemoryStore) -> None:
    """There is nothing to prepare."""


@dataclass(frozen=True)
class Mutator:
    """One call that changes something; it is prepared so that a second application would show."""

    name: str
    script: str
    act: Act
    prepare: Act = field(default=nothing)

    @property
    def digest(self) -> bytes:
        return scripts()[self.script].digest.encode()


async def over_the_first(store: SharedMemoryStore) -> object:
    current = await store.entry("k")
    assert current is not None
    return await store.write("k", "second", if_version=current.version)


async def change_together(store: SharedMemoryStore) -> object:
    """The first change goes alone, the others share a call, in which one is refused."""
    results = await asyncio.gather(
        store.append("l", 1),
        store.append("l2", 1),
        store.hset("h", "f", 1),
        store.hincrby("h2", "n", 5),
        store.incr("n", 5),
        store.sadd("s", "a"),
        store.append("n2", 1),
        return_exceptions=True,
    )
    return [value if isinstance(value, int) else type(value).__name__ for value in results]


MUTATORS = [
    Mutator("write", "value_write", lambda s: s.write("k", {"a": 1}, ttl=60)),
    Mutator("write over a value", "value_write", lambda s: s.write("k", 2), lambda s: s.write("k", 1)),
    Mutator("write where nothing is", "value_write", lambda s: s.write("k", 1, if_version=0)),
    Mutator("write over a version", "value_write", over_the_first, lambda s: s.write("k", "first")),
    Mutator("write_many", "value_write", lambda s: s.write_many({"a": 1, "b": 2})),
    Mutator("writes of one moment", "value_write", lambda s: asyncio.gather(*(s.write(f"k{i}", i) for i in range(5)))),
    Mutator("update", "value_write", lambda s: s.update("k", lambda n: n + 1), lambda s: s.write("k", 1)),
    Mutator("delete", "key_delete", lambda s: s.delete("k"), lambda s: s.write("k", 1)),
    Mutator("expire", "key_expire", lambda s: s.expire("k", 60), lambda s: s.write("k", 1)),
    Mutator("persist", "key_expire", lambda s: s.persist("k"), lambda s: s.write("k", 1, ttl=60)),
    Mutator("append", "collection_change", lambda s: s.append("l", "b"), lambda s: s.append("l", "a")),
    Mutator(
        "append and cut", "collection_change", lambda s: s.append("l", "b", max_length=2), lambda s: s.append("l", "a")
    ),
    Mutator("hset", "collection_change", lambda s: s.hset("h", mapping={"a": 1, "b": b"2"}, ttl=60)),
    Mutator("hdel", "collection_change", lambda s: s.hdel("h", "a"), lambda s: s.hset("h", mapping={"a": 1, "b": 2})),
    Mutator("hincrby", "collection_change", lambda s: s.hincrby("h", "n", 5)),
    Mutator("sadd", "collection_change", lambda s: s.sadd("s", "a", "b")),
    Mutator("srem", "collection_change", lambda s: s.srem("s", "a"), lambda s: s.sadd("s", "a", "b")),
    Mutator("spop", "set_pop", lambda s: s.spop("s"), lambda s: s.sadd("s", "only")),
    Mutator("smove", "set_move", lambda s: s.smove("s", "t", "a"), lambda s: s.sadd("s", "a", "b")),
    Mutator("incr", "collection_change", lambda s: s.incr("n", 5, ttl=60)),
    Mutator("decr", "collection_change", lambda s: s.decr("n", 2)),
    Mutator("changes of one moment", "collection_change", change_together),
]
BIG = [
    Mutator("append much", "collection_change", lambda s: s.append("l", "x" * 100_000)),
    Mutator("write much", "value_write", lambda s: s.write("k", "x" * 100_000, if_version=0)),
    Mutator("write a blob", "value_write", lambda s: s.write("k", "x" * 300_000, if_version=0)),
    Mutator("hset much", "collection_change", lambda s: s.hset("h", "f", "x" * 100_000)),
    Mutator("sadd much", "collection_change", lambda s: s.sadd("s", "x" * 100_000)),
]
each_mutator = pytest.mark.parametrize("mutator", MUTATORS, ids=lambda mutator: mutator.name)
times = pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])


async def footprint_of(mutator: Mutator, store: SharedMemoryStore, direct: Hub, raw: Redis) -> Footprint:
    """What a mutator leaves behind; only the call itself goes through the given store."""
    await mutator.prepare(direct.store(store.namespace, actor=store.actor))
    return take_footprint(raw, store.namespace, await mutator.act(store))


@times
@each_mutator
async def test_a_mutation_whose_reply_was_lost_has_happened_once(
    mutator: Mutator, times: int, direct: Hub, proxy: ChaosProxy, raw: Redis
) -> None:
    calm = await footprint_of(mutator, direct.store(CALM, actor="a"), direct, raw)

    async with Hub.open(settings=persistent_settings(proxy.url)) as hub:
        proxy.lose_replies(mutator.digest, times)
        stormy = await footprint_of(mutator, hub.store(NAMESPACE, actor="a"), direct, raw)

    assert stormy == calm
    assert proxy.cuts == times


@pytest.mark.parametrize("mutator", BIG, ids=lambda mutator: mutator.name)
async def test_a_large_mutation_whose_reply_was_lost_has_happened_once(
    mutator: Mutator, direct: Hub, proxy: ChaosProxy, raw: Redis, tmp_path: Path
) -> None:
    async with Hub.open(settings=persistent_settings(proxy.url, blob_dir=tmp_path)) as hub:
        proxy.lose_replies(mutator.digest)
        left = await footprint_of(mutator, hub.store(NAMESPACE, actor="a"), direct, raw)

    assert proxy.cuts == 1
    assert (len(left.changes), len(left.contents)) == (1, 1)
    assert left.answer in {1, b"v0"}


@each_mutator
async def test_control_without_operation_ids_a_lost_reply_shows(
    mutator: Mutator, direct: Hub, proxy: ChaosProxy, raw: Redis
) -> None:
    calm = await footprint_of(mutator, direct.store(CALM, actor="a"), direct, raw)

    async with hub_without_ids(persistent_settings(proxy.url)) as hub:
        proxy.lose_replies(mutator.digest)
        try:
            stormy = await footprint_of(mutator, hub.store(NAMESPACE, actor="a"), direct, raw)
        except VersionConflictError:
            return  # with its own write

    assert stormy != calm


async def heard(direct: Hub, publisher: Hub, proxy: ChaosProxy, times: int) -> tuple[int, list[object]]:
    """(what a publish with lost replies answered, what a subscriber got)."""
    got: list[object] = []
    async with direct.store(NAMESPACE).subscription("news") as messages:
        proxy.lose_replies(scripts()["message_publish"].digest.encode(), times)
        answer = await publisher.store(NAMESPACE, actor="a").publish("news", "hello")
        await direct.store(NAMESPACE).publish("news", "the end")
        async for message in messages:
            if message.value == "the end":
                return answer, got
            got.append(message.value)
    raise AssertionError  # a subscription does not end by itself


@times
async def test_a_message_whose_reply_was_lost_is_delivered_once(times: int, direct: Hub, proxy: ChaosProxy) -> None:
    async with Hub.open(settings=persistent_settings(proxy.url)) as hub:
        assert await heard(direct, hub, proxy, times) == (1, ["hello"])
    assert proxy.cuts == times


async def test_control_without_operation_ids_a_message_is_delivered_twice(direct: Hub, proxy: ChaosProxy) -> None:
    async with hub_without_ids(persistent_settings(proxy.url)) as hub:
        assert await heard(direct, hub, proxy, 1) == (1, ["hello", "hello"])


async def test_control_a_bare_client_with_its_default_retries_counts_twice(proxy: ChaosProxy, raw: Redis) -> None:
    address = urlsplit(proxy.url)
    async with redis.asyncio.Redis(host=address.hostname or "", port=address.port or 0) as client:
        proxy.lose_replies(b"INCR")
        await client.incr("n")

    assert raw.get("n") == b"2"


async def test_a_conditional_write_that_lost_a_race_and_its_reply_is_still_told_of_the_winner(
    direct: Hub, proxy: ChaosProxy
) -> None:
    winner = await direct.store(NAMESPACE).write("k", "theirs")

    async with Hub.open(settings=persistent_settings(proxy.url)) as hub:
        proxy.lose_replies(scripts()["value_write"].digest.encode())
        with pytest.raises(VersionConflictError) as caught:
            await hub.store(NAMESPACE).write("k", "mine", if_version=0)

    assert caught.value.current == winner
    assert await direct.store(NAMESPACE).read("k") == "theirs"


async def test_a_repeat_is_told_what_happened_then_even_if_others_wrote_in_between(
    direct: Hub, proxy: ChaosProxy
) -> None:
    async with Hub.open(settings=persistent_settings(proxy.url)) as hub:
        proxy.lose_replies(scripts()["value_write"].digest.encode())
        with proxy.refusing():
            proxy.refused.clear()
            mine = asyncio.create_task(hub.store(NAMESPACE).write("k", "mine", if_version=0))
            await proxy.refused.wait()
            theirs = await direct.store(NAMESPACE).write("k", "theirs")
        version = await mine

    assert version < theirs
    assert await direct.store(NAMESPACE).read("k") == "theirs"


async def test_thousands_of_calls_of_many_tasks_are_each_applied_once_while_connections_are_reset(
    proxy: ChaosProxy, raw: Redis
) -> None:
    tasks, calls, resets = 20, 100, 25

    async def count(store: SharedMemoryStore, mine: int) -> None:
        for number in range(calls):
            await store.incr("n")
            await store.append("l", [mine, number])

    async def rage(done: asyncio.Event) -> None:
        for _ in range(resets):
            proxy.lose_replies(b"EVALSHA", skip=4)  # each call carries the changes of many tasks
            await proxy.cut.wait()
            proxy.cut.clear()
        done.set()

    async with Hub.open(settings=persistent_settings(proxy.url)) as hub:
        store, raged = hub.store(NAMESPACE), asyncio.Event()
        raging = asyncio.create_task(rage(raged))
        await asyncio.gather(*(count(store, mine) for mine in range(tasks)))
        assert raged.is_set(), "the calls were over before the resets were"
        await raging
        members = await store.read_list("l")
        number = await store.read("n")

    assert number == tasks * calls
    assert sorted(members) == [[mine, number] for mine in range(tasks) for number in range(calls)]
    assert [[n for m, n in members if m == mine] for mine in range(tasks)] == [list(range(calls))] * tasks
    assert len(read_changes(raw, NAMESPACE)) == 2 * tasks * calls
