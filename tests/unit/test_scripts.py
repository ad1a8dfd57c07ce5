"""What each Lua script does, called as the store calls it: on fakeredis and on the real server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import pytest
from support.contexts import parts_of

from sharedmem import Hub, InternalError, Settings, UnavailableError
from sharedmem.clock import new_id
from sharedmem.durable.loss_detection import present_data
from sharedmem.redis.change_stream import as_list, parse_changes
from sharedmem.redis.client import RedisClient
from sharedmem.redis.keys import KeySpace, Target
from sharedmem.redis.replies import Argument, Reply, ServerError, public_error
from sharedmem.redis.scripts import scripts
from sharedmem.redis.scripts.data import CollectionChange, DataScripts, KeyWrite, ValueScripts
from sharedmem.redis.scripts.durable import DurableScripts, NamespaceJoinKeys
from sharedmem.testing import fake_hub

ADA = b"ada"


@dataclass(frozen=True)
class Bench:
    """One namespace, seen from below the store."""

    hub: Hub
    namespace: str
    line: RedisClient
    mutations: DataScripts
    value_scripts: ValueScripts
    keyspace: KeySpace

    def key(self, name: str) -> Target:
        return self.keyspace.target(f"{self.namespace}:ada:{name}")

    async def redis(self, *args: Argument) -> Reply:
        return await self.line.call(*args)

    async def announced(self) -> list[tuple[str, str]]:
        entries = await self.redis("XRANGE", self.keyspace.space(self.namespace).changes, "-", "+")
        changes = [change for entry in as_list(entries) for change in parse_changes(entry)]
        assert {change.actor for change in changes} <= {"ada"}
        return [(change.operation, change.key.rpartition(":")[2]) for change in changes]


@pytest.fixture
async def real_hub(redis_url: str, settings: Settings) -> AsyncIterator[Hub]:
    async with Hub.open(redis_url, settings=settings) as hub:
        yield hub


@pytest.fixture(params=["fakeredis", "redis"])
async def bench(request: pytest.FixtureRequest, settings: Settings) -> AsyncIterator[Bench]:
    opened: AbstractAsyncContextManager[Hub] = fake_hub(settings=settings)
    if request.param == "redis":
        opened = Hub.open(request.getfixturevalue("redis_url"), settings=settings)
    async with opened as hub:
        parts = parts_of(hub)
        namespace = f"scripts-{new_id(8)}"
        context = parts.context
        data, values = DataScripts(context.executor), ValueScripts(context.executor)
        yield Bench(hub, namespace, context.client, data, values, context.keyspace)
        await hub.store(namespace).clear()


# -- one specification a script -------------------------------------------------------------------


async def test_value_write_sets_a_record_with_a_readable_header(bench: Bench) -> None:
    key = bench.key("k")

    [first] = await write(bench, KeyWrite(key, "*", 0, b"json", b'{"a": 1}'))
    [second] = await write(bench, KeyWrite(key, first.decode(), 60_000, b"json", b"2"))

    raw = await bench.redis("GET", key.physical)
    assert isinstance(raw, bytes)
    header, body = raw.split(b"\n")
    assert body == b"2"
    assert header.split(b" ")[:2] == [second, ADA]
    assert first in header, "the time of creation stays"
    assert int(second) > int(first)
    left = await bench.redis("PTTL", key.physical)
    assert isinstance(left, int)
    assert 0 < left <= 60_000
    assert await bench.announced() == [("write", "k"), ("write", "k")]


async def test_value_write_tells_for_each_record_what_became_of_it(bench: Bench) -> None:
    await bench.redis("RPUSH", bench.key("list").physical, 1)
    [current] = await write(bench, KeyWrite(bench.key("k"), "*", 0, b"json", b"1"))

    replies = await write(
        bench,
        KeyWrite(bench.key("k"), "", 0, b"json", b"2"),
        KeyWrite(bench.key("list"), "*", 0, b"json", b"2"),
        KeyWrite(bench.key("new"), "", 0, b"json", b"2"),
    )

    assert replies[:2] == [b"C " + current, b"T list"]
    assert replies[2].isdigit()
    assert await bench.redis("EXISTS", bench.key("new").physical) == 1


async def test_value_write_together_writes_all_or_nothing(bench: Bench) -> None:
    await bench.redis("RPUSH", bench.key("list").physical, 1)

    reply = await bench.value_scripts.value_write(
        bench.key("k").space,
        ADA,
        [KeyWrite(bench.key(name), "*", 0, b"json", b"1") for name in ("before", "list", "after")],
        together=True,
    )

    assert reply == b"S\nT list\nS"
    assert await bench.redis("EXISTS", bench.key("before").physical, bench.key("after").physical) == 0
    assert await bench.announced() == []


async def test_value_write_keeps_an_expiry_when_asked_to(bench: Bench) -> None:
    await write(bench, KeyWrite(bench.key("k"), "*", 60_000, b"json", b"1"))
    await write(bench, KeyWrite(bench.key("k"), "*", -1, b"json", b"2"))

    left = await bench.redis("PTTL", bench.key("k").physical)
    assert isinstance(left, int)
    assert left > 0


async def test_key_delete_removes_any_type_and_tells_of_a_blob(bench: Bench) -> None:
    await bench.redis("RPUSH", bench.key("list").physical, 1)
    await write(bench, KeyWrite(bench.key("big"), "*", 0, b"blob", b'{"type":"blob","path":"ns-x/y/z","size":1}'))

    version, path = await bench.mutations.key_delete(bench.key("list"), ADA)
    assert (version > 0, path) == (True, b"")
    assert (await bench.mutations.key_delete(bench.key("big"), ADA))[1] == b"ns-x/y/z"
    assert await bench.mutations.key_delete(bench.key("list"), ADA) == (0, b"")
    assert await bench.announced() == [("write", "big"), ("delete", "list"), ("delete", "big")]


async def test_key_expire_sets_and_takes_away_an_expiry(bench: Bench) -> None:
    key = bench.key("list")
    await bench.redis("RPUSH", key.physical, 1)

    assert (await bench.mutations.key_expire(key, ADA, ttl_ms=60_000))[1] == b"1"
    assert await bench.redis("TTL", key.physical) in {59, 60}
    assert (await bench.mutations.key_expire(key, ADA, ttl_ms=0))[1] == b"1"
    assert await bench.mutations.key_expire(key, ADA, ttl_ms=0) == (0, b"0")
    assert await bench.announced() == [("expire", "list"), ("persist", "list")]


async def test_collection_change_cuts_a_list_in_the_same_step(bench: Bench) -> None:
    key = bench.key("list")
    for member in (b"1", b"2", b"3"):
        [reply] = await change(bench, CollectionChange(key, "append", (member,), 60_000, 2, "", 1))

    assert reply.endswith(b" 2")
    assert await bench.redis("LRANGE", key.physical, 0, -1) == [b"2", b"3"]
    assert await bench.redis("TTL", key.physical) in {59, 60}


async def test_collection_change_counts_new_fields(bench: Bench) -> None:
    added = await result(bench, "h", "hset", "a", b"1", "b", b"2")
    again = await result(bench, "h", "hset", "b", b"3", "c", b"4", ttl_ms=60_000)

    assert (added, again) == (b"2", b"1")
    assert await bench.redis("HMGET", bench.key("h").physical, "a", "b", "c") == [b"1", b"3", b"4"]
    assert await bench.redis("TTL", bench.key("h").physical) in {59, 60}


async def test_collection_change_counts_removed_fields(bench: Bench) -> None:
    await result(bench, "h", "hset", "a", b"1", "b", b"2")

    assert await result(bench, "h", "hdel", "a", "x") == b"1"
    assert await change(bench, CollectionChange(bench.key("h"), "hdel", ("a", "x"), 0, 0, "", 2)) == [b"0 0"]
    assert await bench.announced() == [("hset", "h"), ("hdel", "h")]


async def test_collection_change_keeps_all_digits_of_a_number_in_a_field(bench: Bench) -> None:
    largest = 2**63 - 1

    assert await result(bench, "h", "hincrby", "n", largest) == str(largest).encode()
    [refusal] = await change(bench, CollectionChange(bench.key("h"), "hincrby", ("n", 1), 0, 0, "", 0))

    assert refusal.startswith(b"E ")
    assert b"overflow" in refusal
    assert await bench.announced() == [("hincrby", "h")]


@pytest.mark.parametrize("by", [7, 2**53, -(2**53), -(2**63 - 1)])
async def test_collection_change_keeps_all_digits_of_a_counter(bench: Bench, by: int) -> None:
    assert await result(bench, "n", "incr", by, ttl_ms=60_000) == str(by).encode()
    assert await bench.redis("TTL", bench.key("n").physical) in {59, 60}
    assert await bench.announced() == [("incr", "n")]


async def test_collection_change_counts_new_members(bench: Bench) -> None:
    key = bench.key("s")

    assert await result(bench, "s", "sadd", b"1", b"2") == b"2"
    assert await change(bench, CollectionChange(key, "sadd", (b"1",), 0, 0, "", 1)) == [b"0 0"]
    assert await result(bench, "s", "sadd", b"1", b"2", ttl_ms=60_000) == b"0"
    assert await bench.redis("TTL", key.physical) in {59, 60}
    assert await bench.announced() == [("sadd", "s"), ("expire", "s")]


async def test_collection_change_counts_removed_members(bench: Bench) -> None:
    await result(bench, "s", "sadd", b"1", b"2")

    assert await result(bench, "s", "srem", b"1", b"3") == b"1"
    assert await change(bench, CollectionChange(bench.key("s"), "srem", (b"1",), 0, 0, "", 1)) == [b"0 0"]
    assert await bench.announced() == [("sadd", "s"), ("srem", "s")]


async def test_collection_change_takes_more_members_than_lua_passes_at_once(bench: Bench) -> None:
    members = tuple(b"%d" % number for number in range(9_001))

    assert await result(bench, "s", "sadd", *members) == b"9001"
    assert await result(bench, "s", "srem", *members[1:]) == b"9000"
    assert await bench.redis("SMEMBERS", bench.key("s").physical) == [b"0"]


async def test_changes_in_one_call_have_rising_versions_and_a_refused_one_does_not_stop_the_others(
    bench: Bench,
) -> None:
    await result(bench, "h", "hset", "text", b'"word"')

    replies = await change(
        bench,
        CollectionChange(bench.key("list"), "append", (b"1",), 0, 0, "", 1),
        CollectionChange(bench.key("h"), "append", (b"1",), 0, 0, "", 1),
        CollectionChange(bench.key("h"), "hincrby", ("text", 1), 0, 0, "", 0),
        CollectionChange(bench.key("h"), "hdel", ("missing",), 0, 0, "", 0),
        CollectionChange(bench.key("list"), "append", (b"2",), 0, 0, "", 1),
        CollectionChange(bench.key("n"), "incr", (5,), 0, 0, "", 0),
    )

    first, wrong_type, no_number, nothing, second, counted = replies
    assert wrong_type.startswith(b"E WRONGTYPE")
    assert b"not an integer" in no_number
    assert nothing == b"0 0"
    assert [reply.split()[1] for reply in (first, second, counted)] == [b"1", b"2", b"5"]
    versions = [int(reply.split()[0]) for reply in (first, second, counted)]
    assert versions == [versions[0], versions[0] + 1, versions[0] + 2]
    assert await bench.announced() == [("hset", "h"), ("append", "list"), ("append", "list"), ("incr", "n")]


async def test_a_packet_lists_the_versions_of_its_changes_and_no_others(bench: Bench) -> None:
    await result(bench, "before", "incr", 1)
    await bench.redis("RPUSH", bench.key("list").physical, 1)
    replies = await write(
        bench, *(KeyWrite(bench.key(name), "*", 0, b"json", b"1") for name in ("a", "list", "b", "c"))
    )
    assert replies[1] == b"T list"
    first, second, third = (int(reply) for reply in (replies[0], *replies[2:]))
    assert (second, third) == (first + 2, first + 3)
    context = parts_of(bench.hub).context
    space, kept = context.keyspace.space(bench.namespace), context.keyspace.kept(bench.namespace)

    stamps = [first - 1, first, first + 1, second, third, third + 1]
    present = await present_data(context.client, context.keyspace, bench.namespace, stamps, left_ms=0)
    assert present.missing == {first - 1, first + 1, third + 1}

    # A tier whose newest change is within the packet lacks nothing here; one that has another version there, does.
    async def join(highest: int) -> str:
        await bench.redis("HSET", kept, "$joined", f"joined {first - 1} 1")
        keys = NamespaceJoinKeys(space.clock, space.changes, kept)
        scripts = DurableScripts(context.executor)
        return await scripts.namespace_join(keys, highest=highest, restored="", token="t", lease_ms=1)

    assert [(await join(stamp)).partition(" ")[0] for stamp in (first, second, third)] == ["joined"] * 3
    assert await join(first + 1) == f"behind {first}"
    await bench.redis("XTRIM", space.changes, "MAXLEN", 1)
    assert (await join(first)).startswith("joined")
    await bench.redis("DEL", kept)


async def test_set_pop_takes_each_member_once(bench: Bench) -> None:
    await result(bench, "s", "sadd", b"1", b"2 with blanks")

    taken = {(await bench.mutations.set_pop(bench.key("s"), ADA))[1] for _ in range(2)}

    assert taken == {b"1", b"2 with blanks"}
    assert await bench.mutations.set_pop(bench.key("s"), ADA) == (0, b"")


async def test_set_move_tells_of_both_sets(bench: Bench) -> None:
    here, there = bench.key("here"), bench.key("there")
    await change(bench, CollectionChange(here, "sadd", (b"1",), 0, 0, "", 1))

    assert (await bench.mutations.set_move(here, there, ADA, member=b"1"))[1] == b"1"
    assert await bench.mutations.set_move(here, there, ADA, member=b"1") == (0, b"0")
    assert await bench.announced() == [("sadd", "here"), ("srem", "here"), ("sadd", "there")]


async def test_message_publish_tells_how_many_heard_it(bench: Bench) -> None:
    store = bench.hub.store(bench.namespace)
    operations = bench.keyspace.space(bench.namespace).operations
    channel = bench.keyspace.target(f"{bench.namespace}:shared:news").physical

    before = await bench.mutations.message_publish(operations, channel=channel, message=b"1")
    async with store.subscription("news") as messages:
        heard = await bench.mutations.message_publish(operations, channel=channel, message=b"2")
        async with asyncio.timeout(60):
            assert (await anext(messages)).value == 2

    assert (before, heard) == (0, 1)


async def test_namespace_close_refuses_writers_until_it_is_opened(bench: Bench) -> None:
    await write(bench, KeyWrite(bench.key("k"), "*", 0, b"json", b"1"))
    clock = bench.keyspace.space(bench.namespace).clock
    last = await bench.redis("GET", clock)
    above = await bench.mutations.namespace_close(clock, lease_ms=60_000)
    assert isinstance(last, bytes)
    assert above > int(last)

    with pytest.raises(UnavailableError, match="being cleared"):
        await write(bench, KeyWrite(bench.key("k"), "*", 0, b"json", b"2"))

    await bench.mutations.namespace_close(clock, lease_ms=0)
    [version] = await write(bench, KeyWrite(bench.key("k"), "*", 0, b"json", b"2"))
    assert int(version) > above


async def test_namespace_cleared_opens_it_and_leaves_one_change(bench: Bench) -> None:
    [before] = await write(bench, KeyWrite(bench.key("k"), "*", 0, b"json", b"1"))
    space = bench.keyspace.space(bench.namespace)
    await bench.mutations.namespace_close(space.clock, lease_ms=60_000)

    version = await bench.mutations.namespace_cleared(
        space, bench.keyspace.names(bench.namespace), ADA, logical=bench.namespace
    )

    assert version > int(before)
    assert (await bench.announced())[-1] == ("clear", bench.namespace)
    [after] = await write(bench, KeyWrite(bench.key("k"), "*", 0, b"json", b"1"))
    assert int(after) > version


# -- what holds for all of them -------------------------------------------------------------------

# Arguments after the common ones of a mutation, and what has to be there before.
CALLS: dict[str, tuple[list[Argument], list[Argument]]] = {
    "value_write": ([0, "", b"1"], []),
    "key_delete": ([], ["SET", 1]),
    "key_expire": ([60_000], ["SET", 1]),
    "collection_change append": (["append", b"1"], []),
    "collection_change hset": (["hset", "a", b"1"], []),
    "collection_change hdel": (["hdel", "a"], ["HSET", "a", 1]),
    "collection_change hincrby": (["hincrby", "a", 1], []),
    "collection_change incr": (["incr", 1], []),
    "collection_change sadd": (["sadd", b"1"], []),
    "collection_change srem": (["srem", b"1"], ["SADD", b"1"]),
    "set_pop": ([], ["SADD", b"1", b"2"]),
    "set_move": ([b"1"], ["SADD", b"1"]),
}


def caller(bench: Bench, script: str) -> Callable[..., Awaitable[Reply]]:
    """Calls a mutation with an operation id of the test's choice."""
    space = bench.keyspace.space(bench.namespace)
    keys = [space.clock, space.changes, space.operations, bench.key("it").physical]
    if script == "set_move":
        keys.append(bench.key("there").physical)

    async def call(*, number: int) -> Reply:
        args = (999, number, 60_000, ADA, 1000, *CALLS[script][0])
        return await bench.redis("EVALSHA", scripts()[script.partition(" ")[0]].digest, len(keys), *keys, *args)

    return call


