"""Health endpoints: liveness, readiness, what does not work at the moment, and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from sharedmem.errors import SharedMemoryError, UnsupportedError
from sharedmem.faces.rest.context import json_response
from sharedmem.faces.rest.problems import problem_response
from sharedmem.faces.rest.service import RestService
from sharedmem.runtime import Counters
from sharedmem.runtime.metrics_export import CONTENT_TYPE, prometheus_text

_PATIENCE_S = 2.0
# However often a client asks, the servers behind are asked once in so many seconds.
_KEPT_S = 1.0
_OLD_S = 60.0
_BACKLOG = 1000
_MOST_KNOWN = 1000
_QUEUES = ("synthesis", "synthesis-webhooks")
Check = dict[str, Any]


class HealthEndpoints:
    """Health checks of the service.

    Args:
        service: what is watched.
        metrics_text: returns the text for Prometheus; None returns the counts of this process.
    """

    def __init__(self, service: RestService, metrics_text: Callable[[], Awaitable[str]] | None = None) -> None:
        self._service = service
        self._metrics_text = metrics_text
        self._known: dict[str | None, tuple[float, dict[str, Check]]] = {}
        self._looking = asyncio.Lock()
        self._embeddings = (0.0, 0.0)
        self._embeds = True

    def handlers(self) -> Mapping[str, Callable[[Request], Awaitable[Response]]]:
        """Return the handlers by path."""
        return {
            "/": self.information,
            "/health": self.ready,
            "/health/ready": self.ready,
            "/health/live": self.live,
            "/metrics": self.metrics,
        }

    async def information(self, request: Request) -> Response:
        """What this is, and where its parts are."""
        return json_response(
            {
                "name": request.app.title,
                "version": request.app.version,
                "api": "/api/v1",
                "openapi": "/openapi.json",
                "docs": "/docs",
                "health": "/health",
                "metrics": "/metrics",
            }
        )

    async def live(self, request: Request) -> Response:  # noqa: ARG002  # every endpoint is given one
        """Whether the process answers at all."""
        return json_response({"status": "alive"})

    async def ready(self, request: Request) -> Response:
        """Whether callers can be sent here: 503 without Redis or when it ends.

        Callers without a token get `up` or `down`; a token gets what is missing in its namespace, an operator's in all.
        """
        bearer = await self._service.known(request)
        checks = await self._checks(None if bearer is None or bearer.operator else bearer.namespace)
        is_closing = self._service.closing.is_set()
        is_up = checks["redis"]["ok"] and not is_closing
        if bearer is None:
            return json_response({"status": "up" if is_up else "down"}, 200 if is_up else 503)
        if not is_up:
            return json_response({"status": "closing" if is_closing else "unavailable", "checks": checks}, 503)
        degraded = [name for name, check in checks.items() if not check["ok"]]
        return json_response({"status": "degraded" if degraded else "ready", "degraded": degraded, "checks": checks})

    async def metrics(self, request: Request) -> Response:
        """What Prometheus reads: of the namespace of the token that is shown; with that of an operator of all."""
        try:
            bearer = await self._service.admit(request)
            if not bearer.operator:
                text = prometheus_text(self._service.counters_of(bearer.namespace))
            elif self._metrics_text is None:
                text = prometheus_text(self._service.hub.counters)
            else:
                text = await self._metrics_text()
        except SharedMemoryError as error:
            return problem_response(error)
        return Response(text, media_type=CONTENT_TYPE)

    async def _checks(self, namespace: str | None) -> dict[str, Check]:
        """The checks as a namespace sees them; None sees all of them."""
        async with self._looking:
            now = asyncio.get_running_loop().time()
            known = self._known.get(namespace)
            if known is None or now - known[0] > _KEPT_S:
                looks = {
                    "redis": self._redis,
                    "durable": lambda: self._tier(namespace),
                    "queues": lambda: self._queues(namespace),
                    "embedder": self._embedder,
                }
                found = await asyncio.gather(*map(_in_time, looks.values()))
                if len(self._known) >= _MOST_KNOWN:
                    self._known.clear()
                known = self._known[namespace] = now, dict(zip(looks, found, strict=True))
            return known[1]

    async def _redis(self) -> Check:
        found = await self._service.hub.health()
        shown = {"latency_ms": found.latency_ms, "server": found.server, "version": found.version}
        return {"ok": found.ok, **shown, "missing": self._service.hub.powers.missing}

    async def _tier(self, namespace: str | None) -> Check:
        try:
            found = await self._service.hub.durable.status()
        except UnsupportedError:
            return {"ok": True, "configured": False}
        lags = [lag for lag in found.namespaces if namespace in {None, lag.namespace}]
        waiting = sum(lag.waiting for lag in lags)
        oldest = max((lag.oldest for lag in lags), default=0.0)
        return {"ok": found.reachable and oldest < _OLD_S, "waiting": waiting, "oldest_s": oldest}

    async def _queues(self, namespace: str | None) -> Check:
        hub = self._service.hub
        store = hub.store(namespace or hub.settings.namespace)
        stats = [await store.queue(name).stats() for name in _QUEUES]
        backlog = {one.name: one.ready + one.delayed for one in stats}
        return {"ok": max(backlog.values()) < _BACKLOG, "backlog": backlog, "dead": sum(one.dead for one in stats)}

    async def _embedder(self) -> Check:
        # Not asked for the sake of this check, which may cost money: told is how its last calls went.
        hub = self._service.hub
        answered, failed = (_embeddings(hub.counters, outcome) for outcome in ("ok", "failed"))
        before, self._embeddings = self._embeddings, (answered, failed)
        if answered > before[0] or failed > before[1]:
            self._embeds = answered > before[0]
        return {"ok": self._embeds, "name": hub.settings.embedder}


async def _in_time(look: Callable[[], Awaitable[Check]]) -> Check:
    try:
        async with asyncio.timeout(_PATIENCE_S):
            return await look()
    except SharedMemoryError as error:
        # Its code and nothing more: sentences tell addresses, and everybody may ask.
        return {"ok": False, "why": error.code}
    except TimeoutError:
        return {"ok": False, "why": f"no answer within {_PATIENCE_S:g} s"}


def _embeddings(counters: Counters, outcome: str) -> float:
    """How many requests to a provider of embeddings have ended so."""
    counts = [count for count in counters.snapshot() if count.name == "sharedmem_embedding_requests"]
    return sum(count.value for count in counts if ("outcome", outcome) in count.labels)
