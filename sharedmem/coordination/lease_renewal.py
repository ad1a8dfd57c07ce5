"""The keeper of a hub: renews what its tasks hold, each in time, and says so when something is lost.

One task looks after all of it. Most of what is held is given back long before its first renewal is due, and
shall not pay for a task of its own.
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import Protocol

from sharedmem.clock import Clock
from sharedmem.context import HubContext
from sharedmem.redis.wait_queue import Waiter
from sharedmem.runtime.background import Background, BackgroundTask

_SPARE_ENTRIES = 64
_LINGERS_S = 10.0
_NEVER = float("inf")


class Renewable(Protocol):
    """What can be kept; times are seconds of the hub's monotonic clock."""

    renew_at: float
    deadline: float

    async def renew(self) -> bool:
        """Prolong it, and move both times on; False when it is lost for good."""

    def lose(self) -> None:
        """Take the news that it is held no longer."""


class LeaseRenewer:
    """Keeps leases for the tasks of one hub.

    Args:
        background: runs the keeper and the renewals.
        clock: for the times.
    """

    def __init__(self, background: Background, clock: Clock) -> None:
        self._background = background
        self._clock = clock
        self._planned: dict[Renewable, float] = {}
        # Entries that `_planned` does not know (any more) are left in the heap and passed over.
        self._plan: list[tuple[float, int, Renewable]] = []
        self._order = count()
        self._alarm = Waiter("keeper", clock)
        self._wakes_at = -_NEVER
        self._work: BackgroundTask | None = None

    def keep(self, kept: Renewable) -> None:
        """Renew it from now on.

        Raises:
            UsageError: the hub is closed.
        """
        if self._work is None or self._work.done:
            self._work = self._background.start("keep leases", self._run())
        self._schedule(kept, kept.renew_at)

    def stop_renewing(self, kept: Renewable) -> None:
        """Leave it alone; it hears no more of us."""
        self._planned.pop(kept, None)
        if len(self._plan) > 2 * len(self._planned) + _SPARE_ENTRIES:
            self._plan = [entry for entry in self._plan if self._planned.get(entry[2]) == entry[0]]
            heapq.heapify(self._plan)

    def _schedule(self, kept: Renewable, when: float) -> None:
        self._planned[kept] = when
        heapq.heappush(self._plan, (when, next(self._order), kept))
        if when < self._wakes_at:
            self._alarm.call()

    async def _run(self) -> None:
        while self._planned or await self._linger():
            self._renew_due()
            if self._planned:
                await self._sleep_until(self._plan[0][0])

    async def _linger(self) -> bool:
        """Stay for a while: who has just given something back often takes it again."""
        leaves_at = self._clock.monotonic() + _LINGERS_S
        while not self._planned and self._clock.monotonic() < leaves_at:
            # Not beyond what was planned last: what is taken next has its renewal later, and need not wake it.
            await self._sleep_until(min(self._plan[0][0], leaves_at) if self._plan else leaves_at)
            self._renew_due()
        return bool(self._planned)

    async def _sleep_until(self, when: float) -> None:
        self._wakes_at = when
        await self._alarm.wait(when - self._clock.monotonic())
        self._wakes_at = -_NEVER

    def _renew_due(self) -> None:
        while self._plan and self._plan[0][0] <= self._clock.monotonic():
            when, _, kept = heapq.heappop(self._plan)
            if self._planned.get(kept) == when:
                self._renew_or_lose(kept)

    def _renew_or_lose(self, kept: Renewable) -> None:
        if self._clock.monotonic() >= kept.deadline:
            self._give_up(kept)
            return
        # The renewal may take longer than there is time: its end is watched as well.
        self._schedule(kept, kept.deadline)
        self._background.start("renew a lease", self._renew(kept))

    async def _renew(self, kept: Renewable) -> None:
        is_kept = await kept.renew()
        if kept not in self._planned:
            return
        if is_kept:
            self._schedule(kept, min(kept.renew_at, kept.deadline))
        else:
            self._give_up(kept)

    def _give_up(self, kept: Renewable) -> None:
        self.stop_renewing(kept)
        kept.lose()


def lease_renewer(context: HubContext) -> LeaseRenewer:
    """Return the renewer of a hub, which keeps the leases of all its tasks."""
    return context.shared(LeaseRenewer, "", lambda: LeaseRenewer(context.background, context.clock))
