"""Export the counters, gauges and histograms of a process: `/metrics` for Prometheus, or OTLP to a collector.

A thread serves `/metrics` over HTTP; a collector of OpenTelemetry gets OTLP over HTTP (JSON).
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterable
from http import HTTPStatus
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler
from itertools import accumulate
from socketserver import ThreadingTCPServer
from typing import Any
from urllib.request import Request, urlopen

from sharedmem.runtime.log_output import get_logger
from sharedmem.runtime.telemetry import Counters, Labels

_METRICS_PATH = "/metrics"
_REQUEST_S = 10.0
_POLL_S = 0.05


class MetricsServer:
    """Serves the values of one hub for Prometheus, also while the event loop is busy.

    Args:
        counters: of the hub.
        host: address to listen on.
        port: 0 takes a free one.

    Raises:
        OSError: the address cannot be listened on.
    """

    def __init__(self, counters: Counters, *, host: str, port: int) -> None:
        self._server = _Listener(host, port, lambda: prometheus_text(counters))
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_S,), name="sharedmem metrics", daemon=True
        )
        self._thread.start()
        shown = f"[{host}]" if ":" in host else host
        self.address = f"http://{shown}:{self._server.server_address[1]}{_METRICS_PATH}"

    def close(self) -> None:
        """Stop listening. Blocks for a few milliseconds."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Listener(ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    # A scrape that hangs must not delay the end of the hub.
    block_on_close = False

    def __init__(self, host: str, port: int, text: Callable[[], str]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.text = text
        super().__init__((host, port), _Answer)


class _Answer(BaseHTTPRequestHandler):
    timeout = _REQUEST_S
    server_version = "sharedmem"
    sys_version = ""

    def do_GET(self) -> None:
        """Send the metrics, or 404."""
        assert isinstance(self.server, _Listener)
        if self.path.partition("?")[0] != _METRICS_PATH:
            self.send_error(HTTPStatus.NOT_FOUND, f"only {_METRICS_PATH} is served here")
            return
        body = self.server.text().encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # as its base names it
        """Log nothing: Prometheus asks every few seconds."""


# -- the text format of Prometheus ---------------------------------------------------------------


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def prometheus_text(counters: Counters) -> str:
    """Return the values of one hub as Prometheus reads them."""
    lines: list[str] = []
    named: set[str] = set()

    def begin(name: str, kind: str) -> None:
        lines.extend([] if name in named else [f"# TYPE {name} {kind}"])
        named.add(name)

    for count in counters.snapshot():
        begin(f"{count.name}_total", "counter")
        lines.append(f"{count.name}_total{_labels(count.labels)} {_number(count.value)}")
    for gauge in counters.gauges():
        begin(gauge.name, "gauge")
        lines.append(f"{gauge.name}{_labels(gauge.labels)} {_number(gauge.value)}")
    for found in counters.histograms():
        begin(found.name, "histogram")
        bounds = [*map(str, found.bounds), "+Inf"]
        for bound, within in zip(bounds, accumulate(found.buckets), strict=True):
            lines.append(f"{found.name}_bucket{_labels((*found.labels, ('le', bound)))} {within}")
        lines.append(f"{found.name}_sum{_labels(found.labels)} {_number(found.total)}")
        lines.append(f"{found.name}_count{_labels(found.labels)} {sum(found.buckets)}")
    return "\n".join([*lines, ""])


def _number(value: float) -> str:
    # All digits: of a rounded counter no rate can be computed.
    return str(int(value)) if value == int(value) else repr(value)


def _labels(labels: Labels) -> str:
    shown = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels)
    return f"{{{shown}}}" if shown else ""


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


# -- OTLP ----------------------------------------------------------------------------------------


_OTLP_PATH = "/v1/metrics"
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
        self._url = endpoint.rstrip("/") + _OTLP_PATH
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
