"""Storage backends of the graph: Redis itself, or the FalkorDB module."""

from __future__ import annotations

from sharedmem.graph.protocol import GraphBackend
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.redis.scope import Scope


def open_backend(context: KnowledgeContext, scope: Scope) -> GraphBackend:
    """Return the backend of a namespace's graphs, whose changes are signed by an actor. No round trip.

    Raises:
        UnsupportedError: the backend in the settings needs something that is not installed.
    """
    namespace = scope.identity.namespace
    if context.settings.graph_backend == "falkordb":
        from sharedmem.graph.backends.falkordb import FalkorBackend  # noqa: PLC0415  # an extra

        # FalkorDB has no change stream, so nothing is signed there.
        return context.shared(FalkorBackend, namespace, lambda: FalkorBackend(context, namespace))
    from sharedmem.graph.backends.redis import RedisBackend  # noqa: PLC0415  # only loaded if it is used

    return RedisBackend(context, namespace, scope.signature)
