"""What begins to last lasts whole, what is ephemeral stays so, and what is gone is gone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import fakeredis
import pytest
from support.contexts import client_of, knowledge_of, parts_of, tier_of
from support.outbox_harness import OutboxHarness, open_outbox_harness
from support.recovery_harness import PausableDurable
from support.redis_loss import lose_redis

from sharedmem import Hub, Settings, SharedMemoryStore
from sharedmem.durable.key_loader import LoadTimes
from sharedmem.durable.sqlite_store import SqliteDurable
from sharedmem.errors import UnavailableError
from sharedmem.redis.change_stream import as_list
from sharedmem.redis.durability import ChangeLostError
from sharedmem.redis.keys import Target
from sharedmem.testing import ManualClock, connect_to_fake, fake_hub

HOUR_S = 3600
Fill = Callable[..., Awaitable[None]]


def settings(folder: Path, **choices: Any) -> Settings:
    rules = {"facts:*": "knowledge", "talk:*": "session"}
    usual = {"kind_rules": rules, "data_dir": folder, "durable_url": f"sqlite://{folder}/tier.sqlite3"}
    return Settings(**(usual | choices))


@pytest.fixture
def server() -> fakeredis.FakeServer:
    return fakeredis.FakeServer()


@pytest.fixture
async def hub(tmp_path: Path, server: fakeredis.FakeServer, clock: ManualClock) -> AsyncIterator[Hub]:
    async with fake_hub(settings=settings(tmp_path), server=server, clock=clock) as hub:
        yield hub


# Structures of which some elements were there before the tier heard of any


async def fill_list(store: SharedMemoryStore, items: list[int], **how: Any) -> None:
    for item in items:
        await store.append("it", item, **how)


async def fill_hash(store: SharedMemoryStore, items: list[int], **how: Any) -> None:
    await store.hset("it", mapping={str(item): item for item in items}, **how)


async def fill_set(store: SharedMemoryStore, items: list[int], **how: Any) -> None:
    await store.sadd("it", *items, **how)


READ: dict[Fill, str] = {fill_list: "read_list", fill_hash: "hgetall", fill_set: "smembers"}


async def held(store: SharedMemoryStore, fill: Fill) -> list[int]:
    """What was filled in, in any encoding."""
    found: Any = await getattr(store, READ[fill])("it")
    return list(map(int, found))


each_structure = pytest.mark.parametrize("fill", [fill_list, fill_hash, fill_set], ids=["list", "hash", "set"])


@each_structure
async def test_a_structure_of_which_it_is_said_later_that_it_lasts_lasts_whole(hub: Hub, fill: Fill) -> None:
    store = hub.store("plain")
    await fill(store, [1, 2, 3])
    await fill(store, [4], kind="knowledge")
    before = await held(store, fill)

    await lose_redis(hub)

    assert await held(store, fill) == before
    assert len(before) == 4


@each_structure
@pytest.mark.parametrize("namespace", ["facts", "talk"])
async def test_a_structure_that_was_ephemeral_against_the_rule_lasts_whole(
    hub: Hub, namespace: str, fill: Fill
) -> None:
    store = hub.store(namespace)
    await fill(store, [1, 2, 3], kind="ephemeral")
    await hub.durable.drain(namespace)
    await fill(store, [4])
    before = await held(store, fill)

    await lose_redis(hub)

    assert await held(store, fill) == before
    assert len(before) == 4


@each_structure
@pytest.mark.parametrize("namespace", ["facts", "talk"])
async def test_a_structure_that_was_there_before_the_tier_lasts_whole_once_it_is_changed(
    tmp_path: Path, server: fakeredis.FakeServer, clock: ManualClock, namespace: str, fill: Fill
) -> None:
    without = settings(tmp_path, durable_url="none")
    async with fake_hub(settings=without, server=server, clock=clock) as before_that:
        await fill(before_that.store(namespace), [1, 2, 3])
    async with fake_hub(settings=settings(tmp_path), server=server, clock=clock) as hub:
        store = hub.store(namespace)
        await fill(store, [4])
        before = await held(store, fill)

        await lose_redis(hub)

        assert await held(store, fill) == before
        assert len(before) == 4


async def test_only_what_changes_is_carried_of_a_structure_that_the_tier_has(hub: Hub) -> None:
    store = hub.store("talk")
    await fill_list(store, list(range(50)))
    await hub.durable.drain("talk")

    await store.append("it", 50)

    entries = as_list(await client_of(hub).call("XRANGE", "sm:{talk}:$outbox", "-", "+"))
    assert [len(as_list(as_list(entry)[1])) for entry in entries] == [4]  # the item and the head, with their bodies


async def test_who_adds_what_is_there_can_still_say_that_it_lasts(hub: Hub) -> None:
    store = hub.store("plain")
    await store.sadd("it", 1)

    assert await store.sadd("it", 1, kind="knowledge") == 0

    await lose_redis(hub)
    assert await store.smembers("it") == {1}


# What is ephemeral


async def test_a_structure_can_be_ephemeral_against_the_rule_from_the_beginning(hub: Hub, clock: ManualClock) -> None:
    store = hub.store("facts")

    await store.append("it", 1, kind="ephemeral")

    assert await store.ttl("it") == HOUR_S
    await hub.durable.drain("facts")
    assert await store.ttl("it") == pytest.approx(HOUR_S, abs=5)
    assert await store.read_list("it") == [1]
    clock.advance(HOUR_S + 1)
    assert not await store.exists("it")


async def test_the_expiry_of_what_is_ephemeral_against_the_rule_is_its_own(hub: Hub, clock: ManualClock) -> None:
    store = hub.store("facts")
    await store.write("it", 1, kind="ephemeral")
    await hub.durable.drain("facts")

    assert await store.persist("it")

    clock.advance(2 * HOUR_S)
    assert await store.read("it") == 1


async def test_no_hub_that_comes_later_takes_what_is_ephemeral_away(
    hub: Hub, tmp_path: Path, server: fakeredis.FakeServer, clock: ManualClock
) -> None:
    store = hub.store("facts")
    await store.sadd("it", 1)
    await store.sadd("it", 1, kind="ephemeral")
    await hub.durable.drain("facts")

    async with fake_hub(settings=settings(tmp_path), server=server, clock=clock) as late:
        assert await late.store("facts").smembers("it") == {1}


async def test_what_is_ephemeral_where_something_has_expired_that_lasted_is_no_difference(
    hub: Hub, clock: ManualClock
) -> None:
    store = hub.store("plain")
    await store.write("it", 1, kind="knowledge", ttl=60)
    await hub.durable.drain("plain")
    clock.advance(61)
    await lose_redis(hub)
    await store.write("it", 2)

    assert (await hub.durable.verify("plain")).differences == []


async def test_prolonging_a_set_is_announced(hub: Hub) -> None:
    store = hub.store("talk")
    await store.sadd("it", 1)
    await store.sadd("it", 1)
    await store.write("end", None)

    told = []
    async for change in store.watch(since=0):
        told.append((change.operation, change.key))
        if change.key == "talk:shared:end":
            break

    assert told == [("sadd", "talk:shared:it"), ("expire", "talk:shared:it"), ("write", "talk:shared:end")]


# What a hub was about to load


async def test_a_caller_that_waits_for_a_dead_hub_waits_for_the_end_of_the_lease(hub: Hub) -> None:
    store = hub.store("facts")
    await store.write("it", 1)
    await hub.durable.drain("facts")
    await client_of(hub).call("UNLINK", "sm:{facts}:shared:it")
    await client_of(hub).call(
        "SET", "sm:{facts}:$kept.state:shared:it", "loading for the dead", "PX", LoadTimes(0).lease_ms
    )

    assert await store.read("it") == 1


# What is gone


async def keys_of(store: SharedMemoryStore) -> list[str]:
    return [key async for key in store.keys("*")]


async def test_what_has_expired_is_not_listed_although_the_tier_has_not_heard_of_its_expiry(
    hub: Hub, clock: ManualClock
) -> None:
    store = hub.store("facts")
    await store.write("it", 1)
    await hub.durable.drain("facts")
    parts: Any = parts_of(hub)
    await parts.tier.relay.stop()
    await store.expire("it", 60)

    clock.advance(61)

    assert await keys_of(store) == []


async def test_what_is_carried_while_a_namespace_is_cleared_is_cleared_too(hub: Hub) -> None:
    store = hub.store("facts")
    await store.write("old", 1)
    await hub.durable.drain("facts")
    parts: Any = parts_of(hub)
    stage = parts.tier.store = PausableDurable(parts.tier.store)
    await store.write("new", 1)

    async def carry(_: str) -> None:
        stage.after = nothing
        await hub.durable.drain("facts")

    stage.after = carry
    await store.clear()

    assert await keys_of(store) == []
    assert await store.read("new") is None


async def nothing(_: str) -> None:
    """Let it go on."""


async def test_what_was_saved_from_expiring_is_not_purged_before_the_tier_has_heard_of_it(
    hub: Hub, clock: ManualClock
) -> None:
    store = hub.store("facts")
    await fill_list(store, [1, 2])
    await store.expire("it", 100)
    await hub.durable.drain("facts")
    relay = tier_of(hub).relay
    await relay.stop()
    clock.advance(50)
    await store.persist("it")
    clock.advance(HOUR_S)

    await relay._purger.purge()

    await lose_redis(hub)
    assert await store.read_list("it") == [1, 2]


# What goes again before it is read


@each_structure
async def test_a_structure_whose_copy_goes_again_before_it_is_read_is_not_read_as_empty(hub: Hub, fill: Fill) -> None:
    store = hub.store("facts")
    await fill(store, [1, 2])
    await lose_redis(hub)
    let_copies_go(hub, times=2)

    assert sorted(await held(store, fill)) == [1, 2]


@pytest.mark.parametrize("ask", ["exists", "ttl", "list_length"])
async def test_nor_is_anything_else_told_of_it_that_is_not_so(hub: Hub, ask: str) -> None:
    store = hub.store("facts")
    await store.append("it", 1, ttl=HOUR_S)
    await lose_redis(hub)
    let_copies_go(hub, times=2)

    assert await getattr(store, ask)("it")


async def test_who_never_finds_it_there_is_told_so(hub: Hub) -> None:
    store = hub.store("facts")
    await store.append("it", 1)
    await store.write("value", 1)
    await lose_redis(hub)
    let_copies_go(hub, times=1_000)

    for reading in (store.read_list("it"), store.read("value"), store.entry("value"), store.ttl("it")):
        with pytest.raises(UnavailableError, match="as often as it is restored"):
            await reading


def let_copies_go(hub: Hub, *, times: int) -> None:
    """Each key that is brought back goes again at once, so often."""
    tier: Any = knowledge_of(hub).tier
    keyspace = knowledge_of(hub).keyspace
    recall, left = tier.recall, iter(range(times))

    async def recalled(target: Target, mode: str) -> bool:
        found: bool = await recall(target, mode)
        if next(left, None) is not None:
            await client_of(hub).call("DEL", target.physical, keyspace.state(target))
        return found

    tier.recall = recalled


# What is waited for


@pytest.fixture
async def team(tmp_path: Path, server: fakeredis.FakeServer) -> AsyncIterator[OutboxHarness]:
    durable = SqliteDurable(tmp_path / "tier.sqlite3")
    await durable.open()
    async with open_outbox_harness(connect_to_fake(server), durable, "facts", settings=settings(tmp_path)) as team:
        yield team
    await durable.close()


async def left_by(team: OutboxHarness, key: str) -> tuple[bytes, dict[str, int]]:
    """(id of the entry that a change has left, the stamp it gave)."""
    stamp = await team.write(key, "1")
    entries = as_list(await team.line.call("XRANGE", team.keyspace.outbox("facts"), "-", "+"))
    id_ = as_list(entries[-1])[0]
    assert isinstance(id_, bytes)
    return id_, {f"facts:shared:{key}": stamp}


async def test_who_waits_is_told_when_redis_loses_the_change_before_the_tier_has_it(team: OutboxHarness) -> None:
    entry, changed = await left_by(team, "it")
    await team.line.call("FLUSHALL")

    with pytest.raises(ChangeLostError, match="make it again"):
        await team.settle("facts", [entry], changed)


async def test_a_waiter_succeeds_although_another_hub_was_faster(team: OutboxHarness) -> None:
    entry, changed = await left_by(team, "it")
    await team.relay.drain("facts")

    await team.settle("facts", [entry], changed)
