"""Once: one suite for every way to a store, and runners and followers that crash, hang or go away."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import fakeredis
import pytest
from conformance.coordination.once import Job, OnceSuite, Work
from support.backends import OnFakeredis, ThroughTheSyncFace
from support.contexts import context_of
from support.waiting import wait_until

from sharedmem import ClaimLostError, Hub, InvalidError, Present, ResultNotKeptError, Settings, SharedMemoryStore
from sharedmem.clock import SystemClock
from sharedmem.coordination.lease_session import lease_renewer
from sharedmem.testing import ManualClock, fake_hub


class TestOnceOnFakeredis(OnFakeredis, OnceSuite):
    """Every promise, on fakeredis."""


class TestOnceOnARealServer(OnceSuite):
    """Every promise, on a real server."""


@pytest.mark.nightly
class TestOnceThroughTheSyncFace(ThroughTheSyncFace, OnceSuite):
    def fn(self, job: Work) -> Work:
        """The job goes on in the test's loop, while the function that the hub calls waits for it in its thread."""
        loop = asyncio.get_running_loop()
        return (lambda: asyncio.run_coroutine_threadsafe(job(), loop).result()) if isinstance(job, Job) else job


# -- two processes, by a clock that the test turns -----------------------------------------------------


@pytest.fixture
async def hubs(clock: ManualClock) -> AsyncIterator[tuple[Hub, Hub]]:
    """Two processes on one server."""
    server = fakeredis.FakeServer()
    async with fake_hub(clock=clock, server=server) as one, fake_hub(clock=clock, server=server) as other:
        yield one, other


@pytest.fixture
def ada(hubs: tuple[Hub, Hub]) -> SharedMemoryStore:
    return hubs[0].store("n", actor="ada")


@pytest.fixture
def bob(hubs: tuple[Hub, Hub]) -> SharedMemoryStore:
    return hubs[1].store("n", actor="bob")


def started(store: SharedMemoryStore, job: Any, **named: Any) -> asyncio.Task[Any]:
    return asyncio.ensure_future(store.once("report", job, ttl=600, **named))


async def is_begun(job: Job, times: int = 1) -> None:
    await wait_until(lambda: job.begun == times, description="the work has begun")


async def waits(hub: Hub) -> None:
    """Return when a caller waits in line."""
    wakeups = context_of(hub).wait_notifier
    await wait_until(lambda: bool(wakeups.waiting), description="somebody waits")
    await cast("ManualClock", context_of(hub).clock).until_asleep()


async def crash(hub: Hub) -> None:
    """Let a process hang: nothing of it is heard any more."""
    keeper = lease_renewer(context_of(hub))
    assert keeper._work is not None
    await keeper._work.stop()


async def test_a_lease_is_renewed_while_the_work_goes_on(
    clock: ManualClock, ada: SharedMemoryStore, bob: SharedMemoryStore
) -> None:
    job = Job("done")
    running = started(ada, job)
    await is_begun(job)

    for _ in range(10):
        clock.advance(10)
        await wait_until(lambda: is_prolonged(bob), description="the lease was prolonged")
    job.may_end.set()

    assert await running == "done"


async def is_prolonged(store: SharedMemoryStore) -> bool:
    return (await store.once_state("report")).remaining > 29


async def test_the_work_of_a_process_that_is_gone_is_taken_over_when_its_lease_ends(
    clock: ManualClock, hubs: tuple[Hub, Hub], ada: SharedMemoryStore, bob: SharedMemoryStore
) -> None:
    slow, quick = Job("late"), Job("in time")
    quick.may_end.set()
    first = started(ada, slow)
    await is_begun(slow)
    second = started(bob, quick)
    await waits(hubs[1])
    await crash(hubs[0])

    clock.advance(29)
    assert (await bob.once_state("report")).state == "running"
    clock.advance(2)

    assert await second == "in time"
    state = await bob.once_state("report")
    assert (state.attempt, state.actor) == (2, "bob")
    slow.may_end.set()
    with pytest.raises(ClaimLostError, match=r"report.*no longer yours"):
        await first
    assert await ada.once("report", slow, ttl=600) == "in time"


async def test_a_runner_whose_lease_has_ended_stores_nothing_even_if_no_caller_took_over(
    clock: ManualClock, hubs: tuple[Hub, Hub], ada: SharedMemoryStore
) -> None:
    job = Job("late")
    running = started(ada, job)
    await is_begun(job)
    await crash(hubs[0])
    clock.advance(30)
    job.may_end.set()

    with pytest.raises(ClaimLostError):
        await running
    assert (await ada.once_state("report")).state == "none"


async def test_a_runner_that_is_cancelled_gives_the_work_to_the_next_at_once(
    hubs: tuple[Hub, Hub], ada: SharedMemoryStore, bob: SharedMemoryStore
) -> None:
    slow, quick = Job("never"), Job("done")
    quick.may_end.set()
    first = started(ada, slow)
    await is_begun(slow)
    second = started(bob, quick)
    await waits(hubs[1])

    first.cancel()

    assert await second == "done"


