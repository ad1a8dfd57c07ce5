"""A clock that stands still until a test turns it."""

from __future__ import annotations

import asyncio
import heapq
from datetime import UTC, datetime, timedelta
from itertools import count

from sharedmem.errors import InvalidError

_START = datetime(2026, 1, 1, tzinfo=UTC)
# A shorter sleep spreads retries: it passes by itself, time included, so that nobody has to turn the clock for it.
_SHORT_S = 1.0


class ManualClock:
    """A `Clock` for tests; given to `fake_hub`, it also moves the time of the fake server: TTLs, versions, leases.

    Args:
        start: what it shows at first, with a time zone.

    Example:
        clock = ManualClock()
        async with fake_hub(clock=clock) as hub:
            store = hub.store("research", actor="ada")
            await store.write("note", "soon gone", ttl=60)
            clock.advance(61)
            assert await store.read("note") is None
    """

    def __init__(self, start: datetime = _START) -> None:
        if start.tzinfo is None:
            raise InvalidError("start", start, "give it a time zone, such as datetime.UTC")
        self._start = start.astimezone(UTC)
        self._passed_s = 0.0
        self._order = count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._watchers: list[tuple[int, asyncio.Future[None]]] = []

    def monotonic(self) -> float:
        """Return seconds since the start."""
        return self._passed_s

    def now(self) -> datetime:
        """Return what it shows, in UTC."""
        return self._start + timedelta(seconds=self._passed_s)

    def advance(self, seconds: float) -> None:
        """Turn it forward, and wake whoever has slept long enough: they run when the caller next awaits.

        Args:
            seconds: how far; 0 or more.

        Raises:
            InvalidError: it would go back.
        """
        if not seconds >= 0:
            raise InvalidError("seconds", seconds, "a clock only goes forward")
        self.shift(seconds)
        while self._sleepers and self._sleepers[0][0] <= self._passed_s:
            _, _, sleeper = heapq.heappop(self._sleepers)
            if not sleeper.done():
                sleeper.set_result(None)

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock was turned that far; less than a second passes by itself."""
        if seconds < _SHORT_S:
            self.advance(max(seconds, 0))
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._passed_s + seconds, next(self._order), woken))
        for watcher in self._watchers:
            if watcher[0] <= len(self._sleepers) and not watcher[1].done():
                watcher[1].set_result(None)
        await woken

    @property
    def sleepers(self) -> tuple[float, ...]:
        """For each task that sleeps, in how many seconds it wakes; the next one first."""
        return tuple(sorted(until - self._passed_s for until, _, _ in self._sleepers))

    async def until_asleep(self, count: int = 1) -> None:
        """Return when at least so many tasks sleep on this clock.

        Args:
            count: how many.
        """
        if len(self._sleepers) >= count:
            return
        watcher = count, asyncio.get_running_loop().create_future()
        self._watchers.append(watcher)
        try:
            await watcher[1]
        finally:
            self._watchers.remove(watcher)

    def shift(self, seconds: float) -> None:
        """Change the time without waking a task, as if its process were frozen meanwhile; `advance(0)` wakes it.

        Args:
            seconds: how far; below 0 the clock is set back, which real clocks of servers do.
        """
        self._passed_s += seconds

    def forget_sleepers(self) -> None:
        """Never wake the tasks that sleep now, as if their process were gone."""
        self._sleepers.clear()

    def __repr__(self) -> str:
        return f"<ManualClock {self.now().isoformat()}>"