async def prepare(bench: Bench, script: str) -> None:
    if before := CALLS[script][1]:
        command, *args = before
        await bench.redis(command, bench.key("it").physical, *args)


@pytest.mark.parametrize("script", CALLS)
async def test_a_repeated_operation_answers_as_before_and_happens_once(bench: Bench, script: str) -> None:
    await prepare(bench, script)
    call = caller(bench, script)

    first = await call(number=7)
    changes = await bench.announced()
    again = await call(number=7)

    assert again == first
    assert changes
    assert await bench.announced() == changes


@pytest.mark.parametrize("script", CALLS)
async def test_a_straggler_of_an_operation_given_up_is_refused(bench: Bench, script: str) -> None:
    await prepare(bench, script)
    call = caller(bench, script)
    await call(number=7)

    with pytest.raises(UnavailableError, match="timed out"):
        await call(number=6)


@pytest.mark.parametrize("script", CALLS)
async def test_a_closed_namespace_takes_no_mutation(bench: Bench, script: str) -> None:
    await prepare(bench, script)
    await bench.mutations.namespace_close(bench.keyspace.space(bench.namespace).clock, lease_ms=60_000)

    with pytest.raises(UnavailableError, match="being cleared"):
        await caller(bench, script)(number=1)

    assert await bench.announced() == []


