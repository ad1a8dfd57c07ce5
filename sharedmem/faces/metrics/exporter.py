"""The exporter: reads what a team shares every few seconds, and answers Prometheus."""

from __future__ import annotations

import asyncio
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, generate_latest, start_http_server

from sharedmem.errors import ConfigError, SharedMemoryError
from sharedmem.faces.metrics.collectors import HubCollector, Totals, TotalsCollector, read_totals
from sharedmem.hub import Hub
from sharedmem.runtime import get_logger

_log = get_logger("metrics")


class Exporter:
    """Serves `/metrics` of one hub until it is closed.

    Args:
        hub: an open hub that may read every namespace.
        host: address to listen at.
        port: 0 takes a free one.
    """

    def __init__(self, hub: Hub, *, host: str = "127.0.0.1", port: int = 9001) -> None:
        self._hub = hub
        self._host = host
        self._port = port
        self._latest: Totals | None = None
        self._first: Totals | None = None
        self._server: WSGIServer | None = None

    @property
    def address(self) -> str:
        """Where Prometheus finds it."""
        port = self._server.server_port if self._server is not None else self._port
        return f"http://{self._host}:{port}/metrics"

    async def open(self) -> None:
        """Read once, then listen.

        Raises:
            ConfigError: the address cannot be listened at.
            UnavailableError: the server cannot be reached.
        """
        self._latest = self._first = await read_totals(self._hub)
        try:
            self._server, _ = start_http_server(self._port, self._host, self._registry())
        except OSError as error:
            raise ConfigError(
                "port", "argument", f"{self._host}:{self._port} cannot be listened at: {error}"
            ) from error

    def text(self) -> str:
        """Return the text that Prometheus would receive."""
        return generate_latest(self._registry()).decode()

    async def refresh(self) -> None:
        """Read again; while the server stays away `sharedmem_up` is 0."""
        try:
            self._latest = await read_totals(self._hub)
        except SharedMemoryError as error:
            _log.warning("the server does not answer: %s", error)
            self._latest = None

    async def run(self, *, every_s: float) -> None:
        """Read again every so many seconds, until cancelled."""
        while True:
            await asyncio.sleep(every_s)
            await self.refresh()

    def _registry(self) -> CollectorRegistry:
        registry = CollectorRegistry()
        registry.register(HubCollector(self._hub.counters))
        registry.register(TotalsCollector(lambda: self._latest, lambda: self._first))
        return registry

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
