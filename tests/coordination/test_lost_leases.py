"""Leases that end or are lost, and waiters that go away; a turned clock replaces long waits."""
# ruff: noqa: PT012  # what is raised at the end of a block takes the block to show

from __future__ import annotations

import asyncio
import gc
import random
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime

import fakeredis
import pytest
from conformance.coordination.leases import is_waiting
from redis import Redis
from support.waiting import wait_until

from sharedmem import Hub, LockHeldError, LockLostError, Settings, SharedMemoryStore, UsageError
from sharedmem.clock import SystemClock
from sharedmem.sync import Hub as SyncHub
from sharedmem.testing import ManualClock, connect_to_fake, fake_hub
from sharedmem.testing.store_fixtures import eventually


@pytest.fixture
def server() -> fakeredis.FakeServer:
    return fakeredis.FakeServer()


@pytest.fixture
async def fake(clock: ManualClock, server: fakeredis.FakeServer) -> AsyncIterator[Hub]:
    async with fake_hub(clock=clock, server=server) as hub:
        yield hub


@pytest.fixture
def ada(fake: Hub) -> SharedMemoryStore:
    return fake.store("team", actor="ada")


@pytest.fixture
def bob(fake: Hub) -> SharedMemoryStore:
    return fake.store("team", actor="bob")


async def forever() -> None:
    await asyncio.Event().wait()


# -- a lease and the clock ------------------------------------------------------------------------


async def test_a_lease_renews_itself_while_the_block_runs(ada: SharedMemoryStore, clock: ManualClock) -> None:
    """docs/locks.md: a lease renews itself while the block runs."""
    async with ada.lock("index") as lease:
        for _ in range(10):
            clock.advance(12)
            await eventually(lambda: lease.remaining > 28)
        (holder,) = (await ada.lease_state("index")).holders

    assert holder.token == lease.token


async def test_a_lease_that_was_not_renewed_in_time_interrupts_the_block(
    ada: SharedMemoryStore, fake: Hub, clock: ManualClock
) -> None:
    """docs/locks.md: when a lease is lost."""
    with pytest.raises(LockLostError, match="lock 'index' is no longer yours") as caught:
        async with ada.lock("index") as lease:
            clock.advance(40)
            assert not lease.is_held()
            await forever()

    assert caught.value.token == lease.token
    assert fake.counters.read("leases_lost", kind="lock") == 1
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)


async def test_the_holder_steps_down_before_the_lease_ends_at_the_server(
    ada: SharedMemoryStore, clock: ManualClock
) -> None:
    with pytest.raises(LockLostError):
        async with ada.lock("index") as lease:
            clock.advance(29.5)
            assert not lease.is_held()
            (holder,) = (await ada.lease_state("index")).holders
            assert (holder.token, holder.remaining_ms) == (lease.token, 500)


async def test_a_place_is_free_as_soon_as_its_lost_block_is_left(ada: SharedMemoryStore, clock: ManualClock) -> None:
    with pytest.raises(LockLostError):
        async with ada.lock("index"):
            clock.advance(29.5)
            await forever()

    async with ada.lock("index"):
        pass


async def test_a_block_that_swallows_the_interruption_is_still_told(ada: SharedMemoryStore, clock: ManualClock) -> None:
    with pytest.raises(LockLostError):
        async with ada.semaphore("gpu", 2):
            clock.advance(40)
            with suppress(asyncio.CancelledError):
                await forever()


async def test_a_block_that_never_awaits_is_told_at_its_end(ada: SharedMemoryStore, clock: ManualClock) -> None:
    with pytest.raises(LockLostError):
        async with ada.lock("index"):
            clock.advance(40)


async def test_the_error_of_a_block_comes_before_the_loss(ada: SharedMemoryStore, clock: ManualClock) -> None:
    with pytest.raises(KeyError, match="mine"):
        async with ada.lock("index"):
            clock.advance(40)
            raise KeyError("mine")


async def test_nothing_is_cancelled_after_the_end_of_the_block(ada: SharedMemoryStore, clock: ManualClock) -> None:
    async with ada.lock("index"):
        pass
    for _ in range(5):
        clock.advance(40)
        await asyncio.sleep(0)


async def test_of_two_lost_leases_the_outer_one_is_told(ada: SharedMemoryStore, clock: ManualClock) -> None:
    with pytest.raises(LockLostError, match="outer"):
        async with ada.lock("outer"), ada.lock("inner"):
            clock.advance(40)
            await forever()

    assert (asyncio.current_task() or pytest.fail("no task")).cancelling() == 0


