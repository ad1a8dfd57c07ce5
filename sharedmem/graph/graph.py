"""`store.graph`: the facade of the knowledge graphs of a namespace, and how it is opened."""

from __future__ import annotations

from collections.abc import Iterable

from sharedmem.graph.base import IngestRules
from sharedmem.graph.extraction.protocol import Extractor
from sharedmem.graph.extraction.rules_file import open_ingest_rules
from sharedmem.graph.integrity import GraphChecks
from sharedmem.graph.merges import EntityMerges
from sharedmem.graph.protocol import GraphBackend
from sharedmem.graph.reader import DrawingReader, GraphReader
from sharedmem.graph.resolution.names import require_rapidfuzz
from sharedmem.graph.search import GraphSearch
from sharedmem.graph.traversal import GraphTraversal
from sharedmem.graph.writer import GraphWriter
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.models import RelationType
from sharedmem.redis.scope import Scope


def open_backend(context: KnowledgeContext, scope: Scope) -> GraphBackend:
    """The backend of a namespace's graphs, whose changes an actor signs. No round trip.

    Raises:
        UnsupportedError: the settings name a backend for which something is not installed.
    """
    namespace = scope.identity.namespace
    if context.settings.graph_backend == "falkordb":
        from sharedmem.graph.backends.falkordb import FalkorBackend  # noqa: PLC0415  # an extra

        # FalkorDB keeps no change stream, so that nothing there is signed.
        return context.shared(FalkorBackend, namespace, lambda: FalkorBackend(context, namespace))
    from sharedmem.graph.backends.redis import RedisBackend  # noqa: PLC0415  # only where it is used

    return RedisBackend(context, namespace, scope.signature)


class Graph(GraphWriter, EntityMerges, GraphReader, GraphSearch, GraphTraversal, DrawingReader, GraphChecks):
    """The temporal knowledge graphs of one namespace, a graph for each group, with the rights of one actor.

    A group (`tenant:session`) is part of every call: nothing can be asked or written across groups, nor across
    namespaces. It is a `MemoryStore`, on any backend.
    """

    def using(self, *, relations: Iterable[RelationType] = (), extractor: Extractor | None = None) -> Graph:
        """The same graphs, with an application's own relations, or another way to find facts in episodes.

        All processes that tell a group something should use the same relations: these decide what contradicts what.
        No round trip.

        Args:
            relations: how relations behave; these come before the declared and the shipped ones.
            extractor: who finds entities and facts; None leaves it as it is.

        Raises:
            InvalidError: the relations contradict each other.
        """
        ways = IngestRules(self._ways.vocabulary.extended(relations), extractor or self._ways.extractor)
        return Graph(self._context, self._scope, self._backend, ways)

    def _acting_as(self, actor: str) -> Graph:
        scope = self._scope.acting_as(actor)
        return Graph(self._context, scope, open_backend(self._context, scope), self._ways)

    def __repr__(self) -> str:
        return f"<Graph of {self._namespace}, {self._backend.name}, {self._ways.extractor.name}>"


def open_graph(context: KnowledgeContext, scope: Scope) -> Graph:
    """The graphs of a namespace, with the rights of an actor. No round trip.

    Raises:
        ConfigError: the file with rules cannot be read.
        UnsupportedError: the extra `graph` is missing, or what the settings' backend or rules need.
    """
    require_rapidfuzz()
    ways = context.shared(IngestRules, "", lambda: open_ingest_rules(context.settings, context.model))
    return Graph(context, scope, open_backend(context, scope), ways)
