"""Read/write locks: many may read together, one may write alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from sharedmem.coordination.lease import Lease, Tenure
from sharedmem.process_bound import ProcessBound

MOST_READERS = 1_000_000
Enter = Callable[[int, float, float | None], Tenure]


class ReadWriteLock(ProcessBound):
    """One read/write lock. All stand in one line: a writer is not held off by readers who come after it."""

    def __init__(self, name: str, enter: Enter) -> None:
        self._name = name
        self._enter = enter

    @property
    def name(self) -> str:
        """What it is called, as it was asked for."""
        return self._name

    @asynccontextmanager
    async def reading(self, *, lease: float = 30.0, wait: float | None = None) -> AsyncIterator[Lease]:
        """Hold it together with other readers while the block runs; all else as `SharedMemoryStore.lock`.

        Args:
            lease: seconds until it comes free if this process dies; renewed while the block runs.
            wait: seconds; 0 tries once, None waits for as long as it takes.

        Raises:
            LockHeldError, LockLostError, InvalidError, UnavailableError: as `SharedMemoryStore.lock`.
        """
        async with self._enter(1, lease, wait) as held:
            yield held

    @asynccontextmanager
    async def writing(self, *, lease: float = 30.0, wait: float | None = None) -> AsyncIterator[Lease]:
        """Hold it alone while the block runs; all else as `SharedMemoryStore.lock`.

        Args:
            lease: seconds until it comes free if this process dies; renewed while the block runs.
            wait: seconds; 0 tries once, None waits for as long as it takes.

        Raises:
            LockHeldError, LockLostError, InvalidError, UnavailableError: as `SharedMemoryStore.lock`.
        """
        async with self._enter(MOST_READERS, lease, wait) as held:
            yield held

    def __repr__(self) -> str:
        return f"<ReadWriteLock {self._name!r}>"
