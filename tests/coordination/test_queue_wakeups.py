"""Workers that wait for tasks are woken by tasks, by timers and by workers that give up; the test turns the clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any, TypeVar

import pytest
from fakeredis import FakeServer
from fakeredis.aioredis import FakeRedis
from redis.asyncio import Redis
from support.waiting import wait_until

from sharedmem import Hub, Settings, Task, TaskQueue, UnavailableError
from sharedmem.clock import new_id
from sharedmem.coordination.queue_access import pause_after
from sharedmem.models import Backoff
from sharedmem.testing import ManualClock, fake_hub

_T = TypeVar("_T")
SOONEST_S, LATEST_S = 10, 20
"""Every waiting worker looks again by itself within this time; before it, only when it knows why."""


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


@pytest.fixture
async def hub(clock: ManualClock, server: FakeServer) -> AsyncIterator[Hub]:
    async with fake_hub(clock=clock, server=server) as hub:
        yield hub


@pytest.fixture
async def raw(server: FakeServer) -> AsyncIterator[FakeRedis]:
    """A plain client of the same server."""
    async with FakeRedis(server=server, decode_responses=True) as client:
        yield client


def queue_of(hub: Hub, actor: str = "ada", **terms: Any) -> TaskQueue:
    return hub.store("team", actor=actor).queue("jobs", **terms)


async def lined_up(queue: TaskQueue, count: int) -> None:
    """Return when so many workers wait in line."""

    async def stand() -> bool:
        return (await queue.stats()).workers_waiting == count

    await wait_until(stand, description=f"{count} workers stand in line")


async def worker(queue: TaskQueue, in_line: int) -> asyncio.Task[Task | None]:
    """A worker that waits for as long as it takes, as the last of so many."""
    waiting = asyncio.create_task(queue.claim(wait=None))
    await lined_up(queue, in_line)
    return waiting


async def soon(awaited: Awaitable[_T]) -> _T:
    """The outcome of what needs no turn of the clock."""
    async with asyncio.timeout(60):
        return await awaited


async def turned_until_done(clock: ManualClock, waiting: asyncio.Task[_T], *, before_s: float = SOONEST_S) -> _T:
    """The outcome of what waits, while the clock goes on half a second at a time; it never reaches `before_s`."""

    async def is_done() -> bool:
        if clock.monotonic() + 0.5 < before_s:
            clock.advance(0.5)
        return waiting.done()

    await wait_until(is_done, description="its time has come")
    return await waiting


async def gone(*waiting: asyncio.Task[Any]) -> None:
    for one in waiting:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


# -- timers ---------------------------------------------------------------------------------------


async def test_a_delayed_task_comes_when_its_time_has_come(hub: Hub, clock: ManualClock) -> None:
    queue = queue_of(hub)
    await queue.put("later", delay=8)
    waiting = await worker(queue, 1)

    task = await turned_until_done(clock, waiting)

    assert task is not None
    assert task.payload == "later"
    assert clock.monotonic() >= 8


async def test_no_worker_gets_a_delayed_task_before_its_time(hub: Hub, clock: ManualClock) -> None:
    queue = queue_of(hub)
    await queue.put("later", delay=600)

    clock.advance(599)
    assert await queue.claim() is None
    clock.advance(1)

    assert await queue.claim() is not None


async def test_who_waits_learns_of_a_delay_that_ends_sooner(hub: Hub, clock: ManualClock) -> None:
    queue = queue_of(hub)
    waiting = await worker(queue, 1)

    await queue.put("soon", delay=5)

    task = await turned_until_done(clock, waiting)
    assert task is not None
    assert task.payload == "soon"
    assert clock.monotonic() >= 5


async def test_the_next_in_line_takes_over_the_watch(hub: Hub, clock: ManualClock) -> None:
    queue = queue_of(hub)
    first, second = await worker(queue, 1), await worker(queue, 2)
    await queue.put("later", delay=5)

    await queue.put("now")
    done, _ = await asyncio.wait([first, second], return_when=asyncio.FIRST_COMPLETED, timeout=60)
    assert done == {first}

    task = await turned_until_done(clock, second)
    assert task is not None
    assert task.payload == "later"
    assert clock.monotonic() >= 5


async def test_a_visibility_that_ends_wakes_who_waits(hub: Hub, clock: ManualClock) -> None:
    queue = queue_of(hub, visibility=8)
    await queue.put("a")
    lost = await queue.claim()
    waiting = await worker(queue, 1)

    task = await turned_until_done(clock, waiting)

    assert lost is not None
    assert task is not None
    assert (task.id, task.attempt) == (lost.id, 2)
    assert clock.monotonic() >= 8


async def test_a_lost_call_costs_no_more_than_the_safety_time(hub: Hub, clock: ManualClock, raw: FakeRedis) -> None:
    queue = queue_of(hub)
    waiting = await worker(queue, 1)
    await raw.delete("sm:{team}:$queue.waiters:shared:jobs")  # no worker will be notified
    await queue.put("a")

    assert await turned_until_done(clock, waiting, before_s=LATEST_S + 1) is not None


async def test_a_waiter_gives_up_in_time(hub: Hub, clock: ManualClock) -> None:
    queue = queue_of(hub)
    waiting = asyncio.create_task(queue.claim(wait=50))
    await lined_up(queue, 1)

    assert await turned_until_done(clock, waiting, before_s=60) is None
    assert clock.monotonic() >= 50
    assert (await queue.stats()).workers_waiting == 0


# -- workers that leave ---------------------------------------------------------------------------


async def test_a_cancelled_worker_passes_its_turn_on(hub: Hub) -> None:
    queue = queue_of(hub)
    first, second = await worker(queue, 1), await worker(queue, 2)

    await queue.put("a")
    await gone(first)

    task = await soon(second)
    assert task is not None
    assert task.attempt == 1


async def test_a_cancelled_worker_leaves_the_line(hub: Hub) -> None:
    queue = queue_of(hub)
    waiting = await worker(queue, 1)

    await gone(waiting)

    await lined_up(queue, 0)


async def test_the_watch_passes_on_when_the_first_leaves(hub: Hub, clock: ManualClock) -> None:
    queue = queue_of(hub)
    await queue.put("later", delay=8)
    first, second = await worker(queue, 1), await worker(queue, 2)

    await gone(first)
    await lined_up(queue, 1)

    assert await turned_until_done(clock, second) is not None
    assert clock.monotonic() >= 8


async def test_workers_of_a_hub_that_is_gone_are_passed_over(hub: Hub, clock: ManualClock, server: FakeServer) -> None:
    queue = queue_of(hub)
    async with fake_hub(clock=clock, server=server) as other:
        lost = [await worker(queue_of(other, "bob"), number) for number in (1, 2)]
    waiting = await worker(queue, 3)

    await queue.put("a")

    assert (await soon(waiting)) is not None
    await gone(*lost)


# -- workers --------------------------------------------------------------------------------------


async def test_a_worker_does_tasks_until_it_is_cancelled(hub: Hub) -> None:
    queue = queue_of(hub)
    put = await queue.put_many(range(6))

    async def square(task: Task) -> int:
        return int(task.payload) ** 2

    working = asyncio.create_task(queue.work(square, concurrency=2))
    outcomes = [await soon(queue.result(result.id, wait=None)) for result in put]
    working.cancel()

    assert [outcome.value for outcome in outcomes] == [0, 1, 4, 9, 16, 25]
    with pytest.raises(asyncio.CancelledError):
        await working
    await lined_up(queue, 0)


async def test_a_worker_outlives_what_its_tasks_do(hub: Hub) -> None:
    queue = queue_of(hub, max_attempts=2, backoff=(0, 0))
    put = await queue.put_many(["bad", "good"])

    def handle(task: Task) -> object:
        if task.payload == "bad":
            raise ValueError(task.payload)
        return object() if task.payload == "odd" else "fine"

    working = asyncio.create_task(queue.work(handle))
    bad, good = [await soon(queue.result(result.id, wait=None)) for result in put]
    odd = await soon(queue.result((await queue.put("odd")).id, wait=None))
    await gone(working)

    assert (bad.state, bad.error) == ("dead", "ValueError: bad")
    assert good.value == "fine"
    assert odd.state == "dead"
    assert hub.counters.read("failed_tasks", error="ValueError") == 2
    assert hub.counters.read("failed_tasks", error="InvalidError") == 1


async def test_a_worker_outlives_a_handler_that_awaits_something_cancelled(hub: Hub) -> None:
    queue = queue_of(hub, max_attempts=1)
    put = await queue.put_many(["bad", "good"])

    async def handle(task: Task) -> object:
        if task.payload == "bad":
            lost = asyncio.get_running_loop().create_future()
            lost.cancel()
            await lost
        return "fine"

    working = asyncio.create_task(queue.work(handle))
    bad, good = [await soon(queue.result(result.id, wait=None)) for result in put]
    is_working = not working.done()
    await gone(working)

    assert is_working
    assert (bad.state, good.value) == ("dead", "fine")
    assert hub.counters.read("failed_tasks", error="CancelledError") == 1


async def test_a_cancelled_worker_gives_back_what_it_was_doing(hub: Hub) -> None:
    queue = queue_of(hub)
    await queue.put("long")
    begun, never = asyncio.Event(), asyncio.Event()

    async def handle(_: Task) -> None:
        begun.set()
        await never.wait()

    working = asyncio.create_task(queue.work(handle))
    await begun.wait()
    await gone(working)

    again = await queue.claim()
    assert again is not None
    assert again.attempt == 2
    assert (again.error or "").startswith("CancelledError")


async def test_a_task_is_renewed_while_its_handler_runs(hub: Hub, clock: ManualClock) -> None:
    queue = queue_of(hub, visibility=30)
    put = await queue.put("long")
    begun, end = asyncio.Event(), asyncio.Event()

    async def handle(_: Task) -> str:
        begun.set()
        await end.wait()
        return "done at last"

    working = asyncio.create_task(queue.work(handle))
    await begun.wait()

    async def has_been_renewed() -> bool:
        (held,) = await queue.peek(state="claimed")
        return held.at is not None and (held.at - clock.now()).total_seconds() >= 14

    for _ in range(20):
        clock.advance(6)
        await wait_until(has_been_renewed, description="it is renewed when a third of its visibility is over")
        assert await queue_of(hub, "bob").claim() is None
    end.set()

    outcome = await soon(queue.result(put.id, wait=None))
    await gone(working)
    assert (outcome.value, (await queue.stats()).counters.recovered) == ("done at last", 0)


async def test_a_worker_waits_while_the_server_is_away(hub: Hub, clock: ManualClock, server: FakeServer) -> None:
    queue = queue_of(hub)
    done = asyncio.Event()
    server.connected = False
    with pytest.raises(UnavailableError):
        await queue.claim()

    working = asyncio.create_task(queue.work(lambda _: done.set()))
    await asyncio.sleep(0.05)
    server.connected = True
    await queue.put("a")

    async def turned() -> bool:
        clock.advance(1)
        return done.is_set()

    await wait_until(turned, description="the task is done")
    await gone(working)


# -- time -----------------------------------------------------------------------------------------


async def test_nothing_is_left_for_ever_of_a_queue_whose_tasks_are_done(redis_url: str, settings: Settings) -> None:
    async with Hub.open(redis_url, settings=settings) as hub, Redis.from_url(redis_url) as raw:
        store = hub.store(f"test-{new_id(8)}")
        queue = store.queue("jobs", backoff=(0, 0))
        await queue.put("a", id="x", unique_for=60)
        waiting = asyncio.create_task(queue.claim_many(2, wait=None))
        first = await soon(waiting)
        await queue.put("b", delay=0.01)
        second = await queue.claim_many(1, wait=None)
        await queue.retry(first[0])
        for task in (*second, *await queue.claim_many(2)):
            await queue.ack(task)

        keys = await raw.keys(f"*{store.namespace}*$queue.*")

        assert keys
        assert [key for key in keys if await raw.ttl(key) == -1] == []
        await store.clear()


async def test_results_ids_and_counters_end_in_their_time(hub: Hub, clock: ManualClock) -> None:
    queue = queue_of(hub, result_ttl=60)
    put = await queue.put("a", id="x", unique_for=600)
    task = await queue.claim()
    assert task is not None
    await queue.ack(task, 1)

    clock.advance(59)
    assert (await queue.result(put.id)).value == 1
    clock.advance(2)
    with pytest.raises(LookupError):
        await queue.result(put.id)
    assert not (await queue.put("a", id="x")).is_new
    clock.advance(600)
    assert (await queue.put("a", id="x")).is_new


async def test_tasks_wait_for_as_long_as_it_takes(hub: Hub, clock: ManualClock) -> None:
    queue = queue_of(hub)
    await queue.put("old", id="x")
    await queue.pause()
    clock.advance(400 * 86_400)

    assert not (await queue.put("new", id="x")).is_new
    stats = await queue.stats()
    assert (stats.paused, stats.ready) == (True, 1)
    assert stats.oldest_age == pytest.approx(400 * 86_400, abs=1)


async def test_the_oldest_is_found_among_priorities(hub: Hub, clock: ManualClock) -> None:
    queue = queue_of(hub)
    for age, priority in enumerate((3, 9, 1, 9)):
        await queue.put(age, priority=priority)
        clock.advance(10)

    assert (await queue.stats()).oldest_age == pytest.approx(40, abs=0.1)


@pytest.mark.parametrize(
    ("attempt", "luck", "pause"),
    [(1, 1.0, 1), (2, 1.0, 2), (5, 1.0, 16), (9, 1.0, 256), (10, 1.0, 300), (1000, 1.0, 300), (5, 0.5, 8), (5, 0.0, 0)],
)
def test_pauses_double_up_to_the_longest_and_are_spread(attempt: int, luck: float, pause: float) -> None:
    assert pause_after(attempt, Backoff(first=1, longest=300), luck) == pause
