"""Redis may lose what it had: what the durable tier has is read then, and no version is given out twice."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from support import recovery_fixtures as fixtures
from support.recovery_harness import (
    PausableDurable,
    PauseAtCall,
    RecoveryHarness,
    delete_namespace,
    memorised,
    open_recovery_harness,
)
from support.redis_process import RedisProcess
from support.waiting import wait_until

from sharedmem import Settings
from sharedmem.durable.loss_detection import PROVISIONAL, REPAIRS
from sharedmem.errors import UnavailableError, UsageError
from sharedmem.hub.composition import Connect
from sharedmem.hub.composition import connect as connect_to_real
from sharedmem.models import DurableRecord

FAR = 9_000_000_000_000_000


tier, connect, where = fixtures.tier, fixtures.connect, fixtures.where
limits, hub, other = fixtures.limits, fixtures.hub, fixtures.other


async def fail(_name: str) -> None:
    raise UnavailableError("the tier", "it is away")


# -- nothing is lost ------------------------------------------------------------------------------


async def test_a_joined_namespace_is_not_asked_for_again(hub: RecoveryHarness, tier: PausableDurable) -> None:
    await hub.join(hub.namespace)
    calls = len(tier.calls)

    for _ in range(10):
        await hub.join(hub.namespace)

    assert len(tier.calls) == calls


async def test_tasks_that_join_at_once_share_it(hub: RecoveryHarness, tier: PausableDurable) -> None:
    await asyncio.gather(*(hub.join(hub.namespace) for _ in range(50)))

    assert tier.calls.count("highest") == 1


async def test_the_next_hub_finds_nothing_to_repair(hub: RecoveryHarness, other: RecoveryHarness) -> None:
    await hub.write("key", "1")
    await hub.increment("counter")
    await hub.drain()

    await other.join(hub.namespace)

    assert other.counters.read(REPAIRS) == 0
    assert await other.held("key") == "1"


# -- a flushed server -----------------------------------------------------------------------------


async def test_after_a_flush_what_lasts_is_read_from_the_tier(hub: RecoveryHarness) -> None:
    await hub.write("fact", "1")
    await hub.write("mine", "2", mode="S")
    await hub.append("list", "3")
    await hub.drain()

    await delete_namespace(hub)

    assert await hub.read("fact") == "1"
    assert await hub.read("mine", "a") == "2"
    assert await hub.recalled("list")


async def test_after_a_flush_a_write_finds_that_out_as_well(hub: RecoveryHarness) -> None:
    await hub.append("list", "1")
    await hub.drain()
    await delete_namespace(hub)

    await hub.append("list", "2")

    assert await hub.line.call("LRANGE", hub.target("list").physical, 0, -1) == [b"1", b"2"]


async def test_after_a_flush_no_version_is_given_out_twice(hub: RecoveryHarness, tier: PausableDurable) -> None:
    await hub.join(hub.namespace)
    # The server that was lost had a clock far ahead of the new one's.
    await tier.put([document(hub, "old", FAR)])

    await delete_namespace(hub)

    assert await hub.write("new", "1") > FAR


async def test_a_flush_is_noticed_although_another_hub_has_made_the_clock_since(hub: RecoveryHarness) -> None:
    await hub.write("mine", "1", mode="S")
    await hub.drain()
    await delete_namespace(hub)
    # Messages, locks and queues take versions too, and know nothing of the tier.
    space = hub.keyspace.space(hub.namespace)
    await hub.line.call("SET", space.clock, FAR)

    assert await hub.read("mine", "a") == "1"


async def test_such_a_flush_does_not_make_a_change_ephemeral(hub: RecoveryHarness) -> None:
    await hub.write("mine", "1", mode="S")
    await hub.drain()
    await delete_namespace(hub)
    await hub.line.call("SET", hub.keyspace.space(hub.namespace).clock, FAR)

    await hub.write("mine", "2", mode="a")

    await hub.settled("mine")
    assert await hub.read("mine", "a") == "2"


async def test_what_lasts_by_rule_is_not_remembered_as_by_argument(
    connect: Connect, where: Settings, hub: RecoveryHarness, tier: PausableDurable
) -> None:
    await hub.write("ruled", "1", mode="k")
    await hub.write("mine", "1", mode="S")
    await hub.write("gone", "1", mode="S")
    await hub.delete("gone")
    await hub.drain()
    await delete_namespace(hub)
    kinds = {hub.target("ruled").key: "knowledge"}

    async with open_recovery_harness(connect, tier, hub.namespace, settings=where, kinds=kinds) as fresh:
        await fresh.join(hub.namespace)

        kept = await fresh.line.call("HGETALL", fresh.keyspace.kept(hub.namespace))
    assert isinstance(kept, list)
    names = dict(zip(kept[::2], kept[1::2], strict=True))
    assert names.pop(b"$joined", None) is not None
    assert names == {hub.target("mine").key.encode(): b"s"}


# -- a server that was set back -------------------------------------------------------------------


async def test_after_a_set_back_newer_values_are_read_from_the_tier(
    hub: RecoveryHarness, other: RecoveryHarness
) -> None:
    await hub.write("changed", "1")
    await hub.write("same", "1")
    await hub.write("deleted", "1")
    await hub.append("list", "1")
    await hub.drain()
    set_back = await memorised(hub)
    await hub.write("changed", "2")
    await hub.write("new", "2")
    await hub.delete("deleted")
    await hub.append("list", "2")
    await hub.drain()

    await set_back()
    await other.join(hub.namespace)

    assert [await other.read(key) for key in ("changed", "same", "new", "deleted")] == ["2", "1", "2", None]
    assert await other.recalled("list")
    assert await other.line.call("LRANGE", hub.target("list").physical, 0, -1) == [b"1", b"2"]
    assert await other.write("changed", "3") > await hub.version("new")


async def test_what_waited_when_it_was_set_back_is_counted_on(hub: RecoveryHarness, other: RecoveryHarness) -> None:
    await hub.write("key", "1")
    set_back = await memorised(hub)
    await hub.write("key", "2")
    await hub.drain()

    await set_back()
    await other.join(hub.namespace)
    other.drains_on_load = True

    assert await other.read("key") == "2"
    await other.write("key", "3")
    await other.drain()
    await other.settled("key")
    assert await other.read("key") == "3"


async def test_a_writer_who_has_not_heard_of_the_set_back_hides_nothing(
    hub: RecoveryHarness, other: RecoveryHarness
) -> None:
    await hub.write("changed", "1")
    await hub.write("own", "1")
    await hub.drain()
    set_back = await memorised(hub)
    await hub.write("changed", "2")
    await hub.drain()
    await set_back()
    # This one goes on over the same connection, and raises the clock above all that the tier has.
    await hub.write("own", "2")

    await other.join(hub.namespace)

    assert await other.read("changed") == "2"
    assert await other.held("own") == "2"


async def test_a_list_changed_by_such_a_writer_is_what_the_tier_makes_of_it(
    hub: RecoveryHarness, other: RecoveryHarness
) -> None:
    await hub.append("list", "1")
    await hub.drain()
    set_back = await memorised(hub)
    await hub.append("list", "2")
    await hub.drain()
    await set_back()
    await hub.append("list", "3")
    other.drains_on_nudge = True

    await other.join(hub.namespace)

    assert await other.line.call("EXISTS", hub.target("list").physical) == 0
    document = await other.kept("list")
    assert document is not None


async def test_a_hub_that_stops_on_the_way_leaves_the_rest_to_the_next(
    hub: RecoveryHarness, other: RecoveryHarness, tier: PausableDurable
) -> None:
    await hub.write("key", "1")
    await hub.drain()
    set_back = await memorised(hub)
    await hub.write("key", "2")
    await hub.drain()
    await set_back()
    tier.before = pause = PauseAtCall("iterate")
    first = asyncio.create_task(other.join(hub.namespace))
    await pause.reached.wait()
    await other.background.close()
    with pytest.raises(UsageError, match="it was closed"):
        await first
    tier.before = PauseAtCall("nothing")

    await hub.join(hub.namespace, again=True)

    assert await hub.read("key") == "2"


async def test_a_server_whose_clock_is_behind_goes_on_above_the_tier(
    hub: RecoveryHarness, tier: PausableDurable
) -> None:
    await hub.write("key", "1")
    await hub.drain()
    await tier.put([document(hub, "key", FAR, body="2")])

    await hub.join(hub.namespace, again=True)

    assert await hub.read("key") == "2"
    assert await hub.write("key", "3") > FAR


# -- a tier that is away --------------------------------------------------------------------------


async def test_without_the_tier_redis_goes_on(
    hub: RecoveryHarness, other: RecoveryHarness, tier: PausableDurable
) -> None:
    await hub.write("key", "1")
    tier.before = fail

    await other.write("key", "2")

    assert await other.held("key") == "2"
    assert other.counters.read(PROVISIONAL) == 1


async def test_without_either_side_a_new_namespace_can_be_written(hub: RecoveryHarness, tier: PausableDurable) -> None:
    tier.before = fail

    version = await hub.write("key", "1")

    assert version > 0
    with pytest.raises(UnavailableError, match="is unreachable"):
        await hub.recalled("unknown")


async def test_a_tier_that_comes_back_is_asked_again(hub: RecoveryHarness, tier: PausableDurable) -> None:
    await tier.put([document(hub, "old", FAR)])
    tier.before = fail
    await hub.write("key", "1")
    tier.before = PauseAtCall("nothing")
    hub.joiner.ask_again_at[hub.namespace] = 0.0

    await hub.join(hub.namespace)
    await wait_until(lambda: not hub.joiner.ask_again_at, description="the tier was asked again")

    assert await hub.write("key", "2") > FAR
    assert await hub.read("old") == "1"


# -- whole servers --------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[RedisProcess]:
    with RedisProcess(appendonly="yes", appendfsync="always") as server:
        yield server


@pytest.fixture
async def on_server(server: RedisProcess, tier: PausableDurable, tmp_path: Path) -> AsyncIterator[RecoveryHarness]:
    settings = Settings(redis_url=server.url, data_dir=tmp_path / "data", retry_for_s=10)
    async with open_recovery_harness(connect_to_real, tier, "test", settings=settings) as made:
        yield made


async def test_a_server_that_is_flushed_under_a_hub(server: RedisProcess, on_server: RecoveryHarness) -> None:
    await on_server.write("key", "1", mode="S")
    before = await on_server.version("key")
    await on_server.drain()

    server.tell("FLUSHALL")

    assert await on_server.read("key", "a") == "1"
    assert await on_server.write("key", "2", mode="a") > before


async def test_a_new_empty_server_in_place_of_the_old_one(server: RedisProcess, on_server: RecoveryHarness) -> None:
    await on_server.write("key", "1")
    await on_server.drain()
    server.kill()
    shutil.rmtree(server.data / "appendonlydir")
    server.start()

    assert await on_server.read("key") == "1"


async def test_a_server_that_comes_back_with_an_old_snapshot(server: RedisProcess, on_server: RecoveryHarness) -> None:
    await on_server.write("key", "1", mode="s")
    await on_server.append("list", "1")
    await on_server.drain()
    snapshot = server.home / "snapshot"
    shutil.copytree(server.data / "appendonlydir", snapshot)
    newest = await on_server.write("key", "2", mode="s")
    await on_server.append("list", "2")
    await on_server.drain()
    server.kill()
    shutil.rmtree(server.data / "appendonlydir")
    shutil.copytree(snapshot, server.data / "appendonlydir")
    server.start()

    assert await on_server.read("key", "s") == "2"
    assert await on_server.version("key") == newest
    await on_server.append("list", "3")
    assert await on_server.line.call("LRANGE", on_server.target("list").physical, 0, -1) == [b"1", b"2", b"3"]
    assert on_server.counters.read(REPAIRS) >= 1


async def test_a_server_that_was_away_and_lost_nothing_is_left_as_it_is(
    server: RedisProcess, on_server: RecoveryHarness
) -> None:
    await on_server.write("key", "1", mode="s")
    await on_server.drain()
    await on_server.line.call("SET", "marker", 1)
    server.kill()
    server.start()

    assert await on_server.read("key", "s") == "1"
    assert on_server.counters.read(REPAIRS) == 0


# -- a server that loses a part of what was restored ----------------------------------------------
#
# With `appendfsync everysec` a server that crashes has everything up to some moment in its last second. A restore that
# took longer has its lease then, and lacks its last steps.


async def test_kinds_of_keys_that_a_crash_takes_away_during_a_restore_are_restored_again(
    server: RedisProcess, on_server: RecoveryHarness, tier: PausableDurable
) -> None:
    await on_server.write("mine", "1", mode="S")
    await on_server.drain()
    server.tell("FLUSHALL")

    await restore_and_lose_its_last_steps(server, on_server, tier)

    assert await on_server.read("mine", "a") == "1"


async def test_old_copies_that_come_back_with_a_crash_during_a_restore_are_dropped_again(
    server: RedisProcess, on_server: RecoveryHarness, tier: PausableDurable
) -> None:
    await on_server.write("key", "1", mode="s")
    await on_server.drain()
    old = shutil.copytree(server.data / "appendonlydir", server.home / "old")
    await on_server.write("key", "2", mode="s")
    await on_server.drain()
    start_with(server, old)

    await restore_and_lose_its_last_steps(server, on_server, tier)

    assert await on_server.read("key", "s") == "2"


async def test_memories_that_a_crash_takes_away_during_a_restore_are_restored_again(
    server: RedisProcess, on_server: RecoveryHarness, tier: PausableDurable
) -> None:
    records = [memory(number) for number in range(2)]
    await tier.put(records)
    tier.page_size = 1
    pages = [PauseAtCall("iterate"), PauseAtCall("iterate")]
    await on_server.join("test")
    tier.after = pages[0]
    restoring = asyncio.create_task(on_server.warmer.warm("test"))
    await pages[0].reached.wait()
    snapshot = shutil.copytree(server.data / "appendonlydir", server.home / "snapshot")
    tier.after = pages[1]
    pages[0].over.set()
    await pages[1].reached.wait()

    start_with(server, snapshot)
    pages[1].over.set()
    await restoring

    there = [on_server.keyspace.presence(on_server.keyspace.target(record.key)) for record in records]
    assert await on_server.line.call("EXISTS", *there) == 2


async def restore_and_lose_its_last_steps(
    server: RedisProcess, on_server: RecoveryHarness, tier: PausableDurable
) -> None:
    """Join a namespace; before that ends, the server crashes, and has what it had when the tier was read."""
    tier.after = page = PauseAtCall("iterate")
    restoring = asyncio.create_task(on_server.join("test", again=True))
    await page.reached.wait()
    snapshot = shutil.copytree(server.data / "appendonlydir", server.home / "snapshot")
    tier.before = end = PauseAtCall("highest")
    page.over.set()
    await end.reached.wait()
    start_with(server, snapshot)
    end.over.set()
    await restoring


def start_with(server: RedisProcess, files: Path) -> None:
    """Kill a server, and start it with the files that it had some moments before."""
    server.kill()
    shutil.rmtree(server.data / "appendonlydir")
    shutil.copytree(files, server.data / "appendonlydir")
    server.start()


def memory(number: int) -> DurableRecord:
    item, stamp = {"memory": f"the harbour opens at {number}"}, number + 1
    body = {
        "id": f"m{number}",
        "digest": f"d{number}",
        "version": stamp,
        "turn_index": number,
        "change": {},
        "item": item,
    }
    return DurableRecord(
        key=f"test:$memory:m{number}", type="memory", kind="log", version=stamp, stamp=stamp, body=json.dumps(body)
    )


def document(hub: RecoveryHarness, key: str, stamp: int, body: str = "1") -> DurableRecord:
    return DurableRecord(
        key=hub.target(key).key,
        type="value",
        kind="knowledge",
        version=stamp,
        stamp=stamp,
        floor=stamp,
        created=stamp,
        actor="ada",
        body=body,
    )
