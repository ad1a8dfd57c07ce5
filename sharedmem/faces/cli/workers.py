"""Worker processes that share one listening socket; one that exits is replaced."""

from __future__ import annotations

import asyncio
import socket
import sys
from contextlib import suppress
from types import TracebackType
from typing import Self

from sharedmem.runtime import get_logger

_END_WITHIN_S = 20.0
_PAUSE_S = 1.0
_COMMAND_LINE = "from sharedmem.faces.cli import main; main()"
_log = get_logger("serve")


class WorkerProcesses:
    """The command line of this process several times, each with the same socket to listen at.

    Args:
        shared: a socket that listens.
        size: how many processes.
    """

    def __init__(self, shared: socket.socket, *, size: int) -> None:
        self._shared = shared
        self._size = size
        self._members: set[asyncio.subprocess.Process] = set()
        self._keepers: list[asyncio.Task[None]] = []

    async def _start_worker(self) -> asyncio.subprocess.Process:
        number = self._shared.fileno()
        # Options that are said again count as said last.
        again = [*sys.argv[1:], "--workers", "1", "--fd", str(number)]
        # In a session of their own Ctrl-C reaches them through this process alone. They hold one end of a pipe, and end
        # when the other is gone, however this process ends.
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            _COMMAND_LINE,
            *again,
            pass_fds=(number,),
            stdin=asyncio.subprocess.PIPE,
            start_new_session=True,
        )

    async def _supervise_worker(self) -> None:
        while True:
            member = await self._start_worker()
            self._members.add(member)
            code = await member.wait()
            self._members.discard(member)
            _log.warning(
                "process %s of the service has ended with code %s; another one takes its place", member.pid, code
            )
            await asyncio.sleep(_PAUSE_S)

    async def __aenter__(self) -> Self:
        self._keepers = [asyncio.create_task(self._supervise_worker()) for _ in range(self._size)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        for member in self._members:
            with suppress(ProcessLookupError):
                member.terminate()
        try:
            async with asyncio.timeout(_END_WITHIN_S):
                await asyncio.gather(*(member.wait() for member in self._members))
        except TimeoutError:
            for member in self._members:
                with suppress(ProcessLookupError):
                    member.kill()
