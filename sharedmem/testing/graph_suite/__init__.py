"""Conformance tests of the temporal knowledge graph for every backend; a test class inherits them."""

import sharedmem.testing.pytest_required  # noqa: F401  # the entry point: it needs pytest
from sharedmem.testing.graph_suite.episodes import GraphEntityTests, GraphEpisodeTests, GraphInputTests
from sharedmem.testing.graph_suite.queries import BitemporalTests, GraphSearchTests, GraphTraversalTests
from sharedmem.testing.graph_suite.versions import EntityVersionTests


class GraphSuite(
    GraphEpisodeTests,
    BitemporalTests,
    GraphSearchTests,
    GraphTraversalTests,
    GraphEntityTests,
    EntityVersionTests,
    GraphInputTests,
):
    """All tests; a backend's test class provides the fixture `hub`, an open `Hub` with an embedder."""


__all__ = [
    "BitemporalTests",
    "EntityVersionTests",
    "GraphEntityTests",
    "GraphEpisodeTests",
    "GraphInputTests",
    "GraphSearchTests",
    "GraphSuite",
    "GraphTraversalTests",
]
