"""Time and ids are passed in, so that tests can control them."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import repeat
from typing import Protocol


class Clock(Protocol):
    """The time functions that sharedmem uses."""

    def monotonic(self) -> float:
        """Return seconds that never go back, for deadlines inside this process."""

    def now(self) -> datetime:
        """Return the wall-clock time of this machine in UTC, for display; leases and locks use the server's time."""

    async def sleep(self, seconds: float) -> None:
        """Sleep for so many seconds, while other tasks run."""


class SystemClock:
    """The clock of the machine."""

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start."""
        return time.monotonic()

    def now(self) -> datetime:
        """Return the current time in UTC."""
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        """Sleep on the running event loop."""
        await asyncio.sleep(seconds)


def new_id(length: int = 12) -> str:
    """Return a random id of `length` lower-case hexadecimal digits (4 bits each)."""
    return secrets.token_hex((length + 1) // 2)[:length]


def from_microseconds(version: int) -> datetime:
    """Return the time of a hybrid-clock version, in UTC."""
    return datetime.fromtimestamp(version / 1_000_000, UTC)


def all_from_microseconds(versions: Iterable[int]) -> Iterator[datetime]:
    """As `from_microseconds`, for many versions: without a call of a Python function for each."""
    return map(datetime.fromtimestamp, [version / 1_000_000 for version in versions], repeat(UTC))
