"""Wakes: whoever waits for changed memories of a namespace is woken by its change stream, once for a whole hub."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from sharedmem.errors import SharedMemoryError
from sharedmem.tasks import Background, Work
from sharedmem.telemetry import get_logger
from sharedmem.wire.changes import BATCH, as_list, newest_cursor, parse_change, text_of
from sharedmem.wire.keys import Space
from sharedmem.wire.line import Line
from sharedmem.wire.replies import LostError, Reply, ServerError

# Asked again this often while nothing happens, so that a connection that died in silence is noticed.
_WAIT_S = 2.0
_ABOUT_MEMORY = "memory."
_logger = get_logger("memory")


class Wakes:
    """Tells the waiting of one namespace that memories have changed; what has changed stands in the log of memories.

    Args:
        line: the way to the server.
        background: reads the stream while somebody waits.
        space: the namespace.
    """

    def __init__(self, line: Line, background: Background, space: Space) -> None:
        self._line = line
        self._background = background
        self._space = space
        self._attending = 0
        self._reading: Work | None = None
        self._rung = asyncio.Event()
        self.clearings = 0
        """How often the namespace was cleared while somebody attended."""

    @contextmanager
    def attended(self) -> Iterator[None]:
        """Follow the stream for the length of the block."""
        self._attending += 1
        if self._reading is None or self._reading.done:
            self._reading = self._background.start("follow memories", self._follow())
        try:
            yield
        finally:
            self._attending -= 1

    async def rest(self) -> None:
        """Stop following when nobody attends any more."""
        if self._attending == 0 and self._reading is not None:
            reading, self._reading = self._reading, None
            await reading.stop()

    @property
    def bell(self) -> asyncio.Event:
        """Set at the next change; take it before looking, so that no change is missed between looking and waiting."""
        return self._rung

    def _ring(self) -> None:
        rung, self._rung = self._rung, asyncio.Event()
        rung.set()

    async def _follow(self) -> None:
        cursor: str | None = None
        pauses = self._line.pauses()
        while True:
            try:
                if cursor is None:
                    cursor = await newest_cursor(self._line, self._space)
                    self._ring()  # whoever looked before may have missed what came since
                cursor = await self._next(cursor)
                pauses = self._line.pauses()
            except (LostError, ServerError, SharedMemoryError) as error:
                _logger.warning("standing queries of %s: %s", self._space.namespace, error)
                cursor = None
                await asyncio.sleep(next(pauses))

    async def _next(self, cursor: str) -> str:
        """Wait for changes after a cursor; the cursor after them."""
        wait_ms = int(_WAIT_S * 1000)
        command = ("XREAD", "BLOCK", wait_ms, "COUNT", BATCH, "STREAMS", self._space.changes, cursor)
        entries = _entries(await self._line.block(*command, wait_s=_WAIT_S))
        changes = [parse_change(entry) for entry in entries]
        self.clearings += sum(change.operation == "clear" for change in changes)
        # Behind a full batch, or after one, something may have been trimmed unread.
        if len(changes) >= BATCH or any(_concerns(change.operation) for change in changes):
            self._ring()
        return text_of(as_list(entries[-1])[0]) if entries else cursor


def _concerns(operation: str) -> bool:
    return operation.startswith(_ABOUT_MEMORY) or operation == "clear"


def _entries(reply: Reply) -> list[Reply]:
    streams = as_list(reply)
    return as_list(as_list(streams[0])[1]) if streams else []
