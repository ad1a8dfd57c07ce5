"""An HTTP server of one path: `/metrics` of a process, served by a thread."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer

from sharedmem.runtime.counters import Counters
from sharedmem.runtime.exposition import CONTENT_TYPE, prometheus_text

_PATH = "/metrics"
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
        self.address = f"http://{shown}:{self._server.server_address[1]}{_PATH}"

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
        if self.path.partition("?")[0] != _PATH:
            self.send_error(HTTPStatus.NOT_FOUND, f"only {_PATH} is served here")
            return
        body = self.server.text().encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # as its base names it
        """Log nothing: Prometheus asks every few seconds."""
