"""Connections to fakeredis that use a test's clock and leave nothing behind when they close.

Fakeredis calls `time.time()` in many modules. Each of them gets a stand-in for the module `time`, which
returns the time of the clock of the connection whose command is running, else the real time:
nothing else in the process, and no other fake server, gets another time.

Raises (when imported):
    UnsupportedError: fakeredis is not installed.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any

from sharedmem.errors import UnsupportedError
from sharedmem.testing.clock import ManualClock

try:
    from fakeredis.aioredis import FakeAsyncRedisConnection, FakeWriter
except ImportError as error:
    raise UnsupportedError("a fake hub", "pip install 'sharedmem-hub[testing]'") from error

# Blocked commands continue in tasks of their own, which inherit it.
_in_force: ContextVar[ManualClock | None] = ContextVar("clock of the fakeredis command", default=None)


class _ServerTime:
    """The module `time` with another `time()`."""

    def time(self) -> float:
        clock = _in_force.get()
        return time.time() if clock is None else clock.now().timestamp()

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


_server_time = _ServerTime()


def connection_class(clock: ManualClock | None) -> type[FakeAsyncRedisConnection]:
    """Return the connection class of a client.

    Args:
        clock: clock of their server; None for the machine's clock.
    """
    if clock is not None:
        _install()

    class Writer(FakeWriter):
        def writelines(self, data: Iterable[Any]) -> None:
            # Fakeredis runs a command while it is written.
            before = _in_force.set(clock)
            try:
                super().writelines(data)
            finally:
                _in_force.reset(before)

    class Connection(FakeAsyncRedisConnection):
        async def _connect(self) -> None:
            await super()._connect()
            assert self._sock is not None
            self._writer = Writer(self._sock)
            _remember_compiled_scripts(self._sock, self._server)

        async def can_read(self, timeout: float | None = 0) -> bool:  # noqa: ASYNC109  # fakeredis calls it so
            # Fakeredis waits with `wait_for`, which before Python 3.12 can swallow a cancellation.
            if timeout == 0:
                return await super().can_read(0)
            try:
                async with asyncio.timeout(timeout):
                    return await super().can_read(None)
            except TimeoutError:
                return False

        async def disconnect(self, nowait: bool = False, *args: Any, **named: Any) -> None:
            # Fakeredis would count it as a subscriber until the garbage collector runs.
            if self._sock is not None:
                self._sock._cleanup(self._server)  # noqa: SLF001  # it has no public way
            await super().disconnect(nowait, *args, **named)

    return Connection


class _CompilingOnce:
    """The Lua runtime of a fake server, which compiles a script once; fakeredis has it compiled for each call."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        self._compiled: dict[bytes, Callable[[], Any]] = {}

    def execute(self, code: bytes | str) -> Any:
        if isinstance(code, str):  # of fakeredis itself: it collects all garbage after each script, which Lua does too
            return None
        if (script := self._compiled.get(code)) is None:
            script = self._compiled[code] = self._runtime.compile(code)
        return script()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)


def _remember_compiled_scripts(sock: Any, server: Any) -> None:
    runtime = sock._get_server_runtime(server)  # noqa: SLF001  # it has no public way
    if not isinstance(runtime, _CompilingOnce):
        server._lua_runtime = _CompilingOnce(runtime)  # noqa: SLF001  # likewise


def _install() -> None:
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "fakeredis" and vars(module).get("time") is time:
            vars(module)["time"] = _server_time
