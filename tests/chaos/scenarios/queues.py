"""A task queue whose workers are killed and paused, and whose server is killed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from support.chaos_proxy import ChaosProxy
from support.faulty_hubs import persistent_settings
from support.queue_processes import NAMESPACE, WorkerProcess, find_queue_faults
from support.redis_process import RedisProcess
from support.waiting import wait_until

from chaos.faults import kill_server, logging_server, lose_replies, repeat_fault
from chaos.naive_queue import NaiveQueue
from chaos.scenario import Scenario, Trial
from sharedmem import Hub, TaskQueue

_WORKERS, _BATCH, _VISIBILITY_S, _PATIENCE_S = 4, 40, 0.5, 60.0
_PAUSED_S = 2.5 * _VISIBILITY_S
_KILL_SERVER_EVERY_S = 5.0
_CONTROLS_WORK_S = 0.3
"""Work of the control takes so long that whoever is killed is nearly always at it."""


class Queues(Scenario):
    """Batches of tasks; each is done before the next is put."""

    name = "queues"
    promise = "No task that was put is lost, and none is acknowledged by two workers."
    fault = "A worker is killed each second, holders are paused for longer than their claims last (SIGSTOP), replies \
to who puts are lost, the server is killed with kill -9 (append-only file, always)."
    work = "Four worker processes claim, work and acknowledge."
    control = "Workers of a plain Redis list, who take a task out before they have done it."
    weight = 1.2

    async def run(self, trial: Trial) -> None:
        with logging_server() as server:
            async with ChaosProxy(server.url) as proxy, Hub.open(settings=persistent_settings(proxy.url)) as hub:
                queue = hub.store(NAMESPACE, actor="planner").queue("jobs", max_attempts=1000)
                workers = _Workers(trial, server)
                rages = (
                    workers.disturb(),
                    lose_replies(trial, proxy, b"EVALSHA"),
                    kill_server(trial, server, every_s=_KILL_SERVER_EVERY_S),
                )
                try:
                    await workers.start()
                    async with repeat_fault(*rages):
                        put = await (_plain_batches if trial.is_control else _batches)(trial, queue, server)
                finally:
                    await workers.end()
                trial.judge(find_queue_faults(put, [event for worker in workers.all for event in worker.events]))


async def _batches(trial: Trial, queue: TaskQueue, _: RedisProcess) -> list[str]:
    """Put tasks until the trial is over, and wait until all of them are done; returns their ids."""

    async def is_done() -> bool:
        stats = await queue.stats()
        return stats.ready + stats.delayed + stats.claimed == 0

    put: list[str] = []
    while not trial.is_over or not put:
        half = [await queue.put(number) for number in range(_BATCH // 2)]
        put += [task.id for task in (*half, *await queue.put_many(range(_BATCH // 2)))]
        await _wait(trial, is_done)
    return put


async def _plain_batches(trial: Trial, _: TaskQueue, server: RedisProcess) -> list[str]:
    put: list[str] = []
    queue = NaiveQueue(server)
    while not trial.is_over or not put:
        put += await asyncio.to_thread(queue.put, len(put), _BATCH)
        await _wait(trial, queue.is_empty)
    return put


async def _wait(trial: Trial, is_done: Callable[[], bool | Awaitable[bool]]) -> None:
    try:
        await wait_until(is_done, description="a batch is done", within_s=_PATIENCE_S)
    except AssertionError as late:
        trial.judge([str(late)])
    trial.did(_BATCH)


class _Workers:
    """Workers that are paused, killed and replaced."""

    def __init__(self, trial: Trial, server: RedisProcess) -> None:
        self._trial, self._server = trial, server
        self._workers: list[WorkerProcess] = []
        self.all: list[WorkerProcess] = []

    async def start(self) -> None:
        for _ in range(_WORKERS):
            await self._start()

    async def disturb(self) -> None:
        """Kill one and pause another each second, at least once, until the trial is over."""
        while True:
            await self._trial.pause(0.7, 1.3)
            victim, sleeper = self._trial.dice.sample(self._workers, 2)
            sleeper.pause()
            self._workers.remove(victim)
            await victim.kill()
            await self._start()
            await asyncio.sleep(_PAUSED_S)
            sleeper.go_on()
            self._trial.broke(2)
            if self._trial.is_over:
                return

    async def end(self) -> None:
        self._trial.judge(["a worker has ended by itself" for worker in self._workers if worker.has_ended])
        for worker in self.all:  # a kill may have been cancelled
            worker.go_on()
            await worker.kill()

    async def _start(self) -> None:
        if self._trial.is_control:
            worker = await WorkerProcess.start(
                self._server.url, _VISIBILITY_S, longest_work_s=_CONTROLS_WORK_S, module="chaos.naive_queue"
            )
        else:
            worker = await WorkerProcess.start(self._server.url, _VISIBILITY_S)
        self._workers.append(worker)
        self.all.append(worker)