async def test_a_turn_that_came_to_a_caller_that_just_left_goes_on_to_the_next(
    hubs: tuple[Hub, Hub], ada: SharedMemoryStore, bob: SharedMemoryStore
) -> None:
    failing, leaving, quick = Job(ValueError()), Job("never"), Job("done")
    quick.may_end.set()
    first = started(ada, failing)
    await is_begun(failing)
    second = started(bob, leaving)
    await waits(hubs[1])
    third = started(ada, quick)
    await waits(hubs[0])

    failing.may_end.set()
    with pytest.raises(ValueError):
        await first
    second.cancel()

    assert await third == "done"
    assert leaving.begun <= 1


async def test_a_caller_that_is_cancelled_at_any_moment_leaves_the_work_to_others(
    redis_url: str, settings: Settings
) -> None:
    async with Hub.open(redis_url, settings=settings) as hub:
        store = hub.store("cancelled")
        for steps in range(30):
            job = Job("never")
            first = asyncio.ensure_future(store.once(f"report-{steps}", job, ttl=600))
            for _ in range(steps):
                await asyncio.sleep(0)
            first.cancel()

            assert await store.once(f"report-{steps}", lambda: "done", ttl=600, wait=5) == "done"
            assert first.cancelled()
        await store.clear()


async def test_a_call_that_gets_lost_is_made_up_for_by_a_look(
    clock: ManualClock,
    hubs: tuple[Hub, Hub],
    ada: SharedMemoryStore,
    bob: SharedMemoryStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Job("done")
    first = started(ada, job)
    await is_begun(job)
    second = started(bob, job)
    await waits(hubs[1])
    monkeypatch.setattr(context_of(hubs[1]).wait_notifier, "receive", lambda *_: None)
    job.may_end.set()
    assert await first == "done"
    assert not second.done()

    clock.advance(21)

    assert await second == "done"


async def test_work_whose_large_result_cannot_be_stored_is_not_done_again(tmp_path: Path) -> None:
    """docs/agreement.md: the work counts as done; only who ran the function has the result."""
    (tmp_path / "no folder").touch()
    async with fake_hub(settings=Settings(blob_dir=tmp_path / "no folder")) as hub:
        ada = hub.store("team", actor="ada")

        assert await ada.once("report", lambda: "x" * 300_000, ttl=60) == "x" * 300_000
        with pytest.raises(ResultNotKeptError, match="done, but its result is no longer stored"):
            await ada.once("report", lambda: pytest.fail("it was done again"), ttl=60)

        assert (await ada.once_state("report")).state == "done"


def make_old(folder: Path) -> None:
    for path in folder.rglob("*"):
        os.utime(path, (0, 0))


async def test_a_sweep_keeps_a_large_result_for_as_long_as_it_lasts(tmp_path: Path) -> None:
    async with fake_hub(settings=Settings(data_dir=tmp_path)) as hub:
        ada = hub.store("team", actor="ada")
        await ada.once("report", lambda: "x" * 300_000, ttl=60)
        make_old(tmp_path)

        assert await ada.sweep() == 0
        assert await ada.once("report", lambda: "never", ttl=60) == "x" * 300_000
        await ada.once_delete("report")

        assert await ada.sweep() == 1


async def test_what_is_no_function_is_refused(ada: SharedMemoryStore) -> None:
    with pytest.raises(InvalidError, match="function"):
        await ada.once("report", cast("Any", 3), ttl=1)

    assert (await ada.once_state("report")).attempt == 0


async def test_work_inside_of_work_has_a_token_of_its_own(ada: SharedMemoryStore) -> None:
    async def outer() -> list[int]:
        before = ada.once_token()
        inner = await ada.once("inner", ada.once_token, ttl=600)
        assert ada.once_token() == before
        return [before, inner]

    outer_token, inner_token = await ada.once("outer", outer, ttl=600)

    assert outer_token < inner_token


async def is_seen_later(store: SharedMemoryStore, before: Present) -> bool:
    (now,) = await store.presence.list()
    return (now.last_seen - before.last_seen).total_seconds() > 2.5 and now.since == before.since


class JumpingClock(SystemClock):
    """A machine whose wall clock is set to and fro all the time."""

    def __init__(self) -> None:
        self._jumps = 0

    def now(self) -> datetime:
        self._jumps += 1
        return datetime(1971 if self._jumps % 2 else 2099, 1, 1, tzinfo=UTC)


async def test_jumps_of_a_clients_wall_clock_do_not_matter(redis_url: str, settings: Settings) -> None:
    async with Hub(redis_url, settings=settings, clock=JumpingClock()) as hub:
        ada, bob = (hub.store("jumps", actor=name) for name in ("ada", "bob"))
        job = Job("done")
        first = started(ada, job, lease=2)
        await is_begun(job)
        second = started(bob, job)
        async with ada.presence.here(ttl=2):
            (here,) = await bob.presence.list()
            # So long until the heartbeat and the renewals have been at work beyond both leases.
            await wait_until(lambda: is_seen_later(bob, here), description="it was heard of again and again")
        job.may_end.set()

        assert [await first, await second] == ["done", "done"]
        assert (await bob.once_state("report")).attempt == 1
        await hub.store("jumps").clear()
