"""Opening the graphs of a namespace: on the backend, and by the rules, that the settings name."""

from __future__ import annotations

from sharedmem.coordination.ground import Ground
from sharedmem.knowledge.graph.backends import backend_of
from sharedmem.knowledge.graph.base import Ways
from sharedmem.knowledge.graph.extracting.loading import open_ways
from sharedmem.knowledge.graph.graph import Graph
from sharedmem.knowledge.graph.sameness import check_installed
from sharedmem.knowledge.minds import Minds
from sharedmem.wire.access import Scope


def graph_of(minds: Minds, scope: Scope, ground: Ground) -> Graph:
    """The graphs of a namespace, with the rights of an actor. No round trip.

    Raises:
        ConfigError: the file with rules cannot be read.
        UnsupportedError: the extra `graph` is missing, or what the settings' backend or rules need.
    """
    check_installed()
    ways = minds.shared(Ways, "", lambda: open_ways(minds.settings, minds.model))
    return Graph(minds, scope, backend_of(minds, scope), ways, ground)
