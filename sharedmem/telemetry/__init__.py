"""Telemetry: what sharedmem tells those who run it, as log lines, counts, timings and spans.

The library stays silent until the application configures logging; a hub makes its own `Counters` and
passes them down.
"""

from sharedmem.telemetry.counters import BUCKETS_S, Count, Counters, Labels, Timing
from sharedmem.telemetry.cpu import CpuMeter, Metered, in_thread
from sharedmem.telemetry.logs import JsonFormatter, get_logger, logger
from sharedmem.telemetry.measuring import measured
from sharedmem.telemetry.spans import span

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
