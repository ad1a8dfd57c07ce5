"""Metrics by OTLP: a hub sends its values to a collector."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from sharedmem.config import Settings
from sharedmem.errors import ConfigError
from sharedmem.testing import fake_hub

Received = list[tuple[str, dict[str, Any]]]


@contextmanager
def collector() -> Iterator[tuple[str, Received]]:
    """Yield the URL of a collector, and what it has received."""
    received: Received = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            received.append((self.path, json.loads(self.rfile.read(length))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # as its base names it
            del format, args

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def test_a_hub_sends_its_metrics_to_a_collector_at_the_latest_when_it_closes() -> None:
    with collector() as (url, received):
        async with fake_hub(settings=Settings(otlp_endpoint=url, embedder="hashing")) as hub:
            hub.counters.increment("retries", call="write")
            await hub.store("team").memory.add("a fact")

    path, document = received[-1]
    (scope,) = document["resourceMetrics"][0]["scopeMetrics"]
    points = {metric["name"]: metric for metric in scope["metrics"]}
    assert path == "/v1/metrics"
    retries = points["sharedmem_retries"]["sum"]
    assert retries["isMonotonic"]
    assert retries["dataPoints"][0]["asDouble"] == 1
    assert retries["dataPoints"][0]["attributes"] == [{"key": "call", "value": {"stringValue": "write"}}]
    assert "a fact" not in json.dumps(document)
    (seconds,) = points["sharedmem_operation_seconds"]["histogram"]["dataPoints"]
    assert seconds["count"] == "1"
    assert len(seconds["bucketCounts"]) == len(seconds["explicitBounds"]) + 1


async def test_a_hub_works_while_its_collector_is_away(caplog: pytest.LogCaptureFixture) -> None:
    async with fake_hub(settings=Settings(otlp_endpoint="http://127.0.0.1:1")) as hub:
        await hub.store("team").write("plan", 1)

    assert "metrics cannot be sent" in caplog.text


def test_an_endpoint_must_be_a_url_without_credentials() -> None:
    with pytest.raises(ConfigError, match="otlp_endpoint"):
        Settings(otlp_endpoint="http://ada:secret@collector")
