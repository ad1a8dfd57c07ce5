"""What eight workers say that are killed and paused: no task is lost, each is done once, tokens rise."""

from __future__ import annotations

import asyncio
import random

import pytest
from support.faulty_hubs import persistent_settings
from support.queue_processes import NAMESPACE, QueueEvent, WorkerProcess, find_queue_faults
from support.redis_process import RedisProcess
from support.waiting import wait_until

from sharedmem import Hub, TaskQueue

WORKERS, BATCHES, BATCH, VISIBILITY_S = 8, 4, 100, 0.4
PAUSE_S = 2 * VISIBILITY_S


async def disturb(workers: list[WorkerProcess], graves: list[WorkerProcess], url: str, rng: random.Random) -> None:
    """Kill or pause a random worker, again and again; who is killed gets a successor."""
    while True:
        victim = rng.choice(workers)
        victim.has_printed.clear()
        await victim.has_printed.wait()  # it is at work
        if rng.random() < 0.5:
            workers.remove(victim)
            graves.append(victim)
            await victim.kill()
            workers.append(await WorkerProcess.start(url, VISIBILITY_S))
        else:
            victim.pause()
            await asyncio.sleep(PAUSE_S)
            victim.go_on()


async def is_done(queue: TaskQueue) -> bool:
    stats = await queue.stats()
    return stats.ready + stats.delayed + stats.claimed == 0


async def test_a_history_of_workers_that_are_killed_and_paused_loses_and_repeats_nothing(
    bare_server: RedisProcess,
) -> None:
    rng, graves = random.Random(20261121), list[WorkerProcess]()
    workers = [await WorkerProcess.start(bare_server.url, VISIBILITY_S) for _ in range(WORKERS)]
    async with Hub.open(settings=persistent_settings(bare_server.url)) as hub:
        queue = hub.store(NAMESPACE, actor="planner").queue("jobs", max_attempts=1000)
        put: list[str] = []
        raging = asyncio.create_task(disturb(workers, graves, bare_server.url, rng))
        try:
            for _ in range(BATCHES):
                put += [result.id for result in await queue.put_many(range(BATCH))]
                await wait_until(lambda: is_done(queue), description="a batch is done", within_s=60)
        finally:
            raging.cancel()
            await asyncio.gather(raging, return_exceptions=True)
            for worker in workers:
                worker.go_on()
        stats = await queue.stats()
        outcomes = [await queue.result(task) for task in put]
        for worker in workers + graves:  # a kill may have been cancelled
            await worker.kill()

    history = [event for worker in workers + graves for event in worker.events]
    assert find_queue_faults(put, history) == []
    assert stats.counters.done == len(put) == BATCHES * BATCH
    assert stats.dead == 0
    # The result is the token of the claim that was acknowledged.
    last = {event.task: event.token for event in sorted(history, key=lambda event: event.token)}
    assert all(outcome.value >= last[outcome.id] for outcome in outcomes)
    assert graves, "no worker was killed"


async def test_control_a_worker_whose_killing_was_cancelled_is_killed_all_the_same(bare_server: RedisProcess) -> None:
    worker = await WorkerProcess.start(bare_server.url, VISIBILITY_S)
    killing = asyncio.create_task(worker.kill())
    await asyncio.sleep(0)
    killing.cancel()
    await asyncio.wait([killing])

    await worker.kill()

    assert (killing.cancelled(), worker.has_ended) == (True, True)


FINE = [
    QueueEvent("claimed", "a", 1, 1),
    QueueEvent("claimed", "a", 5, 2),
    QueueEvent("finishing", "a", 5, 2),
    QueueEvent("done", "a", 5, 2),
]


@pytest.mark.parametrize(
    ("history", "fault"),
    [
        (FINE, None),
        (FINE[:3], None),
        (FINE[:2], "task a was lost"),
        ([*FINE[:3], QueueEvent("lost", "a", 5, 2)], "task a was lost"),
        ([*FINE, QueueEvent("done", "a", 1, 1)], "was done 2 times"),
        ([*FINE, QueueEvent("claimed", "a", 7, 3)], "by one who had it no longer"),
        ([FINE[0], FINE[1], QueueEvent("done", "a", 1, 1)], "by one who had it no longer"),
        ([*FINE, QueueEvent("claimed", "a", 4, 3)], "do not rise with its attempts"),
        ([*FINE, QueueEvent("claimed", "a", 5, 3)], "token 5 was given twice"),
        ([*FINE, QueueEvent("claimed", "b", 9, 1)], "task b was never put"),
    ],
)
def test_control_the_check_of_a_history_finds_what_is_wrong(history: list[QueueEvent], fault: str | None) -> None:
    faults = find_queue_faults(["a"], history)

    assert bool(faults) == (fault is not None)
    assert fault is None or any(fault in sentence for sentence in faults)