async def test_a_cancellation_from_elsewhere_stays_one(ada: SharedMemoryStore) -> None:
    entered = asyncio.Event()

    async def work() -> None:
        async with ada.lock("index"):
            entered.set()
            await forever()

    task = asyncio.create_task(work())
    await entered.wait()
    task.cancel()
    await asyncio.wait([task])

    assert task.cancelled()
    assert (await ada.lease_state("index")).holders == ()


async def test_a_cancellation_from_elsewhere_counts_more_than_the_loss(
    ada: SharedMemoryStore, clock: ManualClock
) -> None:
    interrupted = asyncio.Event()

    async def work() -> None:
        async with ada.lock("index"):
            clock.advance(40)
            try:
                await forever()
            finally:
                interrupted.set()
                await forever()

    task = asyncio.create_task(work())
    await interrupted.wait()
    task.cancel()
    await asyncio.wait([task])

    assert task.cancelled()


async def test_a_timeout_around_the_block_is_a_timeout(ada: SharedMemoryStore) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(None) as block, ada.lock("index"):
            block.reschedule(asyncio.get_running_loop().time())
            await forever()

    assert (await ada.lease_state("index")).holders == ()


# -- holders and waiters that are gone ------------------------------------------------------------


async def test_the_place_of_a_holder_that_died_is_free_when_its_lease_ends(
    ada: SharedMemoryStore, clock: ManualClock, server: fakeredis.FakeServer
) -> None:
    """docs/locks.md: a crashed holder frees its place."""
    async with fake_hub(clock=clock, server=server) as dying:
        abandoned = dying.store("team", actor="eve").lock("index")
        lost = await abandoned.__aenter__()

    clock.advance(20)
    with pytest.raises(LockHeldError):
        async with ada.lock("index", wait=0):
            raise AssertionError
    waiting = asyncio.create_task(hold(ada))
    await is_waiting(ada, "index", 1)
    clock.advance(11)
    assert await waiting > lost.token

    with pytest.raises(LockLostError, match=str(lost.token)):
        await abandoned.__aexit__(None, None, None)


async def hold(store: SharedMemoryStore, name: str = "index") -> int:
    async with store.lock(name) as lease:
        return lease.token


async def test_the_waiters_of_a_dead_hub_do_not_block_others(
    ada: SharedMemoryStore, clock: ManualClock, server: fakeredis.FakeServer
) -> None:
    async with ada.lock("index"):
        async with fake_hub(clock=clock, server=server) as dying:
            stuck = [asyncio.create_task(hold(dying.store("team", actor="eve"))) for _ in range(3)]
            await is_waiting(ada, "index", 3)
        waiting = asyncio.create_task(hold(ada))
        await is_waiting(ada, "index", 4)

    assert await waiting
    for task in stuck:
        task.cancel()
    await asyncio.wait(stuck)


async def test_a_waiter_that_is_cancelled_passes_its_turn_on(ada: SharedMemoryStore, bob: SharedMemoryStore) -> None:
    async with ada.lock("index"):
        first = asyncio.create_task(hold(bob))
        await is_waiting(ada, "index", 1)
        second = asyncio.create_task(hold(ada))
        await is_waiting(ada, "index", 2)
        first.cancel()
        await is_waiting(ada, "index", 1)

    assert await second
    assert first.cancelled()


async def test_a_waiter_that_is_cancelled_when_it_is_called_passes_its_turn_on(store: SharedMemoryStore) -> None:
    for _ in range(20):
        async with store.lock("index"):
            first = asyncio.create_task(hold(store))
            await is_waiting(store, "index", 1)
            second = asyncio.create_task(hold(store))
            await is_waiting(store, "index", 2)
        for _ in range(random.randrange(8)):
            await asyncio.sleep(0)
        first.cancel()
        assert await second
        await asyncio.wait([first])


async def test_who_is_cancelled_in_the_moment_of_getting_it_leaves_nothing_behind(store: SharedMemoryStore) -> None:
    for ticks in range(40):
        task = asyncio.create_task(hold(store))
        for _ in range(ticks % 12):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])

    async def it_is_free() -> bool:
        return (await store.lease_state("index")).holders == ()

    await eventually(it_is_free)
    assert await hold(store)


async def test_a_call_that_is_lost_with_its_connection_is_made_up_for(store: SharedMemoryStore, redis_url: str) -> None:
    with Redis.from_url(redis_url) as raw:
        async with store.lock("index"):
            waiting = asyncio.create_task(hold(store))
            await is_waiting(store, "index", 1)
            raw.client_kill_filter(_type="pubsub")

    # Sooner than it would ask by itself.
    async with asyncio.timeout(20):
        assert await waiting


