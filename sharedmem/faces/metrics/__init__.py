"""Metrics for Prometheus: of one process, and of what a whole team shares.

Needs `prometheus-client`: pip install 'sharedmem-hub[metrics]'
"""

from __future__ import annotations

from sharedmem.errors import UnsupportedError

try:
    import prometheus_client as _client
except ImportError as error:
    raise UnsupportedError("the Prometheus exporter", "pip install 'sharedmem-hub[metrics]'") from error

from sharedmem.faces.metrics.collectors import METRICS, HubCollector, Totals, TotalsCollector, read_totals
from sharedmem.faces.metrics.exporter import Exporter

__all__ = ["METRICS", "Exporter", "HubCollector", "Totals", "TotalsCollector", "read_totals"]
del _client
