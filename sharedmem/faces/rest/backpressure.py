"""Turns: callers of large answers wait for each other, and not all others for them.

A large answer holds the event loop, and the connection to Redis, for as long as it takes to read and to encode. So each
caller has, for each operation, only so many calls under way as its answers are small; the others wait in line. And a
caller whose answers are not read is refused more of them.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sharedmem.errors import LimitedError

_MOST_AT_ONCE = 64
_BYTES_AT_ONCE = 4 << 20
# What an operation of a caller is taken for before its first answer.
_ASSUMED_BYTES = _BYTES_AT_ONCE // 16
_LATEST_WEIGHS = 0.25
_MOST_KNOWN = 10_000
_MOST_UNREAD_BYTES = 64 << 20
_LARGE_BYTES = 1 << 16
_BACK_AFTER_S = 1.0


@dataclass(slots=True)
class _CallQueue:
    """The calls of one operation by one caller."""

    usual_bytes: float = _ASSUMED_BYTES
    running: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)

    @property
    def most(self) -> int:
        """How many may be under way."""
        return max(1, min(_MOST_AT_ONCE, int(_BYTES_AT_ONCE / max(1.0, self.usual_bytes))))

    def call_next(self) -> None:
        """Let as many begin as may."""
        while self.waiting and self.running < self.most:
            turn = self.waiting.popleft()
            if not turn.done():
                self.running += 1
                turn.set_result(None)


class CallQueues:
    """Whose turn it is, in one process."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, str], _CallQueue] = {}

    @asynccontextmanager
    async def of(self, caller: str, operation: str) -> AsyncIterator[_CallQueue]:
        """Wait until it is a call's turn; first come, first served."""
        line = self._line(caller, operation)
        if line.running >= line.most:
            await self._wait(line)
        else:
            line.running += 1
        try:
            yield line
        finally:
            line.running -= 1
            line.call_next()

    def note(self, line: _CallQueue, response: Response) -> None:
        """Take note of how large an answer was."""
        size = len(getattr(response, "body", b""))
        line.usual_bytes += (size - line.usual_bytes) * _LATEST_WEIGHS

    async def _wait(self, line: _CallQueue) -> None:
        turn = asyncio.get_running_loop().create_future()
        line.waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                # Its turn came in the moment in which it was given up.
                line.running -= 1
                line.call_next()
            raise

    def _line(self, caller: str, operation: str) -> _CallQueue:
        line = self._lines.get((caller, operation))
        if line is None:
            if len(self._lines) >= _MOST_KNOWN:
                self._lines = {key: known for key, known in self._lines.items() if known.running}
            line = self._lines[caller, operation] = _CallQueue()
        return line


class UnreadResponses:
    """How many bytes of answers wait for their readers, by caller."""

    def __init__(self) -> None:
        self._bytes: Counter[str] = Counter()

    def check(self, caller: str) -> None:
        """Refuse a caller that does not read what it has asked for.

        Raises:
            LimitedError: too much of it waits.
        """
        if self._bytes[caller] > _MOST_UNREAD_BYTES:
            what = f"answers of more than {_MOST_UNREAD_BYTES >> 20} MiB wait for the readers of this token"
            raise LimitedError(f"{what}; read them first", _BACK_AFTER_S)

    def counted(self, caller: str, response: Response) -> Response:
        """The same response; a large one counts until it is sent."""
        size = len(getattr(response, "body", b""))
        return response if size < _LARGE_BYTES else _CountedResponse(response, self._bytes, caller, size)


class _CountedResponse(Response):
    """A response that counts until it is sent."""

    def __init__(self, response: Response, counts: Counter[str], caller: str, size: int) -> None:
        self._response, self._counts, self._caller, self._size = response, counts, caller, size
        self.body, self.status_code, self.raw_headers = response.body, response.status_code, response.raw_headers
        self.background = response.background
        counts[caller] += size

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await self._response(scope, receive, send)
        finally:
            self._counts[self._caller] -= self._size
            if not self._counts[self._caller]:
                del self._counts[self._caller]
