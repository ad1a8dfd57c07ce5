"""What changes leave in the outbox gets into the durable tier, whichever hub delivers it and whichever dies."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import fakeredis
import pytest
from support.forked_processes import ForkedProcess
from support.outbox_harness import (
    CACHE_MS,
    FaultyDurable,
    OpenOutboxHarness,
    OutboxHarness,
    open_outbox_harness,
    unavailable_error,
)
from support.waiting import wait_until

from sharedmem import Settings
from sharedmem.durable.outbox_relay import RelayLimits
from sharedmem.durable.outbox_stream import GROUP
from sharedmem.durable.protocol import living_documents
from sharedmem.durable.sqlite_store import SqliteDurable
from sharedmem.hub import Connect
from sharedmem.hub.composition import connect as connect_to_server
from sharedmem.models import Outcome
from sharedmem.redis.replies import Argument, Reply
from sharedmem.testing.clock import ManualClock
from sharedmem.testing.fakes import connect_to_fake

_TESTS = Path(__file__).resolve().parents[2]


# -- the worker -----------------------------------------------------------------------------------


async def test_a_worker_carries_what_changes_leave(team: OutboxHarness) -> None:
    team.relay.start()

    version = await team.write("note", '{"a": 1}')
    await wait_until(team.is_empty, description="the outbox is empty")

    head = await team.kept("note")
    assert head is not None
    assert (head.version, head.stamp, head.body, head.actor) == (version, version, '{"a": 1}', "ada")


async def test_what_was_left_before_a_worker_began_is_carried_too(team: OutboxHarness) -> None:
    await team.write("note", "1")

    team.relay.start()

    await wait_until(team.is_empty, description="the outbox is empty")
    assert await team.kept("note") is not None


async def test_of_what_waits_only_the_newest_of_each_document_is_put(
    team: OutboxHarness, faulty: FaultyDurable
) -> None:
    for number in range(20):
        await team.write("note", str(number))

    await team.relay.drain(team.namespace)

    (put,) = faulty.puts
    assert [record.body for record in put] == ["19"]


async def test_a_list_gets_there_with_all_its_items(team: OutboxHarness, durable: SqliteDurable) -> None:
    for number in range(5):
        await team.append("list", str(number))

    await team.relay.drain(team.namespace)

    head, *items = living_documents(await durable.records(team.target("list").key), now_ms=0)
    assert head.size == 5
    assert [item.body for item in items] == ["0", "1", "2", "3", "4"]


async def test_knowledge_that_is_kept_stays_in_redis_for_the_time_of_its_copy(team: OutboxHarness) -> None:
    await team.write("note", "1")
    assert await team.line.call("PTTL", team.target("note").physical) == -1

    await team.relay.drain(team.namespace)

    left = await team.line.call("PTTL", team.target("note").physical)
    assert isinstance(left, int)
    assert 0 < left <= CACHE_MS
    assert await team.state("note") == "cached"


async def test_a_session_keeps_its_own_expiry_when_it_is_kept(team: OutboxHarness) -> None:
    await team.write("note", "1", mode="s", ttl_ms=90_000_000)

    await team.relay.drain(team.namespace)

    left = await team.line.call("PTTL", team.target("note").physical)
    assert isinstance(left, int)
    assert left > CACHE_MS
    assert await team.state("note") not in {"pending", "cached"}


async def test_a_change_that_was_made_meanwhile_keeps_its_key_from_becoming_a_mere_copy(
    team: OutboxHarness, faulty: FaultyDurable
) -> None:
    faulty.gate.clear()
    await team.write("note", "1")
    team.relay.start()
    await wait_until(lambda: bool(faulty.puts), description="the first change is on its way")
    await team.write("note", "2")
    late = asyncio.create_task(team.relay.drain(team.namespace))
    faulty.fault = lambda records: unavailable_error() if records[0].body == "2" else None
    faulty.gate.set()

    await wait_until(lambda: len(faulty.puts) > 1, description="the second change is on its way")
    assert await team.state("note") == "pending"

    faulty.fault = lambda _: None
    await late
    await wait_until(team.is_empty, description="the outbox is empty")
    assert await team.state("note") == "cached"


async def test_a_change_for_which_two_callers_wait_is_counted_once(team: OutboxHarness, faulty: FaultyDurable) -> None:
    await team.write("note", "1")
    await team.write("note", "2")
    oldest = await team.line.call("XRANGE", team.keyspace.outbox(team.namespace), "-", "+", "COUNT", 1)
    assert isinstance(oldest, list)
    assert isinstance(oldest[0], list)
    assert isinstance(oldest[0][0], bytes)
    id_ = oldest[0][0]

    await asyncio.gather(team.settle(team.namespace, [id_]), team.settle(team.namespace, [id_]))

    assert len(faulty.puts) == 1
    assert await team.waiting() == 1
    assert await team.state("note") == "pending"


async def test_a_drain_does_not_put_what_the_worker_is_putting(team: OutboxHarness, faulty: FaultyDurable) -> None:
    faulty.gate.clear()
    await team.write("note", "1")
    team.relay.start()
    await wait_until(lambda: bool(faulty.puts), description="the worker has it in hand")
    await team.write("other", "2")

    drain = asyncio.create_task(team.relay.drain(team.namespace))
    await wait_until(lambda: len(faulty.puts) > 1, description="the drain has the other one in hand")
    faulty.gate.set()
    await drain

    assert sorted(record.body for put in faulty.puts for record in put) == ["1", "2"]
    assert await team.is_empty()


def held_reply(
    team: OutboxHarness, monkeypatch: pytest.MonkeyPatch, command: str
) -> tuple[asyncio.Event, asyncio.Event]:
    """The first reply to that command is held: an event when the server has sent it, and one that lets it arrive."""
    sent, may_arrive = asyncio.Event(), asyncio.Event()
    call = team.line.call_aside

    async def call_late(*words: Argument) -> Reply:
        reply = await call(*words)
        if words[0] == command and reply and not sent.is_set():
            sent.set()
            await may_arrive.wait()
        return reply

    monkeypatch.setattr(team.line, "call_aside", call_late)
    return sent, may_arrive


async def test_the_worker_does_not_put_what_a_drain_has_put_before_the_worker_had_its_reply(
    team: OutboxHarness, faulty: FaultyDurable, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, may_arrive = held_reply(team, monkeypatch, "XREADGROUP")
    await team.write("note", "1")
    team.relay.start()
    await sent.wait()

    await team.relay.drain(team.namespace)
    may_arrive.set()
    await team.write("other", "2")
    team.relay.note(team.namespace)
    await wait_until(team.is_empty, description="the outbox is empty")

    assert [record.body for put in faulty.puts for record in put] == ["1", "2"]


async def test_a_drain_does_not_put_what_the_worker_has_put_before_the_drain_had_its_reply(
    team: OutboxHarness, faulty: FaultyDurable, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, may_arrive = held_reply(team, monkeypatch, "XRANGE")
    await team.write("note", "1")
    drain = asyncio.create_task(team.relay.drain(team.namespace))
    await sent.wait()

    team.relay.start()
    await wait_until(team.is_empty, description="the worker has put it")
    may_arrive.set()
    await drain

    assert [record.body for put in faulty.puts for record in put] == ["1"]


async def test_a_key_is_a_mere_copy_only_when_no_relay_holds_an_older_change_of_it(
    open_shore: OpenOutboxHarness, faulty: FaultyDurable, durable: SqliteDurable
) -> None:
    first, second = await open_shore(), await open_shore()
    await first.append("list", "1")
    faulty.gate.clear()
    slow = asyncio.create_task(first.relay.drain(first.namespace))
    await wait_until(lambda: bool(faulty.puts), description="the first hub has an item in hand")
    await second.append("list", "2")
    faulty.fault = lambda records: unavailable_error() if any(record.body == "1" for record in records) else None
    faulty.gate.set()

    newest = await second.line.call("XREVRANGE", second.keyspace.outbox(second.namespace), "+", "-", "COUNT", 1)
    assert isinstance(newest, list)
    assert isinstance(newest[0], list)
    assert isinstance(newest[0][0], bytes)
    await second.settle(second.namespace, [newest[0][0]])
    assert await second.state("list") == "pending"

    faulty.fault = lambda _: None
    await slow
    assert await second.state("list") == "cached"
    _, *items = living_documents(await durable.records(first.target("list").key), now_ms=0)
    assert [item.body for item in items] == ["1", "2"]


async def test_a_deletion_is_a_tombstone_that_an_older_write_does_not_pass(
    team: OutboxHarness, durable: SqliteDurable
) -> None:
    await team.write("note", "1")
    await team.relay.drain(team.namespace)
    written = await team.kept("note")
    assert written is not None

    stamp = await team.delete("note")
    await team.relay.drain(team.namespace)
    late = await durable.put([written])

    head = await team.kept("note")
    assert head is not None
    assert (head.deleted, head.stamp, head.floor) == (True, stamp, stamp)
    assert late[0].outcome == Outcome.OLDER
    assert await team.state("note") == "missing"


async def test_what_is_deleted_and_made_again_in_one_batch_has_nothing_of_before(
    team: OutboxHarness, durable: SqliteDurable
) -> None:
    await team.append("list", "1")
    await team.relay.drain(team.namespace)
    await team.append("list", "2")
    await team.delete("list")
    await team.append("list", "3")

    await team.relay.drain(team.namespace)

    _, *items = living_documents(await durable.records(team.target("list").key), now_ms=0)
    assert [item.body for item in items] == ["3"]


async def test_changes_of_a_busy_hub_arrive_in_batches(team: OutboxHarness, faulty: FaultyDurable) -> None:
    team.relay.start()

    await asyncio.gather(*(team.write(f"note-{number}", "1") for number in range(300)))
    await wait_until(team.is_empty, description="the outbox is empty")

    assert sum(map(len, faulty.puts)) == 300
    assert len(faulty.puts) < 60


async def test_two_hubs_share_the_work_and_nothing_is_lost(
    open_shore: OpenOutboxHarness, durable: SqliteDurable
) -> None:
    hubs = [await open_shore(), await open_shore()]
    for hub in hubs:
        hub.relay.start()

    for round_ in range(20):
        await asyncio.gather(*(hub.append(f"list-{round_ % 3}", f"{round_}{n}") for n, hub in enumerate(hubs)))
    await wait_until(hubs[0].is_empty, description="the outbox is empty")

    found = [living_documents(await durable.records(hubs[0].target(f"list-{n}").key), now_ms=0) for n in range(3)]
    assert [one[0].size for one in found] == [14, 14, 12]
    assert [len(one) - 1 for one in found] == [14, 14, 12]


async def test_a_hub_takes_over_from_one_that_has_died(
    faulty: FaultyDurable, namespace: str, settings: Settings
) -> None:
    clock = ManualClock()
    connect = connect_to_fake(fakeredis.FakeServer())
    async with (
        open_outbox_harness(connect, faulty, namespace, settings=settings, clock=clock) as dead,
        open_outbox_harness(connect, faulty, "elsewhere", settings=settings, clock=clock) as heir,
    ):
        await dead.write("note", "1")
        await dead.relay.enrol(namespace)
        outbox = dead.keyspace.outbox(namespace)
        await dead.line.call("XGROUP", "CREATE", outbox, GROUP, "0")
        await dead.line.call("XREADGROUP", "GROUP", GROUP, "hubs", "COUNT", 10, "STREAMS", outbox, ">")

        heir.relay.start()
        for _ in range(4):
            await asyncio.sleep(0.01)
            clock.advance(7)
        assert not await dead.is_empty()
        for _ in range(2):
            await asyncio.sleep(0.01)
            clock.advance(7)
        await wait_until(dead.is_empty, description="the heir has carried it")

    assert await dead.kept("note") is not None


async def test_a_namespace_that_stays_empty_is_not_looked_after_for_ever(
    faulty: FaultyDurable, namespace: str, settings: Settings
) -> None:
    clock = ManualClock()
    connect = connect_to_fake(fakeredis.FakeServer())
    async with open_outbox_harness(connect, faulty, namespace, settings=settings, clock=clock) as team:
        team.relay.start()
        await team.write("note", "1")
        await wait_until(team.is_empty, description="the outbox is empty")
        assert await team.relay.namespaces() == [namespace]

        for _ in range(100):
            clock.advance(7)
            await asyncio.sleep(0.001)
        assert await team.relay.namespaces() == []

        await team.write("note", "2")
        await wait_until(team.is_empty, description="the outbox is empty")
        assert await team.relay.namespaces() == [namespace]


async def test_a_flush_in_between_loses_what_waited_and_nothing_else(
    connect: Connect, team: OutboxHarness, faulty: FaultyDurable
) -> None:
    if connect is connect_to_server:
        pytest.skip("the server is shared")
    faulty.gate.clear()
    await team.write("before", "1")
    team.relay.start()
    await wait_until(lambda: bool(faulty.puts), description="a change is on its way")

    await team.line.call("FLUSHALL")
    await team.write("after", "2")
    faulty.gate.set()

    await wait_until(team.is_empty, description="the outbox is empty")
    assert await team.kept("before") is not None
    assert await team.kept("after") is not None
    assert await team.state("before") == ""


async def test_an_outbox_that_is_none_holds_no_other_up(team: OutboxHarness) -> None:
    await team.line.call("SET", team.keyspace.outbox("broken"), "no stream", "PX", 60_000)
    await team.line.call("SADD", team.keyspace.outboxes, "broken")
    team.relay.start()
    team.relay.note("broken")

    await team.write("note", "1")

    await wait_until(team.is_empty, description="the outbox is empty")
    await team.line.call("SREM", team.keyspace.outboxes, "broken")


async def test_many_busy_namespaces_take_turns(
    faulty: FaultyDurable, durable: SqliteDurable, namespace: str, settings: Settings
) -> None:
    connect = connect_to_fake(fakeredis.FakeServer())
    async with AsyncExitStack() as stack:
        ways = [
            open_outbox_harness(connect, faulty, f"{namespace}-{number}", settings=settings) for number in range(10)
        ]
        hubs = [await stack.enter_async_context(way) for way in ways]
        worker = hubs[0].relay
        worker.start()
        for hub in hubs:
            await hub.write("note", "1")
            worker.note(hub.namespace)

        for hub in hubs:
            await wait_until(hub.is_empty, description=f"{hub.namespace} is carried")


async def test_invisible_documents_are_purged_in_time(
    faulty: FaultyDurable, durable: SqliteDurable, namespace: str, settings: Settings
) -> None:
    clock = ManualClock()
    connect = connect_to_fake(fakeredis.FakeServer())
    async with open_outbox_harness(connect, faulty, namespace, settings=settings, clock=clock) as team:
        await team.write("gone", "1")
        await team.delete("gone")
        await team.write("over", "1", mode="s", ttl_ms=60_000)
        await team.write("here", "1")
        await team.relay.drain(namespace)
        team.relay.start()

        async def sleeps_till_its_first_turn() -> bool:
            return max(clock.sleepers, default=0) >= 300

        async def sleeps_till_its_next_turn() -> bool:
            return max(clock.sleepers, default=0) > 3000

        async def settled(days: float) -> list[str]:
            # The first turn may have begun before the days went by: what the second one leaves is final.
            clock.advance(days * 86_400)
            for _ in range(2):
                await wait_until(sleeps_till_its_next_turn, description="the purger sleeps")
                clock.advance(3700)
            await wait_until(sleeps_till_its_next_turn, description="the purger sleeps")
            return [key for key in ("gone", "over", "here") if await team.kept(key) is not None]

        await wait_until(sleeps_till_its_first_turn, description="the purger sleeps")
        assert await settled(0.8) == ["gone", "here"]
        assert await settled(7) == ["here"]


async def test_closing_carries_what_is_there(team: OutboxHarness) -> None:
    await team.write("note", "1")
    team.relay.note(team.namespace)

    assert await team.relay.close() == 0
    assert await team.kept("note") is not None


async def test_closing_while_the_tier_is_away_tells_how_much_stays(team: OutboxHarness, faulty: FaultyDurable) -> None:
    team.relay.start()
    faulty.fault = lambda _: unavailable_error()
    for number in range(3):
        await team.write(f"note-{number}", "1")

    assert await team.relay.close(0.5) == 3
    assert await team.waiting() == 3


# -- looking at it --------------------------------------------------------------------------------


async def test_the_lag_tells_how_much_waits_and_for_how_long(team: OutboxHarness) -> None:
    quiet = await team.relay.lag(team.namespace)
    await team.write("note", "1")
    await team.write("note", "2")

    busy = await team.relay.lag(team.namespace)

    assert (quiet.waiting, quiet.oldest, quiet.delivered, quiet.dead) == (0, 0.0, 0, 0)
    assert (busy.waiting, busy.delivered) == (2, 0)
    assert 0 <= busy.oldest < 60


# -- kill -9 --------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["before put", "within put", "after put", "after settle"])
async def test_a_worker_that_is_killed_loses_nothing(
    moment: str, redis_url: str, namespace: str, tmp_path: Path, settings: Settings
) -> None:
    process = await ForkedProcess.start("support.crashing_relay", redis_url, namespace, tmp_path / "tier.db", moment)
    out = await process.communicate()
    assert process.returncode == -9

    durable = SqliteDurable(tmp_path / "tier.db")
    await durable.open()
    chosen = settings.replace(redis_url=redis_url)
    async with open_outbox_harness(
        connect_to_server, durable, namespace, settings=chosen, pace=RelayLimits(idle_ms=1)
    ) as heir:
        heir.relay.start()
        await wait_until(heir.is_empty, description="the heir has carried what was left")
        await heir.line.call("SREM", heir.keyspace.outboxes, namespace)

        _, *items = living_documents(await durable.records(heir.target("list").key), now_ms=0)
        assert [item.body for item in items] == out.decode().split()
        assert await heir.state("list") == "cached"
        await heir.line.call(
            "UNLINK",
            heir.keyspace.outbox(namespace),
            heir.keyspace.space(namespace).clock,
            heir.target("list").physical,
        )
    await durable.close()
