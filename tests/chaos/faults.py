"""Faults that several scenarios make, again and again while their work goes on."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from redis.exceptions import RedisError
from support.chaos_proxy import ChaosProxy
from support.redis_process import RedisProcess

from chaos.scenario import Trial

_RESET_EVERY, _LONGEST_SKIP, _PAUSE_S = 5, 30, 0.05


@contextmanager
def logging_server(**options: Any) -> Iterator[RedisProcess]:
    """A server that forces each write to disk before it replies, so that `kill -9` may lose nothing."""
    with RedisProcess(appendonly="yes", appendfsync="always", **options) as server:
        yield server


@asynccontextmanager
async def repeat_fault(*activities: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run activities for as long as the block takes; what one of them raises is raised at the end."""
    tasks = [asyncio.create_task(activity) for activity in activities]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()


async def lose_replies(trial: Trial, proxy: ChaosProxy, *requests: bytes) -> None:
    """Let requests be carried out and their replies be lost; reset all connections now and then."""
    for cut in itertools.count(1):
        proxy.lose_replies(trial.dice.choice(requests), skip=trial.dice.randrange(_LONGEST_SKIP))
        await proxy.cut.wait()
        proxy.cut.clear()
        trial.broke()
        if cut % _RESET_EVERY == 0:
            proxy.reset_all()


async def kill_server(trial: Trial, server: RedisProcess, *, every_s: float) -> None:
    """Kill a server and start it again, about that often."""
    while True:
        await trial.pause(every_s / 2, every_s * 1.5)
        await restart(server)
        trial.broke()
        if trial.is_over:
            return


async def restart(server: RedisProcess) -> None:
    """End a server as `kill -9` does, and start it again, also when the caller is cancelled meanwhile."""
    restarting = asyncio.ensure_future(asyncio.to_thread(_restart, server))
    try:
        await asyncio.shield(restarting)
    except asyncio.CancelledError:
        await restarting
        raise


def _restart(server: RedisProcess) -> None:
    server.kill()
    server.start()


async def send_server_command(server: RedisProcess, *words: str | int) -> object:
    """Send a command to a server that is killed now and then; at least once."""
    while True:
        try:
            return await asyncio.to_thread(server.tell, *words)
        except (RedisError, OSError):
            await asyncio.sleep(_PAUSE_S)
