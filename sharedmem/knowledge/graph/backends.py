"""The backend that keeps the graphs of a namespace, as the settings name it."""

from __future__ import annotations

from sharedmem.knowledge.graph.protocol import GraphBackend
from sharedmem.knowledge.minds import Minds
from sharedmem.wire.access import Scope


def backend_of(minds: Minds, scope: Scope) -> GraphBackend:
    """The backend of a namespace's graphs, whose changes an actor signs. No round trip.

    Raises:
        UnsupportedError: the settings name a backend for which something is not installed.
    """
    namespace = scope.identity.namespace
    if minds.settings.graph_backend == "falkordb":
        from sharedmem.knowledge.graph.falkordb import FalkorBackend  # noqa: PLC0415  # an extra

        # FalkorDB keeps no change stream, so that nothing there is signed.
        return minds.shared(FalkorBackend, namespace, lambda: FalkorBackend(minds, namespace))
    from sharedmem.knowledge.graph.redis import RedisBackend  # noqa: PLC0415  # only where it is used

    return RedisBackend(minds, namespace, scope.signature)