async def test_scripts_that_the_server_forgot_do_not_matter(store: SharedMemoryStore, redis_url: str) -> None:
    with Redis.from_url(redis_url) as raw:
        raw.script_flush()
        async with store.lock("index"):
            waiting = asyncio.create_task(hold(store))
            await is_waiting(store, "index", 1)
            raw.script_flush()

        assert await waiting


async def test_a_wall_clock_that_jumps_does_not_matter(redis_url: str, settings: Settings) -> None:
    """docs/locks.md: the time of day of a machine does not matter."""

    class Jumping(SystemClock):
        def now(self) -> datetime:
            return datetime(random.choice([1970, 2026, 2099]), 1, 1, tzinfo=UTC)

    async with Hub(redis_url, settings=settings, clock=Jumping()) as hub:
        store = hub.store("jumping", actor="ada")
        async with store.lock("index", lease=2) as lease:
            await wait_until(lambda: lease.remaining < 1.7, description="some of the lease has passed")
            await wait_until(lambda: lease.remaining > 1.7, description="the lease was renewed")
            (holder,) = (await store.lease_state("index")).holders
            assert holder.token == lease.token
        await hub.store("jumping").clear()


# -- leaders --------------------------------------------------------------------------------------


async def test_a_leader_that_was_frozen_is_none_any_more_and_campaigns_again(
    ada: SharedMemoryStore, clock: ManualClock
) -> None:
    told: list[tuple[str, int]] = []

    async def gained(token: int) -> None:
        told.append(("gained", token))
        try:
            await forever()
        finally:
            told.append(("stopped", token))

    async def lost(token: int) -> None:
        told.append(("lost", token))

    async with ada.leader("boss", on_gain=gained, on_loss=lost) as candidacy:
        first = await candidacy.elected()
        await eventually(lambda: told)
        clock.advance(14.5)
        assert (candidacy.is_leader, candidacy.token) == (False, None)
        await eventually(lambda: candidacy.is_leader)
        second = candidacy.token
        await eventually(lambda: len(told) == 4)

    assert second is not None
    assert second > first
    turns = [(word, token) for token in (first, second) for word in ("gained", "stopped", "lost")]
    assert told == turns


async def test_who_left_is_not_elected(ada: SharedMemoryStore, bob: SharedMemoryStore) -> None:
    async with ada.leader("boss") as leader:
        await leader.elected()
        async with bob.leader("boss") as candidacy:
            waiting = asyncio.create_task(candidacy.elected())
            await is_waiting(ada, "boss", 1, "leader")
        with pytest.raises(UsageError, match=r"call leader\(\) again"):
            await waiting


# -- the sync face: the block runs in another thread ----------------------------------------------


def test_a_thread_is_told_of_the_loss_when_it_leaves_the_block(redis_url: str, settings: Settings) -> None:
    with SyncHub.open(redis_url, settings=settings) as hub:
        store = hub.store("sync-leases", actor="ada")
        with pytest.raises(LockLostError) as caught, store.lock("index", lease=0.3) as lease:
            hub.store("sync-leases").clear()
            while lease.is_held():
                threading.Event().wait(0.01)
            with pytest.raises(LockLostError):
                lease.check()

        assert caught.value.token == lease.token
        with store.lock("index", wait=0):
            pass
        hub.store("sync-leases").clear()


def test_the_error_of_a_thread_comes_before_the_loss(
    redis_url: str, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    with SyncHub.open(redis_url, settings=settings) as hub:
        with pytest.raises(KeyError, match="mine"), hub.store("sync-leases").lock("index", lease=0.3) as lease:
            hub.store("sync-leases").clear()
            while lease.is_held():
                threading.Event().wait(0.01)
            raise KeyError("mine")
        hub.store("sync-leases").clear()
    gc.collect()
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


def test_a_hub_that_closes_under_a_block_leaves_no_caller_waiting(settings: Settings) -> None:
    server = fakeredis.FakeServer()
    with SyncHub(settings=settings, connect=connect_to_fake(server)) as hub:
        block = hub.store("team", actor="ada").lock("index", lease=0.5)
        lease = block.__enter__()

    with pytest.raises((UsageError, LockLostError)):
        block.__exit__(None, None, None)
    with (
        SyncHub(settings=settings, connect=connect_to_fake(server)) as hub,
        hub.store("team").lock("index") as next_one,
    ):
        assert next_one.token > lease.token
