"""A queue outlives its workers and its server, and ten thousand who wait for it are no storm."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import pytest
from redis import Redis
from support.faulty_hubs import persistent_settings
from support.queue_processes import NAMESPACE, WorkerProcess
from support.redis_process import RedisProcess
from support.waiting import wait_until

from sharedmem import Hub, Settings, Task, TaskQueue

# Ten thousand have been; in company of other tests they would be late because of those.
WAITING = int(os.environ.get("SHAREDMEM_TEST_CROWD", "2000"))


@pytest.fixture
async def hub(bare_server: RedisProcess) -> AsyncIterator[Hub]:
    async with Hub.open(settings=persistent_settings(bare_server.url)) as hub:
        yield hub


def queue_of(hub: Hub) -> TaskQueue:
    return hub.store(NAMESPACE, actor="ada").queue("jobs")


async def claimed(queue: TaskQueue, *, wait: float = 0.0) -> Task:
    task = await queue.claim(wait=wait)
    assert task is not None
    return task


def calls_of_scripts(raw: Redis) -> int:
    """How many scripts the server has run."""
    return int(raw.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0))


async def test_a_task_of_a_worker_that_was_killed_is_done_by_another(hub: Hub, bare_server: RedisProcess) -> None:
    queue = queue_of(hub)
    worker = await WorkerProcess.start(bare_server.url, 0.5, longest_work_s=3600)
    put = await queue.put({"order": 17})
    await worker.has_printed.wait()
    await worker.kill()

    task = await claimed(queue, wait=30)

    assert (task.id, task.attempt, task.payload) == (put.id, 2, {"order": 17})
    assert task.token > worker.events[0].token
    await queue.ack(task)


async def test_a_worker_begins_once_the_server_is_there(hub: Hub, bare_server: RedisProcess) -> None:
    queue = queue_of(hub)
    await asyncio.to_thread(bare_server.kill)
    worker = await WorkerProcess.start(bare_server.url, 5.0)
    await asyncio.to_thread(bare_server.start)

    await queue.put(1)

    await worker.has_printed.wait()
    await worker.kill()
    assert worker.has_ended
    worker.pause()  # no worker is left
    worker.go_on()


@pytest.mark.parametrize("fsync", ["always", "everysec"])
async def test_a_server_that_is_killed_between_claim_and_ack_forgets_nothing(fsync: str) -> None:
    with RedisProcess(appendonly="yes", appendfsync=fsync) as server:
        async with Hub.open(settings=persistent_settings(server.url)) as hub:
            queue = queue_of(hub)
            await queue.put_many(["held", "given up", "ready"])
            await queue.put("later", delay=60, id="x")
            held, given_up, _ = await queue.claim_many(3)
            await queue.retry(given_up, error="before the crash", delay=60)
            await asyncio.to_thread(server.force_to_disk)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)

            await queue.ack(held, "after the crash")

            stats = await queue.stats()
            assert (stats.ready, stats.delayed, stats.claimed) == (0, 2, 1)
            assert (await queue.result(held.id)).value == "after the crash"
            assert not (await queue.put("again", id="x")).is_new
            assert [task.error for task in await queue.peek(state="delayed")] == [None, "before the crash"]


async def test_who_waits_while_the_server_restarts_gets_what_comes_then() -> None:
    with RedisProcess(appendonly="yes", appendfsync="always") as server:
        async with Hub.open(settings=persistent_settings(server.url)) as hub:
            queue = queue_of(hub)
            waiting = asyncio.create_task(queue.claim(wait=None))
            await wait_until(lambda: _in_line(queue, 1), description="it waits in line")
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)

            await queue.put("a")

            async with asyncio.timeout(60):
                task = await waiting
            assert task is not None


async def test_a_queue_goes_on_when_the_server_has_forgotten_its_scripts(hub: Hub, bare_server: RedisProcess) -> None:
    queue = queue_of(hub)
    bare_server.tell("SCRIPT", "FLUSH")
    await queue.put("a")
    bare_server.tell("SCRIPT", "FLUSH")
    task = await claimed(queue)
    bare_server.tell("SCRIPT", "FLUSH")
    await queue.renew(task)
    bare_server.tell("SCRIPT", "FLUSH")
    await queue.ack(task, 1)
    bare_server.tell("SCRIPT", "FLUSH")

    assert (await queue.result(task.id)).value == 1
    assert (await queue.stats()).counters.put == 1


async def test_a_crowd_that_waits_costs_a_few_calls_each(
    bare_server: RedisProcess, raw: Redis, settings: Settings
) -> None:
    async with Hub.open(bare_server.url, settings=settings) as hub:
        await storm(queue_of(hub), raw)


async def storm(queue: TaskQueue, raw: Redis) -> None:
    before = calls_of_scripts(raw)
    waiting = [asyncio.create_task(queue.claim(wait=None)) for _ in range(WAITING)]
    await wait_until(lambda: _in_line(queue, WAITING), description="all wait in line", within_s=60)
    standing = calls_of_scripts(raw) - before

    before = calls_of_scripts(raw)
    await queue.put_many(range(3))
    await wait_until(lambda: sum(one.done() for one in waiting) == 3, description="three have a task")
    waking = calls_of_scripts(raw) - before

    for one in waiting:
        one.cancel()
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    await wait_until(lambda: _in_line(queue, 0), description="all have left", within_s=60)

    # Each asks once, then waits in line; a waiter that looks again in a slow test does so once or twice more.
    assert standing <= 3.5 * WAITING
    assert waking <= 0.5 * WAITING
    assert sum(isinstance(one, Task) for one in ended) == 3


async def _in_line(queue: TaskQueue, count: int) -> bool:
    return (await queue.stats()).workers_waiting == count
