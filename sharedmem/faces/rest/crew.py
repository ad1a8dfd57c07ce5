"""The crew: one process or several that answer at one port, each with a hub of its own.

The socket is opened once and handed to every worker, so that the system spreads connections over them. A worker that
dies is replaced; one that cannot even begin ends the crew.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess

import uvicorn
from fastapi import FastAPI

from sharedmem.config import Settings
from sharedmem.errors import ConfigError, UnavailableError
from sharedmem.faces.endpoint import Address
from sharedmem.faces.rest.server import GRACE_S, RestServer, listening
from sharedmem.hub import Hub
from sharedmem.telemetry import get_logger

MOST_WORKERS = 64
_LOOKS_EVERY_S = 0.2
_BEGINS_WITHIN_S = 5.0
_MOST_FALSE_STARTS = 3
_ENDINGS = (signal.SIGINT, signal.SIGTERM)
_logger = get_logger("rest")


@dataclass(frozen=True)
class Plan:
    """What is served.

    Args:
        settings: of the hub that each worker opens.
        build: makes the application of an open hub; for several workers a function that other processes can import,
            or a `functools.partial` of one.
        address: where to listen.
        has_tokens: whether callers have to show tokens.
        workers: how many processes answer.
        grace_s: seconds that calls under way get to end.
    """

    settings: Settings
    build: Callable[[Hub], FastAPI]
    address: Address
    has_tokens: bool = False
    workers: int = 1
    grace_s: float = GRACE_S


def serve(plan: Plan, *, announce: Callable[[Address], None] = lambda _: None) -> None:
    """Answer until SIGTERM or SIGINT; then take no more calls, and let those under way end.

    Args:
        plan: what is served.
        announce: told the address with its real port when it listens there.

    Raises:
        ConfigError: the address cannot be listened at, strangers could come in, or the number of workers is none.
        UnavailableError: the workers do not begin.
    """
    if not 1 <= plan.workers <= MOST_WORKERS:
        raise ConfigError("workers", "argument", f"{plan.workers} is refused: give 1 to {MOST_WORKERS}")
    plan.address.check(has_tokens=plan.has_tokens)
    plan.address.check_files()
    with listening(plan.address) as sock:
        address = replace(plan.address, port=sock.getsockname()[1])
        announce(address)
        there = replace(plan, address=address)
        if plan.workers == 1:
            work(there, sock)
        else:
            _Crew(there, sock).run()


def work(plan: Plan, sock: socket.socket) -> None:
    """Answer in this process until it is told to end, or its parent is gone."""
    with asyncio.Runner(loop_factory=uvicorn.Config(app="", log_config=None).get_loop_factory()) as runner:
        runner.run(_answer(plan, sock))


async def _answer(plan: Plan, sock: socket.socket) -> None:
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    for number in _ENDINGS:
        loop.add_signal_handler(number, told.set)
    parent = multiprocessing.parent_process()
    if parent is not None:
        # Killed without a word it can tell nobody to end.
        loop.add_reader(parent.sentinel, told.set)
    async with Hub.open(settings=plan.settings) as hub:
        app = plan.build(hub)
        async with RestServer(
            app, plan.address, has_tokens=plan.has_tokens, listening=sock, grace_s=plan.grace_s
        ) as server:
            ended = asyncio.create_task(server.wait())
            asked = asyncio.create_task(told.wait())
            await asyncio.wait({ended, asked}, return_when=asyncio.FIRST_COMPLETED)
            asked.cancel()
    await ended


class _Crew:
    """Workers, and who looks after them."""

    def __init__(self, plan: Plan, sock: socket.socket) -> None:
        self._plan = plan
        self._sock = sock
        self._context = multiprocessing.get_context("spawn")
        self._workers: dict[SpawnProcess, float] = {}
        self._false_starts = 0
        self._is_ending = False

    def run(self) -> None:
        """Have so many workers until told to end.

        Raises:
            UnavailableError: they do not begin.
        """
        with self._heeding():
            try:
                while not self._is_ending:
                    self._fill()
                    wait([worker.sentinel for worker in self._workers], timeout=_LOOKS_EVERY_S)
                    self._bury()
            finally:
                self._dismiss()

    def _fill(self) -> None:
        while len(self._workers) < self._plan.workers:
            worker = self._context.Process(target=work, args=(self._plan, self._sock), name="sharedmem rest worker")
            worker.start()
            self._workers[worker] = time.monotonic()

    def _bury(self) -> None:
        for worker in [one for one in self._workers if not one.is_alive()]:
            lived_s = time.monotonic() - self._workers.pop(worker)
            if self._is_ending:
                continue
            _logger.error("a worker ended with %s after %.1f s", worker.exitcode, lived_s)
            self._false_starts = self._false_starts + 1 if lived_s < _BEGINS_WITHIN_S else 0
            if self._false_starts > _MOST_FALSE_STARTS:
                raise UnavailableError("the workers", "they end as soon as they begin; the log says why")

    def _dismiss(self) -> None:
        for worker in self._workers:
            worker.terminate()
        ends_at = time.monotonic() + self._plan.grace_s + _BEGINS_WITHIN_S
        for worker in self._workers:
            worker.join(max(0.0, ends_at - time.monotonic()))
            if worker.is_alive():
                worker.kill()
                worker.join()

    @contextmanager
    def _heeding(self) -> Iterator[None]:
        def end(*_: object) -> None:
            self._is_ending = True

        before = {number: signal.signal(number, end) for number in _ENDINGS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
