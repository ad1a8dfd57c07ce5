"""Agents that are killed and replaced, and servers that lose what they had."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from support.durable_agents import PlannedCall
from support.forked_processes import ForkedChild, start_child
from support.invariants import RecordedCall
from support.redis_process import RedisProcess

_PATIENCE_S = 60.0


class RewindableRedis(RedisProcess):
    """A server with an append-only file, which can be set back to what it was."""

    def __init__(self, fsync: str) -> None:
        super().__init__(appendonly="yes", appendfsync=fsync, auto_aof_rewrite_percentage=0)

    def restart(self) -> None:
        """Kill it and start it again."""
        self.kill()
        self.start()

    def stumble(self) -> None:
        """Start it, and kill it before it is ready."""
        self.launch()
        self.kill()

    def position(self) -> int:
        """Where it is now, to be set back to."""
        return self._log().stat().st_size

    def set_back(self, position: int) -> None:
        """Kill it, and start it with what it held before."""
        self.kill()
        if self.position() > position:
            os.truncate(self._log(), position)
        self.start()

    def lose_disk(self) -> None:
        """Kill it, and start it with nothing."""
        self.kill()
        shutil.rmtree(self.data)
        self.data.mkdir()
        self.start()

    def _log(self) -> Path:
        return max(self.data.glob("appendonlydir/*.incr.aof"))


class AgentHandle:
    """An agent as the test sees it.

    Args:
        pid: its process.
        lines: what it reports.
        orders: where it gets its orders from.
    """

    def __init__(self, pid: int, lines: asyncio.StreamReader, orders: asyncio.StreamWriter) -> None:
        self._pid, self._lines, self._orders = pid, lines, orders
        self.is_alive = True
        self.attempts: list[RecordedCall] = []

    def kill(self) -> None:
        """End it with SIGKILL."""
        os.kill(self._pid, signal.SIGKILL)
        self.is_alive = False

    async def carry_out(self, order: dict[str, Any], reported: Callable[[str], None]) -> None:
        """Give an order, and record what it does until it is done or dead."""
        self.attempts = []
        self._orders.write(json.dumps(order).encode() + b"\n")
        with suppress(ConnectionResetError):  # it was killed before it had read all that was sent to it
            while (line := await self._lines.readline()).endswith(b"\n"):
                what, *words = json.loads(line)
                self._record(what, words)
                reported(what)
                if what == "done":
                    return
        self.is_alive = False
        reported("done")

    def _record(self, what: str, words: list[Any]) -> None:
        if what == "try":
            began, *call = words
            self.attempts.append(RecordedCall(PlannedCall(*call), began=began))
        elif what != "done":
            self.attempts[-1].outcome = what
            self.attempts[-1].answer = words[0] if words else None

    def stop(self) -> None:
        """Let it end what it does until it gets another order."""
        self._orders.write(b"\n")

    def close(self) -> None:
        """Close its orders, so that it ends."""
        self._orders.close()


class AgentPool:
    """Agents that are replaced when they die."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="smc"))
        self._path = str(self._folder / "s")
        self._connected: asyncio.Queue[AgentHandle] = asyncio.Queue()
        self._agents: list[AgentHandle] = []
        self._children: list[ForkedChild] = []
        self._listener: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_unix_server(self._greet, self._path)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for agent in self._agents:
            if agent.is_alive:
                agent.kill()
            agent.close()
        for child in self._children:
            await child.ended()
        assert self._listener is not None
        self._listener.close()
        await self._listener.wait_closed()
        shutil.rmtree(self._folder)

    async def take(self, number: int) -> list[AgentHandle]:
        """So many living agents."""
        for agent in self._agents:
            if not agent.is_alive:
                agent.close()
        self._agents = [agent for agent in self._agents if agent.is_alive]
        while len(self._agents) < number:
            self._children.append(start_child("-m", "support.durable_agents", self._path, streams=(0, 1, 2)))
            async with asyncio.timeout(_PATIENCE_S):
                self._agents.append(await self._connected.get())
        return self._agents[:number]

    async def _greet(self, lines: asyncio.StreamReader, orders: asyncio.StreamWriter) -> None:
        _, pid = json.loads(await lines.readline())
        self._connected.put_nowait(AgentHandle(pid, lines, orders))
