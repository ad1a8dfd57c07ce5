"""`store.graph`: what the agents of a namespace know of the world, and since when."""

from __future__ import annotations

from collections.abc import Iterable

from sharedmem.knowledge.graph.backends import backend_of
from sharedmem.knowledge.graph.base import Ways
from sharedmem.knowledge.graph.checks import Checks
from sharedmem.knowledge.graph.drawing import Drawing
from sharedmem.knowledge.graph.extraction import Extractor
from sharedmem.knowledge.graph.finding import Finding
from sharedmem.knowledge.graph.merging import Merging
from sharedmem.knowledge.graph.reading import Reading
from sharedmem.knowledge.graph.telling import Telling
from sharedmem.knowledge.graph.traversing import Traversing
from sharedmem.models import RelationType


class Graph(Telling, Merging, Reading, Finding, Traversing, Drawing, Checks):
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
        ways = Ways(self._ways.vocabulary.extended(relations), extractor or self._ways.extractor)
        return Graph(self._minds, self._scope, self._backend, ways, self._ground)

    def _acting_as(self, actor: str) -> Graph:
        scope = self._scope.acting_as(actor)
        return Graph(self._minds, scope, backend_of(self._minds, scope), self._ways, self._ground)

    def __repr__(self) -> str:
        return f"<Graph of {self._namespace}, {self._backend.name}, {self._ways.extractor.name}>"
