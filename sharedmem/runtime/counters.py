"""Counters, gauges and histograms of one hub."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple

_METRIC_PREFIX = "sharedmem_"

# In seconds: from a call on this machine to a slow provider.
BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.5, 1.0, 2.5, 10.0)
_SIZE_BUCKETS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000)
"""Items in one batch."""
_OPERATION_SECONDS = "operation_seconds"
_TWO = 2
_MOST_RECORDED = 128

Labels = tuple[tuple[str, str], ...]
MetricKey = tuple[str, Labels]
"""A name without prefix, and its labels: as `metric_key` returns them."""
_Observations = tuple[list[int], list[float]]
"""The number of observations in each interval, and their sum."""
_Record = tuple[Callable[..., None], Any, Any]
"""A method that adds up, and its arguments."""


def metric_key(name: str, /, **labels: str) -> MetricKey:
    """Return the key of a metric with these labels, for `add_to` and `observe_at`: work that each call would repeat."""
    return name, _labels_of(labels)


def _labels_of(labels: dict[str, str]) -> Labels:
    return tuple(labels.items()) if len(labels) < _TWO else tuple(sorted(labels.items()))


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
        # What was counted since the last look. A call only appends to it, which any thread may do at any time: that
        # touches little memory. To add it up takes longer, and less for many records at once.
        self._recorded: deque[_Record] = deque()
        self._counts: dict[MetricKey, float] = {}
        self._timings: dict[MetricKey, _Observations] = {}
        self._sizes: dict[MetricKey, _Observations] = {}
        self._under_way: dict[str, int] = {}
        self._gauges: dict[MetricKey, Callable[[], float]] = {}
        self._lock = threading.Lock()

    def increment(self, name: str, /, **labels: str) -> None:
        """Increment a counter."""
        self.add_to((name, _labels_of(labels)), 1)

    def add(self, name: str, amount: float, /, **labels: str) -> None:
        """Add an amount to a counter, such as tokens: 0 or more."""
        self.add_to((name, _labels_of(labels)), amount)

    def add_to(self, key: MetricKey, amount: float) -> None:
        """Add an amount to the counter of a key: 0 or more."""
        self._record(Counters._add, key, amount)

    def observe(self, name: str, seconds: float, /, **labels: str) -> None:
        """Record a duration."""
        self.observe_at((name, _labels_of(labels)), seconds)

    def observe_at(self, key: MetricKey, seconds: float) -> None:
        """Record a duration under a key."""
        self._record(Counters._observe, key, seconds)

    def observe_batch(self, operation: str, size: int, outcomes: Iterable[tuple[MetricKey, int]] = ()) -> None:
        """Record a batch: `batch_operations` counts it, `batch_size` is the histogram of the sizes.

        Args:
            operation: what is done to the items of a batch, such as `memory.add`.
            size: number of items.
            outcomes: further counters, and how many items to add to each; a counter with 0 items stays as it is.
        """
        self._record(Counters._observe_batch, operation, (size, outcomes))

    def begin(self, operation: str) -> float:
        """Count a call of an operation as under way, and return when it began, for `end`."""
        self._recorded.append((Counters._begin, operation, None))
        return time.perf_counter()

    def end(self, operation: str, began: float) -> None:
        """Record the duration of a call that `begin` has counted."""
        self._record(Counters._end, operation, time.perf_counter() - began)

    def register_gauge(self, name: str, read: Callable[[], float], /, **labels: str) -> None:
        """Show a value in metrics; it is read at each snapshot, perhaps from another thread.

        Args:
            name: name without prefix.
            read: returns the value at once.
            labels: labels of the gauge.
        """
        self._gauges[name, _labels_of(labels)] = read

    def read(self, name: str, /, **labels: str) -> float:
        """Return a counter with exactly these labels; 0 if it was never incremented."""
        self._add_up()
        return self._counts.get((name, _labels_of(labels)), 0)

    def snapshot(self) -> list[Count]:
        """Return every counter at one moment, sorted by name and labels, under the names that exporters show."""
        self._add_up()
        with self._lock:
            counts = list(self._counts.items())
        return sorted(Count(_METRIC_PREFIX + name, labels, value) for (name, labels), value in counts)

    def timings(self) -> list[Timing]:
        """Return every timing at one moment, sorted by name and labels."""
        self._add_up()
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
        self._add_up()
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
        self._add_up()
        return f"<Counters with {len(self._counts)} names and labels>"

    def _record(self, apply: Callable[..., None], key: object, value: object) -> None:
        recorded = self._recorded
        recorded.append((apply, key, value))
        if len(recorded) >= _MOST_RECORDED:
            self._add_up()

    def _add_up(self) -> None:
        recorded = self._recorded
        # Only the holder of the lock takes a record out, so there are at least as many as counted here.
        with self._lock:
            for _ in range(len(recorded)):
                apply, key, value = recorded.popleft()
                apply(self, key, value)

    def _add(self, key: MetricKey, amount: float) -> None:
        self._counts[key] = self._counts.get(key, 0) + amount

    def _observe(self, key: MetricKey, seconds: float) -> None:
        _observe_in(self._timings, key, BUCKETS_S, seconds)

    def _observe_batch(self, operation: str, batch: tuple[int, Iterable[tuple[MetricKey, int]]]) -> None:
        size, outcomes = batch
        self._add(("batch_operations", (("operation", operation),)), 1)
        _observe_in(self._sizes, ("batch_size", (("operation", operation),)), _SIZE_BUCKETS, size)
        for key, items in outcomes:
            if items:
                self._add(key, items)

    def _begin(self, operation: str, _: None) -> None:
        self._under_way[operation] = self._under_way.get(operation, 0) + 1

    def _end(self, operation: str, seconds: float) -> None:
        self._under_way[operation] -= 1
        self._observe((_OPERATION_SECONDS, (("operation", operation),)), seconds)


def _observe_in(
    held: dict[MetricKey, _Observations], key: MetricKey, bounds: tuple[float, ...], observed: float
) -> None:
    found = held.get(key)
    if found is None:
        found = held[key] = [0] * (len(bounds) + 1), [0.0]
    found[0][bisect_left(bounds, observed)] += 1
    found[1][0] += observed
