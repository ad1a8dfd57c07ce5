"""What the temporal knowledge graph has to do on every backend, as tests that a backend's test file inherits."""

import sharedmem.testing.pytest_required  # noqa: F401  # the door: it needs pytest
from sharedmem.testing.graph_suite.episodes import GraphEntityTests, GraphEpisodeTests, GraphInputTests
from sharedmem.testing.graph_suite.queries import BitemporalTests, GraphSearchTests, GraphTraversalTests


class GraphSuite(
    GraphEpisodeTests, BitemporalTests, GraphSearchTests, GraphTraversalTests, GraphEntityTests, GraphInputTests
):
    """All of it; a backend's test class gives the fixture `hub`, an open `Hub` with an embedder."""


__all__ = [
    "BitemporalTests",
    "GraphEntityTests",
    "GraphEpisodeTests",
    "GraphInputTests",
    "GraphSearchTests",
    "GraphSuite",
    "GraphTraversalTests",
]
