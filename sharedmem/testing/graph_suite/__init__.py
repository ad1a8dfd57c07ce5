"""What the temporal knowledge graph has to do on every backend, as tests that a backend's test file inherits."""

import sharedmem.testing.suites  # noqa: F401  # the door: it needs pytest
from sharedmem.testing.graph_suite.asking import AskingSuite
from sharedmem.testing.graph_suite.entities import EntitySuite
from sharedmem.testing.graph_suite.inputs import InputSuite
from sharedmem.testing.graph_suite.telling import TellingSuite
from sharedmem.testing.graph_suite.times import TimeSuite
from sharedmem.testing.graph_suite.walking import WalkingSuite


class GraphSuite(TellingSuite, TimeSuite, AskingSuite, WalkingSuite, EntitySuite, InputSuite):
    """All of it; a backend's test class gives the fixture `hub`, an open `Hub` with an embedder."""


__all__ = [
    "AskingSuite",
    "EntitySuite",
    "GraphSuite",
    "InputSuite",
    "TellingSuite",
    "TimeSuite",
    "WalkingSuite",
]
