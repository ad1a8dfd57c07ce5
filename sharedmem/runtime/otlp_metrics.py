"""The counters, gauges and histograms of a hub, sent to a collector of OpenTelemetry as OTLP over HTTP (JSON)."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable
from http.client import HTTPException
from typing import Any
from urllib.request import Request, urlopen

from sharedmem.runtime.counters import Counters, Labels
from sharedmem.runtime.log_output import get_logger

_PATH = "/v1/metrics"
_TIMEOUT_S = 5.0
_CUMULATIVE = 2
_logger = get_logger("metrics")


class OtlpMetrics:
    """Sends the values of one hub from a thread, and a last time when it is closed.

    A collector that cannot be reached is logged once until it is back; values are totals, so nothing is lost.

    Args:
        counters: of the hub.
        endpoint: base URL of the collector, such as `http://127.0.0.1:4318`.
        every_s: seconds between two sendings.
    """

    def __init__(self, counters: Counters, *, endpoint: str, every_s: float) -> None:
        self._counters = counters
        self._url = endpoint.rstrip("/") + _PATH
        self._every_s = every_s
        self._began_ns = time.time_ns()
        self._is_failing = False
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sharedmem otlp metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Send the last values and stop. Blocks for a few seconds at most."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._closing.wait(self._every_s)
            self._send()

    def _send(self) -> None:
        body = json.dumps(otlp_document(self._counters, self._began_ns)).encode()
        request = Request(self._url, body, {"Content-Type": "application/json"})  # noqa: S310  # http(s), checked
        try:
            with urlopen(request, timeout=_TIMEOUT_S):  # noqa: S310  # likewise
                self._is_failing = False
        except (OSError, HTTPException) as error:
            if not self._is_failing:
                _logger.warning("metrics cannot be sent to %s: %s", self._url, error)
            self._is_failing = True


def otlp_document(counters: Counters, began_ns: int) -> dict[str, Any]:
    """Return the values of one hub as an OTLP request.

    Args:
        counters: of the hub.
        began_ns: start of the totals, in nanoseconds since 1970.
    """
    times = {"startTimeUnixNano": str(began_ns), "timeUnixNano": str(time.time_ns())}
    metrics = [
        *(_metric(one.name, "sum", one.labels, {"asDouble": one.value} | times) for one in counters.snapshot()),
        *(_metric(one.name, "gauge", one.labels, {"asDouble": one.value} | times) for one in counters.gauges()),
        *(
            _metric(
                one.name,
                "histogram",
                one.labels,
                {
                    "count": str(sum(one.buckets)),
                    "sum": one.total,
                    "bucketCounts": [str(inside) for inside in one.buckets],
                    "explicitBounds": list(one.bounds),
                }
                | times,
            )
            for one in counters.histograms()
        ),
    ]
    resource = {"attributes": _attributes([("service.name", "sharedmem")])}
    scope = {"scope": {"name": "sharedmem"}, "metrics": metrics}
    return {"resourceMetrics": [{"resource": resource, "scopeMetrics": [scope]}]}


def _metric(name: str, kind: str, labels: Labels, point: dict[str, Any]) -> dict[str, Any]:
    held: dict[str, Any] = {"dataPoints": [{"attributes": _attributes(labels)} | point]}
    if kind != "gauge":
        held["aggregationTemporality"] = _CUMULATIVE
    if kind == "sum":
        held["isMonotonic"] = True
    return {"name": name, kind: held}


def _attributes(labels: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
    return [{"key": name, "value": {"stringValue": value}} for name, value in labels]
