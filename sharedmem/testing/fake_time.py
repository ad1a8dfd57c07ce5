"""Fakeredis goes by a test's clock: its commands, and nothing else in the process, see another time.

Fakeredis asks `time.time()` in many modules. Each of them gets a stand-in for the module `time`, which
answers with the clock of the connection whose command is being carried out, else with the real time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any

from fakeredis.aioredis import FakeAsyncRedisConnection, FakeWriter

from sharedmem.testing.clock import ManualClock

# Blocked commands go on in tasks of their own, which inherit it.
_in_force: ContextVar[ManualClock | None] = ContextVar("clock of the fakeredis command", default=None)


class _ServerTime:
    """The module `time`, but for `time()`."""

    def time(self) -> float:
        clock = _in_force.get()
        return time.time() if clock is None else clock.now().timestamp()

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


_server_time = _ServerTime()


def connection_class(clock: ManualClock) -> type[FakeAsyncRedisConnection]:
    """The connections of a client whose server goes by `clock`."""
    _install()

    class Writer(FakeWriter):
        def writelines(self, data: Iterable[Any]) -> None:
            # Fakeredis carries a command out while it is written.
            before = _in_force.set(clock)
            try:
                super().writelines(data)
            finally:
                _in_force.reset(before)

    class ClockedConnection(FakeAsyncRedisConnection):
        async def _connect(self) -> None:
            await super()._connect()
            assert self._sock is not None
            self._writer = Writer(self._sock)

    return ClockedConnection


def _install() -> None:
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "fakeredis" and vars(module).get("time") is time:
            vars(module)["time"] = _server_time
