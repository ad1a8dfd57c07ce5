"""Background work: it ends with its owner, cleans up, and never fails in silence."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from sharedmem.errors import UsageError
from sharedmem.runtime import Counters
from sharedmem.runtime.concurrency import FAILURE_COUNTER, Background, BackgroundTask


@pytest.fixture
async def background(counters: Counters) -> AsyncIterator[Background]:
    background = Background(counters)
    yield background
    await background.close()


class Sleeper:
    """Work that runs until it is cancelled, and records what happens to it."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.cleaned = False

    async def run(self) -> None:
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await self.may_end.wait()
            self.cleaned = True


async def failed(background: Background, name: str = "drain outbox") -> BackgroundTask:
    """Work that has just failed."""
    began = asyncio.Event()

    async def fail() -> None:
        began.set()
        raise ValueError("the outbox is odd")

    work = background.start(name, fail())
    await began.wait()
    return work


async def test_work_runs_to_its_end_by_itself(background: Background, counters: Counters) -> None:
    ran = asyncio.Event()

    async def run() -> str:
        ran.set()
        return "an unused result"

    work = background.start("greet world", run())
    await ran.wait()
    await work.stop()

    assert work.done
    assert repr(work) == "<Work 'greet world' done>"
    assert counters.snapshot() == []


async def test_stopping_work_waits_until_it_has_cleaned_up(background: Background, counters: Counters) -> None:
    sleeper = Sleeper()
    work = background.start("renew lock", sleeper.run())
    await sleeper.began.wait()
    assert (work.done, repr(work)) == (False, "<Work 'renew lock' running>")

    await work.stop()
    await work.stop()

    assert work.done
    assert sleeper.cleaned
    assert counters.snapshot() == []


async def test_work_that_is_stopped_before_it_began_never_runs(background: Background) -> None:
    sleeper = Sleeper()

    await background.start("renew lock", sleeper.run()).stop()

    assert not sleeper.began.is_set()


async def test_a_failure_is_logged_once_with_its_name_and_counted(
    background: Background, counters: Counters, caplog: pytest.LogCaptureFixture
) -> None:
    work = await failed(background, "drain outbox research")
    await work.stop()
    await background.close()

    (record,) = caplog.records
    assert record.getMessage() == "background work 'drain outbox research' failed"
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ValueError)
    assert counters.read(FAILURE_COUNTER, work="drain", error="ValueError") == 1
    assert repr(work) == "<Work 'drain outbox research' failed: ValueError('the outbox is odd')>"


async def test_a_failure_leaves_other_work_alone(background: Background) -> None:
    sleeper = Sleeper()
    other = background.start("renew lock", sleeper.run())

    await (await failed(background)).stop()

    assert not other.done


async def test_a_failure_while_cleaning_up_is_told_too(background: Background, counters: Counters) -> None:
    async def run() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError("no way to say goodbye")

    work = background.start("serve console", run())
    await asyncio.sleep(0)
    await work.stop()

    assert counters.read(FAILURE_COUNTER, work="serve", error="OSError") == 1


async def test_work_cancelled_from_elsewhere_does_not_vanish_in_silence(
    background: Background, counters: Counters, caplog: pytest.LogCaptureFixture
) -> None:
    began = asyncio.Event()

    async def run() -> None:
        began.set()
        raise asyncio.CancelledError

    work = background.start("watch changes", run())
    await began.wait()
    await work.stop()

    assert counters.read(FAILURE_COUNTER, work="watch", error="CancelledError") == 1
    assert "background work 'watch changes' failed" in caplog.text


async def test_a_stop_does_not_swallow_the_cancellation_of_its_caller(background: Background) -> None:
    sleeper = Sleeper()
    sleeper.may_end.clear()
    work = background.start("renew lock", sleeper.run())
    await sleeper.began.wait()
    stopping = asyncio.create_task(work.stop())
    await asyncio.sleep(0)
    assert repr(work) == "<Work 'renew lock' stopping>"

    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping

    sleeper.may_end.set()
    await work.stop()
    assert work.done


