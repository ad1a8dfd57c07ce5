"""A clock that stops until a test advances it."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from sharedmem.errors import InvalidError

_START = datetime(2026, 1, 1, tzinfo=UTC)
# A shorter sleep spreads retries: it passes by itself, with its time, so that no test has to advance the clock for it.
_SHORT_S = 1.0


class ManualClock:
    """A `Clock` for tests; given to `fake_hub`, it also controls the time of the fake server: TTLs, versions, leases.

    Args:
        start: the first time, with a time zone.

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
        """Return the seconds since the start."""
        return self._passed_s

    def now(self) -> datetime:
        """Return the current time, in UTC."""
        return self._start + timedelta(seconds=self._passed_s)

    def advance(self, seconds: float) -> None:
        """Advance the clock, and wake the tasks whose sleep is over: they run when the caller next awaits.

        Args:
            seconds: 0 or more.

        Raises:
            InvalidError: `seconds` is negative.
        """
        if not seconds >= 0:
            raise InvalidError("seconds", seconds, "give 0 or more: a clock only goes forward")
        self.shift(seconds)
        while self._sleepers and self._sleepers[0][0] <= self._passed_s:
            _, _, sleeper = heapq.heappop(self._sleepers)
            if not sleeper.done():
                sleeper.set_result(None)

    def sleep(self, seconds: float) -> Coroutine[Any, Any, None]:
        """Wait until the clock has advanced that far; less than a second passes by itself.

        The seconds count from the call, also for a task that starts to sleep after the clock was advanced.
        """
        return self._sleep(seconds, self._passed_s + seconds)

    async def _sleep(self, seconds: float, until: float) -> None:
        if seconds < _SHORT_S:
            self.advance(max(seconds, 0))
            await asyncio.sleep(0)
            return
        if until <= self._passed_s:
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (until, next(self._order), woken))
        for watcher in self._watchers:
            if watcher[0] <= len(self._sleepers) and not watcher[1].done():
                watcher[1].set_result(None)
        await woken

    @property
    def sleepers(self) -> tuple[float, ...]:
        """The seconds until each sleeping task wakes; the next one first."""
        return tuple(sorted(until - self._passed_s for until, _, _ in self._sleepers))

    async def until_asleep(self, count: int = 1) -> None:
        """Return when at least so many tasks sleep on this clock.

        Args:
            count: number of tasks.
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
            seconds: below 0 the clock is set back, as happens to real clocks of servers.
        """
        self._passed_s += seconds

    def forget_sleepers(self) -> None:
        """Never wake the tasks that sleep now, as if their process had died."""
        self._sleepers.clear()

    def __repr__(self) -> str:
        return f"<ManualClock {self.now().isoformat()}>"
