"""What went from Redis comes back from the durable tier: once, as it was, and never in place of what is newer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support import recovery_fixtures as fixtures
from support.recovery_harness import CACHE_MS, PausableDurable, PauseAtCall, RecoveryHarness, open_recovery_harness
from support.waiting import wait_until

from sharedmem import Settings
from sharedmem.durable.key_loader import ABSENT, LOADS, OVERTAKEN, WAITS, LoadTimes
from sharedmem.errors import CorruptionError, UnavailableError, UsageError
from sharedmem.hub.composition import Connect
from sharedmem.models import DurableRecord
from sharedmem.redis.codec import encode
from sharedmem.redis.scripts.data import CollectionChange

tier, connect, where = fixtures.tier, fixtures.connect, fixtures.where
limits, hub, other = fixtures.limits, fixtures.hub, fixtures.other


# -- what comes back ------------------------------------------------------------------------------


async def test_a_value_comes_back_byte_for_byte(hub: RecoveryHarness) -> None:
    await hub.write("plan", '{"a": 1.0}')
    await hub.write("plan", '{"a": 2.0}')
    before = await hub.line.call("GET", hub.target("plan").physical)
    await hub.settled("plan")

    assert await hub.recalled("plan")

    assert await hub.line.call("GET", hub.target("plan").physical) == before


async def test_a_value_of_other_types_than_json_has_comes_back(hub: RecoveryHarness) -> None:
    codec, body = encode({"raw": b"\x00\xff", 3: {1, 2}})
    from sharedmem.redis.scripts.data import KeyWrite

    record = KeyWrite(hub.target("odd"), "*", 0, codec, body, "k")
    await hub.value_scripts.value_write(record.target.space, b"ada", [record], together=False)
    before = await hub.line.call("GET", hub.target("odd").physical)
    await hub.settled("odd")

    assert await hub.recalled("odd")

    assert await hub.line.call("GET", hub.target("odd").physical) == before


async def test_a_key_that_is_in_the_tier_alone_does_not_hold_up_other_changes_of_its_call(hub: RecoveryHarness) -> None:
    await hub.append("cold", "1")
    await hub.append("warm", "1")
    await hub.settled("cold")

    reply = await hub.mutations.collection_change(
        hub.target("cold").space,
        b"ada",
        [
            CollectionChange(hub.target(key), "append", (member,), 0, 0, "k", 1)
            for key, member in (("cold", b"2"), ("warm", b"2"), ("warm", b"3"), ("new", b"1"))
        ],
    )
    replies = reply.split(b"\n")
    assert replies[0] == b"L"
    assert [reply.partition(b" ")[2] for reply in replies[1:3]] == [b"2", b"3"]
    assert replies[3] == b"L", "the tier was not read yet"

    await hub.append("cold", "2")
    await hub.settled("cold", "warm")
    for key, members in {"cold": [b"1", b"2"], "warm": [b"1", b"2", b"3"]}.items():
        await hub.recalled(key)
        assert await hub.line.call("LRANGE", hub.target(key).physical, 0, -1) == members


async def test_structures_and_counters_come_back(hub: RecoveryHarness) -> None:
    for member in ("1", '"two"', "3"):
        await hub.append("list", member)
    await hub.hset("hash", one="1", two='"zwei"')
    await hub.sadd("set", "1", '"two"')
    await hub.increment("counter")
    await hub.increment("counter")
    await hub.settled("list", "hash", "set", "counter")

    assert all([await hub.recalled(key) for key in ("list", "hash", "set", "counter")])

    assert await hub.line.call("LRANGE", hub.target("list").physical, 0, -1) == [b"1", b'"two"', b"3"]
    fields = await hub.line.call("HGETALL", hub.target("hash").physical)
    assert isinstance(fields, list)
    assert dict(zip(fields[::2], fields[1::2], strict=True)) == {b"one": b"1", b"two": b'"zwei"'}
    members = await hub.line.call("SMEMBERS", hub.target("set").physical)
    assert isinstance(members, list)
    assert sorted(map(str, members)) == sorted(map(str, [b"1", b'"two"']))
    assert await hub.line.call("GET", hub.target("counter").physical) == b"2"


async def test_a_string_of_another_client_comes_back(hub: RecoveryHarness) -> None:
    target = hub.target("foreign")
    await hub.join(hub.namespace)
    await hub.line.call("SET", target.physical, b"plain \xff text")
    await hub.mutations.key_expire(target, b"ada", ttl_ms=3_600_000, keep=hub.keep("foreign", "s"))
    await hub.settled("foreign")

    assert await hub.recalled("foreign", "s")

    assert await hub.line.call("GET", target.physical) == b"plain \xff text"


async def test_a_long_list_comes_back_whole_in_commands_of_bounded_size(
    hub: RecoveryHarness, tier: PausableDurable
) -> None:
    count = 5_003
    head = document(hub, "long", 1, type="list", size=count)
    items = [document(hub, "long", n, type="list", element=f"{n:016d}", body=str(n)) for n in range(1, count + 1)]
    await tier.put([head, *items])

    assert await hub.recalled("long")

    held = await hub.line.call("LRANGE", hub.target("long").physical, 0, -1)
    assert held == [str(n).encode() for n in range(1, count + 1)]


async def test_nothing_that_was_made_ready_stays(hub: RecoveryHarness) -> None:
    await hub.append("list", "1")
    await hub.settled("list")

    await hub.recalled("list")

    pattern = hub.keyspace.pattern(hub.namespace, "$kept.staged*")
    assert [keys async for keys in hub.line.scan(pattern, near=None)] == []


# -- how long it stays ----------------------------------------------------------------------------


async def test_knowledge_without_an_expiry_comes_back_as_a_copy(hub: RecoveryHarness) -> None:
    await hub.write("fact", "1")
    await hub.settled("fact")

    await hub.recalled("fact")

    left = await hub.line.call("PTTL", hub.target("fact").physical)
    assert isinstance(left, int)
    assert 0 < left <= CACHE_MS
    assert await hub.state("fact") == "cached"


@pytest.mark.parametrize("mode", ["s", "k"])
async def test_an_expiry_comes_back_to_the_millisecond(hub: RecoveryHarness, mode: str) -> None:
    await hub.write("brief", "1", mode=mode, ttl_ms=600_000)
    await hub.drain()
    head = await hub.kept("brief")
    await hub.settled("brief")

    await hub.recalled("brief", mode)

    assert head is not None
    assert await hub.line.call("PEXPIRETIME", hub.target("brief").physical) == head.expires
    assert await hub.state("brief") == "expires"


async def test_a_session_without_an_expiry_comes_back_to_stay(hub: RecoveryHarness) -> None:
    await hub.write("chat", "1", mode="s")
    await hub.settled("chat")

    await hub.recalled("chat", "s")

    assert await hub.line.call("PTTL", hub.target("chat").physical) == -1


async def test_what_expired_in_the_tier_does_not_come_back(hub: RecoveryHarness, tier: PausableDurable) -> None:
    await hub.join(hub.namespace)
    await tier.put([document(hub, "old", 1, expires=1_000)])

    assert not await hub.recalled("old")
    assert await hub.state("old") == "missing"


# -- what is not there ----------------------------------------------------------------------------


async def test_a_key_that_is_nowhere_is_asked_for_once(hub: RecoveryHarness, tier: PausableDurable) -> None:
    assert not await hub.recalled("ghost")
    asked = tier.calls.count("records")

    assert not await hub.recalled("ghost")

    assert tier.calls.count("records") == asked == 1
    assert hub.counters.read(ABSENT) == 1


async def test_a_key_without_rule_or_kind_is_not_loaded(hub: RecoveryHarness, tier: PausableDurable) -> None:
    assert not await hub.recalled("scratch", "a")

    assert "records" not in tier.calls


async def test_a_key_that_lasts_by_argument_is_asked_for(hub: RecoveryHarness) -> None:
    await hub.write("mine", "1", mode="K")
    await hub.settled("mine")

    assert await hub.recalled("mine", "a")


async def test_a_deleted_key_is_nowhere_before_and_after_the_tier_knows(hub: RecoveryHarness) -> None:
    await hub.write("gone", "1")
    await hub.drain()
    await hub.delete("gone")
    before = await hub.recalled("gone")
    await hub.settled("gone")

    assert not before
    assert not await hub.recalled("gone")


async def test_a_structure_whose_elements_are_all_gone_is_nowhere(hub: RecoveryHarness, tier: PausableDurable) -> None:
    await hub.join(hub.namespace)
    await tier.put([document(hub, "hollow", 1, type="hash", size=1)])

    assert not await hub.recalled("hollow")


# -- waiting for others ---------------------------------------------------------------------------


async def test_tasks_of_one_hub_share_one_load(hub: RecoveryHarness, tier: PausableDurable) -> None:
    await hub.write("busy", "1")
    await hub.settled("busy")

    assert await asyncio.gather(*(hub.recalled("busy") for _ in range(100))) == [True] * 100

    assert tier.calls.count("records") == 1
    assert hub.counters.read(LOADS) == 1


async def test_hubs_share_one_load(hub: RecoveryHarness, other: RecoveryHarness, tier: PausableDurable) -> None:
    await hub.write("busy", "1")
    await hub.settled("busy")
    await other.join(hub.namespace)
    tier.before = pause = PauseAtCall("records")
    first = asyncio.create_task(hub.recalled("busy"))
    await pause.reached.wait()
    second = asyncio.create_task(other.recalled("busy"))
    await wait_until(lambda: other.counters.read(WAITS, reason="wait") > 0, description="the other hub waits")
    pause.over.set()

    assert all(await asyncio.gather(first, second))
    assert tier.calls.count("records") == 1


async def test_a_caller_who_gives_up_does_not_stop_the_load_for_the_others(
    hub: RecoveryHarness, tier: PausableDurable
) -> None:
    await hub.write("busy", "1")
    await hub.settled("busy")
    tier.before = pause = PauseAtCall("records")
    first = asyncio.create_task(hub.recalled("busy"))
    await pause.reached.wait()
    second = asyncio.create_task(hub.recalled("busy"))
    await asyncio.sleep(0)
    first.cancel()
    pause.over.set()

    assert await second
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_lease_whose_holder_died_is_taken_over(
    connect: Connect, where: Settings, tier: PausableDurable, hub: RecoveryHarness
) -> None:
    await hub.write("orphan", "1")
    await hub.settled("orphan")
    times = LoadTimes(cache_ms=CACHE_MS, lease_ms=50)
    async with open_recovery_harness(connect, tier, hub.namespace, settings=where, times=times) as dying:
        await dying.join(hub.namespace)
        ((lease, _),) = await dying.loader.look([(hub.target("orphan"), "k")])

    assert lease is not None
    assert await hub.recalled("orphan")


async def test_what_went_before_the_tier_had_it_is_waited_for(hub: RecoveryHarness) -> None:
    await hub.write("early", "1")
    await hub.evict("early")
    hub.drains_on_load = True

    assert await hub.recalled("early")
    assert await hub.held("early") == "1"


async def test_what_the_tier_does_not_take_is_waited_for_only_so_long(
    connect: Connect, where: Settings, tier: PausableDurable, hub: RecoveryHarness
) -> None:
    times = LoadTimes(cache_ms=CACHE_MS, patience_s=1.5)  # of a busy machine, too, the first look is not the last
    async with open_recovery_harness(connect, tier, hub.namespace, settings=where, times=times) as hasty:
        await hasty.write("early", "1")
        await hasty.evict("early")

        with pytest.raises(UnavailableError, match="before the durable tier had it"):
            await hasty.recalled("early")
        assert hasty.nudges


# -- what goes wrong ------------------------------------------------------------------------------


async def test_a_tier_that_fails_gives_the_lease_back(
    hub: RecoveryHarness, other: RecoveryHarness, tier: PausableDurable
) -> None:
    await hub.write("key", "1")
    await hub.settled("key")
    await other.join(hub.namespace)

    async def fail(_name: str) -> None:
        raise UnavailableError("the tier", "it is away")

    tier.before = fail
    with pytest.raises(UnavailableError, match="it is away"):
        await hub.recalled("key")
    tier.before = PauseAtCall("nothing")

    assert await other.recalled("key")
    assert not other.counters.read(WAITS, reason="wait")


@pytest.mark.parametrize("fields", [{"codec": "msgpack", "body": "no"}, {"type": "riddle"}])
async def test_a_document_that_cannot_be_read_is_told_and_left(
    hub: RecoveryHarness, tier: PausableDurable, fields: dict[str, str]
) -> None:
    await hub.join(hub.namespace)
    damaged = document(hub, "bad", 1, **fields)
    await tier.put([damaged])

    with pytest.raises(CorruptionError, match=r"shared:bad.* cannot be read"):
        await hub.recalled("bad")

    assert await hub.kept("bad") == damaged
    assert await hub.state("bad") == ""


async def test_a_part_that_is_lost_on_the_way_is_made_again(hub: RecoveryHarness, tier: PausableDurable) -> None:
    head = document(hub, "long", 1, type="list", size=1_200)
    items = [document(hub, "long", n, type="list", element=f"{n:016d}", body=str(n)) for n in range(1, 1_201)]
    await tier.put([head, *items])
    await hub.join(hub.namespace)
    stage, chunks = hub.keeping.key_stage, 0

    async def losing(staged: bytes, **named: object) -> bool:
        nonlocal chunks
        chunks += 1
        if chunks == 3:
            await hub.line.call("DEL", staged)
        return await stage(staged, **named)  # type: ignore[arg-type]  # handed through

    hub.keeping.key_stage = losing  # type: ignore[method-assign]  # a fault

    assert await hub.recalled("long")
    assert await hub.line.call("LLEN", hub.target("long").physical) == 1_200
    assert hub.counters.read(OVERTAKEN) == 1


async def test_a_chunk_whose_reply_was_lost_is_not_there_twice(hub: RecoveryHarness) -> None:
    staged = hub.keyspace.item(hub.target("x"), "kept.staged", "token.0")
    for _ in range(2):
        assert await hub.keeping.key_stage(staged, command="RPUSH", before=0, ttl_ms=5_000, row=["a", "b"])
        assert await hub.keeping.key_stage(staged, command="RPUSH", before=2, ttl_ms=5_000, row=["c"])

    assert await hub.line.call("LRANGE", staged, 0, -1) == [b"a", b"b", b"c"]


async def test_a_closed_hub_tells_those_who_wait(hub: RecoveryHarness, tier: PausableDurable) -> None:
    await hub.write("key", "1")
    await hub.settled("key")
    tier.before = pause = PauseAtCall("records")
    waiting = asyncio.create_task(hub.recalled("key"))
    await pause.reached.wait()

    await hub.background.close()

    with pytest.raises(UsageError, match="it was closed"):
        await waiting


# -- many at once ---------------------------------------------------------------------------------


async def test_a_whole_namespace_comes_back(hub: RecoveryHarness) -> None:
    for n in range(30):
        await hub.write(f"value-{n}", str(n))
    for n in range(700):
        await hub.append("list", str(n))
    await hub.write("deleted", "1")
    await hub.delete("deleted")
    keys = [*(f"value-{n}" for n in range(30)), "list", "deleted"]
    await hub.settled(*keys)
    told: list[tuple[int, int | None]] = []

    warm = await hub.warmer.warm(hub.namespace, lambda done, total: told.append((done, total)))

    assert warm == 31
    assert told[-1] == (32, None)
    assert [await hub.held(f"value-{n}") for n in range(30)] == [str(n) for n in range(30)]
    assert await hub.line.call("LLEN", hub.target("list").physical) == 700
    assert await hub.held("deleted") is None


async def test_warming_leaves_what_is_newer_and_what_cannot_be_read(
    hub: RecoveryHarness, tier: PausableDurable
) -> None:
    await hub.write("old", "1")
    await hub.write("fresh", "1")
    await hub.settled("old", "fresh")
    await tier.put([document(hub, "bad", 1, codec="msgpack", body="no")])
    await hub.write("fresh", "2")

    assert await hub.warmer.warm(hub.namespace) == 2

    assert await hub.held("fresh") == "2"


async def test_of_many_keys_the_one_that_was_changed_meanwhile_stays(
    hub: RecoveryHarness, tier: PausableDurable
) -> None:
    keys = [f"value-{n}" for n in range(600)]
    await tier.put([document(hub, key, 1) for key in keys])
    await hub.join(hub.namespace)
    looks = await hub.loader.look([(hub.target(key), "k") for key in keys])
    leases = [lease for lease, _ in looks if lease is not None]
    await hub.write("value-300", "2")
    await hub.line.call("DEL", hub.keyspace.state(hub.target("value-301")))  # its lease expires

    loaded = [hub.loader.prepare(lease, await tier.records(lease.target.key)) for lease in leases]
    outcomes = await hub.loader.fill(loaded)

    assert [key for key, outcome in zip(keys, outcomes, strict=True) if outcome is None] == ["value-300", "value-301"]
    assert [await hub.held(key) for key in ("value-0", "value-300", "value-301", "value-599")] == ["1", "2", None, "1"]


async def test_warming_goes_through_many_pages(hub: RecoveryHarness, tier: PausableDurable) -> None:
    await tier.put([document(hub, f"value-{n}", n + 1, body=str(n)) for n in range(1_700)])
    await hub.join(hub.namespace)
    told: list[int] = []

    assert await hub.warmer.warm(hub.namespace, lambda done, _: told.append(done)) == 1_700

    assert told == sorted(told)
    assert told[-1] == 1_700
    assert [await hub.held(f"value-{n}") for n in range(0, 1_700, 100)] == [str(n) for n in range(0, 1_700, 100)]


async def test_who_is_cancelled_before_its_leases_arrive_gives_them_back(
    hub: RecoveryHarness, tier: PausableDurable
) -> None:
    await tier.put([document(hub, f"value-{n}", 1) for n in range(30)])
    await hub.join(hub.namespace)
    look, granted = hub.keeping.key_look, asyncio.Event()

    async def granting(*args: Any, **named: Any) -> list[str]:
        hub.keeping.key_look = look  # type: ignore[method-assign]  # once
        await look(*args, **named)
        granted.set()
        return await asyncio.Future()  # the reply is on its way

    hub.keeping.key_look = granting  # type: ignore[method-assign]  # a fault
    warming = asyncio.create_task(hub.warmer.warm(hub.namespace))
    await granted.wait()
    warming.cancel()
    await asyncio.wait([warming])

    assert not [state for n in range(30) if (state := await hub.state(f"value-{n}")).startswith("loading")]


async def test_a_failure_on_the_way_of_warming_leaves_no_lease(hub: RecoveryHarness, tier: PausableDurable) -> None:
    await tier.put([document(hub, f"value-{n}", 1) for n in range(600)])
    await hub.join(hub.namespace)
    fill = hub.keeping.key_fill

    async def failing(*args: Any, **named: Any) -> list[bool]:
        hub.keeping.key_fill = fill  # type: ignore[method-assign]  # once
        raise UnavailableError("Redis", "it is away")

    hub.keeping.key_fill = failing  # type: ignore[method-assign]  # a fault
    with pytest.raises(UnavailableError, match="it is away"):
        await hub.warmer.warm(hub.namespace)

    assert not [state for n in range(600) if (state := await hub.state(f"value-{n}")).startswith("loading")]
    assert await hub.warmer.warm(hub.namespace) == 600


def document(hub: RecoveryHarness, key: str, stamp: int, **fields: object) -> DurableRecord:
    common = {"type": "value", "kind": "knowledge", "version": stamp, "stamp": stamp, "actor": "ada", "body": "1"}
    if fields.get("type") in {"list", "hash"} and "element" not in fields:
        common["body"] = ""
    return DurableRecord.model_validate({"key": hub.target(key).key} | common | fields)
