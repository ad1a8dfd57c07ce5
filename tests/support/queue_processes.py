"""Workers of a queue as processes of their own, which write down what happens to them; tests kill and pause them.

`python -m support.queue_processes <url> <visibility in s> <longest work in s>` claims tasks for ever. Each line that
it prints is written before or after the fact it tells of, so that a line missing at the end leaves open whether that
happened.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections import defaultdict
from collections.abc import Iterable
from contextlib import AsyncExitStack, suppress
from typing import NamedTuple

from sharedmem import ClaimLostError, Hub, Task, TaskQueue, UnavailableError
from support.faulty_hubs import persistent_settings
from support.forked_processes import ForkedProcess

NAMESPACE = "desk"
_PAUSE_S = 0.05


class QueueEvent(NamedTuple):
    """One line: `claimed` and `done` say what has happened, `finishing` what is about to, `lost` what has not."""

    what: str
    task: str
    token: int
    attempt: int


# -- what a worker does ---------------------------------------------------------------------------


async def _work(queue: TaskQueue, longest_s: float) -> None:
    while True:
        task = await queue.claim(wait=None)
        if task is not None:
            _print_event("claimed", task)
            await asyncio.sleep(random.uniform(longest_s / 10, longest_s))  # how long work takes
            _print_event("finishing", task)
            try:
                await queue.ack(task, task.token)
            except ClaimLostError:
                _print_event("lost", task)
            else:
                _print_event("done", task)


def _print_event(what: str, task: Task) -> None:
    # One write, which the kernel takes whole or not at all.
    os.write(1, f"{what} {task.id} {task.token} {task.attempt}\n".encode())


async def _opened(stack: AsyncExitStack, url: str) -> Hub:
    """An open hub, as soon as the server, which may just be starting again, is there."""
    while True:
        with suppress(UnavailableError):
            return await stack.enter_async_context(Hub.open(settings=persistent_settings(url)))
        await asyncio.sleep(_PAUSE_S)


async def _main(url: str, visibility: str, longest_work: str) -> None:
    async with AsyncExitStack() as stack:
        hub = await _opened(stack, url)
        store = hub.store(NAMESPACE, actor=f"worker-{os.getpid()}")
        await _work(store.queue("jobs", visibility=float(visibility)), float(longest_work))


# -- the parent's side ----------------------------------------------------------------------------


class WorkerProcess:
    """A running worker, and what it has said so far."""

    def __init__(self, process: ForkedProcess) -> None:
        self._process = process
        self._output = process.stdout
        self.events: list[QueueEvent] = []
        self.has_printed = asyncio.Event()
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def start(
        cls, url: str, visibility_s: float, *, longest_work_s: float = 0.03, module: str = "support.queue_processes"
    ) -> WorkerProcess:
        """Start one, or another module that prints the same; it claims as soon as it can."""
        return cls(await ForkedProcess.start(module, url, visibility_s, longest_work_s))

    @property
    def has_ended(self) -> bool:
        """Whether its process is gone, for any reason."""
        return self._process.returncode is not None

    def pause(self) -> None:
        """Let it stand still as it is, unless it has ended."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on, as if nothing had been, unless it has ended."""
        self._process.send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        """End it with SIGKILL, and hear what it had said by then."""
        self._process.kill()
        await asyncio.shield(self._listening)  # a kill that is cancelled may be made again
        await self._process.communicate()

    async def _listen(self) -> None:
        while line := await self._output.readline():
            if line.endswith(b"\n"):
                what, task, token, attempt = line.decode().split()
                self.events.append(QueueEvent(what, task, int(token), int(attempt)))
                self.has_printed.set()


# -- what must hold -------------------------------------------------------------------------------


def find_queue_faults(put: Iterable[str], events: Iterable[QueueEvent]) -> list[str]:
    """What is wrong with a history: sentences, none when all is well.

    Args:
        put: the ids of the tasks that were put; all of them were said to be done in the end.
        events: what all workers have said, those of one worker in their order.
    """
    history = list(events)
    claims = {event.token: event for event in history if event.what == "claimed"}
    faults = [f"token {event.token} was given twice" for event in history if _is_second(event, claims)]
    by_task: defaultdict[str, list[QueueEvent]] = defaultdict(list)
    for event in history:
        by_task[event.task].append(event)
    for task in put:
        faults += _find_task_faults(task, by_task[task])
    strangers = by_task.keys() - set(put)
    return faults + [f"task {task} was never put" for task in sorted(strangers)]


def _is_second(event: QueueEvent, claims: dict[int, QueueEvent]) -> bool:
    return event.what == "claimed" and claims[event.token] is not event


def _find_task_faults(task: str, history: list[QueueEvent]) -> list[str]:
    done = [event for event in history if event.what == "done"]
    # A worker that was killed while it finished may have succeeded.
    answered = {event.token for event in history if event.what in {"done", "lost"}}
    unsure = [event for event in history if event.what == "finishing" and event.token not in answered]
    faults = []
    if len(done) > 1:
        faults.append(f"task {task} was done {len(done)} times")
    if not done and not unsure:
        faults.append(f"task {task} was lost")
    claims = sorted((event for event in history if event.what == "claimed"), key=lambda event: event.attempt)
    tokens = [event.token for event in claims]
    if tokens != sorted(set(tokens)) or len({event.attempt for event in claims}) != len(claims):
        faults.append(f"the tokens of task {task} do not rise with its attempts")
    if done and tokens and done[0].token != max(tokens):
        faults.append(f"task {task} was done by one who had it no longer, or given out when it was done")
    return faults


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
