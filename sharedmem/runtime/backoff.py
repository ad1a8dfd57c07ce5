"""Backoff: growing random pauses between attempts, so that callers do not retry together."""

from __future__ import annotations

import random
from collections.abc import Iterator

_MOST_DOUBLINGS = 60


def backoff(first_s: float, longest_s: float, *, least: float = 0.0) -> Iterator[float]:
    """Yield pauses in seconds, without end: each is random, and its upper bound doubles.

    Args:
        first_s: upper bound of the first pause.
        longest_s: upper bound of any pause.
        least: lower bound of a pause as a share of its upper bound; 0 is full jitter.
    """
    for attempt in range(_MOST_DOUBLINGS):
        yield backoff_pause(attempt, first_s, longest_s, least=least)
    while True:
        yield backoff_pause(_MOST_DOUBLINGS, first_s, longest_s, least=least)


def backoff_pause(attempt: int, first_s: float, longest_s: float, *, least: float = 0.0) -> float:
    """Return the pause in seconds after an attempt, counted from 0; arguments as `backoff`."""
    upper = min(longest_s, first_s * 2.0 ** min(attempt, _MOST_DOUBLINGS))
    return random.uniform(least * upper, upper)  # noqa: S311  # spreads retries; no secret depends on it