async def test_a_stop_in_a_finally_lets_the_error_of_the_block_through(background: Background) -> None:
    sleeper = Sleeper()

    async def hold() -> None:
        work = background.start("renew lock", sleeper.run())
        try:
            await sleeper.began.wait()
            raise KeyError("of the caller")
        finally:
            await work.stop()

    with pytest.raises(KeyError, match="of the caller"):
        await hold()
    assert sleeper.cleaned


async def test_closing_stops_everything_and_may_be_repeated(background: Background) -> None:
    sleepers = [Sleeper() for _ in range(5)]
    works = [background.start(f"sleep {number}", sleeper.run()) for number, sleeper in enumerate(sleepers)]
    for sleeper in sleepers:
        await sleeper.began.wait()

    await asyncio.gather(background.close(), background.close())

    assert all(work.done for work in works)
    assert all(sleeper.cleaned for sleeper in sleepers)
    assert repr(background) == "<Background closed, 0 running>"


async def test_after_closing_new_work_is_refused_without_a_warning(background: Background) -> None:
    await background.close()

    with pytest.raises(UsageError, match="this hub: it is closed; open another one"):
        background.start("renew lock", Sleeper().run())


async def test_work_that_starts_more_while_its_hub_closes_has_not_failed(
    counters: Counters, caplog: pytest.LogCaptureFixture
) -> None:
    background = Background(counters)
    sleeper = Sleeper()

    async def loses_its_cancellation() -> None:
        try:
            await sleeper.run()
        except asyncio.CancelledError:
            background.start("drain more", asyncio.sleep(0))

    background.start("drain outboxes", loses_its_cancellation())
    await sleeper.began.wait()
    await background.close()

    assert caplog.records == []
    assert counters.read(FAILURE_COUNTER, work="drain", error="UsageError") == 0


async def test_work_that_closes_its_own_hub_goes_on_to_its_end(background: Background) -> None:
    sleeper = Sleeper()
    other = background.start("renew lock", sleeper.run())
    closed = asyncio.Event()

    async def callback() -> None:
        await background.close()
        closed.set()

    background.start("deliver messages", callback())
    await closed.wait()

    assert other.done


async def test_work_that_loses_a_cancellation_is_cancelled_again(counters: Counters) -> None:
    background = Background(counters, patience_s=0.01)
    began = asyncio.Event()
    lost = 0

    async def run() -> None:
        nonlocal lost
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            lost += 1
        await asyncio.Event().wait()

    work = background.start("read replies", run())
    await began.wait()
    await background.close()

    assert (work.done, lost) == (True, 1)


async def test_work_that_refuses_to_stop_is_named_and_the_wait_ends(
    counters: Counters, caplog: pytest.LogCaptureFixture
) -> None:
    background = Background(counters, patience_s=0.01)
    began, release = asyncio.Event(), asyncio.Event()

    async def run() -> None:
        began.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    work = background.start("ignore everybody", run())
    await began.wait()
    await background.close()

    assert not work.done
    assert caplog.record_tuples == [
        (
            "sharedmem.runtime.concurrency",
            logging.ERROR,
            "background work 'ignore everybody' does not stop; it is left running",
        )
    ]
    release.set()
    await background.close()
    assert work.done


async def test_closing_lets_cleanups_end_which_stopped_work_has_started() -> None:
    background = Background(Counters())
    given_back = asyncio.Event()

    async def give_back() -> None:
        await asyncio.sleep(0)
        given_back.set()

    async def hold() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            background.start_cleanup("give back", give_back())

    background.start("hold", hold())
    await asyncio.sleep(0)
    await background.close()

    assert given_back.is_set()
    with pytest.raises(UsageError, match="it is closed"):
        background.start_cleanup("give back", give_back())


async def test_a_cleanup_that_does_not_end_is_stopped() -> None:
    background = Background(Counters(), cleanup_s=0.01)
    work = background.start_cleanup("wait for a server", asyncio.Event().wait())

    await background.close()

    assert work.done
    assert work.failure is None
