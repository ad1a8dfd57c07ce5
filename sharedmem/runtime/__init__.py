"""Runtime services: background tasks, backoff, CPU meters, and telemetry as log lines, counts, timings and spans.

The library logs nothing until the application configures logging; a hub creates its own `Counters` and
passes them down.
"""

from sharedmem.runtime.cpu_time import CpuMeter, Metered, in_thread
from sharedmem.runtime.log_output import JsonFormatter, elapsed_ms, get_logger, log_event, logger
from sharedmem.runtime.telemetry import (
    BUCKETS_S,
    Count,
    Counters,
    Gauge,
    Histogram,
    Labels,
    Timing,
    measured,
    metric_key,
    span,
)

__all__ = [
    "BUCKETS_S",
    "Count",
    "Counters",
    "CpuMeter",
    "Gauge",
    "Histogram",
    "JsonFormatter",
    "Labels",
    "Metered",
    "Timing",
    "elapsed_ms",
    "get_logger",
    "in_thread",
    "log_event",
    "logger",
    "measured",
    "metric_key",
    "span",
]
