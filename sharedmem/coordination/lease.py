"""A lease: what the holder of a lock goes by, and the block that is interrupted when it is lost."""

from __future__ import annotations

import asyncio
from types import TracebackType

from sharedmem.coordination.hold import Desk, Hold, Place, Terms
from sharedmem.errors import SharedMemoryError
from sharedmem.process_bound import ProcessBound


class Lease(ProcessBound):
    """What a holder has. It renews itself while its block runs.

    Give `token` along with every write that the lock protects: tokens rise with every holder, so whatever
    is written to can refuse a token below the highest it has seen.
    """

    def __init__(self, hold: Hold) -> None:
        self._hold = hold

    @property
    def name(self) -> str:
        """What is held, as it was asked for."""
        return self._hold.place.name

    @property
    def token(self) -> int:
        """Fencing token: higher than those of all earlier holders of anything in the namespace."""
        return self._hold.token

    @property
    def remaining(self) -> float:
        """Seconds for which it is held even if it cannot be renewed; 0 when it has ended.

        Counted by this machine's monotonic clock, and a little shorter than at the server.
        """
        return self._hold.remaining

    def is_held(self) -> bool:
        """Whether it has not ended. No round trip."""
        return self._hold.is_held()

    def check(self) -> None:
        """Do nothing while it is held. No round trip.

        Raises:
            LockLostError: it has ended.
        """
        if not self._hold.is_held():
            raise self._hold.lost()

    def __repr__(self) -> str:
        state = f"{self.remaining:.1f} s left" if self.is_held() else "ended"
        return f"<Lease {self.name!r} held by {self._hold.actor}, token {self.token}, {state}>"


class Tenure:
    """Holds a place while a block runs, and cancels the block when the place is lost, as `asyncio.timeout` does.

    Args:
        desk, place, terms: as `Hold`.
        wait: as `Hold.take`.
    """

    __slots__ = ("_cancelling", "_hold", "_interrupted", "_task", "_wait")

    def __init__(self, desk: Desk, place: Place, terms: Terms, wait: float | None) -> None:
        self._hold = Hold(desk, place, terms, self._interrupt)
        self._wait = wait
        self._interrupted = False
        self._cancelling = 0
        self._task: asyncio.Task[object] | None = None

    async def __aenter__(self) -> Lease:
        await self._hold.take(self._wait)
        self._task = asyncio.current_task()
        self._cancelling = self._task.cancelling() if self._task else 0
        return Lease(self._hold)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        # Somebody else may have cancelled the task as well; then it has to stay cancelled.
        is_ours = self._interrupted and task is not None and task.uncancel() <= self._cancelling
        was_held = self._hold.is_held()
        try:
            was_held = await self._hold.give_back()
        except SharedMemoryError:
            if kind is None:
                raise
        if not was_held and (kind is None or (is_ours and issubclass(kind, asyncio.CancelledError))):
            raise self._hold.lost() from error

    def _interrupt(self) -> None:
        if self._task is not None:
            self._interrupted = self._task.cancel()
