"""Telemetry: what sharedmem tells those who run it, as log lines and counts.

The library stays silent until the application configures logging; a hub makes its own `Counters` and
passes them down.
"""

from __future__ import annotations

import logging
import threading
from typing import NamedTuple

logger = logging.getLogger("sharedmem")
logger.addHandler(logging.NullHandler())

_METRIC_PREFIX = "sharedmem_"

Labels = tuple[tuple[str, str], ...]


def get_logger(part: str) -> logging.Logger:
    """The logger `sharedmem.<part>`, a child of the one that applications configure."""
    return logger.getChild(part)


class Count(NamedTuple):
    """One counter at the time of a snapshot."""

    name: str
    """Metric name, with the prefix `sharedmem_`."""
    labels: Labels
    """Pairs of label and value, sorted by label."""
    value: int


class Counters:
    """Named counters that only go up; safe to use from several threads.

    Names come without the prefix (`increment("retries", call="write")`). Label values must come from a
    small fixed set, never from users' keys: every combination is kept for as long as the hub lives.
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[str, Labels], int] = {}
        # The sync face and worker threads count too, and a dictionary's read and write are two steps.
        self._lock = threading.Lock()

    def increment(self, name: str, /, **labels: str) -> None:
        """Count one more."""
        key = name, tuple(sorted(labels.items()))
        with self._lock:
            self._counts[key] = self._counts.get(key, 0) + 1

    def read(self, name: str, /, **labels: str) -> int:
        """How often it was counted with exactly these labels; 0 when never."""
        return self._counts.get((name, tuple(sorted(labels.items()))), 0)

    def snapshot(self) -> list[Count]:
        """Every counter at one moment, sorted by name and labels, named as exporters show it."""
        with self._lock:
            counts = list(self._counts.items())
        return sorted(Count(_METRIC_PREFIX + name, labels, value) for (name, labels), value in counts)

    def __repr__(self) -> str:
        return f"<Counters with {len(self._counts)} names and labels>"