def test_every_mutation_is_held_to_it() -> None:
    shared = {name for name in {**vars(DataScripts), **vars(ValueScripts)} if not name.startswith("_")}
    assert shared == {
        *(call.partition(" ")[0] for call in CALLS),
        "message_publish",
        "namespace_close",
        "namespace_cleared",
    }


async def test_a_ledger_expires(bench: Bench) -> None:
    await write(bench, KeyWrite(bench.key("k"), "*", 0, b"json", b"1"))

    left = await bench.redis("PTTL", bench.keyspace.space(bench.namespace).operations)
    assert isinstance(left, int)
    assert left > 0


async def test_a_hub_survives_a_flush_of_the_scripts(bench: Bench) -> None:
    store = bench.hub.store(bench.namespace)
    for number in range(2):
        await bench.redis("SCRIPT", "FLUSH")
        await store.write("k", number)
        await store.append("list", number)
        await store.publish("news", number)

    assert await store.read_list("list") == [0, 1]


async def test_an_error_inside_of_a_script_names_its_file_and_line(real_hub: Hub) -> None:
    parts = parts_of(real_hub)
    space = parts.context.keyspace.space(f"scripts-{new_id(8)}")

    # A caller that leaves out its arguments: the script stumbles over that before it writes.
    with pytest.raises(ServerError) as caught:
        await parts.context.executor.run("version_take", [space.clock, space.changes, space.clock], [])

    error = public_error(caught.value, "here")
    assert isinstance(error, InternalError)
    assert re.search(r"lua/version_take\.lua:\d+", str(error))


async def write(bench: Bench, *records: KeyWrite) -> list[bytes]:
    return (await bench.value_scripts.value_write(bench.key("k").space, ADA, records, together=False)).split(b"\n")


async def change(bench: Bench, *changes: CollectionChange) -> list[bytes]:
    return (await bench.mutations.collection_change(changes[0].target.space, ADA, changes)).split(b"\n")


async def result(bench: Bench, key: str, operation: str, *arguments: Argument, ttl_ms: int = 0) -> bytes:
    """Change a key alone; returns what follows the version."""
    [reply] = await change(bench, CollectionChange(bench.key(key), operation, arguments, ttl_ms, 0, "", 0))
    return reply.partition(b" ")[2]
