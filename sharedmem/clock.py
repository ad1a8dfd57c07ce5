"""Time and ids as things that are passed in, so that tests can hold them still."""

from __future__ import annotations

import asyncio
import secrets
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What the house asks of time."""

    def monotonic(self) -> float:
        """Seconds that never go back, for deadlines inside this process."""

    def now(self) -> datetime:
        """The wall-clock time of this machine in UTC, for people; agreement uses the server's."""

    async def sleep(self, seconds: float) -> None:
        """Let other tasks run for that many seconds."""


class SystemClock:
    """The clock of the machine."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary start."""
        return time.monotonic()

    def now(self) -> datetime:
        """The current time in UTC."""
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        """Sleep on the running event loop."""
        await asyncio.sleep(seconds)


def new_id(length: int = 12) -> str:
    """A random id of `length` lower-case hexadecimal digits (4 bits each)."""
    return secrets.token_hex((length + 1) // 2)[:length]


def from_microseconds(version: int) -> datetime:
    """The time that a version of the hybrid clock stands for, in UTC."""
    return datetime.fromtimestamp(version / 1_000_000, UTC)
