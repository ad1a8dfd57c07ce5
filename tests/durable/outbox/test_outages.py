"""The durable tier is away, slow or full: changes wait, callers are told, and everything follows."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from pathlib import Path

import fakeredis
import pytest
from support.outbox_harness import (
    FaultyDurable,
    OpenOutboxHarness,
    OutboxHarness,
    open_outbox_harness,
    reject_key,
    unavailable_error,
)
from support.waiting import wait_until

from sharedmem import AccessDeniedError, LimitedError, Settings, UnavailableError
from sharedmem.durable.outbox_delivery import OUTAGES
from sharedmem.durable.outbox_relay import RelayLimits
from sharedmem.testing.clock import ManualClock
from sharedmem.testing.fakes import connect_to_fake

_TESTS = Path(__file__).resolve().parents[2]
FAR_US = 9_000_000_000_000_000


# -- the tier is away -----------------------------------------------------------------------------


async def test_changes_wait_while_the_tier_is_away_and_follow_when_it_is_back(
    team: OutboxHarness, faulty: FaultyDurable, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "sharedmem.durable")
    faulty.fault = lambda _: unavailable_error()
    team.relay.start()
    for number in range(3):
        await team.write("note", str(number))
    await wait_until(lambda: len(faulty.puts) >= 3, description="it was tried again")
    assert await team.state("note") == "pending"
    assert "it is away" in team.relay.failure_reason

    faulty.fault = lambda _: None
    await wait_until(team.is_empty, description="the outbox is empty")

    head = await team.kept("note")
    assert head is not None
    assert head.body == "2"
    assert team.relay.failure_reason == ""
    assert team.counters.read(OUTAGES) == 1
    told = [record.getMessage() for record in caplog.records]
    assert [told[0].partition(";")[0], told[1].partition(", after")[0]] == [
        "the durable tier is unavailable",
        f"{faulty.url} is available again",
    ]
    assert len(told) == 2


async def test_a_tier_that_asks_for_time_gets_it(faulty: FaultyDurable, namespace: str, settings: Settings) -> None:
    clock = ManualClock()
    connect = connect_to_fake(fakeredis.FakeServer())
    faulty.fault = lambda _: LimitedError("too many requests", 9)
    async with open_outbox_harness(connect, faulty, namespace, settings=settings, clock=clock) as team:
        team.relay.start()
        await team.write("note", "1")
        await wait_until(lambda: bool(faulty.puts), description="it was tried")
        for _ in range(8):
            clock.advance(1)
            await asyncio.sleep(0.001)
        assert len(faulty.puts) == 1

        faulty.fault = lambda _: None
        clock.advance(2)
        await wait_until(team.is_empty, description="the outbox is empty")


async def test_a_hub_that_slept_for_a_week_does_not_bring_back_what_was_deleted_since(
    open_shore: OpenOutboxHarness, faulty: FaultyDurable
) -> None:
    clock = ManualClock(datetime.now(UTC))
    sleeper, other = await open_shore(clock=clock), await open_shore(clock=clock)
    faulty.fault = lambda _: unavailable_error()
    await sleeper.write("note", "1")
    sleeper.relay.start()
    await wait_until(lambda: bool(faulty.puts), description="the batch is in its hands")
    faulty.fault = lambda _: None
    await other.relay.drain(other.namespace)
    await other.delete("note")
    await other.relay.drain(other.namespace)
    await faulty.purge(other.namespace, now_ms=FAR_US // 1000, tombstones_before=FAR_US)

    clock.advance(8 * 86_400)
    await sleeper.write("later", "1")
    await wait_until(sleeper.is_empty, description="the hub has gone on after that batch")

    assert await sleeper.kept("later") is not None
    assert await sleeper.kept("note") is None


async def test_a_reply_of_the_tier_that_was_lost_does_no_harm(team: OutboxHarness, faulty: FaultyDurable) -> None:
    faulty.after = lambda _: unavailable_error() if len(faulty.puts) == 1 else None
    await team.append("list", "1")

    await team.relay.drain(team.namespace)

    assert len(faulty.puts) == 2
    assert await team.is_empty()


async def test_draining_ends_when_its_time_is_over(team: OutboxHarness, faulty: FaultyDurable) -> None:
    faulty.fault = lambda _: unavailable_error()
    await team.write("note", "1")

    with pytest.raises(UnavailableError, match="it is away"):
        await team.relay.drain(team.namespace, timeout=2)

    assert await team.waiting() == 1


async def test_wrong_credentials_keep_changes_waiting(team: OutboxHarness, faulty: FaultyDurable) -> None:
    faulty.fault = lambda _: AccessDeniedError("this hub", "the tier", "write", "give it the right key")
    await team.write("note", "1")

    with pytest.raises(UnavailableError, match="give it the right key"):
        await team.relay.drain(team.namespace, timeout=2)

    assert await team.waiting() == 1


async def test_too_much_that_waits_refuses_changes_before_anything_is_written(
    open_shore: OpenOutboxHarness, faulty: FaultyDurable
) -> None:
    team = await open_shore(limit=3)
    faulty.fault = lambda _: unavailable_error()
    for number in range(3):
        await team.write(f"note-{number}", "1")

    with pytest.raises(UnavailableError, match="too many changes wait for the durable tier"):
        await team.write("note-3", "1")

    assert await team.line.call("EXISTS", team.target("note-3").physical) == 0
    assert await team.waiting() == 3
    faulty.fault = lambda _: None
    await team.relay.drain(team.namespace)
    await team.write("note-3", "1")


# -- for waiting callers --------------------------------------------------------------------------


async def test_a_change_through_is_in_the_tier_when_it_returns(open_shore: OpenOutboxHarness) -> None:
    team = await open_shore(through="k")

    await team.write("note", "1")

    assert await team.kept("note") is not None
    assert await team.is_empty()


async def test_changes_through_of_the_same_moment_share_their_puts(
    open_shore: OpenOutboxHarness, faulty: FaultyDurable
) -> None:
    team = await open_shore(through="k")

    await asyncio.gather(*(team.write(f"note-{number}", "1") for number in range(100)))

    assert sum(map(len, faulty.puts)) == 100
    assert len(faulty.puts) < 20
    assert await team.is_empty()


async def test_a_change_through_fails_clearly_while_the_tier_is_away_and_is_kept_later(
    open_shore: OpenOutboxHarness, faulty: FaultyDurable
) -> None:
    team = await open_shore(through="k")
    team.relay.start()
    faulty.fault = lambda _: unavailable_error()

    with pytest.raises(Exception, match="it is away") as failed:
        await team.write("note", "1")
    assert getattr(failed.value, "reply", b"").isdigit()
    assert await team.waiting() == 1

    faulty.fault = lambda _: None
    await wait_until(team.is_empty, description="a worker has carried it")
    assert await team.kept("note") is not None


async def test_a_tier_that_does_not_answer_is_waited_for_no_longer_than_promised(
    open_shore: OpenOutboxHarness, faulty: FaultyDurable
) -> None:
    team = await open_shore(through="k", pace=RelayLimits(settle_s=0.1))
    faulty.gate.clear()

    with pytest.raises(Exception, match=r"did not store this within 0\.1 s"):
        await team.write("note", "1")

    assert await team.waiting() == 1
    faulty.gate.set()


async def test_one_refused_change_through_does_not_fail_its_neighbours(
    open_shore: OpenOutboxHarness, faulty: FaultyDurable
) -> None:
    team = await open_shore(through="k")
    faulty.answer = reject_key(team, "huge")

    huge, *others = await asyncio.gather(
        team.write("huge", "1"), *(team.write(f"note-{n}", "1") for n in range(5)), return_exceptions=True
    )

    assert "it rejects this for good: too large" in str(huge)
    assert all(isinstance(version, int) for version in others)


async def test_an_entry_that_another_hub_has_settled_is_done(open_shore: OpenOutboxHarness) -> None:
    team = await open_shore()

    await team.settle(team.namespace, [b"1-1"])


async def test_a_caller_that_gives_up_takes_no_other_along(
    open_shore: OpenOutboxHarness, faulty: FaultyDurable
) -> None:
    team = await open_shore(through="k")
    faulty.gate.clear()
    impatient = asyncio.create_task(team.write("one", "1"))
    patient = asyncio.create_task(team.write("two", "2"))
    await wait_until(lambda: bool(faulty.puts), description="a put is on its way")

    impatient.cancel()
    faulty.gate.set()

    assert await patient
    await wait_until(team.is_empty, description="the outbox is empty")
