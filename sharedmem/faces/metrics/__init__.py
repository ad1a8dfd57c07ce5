"""Metrics for Prometheus: of one process, and of what a whole team shares.

Needs `prometheus-client`: pip install 'sharedmem-hub[metrics]'
"""

from __future__ import annotations

from sharedmem.errors import UnsupportedError

try:
    import prometheus_client as _client
except ImportError as error:
    raise UnsupportedError("the Prometheus exporter", "pip install 'sharedmem-hub[metrics]'") from error

from sharedmem.faces.metrics.exporter import Exporter
from sharedmem.faces.metrics.families import METRICS, HubCollector, ShownTotals
from sharedmem.faces.metrics.totals import Totals, totals_of

__all__ = ["METRICS", "Exporter", "HubCollector", "ShownTotals", "Totals", "totals_of"]
del _client
