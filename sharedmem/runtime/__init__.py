"""Telemetry: what sharedmem tells those who run it, as log lines, counts, timings and spans.

The library stays silent until the application configures logging; a hub makes its own `Counters` and
passes them down.
"""

from sharedmem.runtime.cpu_time import CpuMeter, Metered, in_thread
from sharedmem.runtime.telemetry import (
    BUCKETS_S,
    Count,
    Counters,
    JsonFormatter,
    Labels,
    Timing,
    get_logger,
    logger,
    measured,
    span,
)

__all__ = [
    "BUCKETS_S",
    "Count",
    "Counters",
    "CpuMeter",
    "JsonFormatter",
    "Labels",
    "Metered",
    "Timing",
    "get_logger",
    "in_thread",
    "logger",
    "measured",
    "span",
]
