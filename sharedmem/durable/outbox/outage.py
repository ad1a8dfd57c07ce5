"""When the durable tier is away: how long to wait before it is asked again, and what the log says of it."""

from __future__ import annotations

import random

from sharedmem.clock import Clock
from sharedmem.telemetry import Counters, get_logger

OUTAGES = "durable_outages"
"""Counter of the times that the tier was found away."""

_FIRST_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 15.0
_logger = get_logger("durable")


class Outage:
    """What a hub knows of the tier being away; shared by all who work for one.

    Args:
        clock: paces them.
        counters: told of each outage.
        url: where the tier is.
    """

    def __init__(self, clock: Clock, counters: Counters, url: str) -> None:
        self._clock = clock
        self._counters = counters
        self._url = url
        self._since: float | None = None
        self._pause_s = _FIRST_PAUSE_S
        self._until = 0.0
        self.why = ""
        """What it said last; empty while it is there."""

    @property
    def remaining_s(self) -> float:
        """Seconds until it should be asked again."""
        return max(0.0, self._until - self._clock.monotonic()) if self._since is not None else 0.0

    def failed(self, error: Exception) -> None:
        """It could not take something: all leave it alone for a while, longer each time."""
        now = self._clock.monotonic()
        self.why = str(error)
        if self._since is None:
            self._since = now
            self._counters.increment(OUTAGES)
            _logger.warning("the durable tier takes nothing; changes wait in Redis until it does: %s", error)
        if now < self._until:
            return  # another one has just found out the same
        spread = random.uniform(self._pause_s / 2, self._pause_s)  # noqa: S311  # spreads retries; guards no secret
        wished = getattr(error, "retry_after", 0.0)
        self._until = now + max(spread, min(wished, _LONGEST_PAUSE_S))
        self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)

    def over(self) -> None:
        """It has taken something."""
        if self._since is not None:
            _logger.warning("%s takes changes again, after %.1f s", self._url, self._clock.monotonic() - self._since)
            self._since, self.why = None, ""
            self._pause_s = _FIRST_PAUSE_S
