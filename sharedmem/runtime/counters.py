"""Counters, gauges and histograms of one hub."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

_METRIC_PREFIX = "sharedmem_"

# In seconds: from a call on this machine to a slow provider.
BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.5, 1.0, 2.5, 10.0)
_SIZE_BUCKETS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000)
"""Items in one batch."""
_OPERATION_SECONDS = "operation_seconds"

Labels = tuple[tuple[str, str], ...]


class Count(NamedTuple):
    """One counter at the time of a snapshot."""

    name: str
    """Metric name, with the prefix `sharedmem_`."""
    labels: Labels
    """Pairs of label and value, sorted by label."""
    value: float


class Gauge(NamedTuple):
    """A value that rises and falls, at the time of a snapshot."""

    name: str
    """Metric name, with the prefix `sharedmem_`."""
    labels: Labels
    value: float


class Histogram(NamedTuple):
    """Durations or sizes of one kind, at the time of a snapshot."""

    name: str
    """Metric name, with the prefix `sharedmem_`."""
    labels: Labels
    bounds: tuple[float, ...]
    """Upper bounds of the intervals; the last interval has none."""
    buckets: tuple[int, ...]
    """Number of observations in each interval: not cumulative."""
    total: float
    """The sum of all observations."""


class Timing(NamedTuple):
    """Durations of one operation, at the time of a snapshot."""

    name: str
    """Metric name, with the prefix `sharedmem_`, in seconds."""
    labels: Labels
    buckets: tuple[int, ...]
    """Number of calls in each interval of `BUCKETS_S`, and of longer ones: not cumulative."""
    total_s: float

    @property
    def calls(self) -> int:
        """The number of calls."""
        return sum(self.buckets)

    def quantile(self, share: float) -> float:
        """Return the seconds within which a share (0 to 1) of the calls ended, as exact as the buckets are."""
        target, seen = share * self.calls, 0
        for at, inside in enumerate(self.buckets):
            seen += inside
            if seen >= target and seen:
                return BUCKETS_S[at] if at < len(BUCKETS_S) else float("inf")
        return 0.0


class Counters:
    """Named counters that only rise, gauges, timings and sizes; safe to use from several threads.

    Names have no prefix here (`increment("retries", call="write")`). Label values must come from a small fixed set,
    never from users' keys: every combination is stored for as long as the hub is open.
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[str, Labels], float] = {}
        self._timings: dict[tuple[str, Labels], tuple[list[int], list[float]]] = {}
        self._sizes: dict[tuple[str, Labels], tuple[list[int], list[float]]] = {}
        self._under_way: dict[str, int] = {}
        self._gauges: dict[tuple[str, Labels], Callable[[], float]] = {}
        # The sync API and worker threads count too, and a dictionary's read and write are two steps.
        self._lock = threading.Lock()

    def increment(self, name: str, /, **labels: str) -> None:
        """Increment a counter."""
        self.add(name, 1, **labels)

    def add(self, name: str, amount: float, /, **labels: str) -> None:
        """Add an amount to a counter, such as tokens: 0 or more."""
        key = name, tuple(sorted(labels.items()))
        with self._lock:
            self._counts[key] = self._counts.get(key, 0) + amount

    def observe(self, name: str, seconds: float, /, **labels: str) -> None:
        """Record a duration."""
        with self._lock:
            _add_to(self._timings, (name, tuple(sorted(labels.items()))), BUCKETS_S, seconds)

    def observe_batch(self, operation: str, size: int) -> None:
        """Record a batch: `batch_operations` counts it, `batch_size` is the histogram of the sizes.

        Args:
            operation: what is done to the items of a batch, such as `memory.add`.
            size: number of items.
        """
        labels = (("operation", operation),)
        counted = "batch_operations", labels
        with self._lock:
            self._counts[counted] = self._counts.get(counted, 0) + 1
            _add_to(self._sizes, ("batch_size", labels), _SIZE_BUCKETS, size)

    def begin(self, operation: str) -> None:
        """Count a call of an operation as under way, until `end`."""
        with self._lock:
            self._under_way[operation] = self._under_way.get(operation, 0) + 1

    def end(self, operation: str, seconds: float) -> None:
        """Record the duration of a call that `begin` has counted."""
        with self._lock:
            self._under_way[operation] -= 1
            _add_to(self._timings, (_OPERATION_SECONDS, (("operation", operation),)), BUCKETS_S, seconds)

    def register_gauge(self, name: str, read: Callable[[], float], /, **labels: str) -> None:
        """Show a value in metrics; it is read at each snapshot, perhaps from another thread.

        Args:
            name: name without prefix.
            read: returns the value at once.
            labels: labels of the gauge.
        """
        self._gauges[name, tuple(sorted(labels.items()))] = read

    def read(self, name: str, /, **labels: str) -> float:
        """Return a counter with exactly these labels; 0 if it was never incremented."""
        return self._counts.get((name, tuple(sorted(labels.items()))), 0)

    def snapshot(self) -> list[Count]:
        """Return every counter at one moment, sorted by name and labels, under the names that exporters show."""
        with self._lock:
            counts = list(self._counts.items())
        return sorted(Count(_METRIC_PREFIX + name, labels, value) for (name, labels), value in counts)

    def timings(self) -> list[Timing]:
        """Return every timing at one moment, sorted by name and labels."""
        with self._lock:
            found = [(key, tuple(buckets), total[0]) for key, (buckets, total) in self._timings.items()]
        return sorted(Timing(_METRIC_PREFIX + key[0], key[1], buckets, total) for key, buckets, total in found)

    def histograms(self) -> list[Histogram]:
        """Return the timings, then the sizes of batches, at one moment; each sorted by name and labels."""
        timed = [Histogram(one.name, one.labels, BUCKETS_S, one.buckets, one.total_s) for one in self.timings()]
        with self._lock:
            found = [(key, tuple(buckets), total[0]) for key, (buckets, total) in self._sizes.items()]
        sizes = [
            Histogram(_METRIC_PREFIX + key[0], key[1], _SIZE_BUCKETS, counts, total) for key, counts, total in found
        ]
        return [*timed, *sorted(sizes)]

    def gauges(self) -> list[Gauge]:
        """Return every gauge, sorted by name and labels: those registered, and the calls under way by operation."""
        with self._lock:
            running = list(self._under_way.items())
        under_way = [
            Gauge(f"{_METRIC_PREFIX}operations_under_way", (("operation", operation),), count)
            for operation, count in running
        ]
        found: list[Gauge] = []
        for (name, labels), read in list(self._gauges.items()):
            # A collection may change while this thread counts it: the next snapshot has the value again.
            with suppress(RuntimeError):
                found.append(Gauge(_METRIC_PREFIX + name, labels, read()))
        return sorted([*under_way, *found])

    def __repr__(self) -> str:
        return f"<Counters with {len(self._counts)} names and labels>"


def _add_to(
    held: dict[tuple[str, Labels], tuple[list[int], list[float]]],
    key: tuple[str, Labels],
    bounds: tuple[float, ...],
    observed: float,
) -> None:
    found = held.get(key)
    if found is None:
        found = held[key] = [0] * (len(bounds) + 1), [0.0]
    found[0][bisect_left(bounds, observed)] += 1
    found[1][0] += observed
