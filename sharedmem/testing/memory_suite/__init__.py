"""What semantic memory has to do on every server and with every index, as tests that a backend's test file inherits."""

import sharedmem.testing.suites  # noqa: F401  # the door: it needs pytest
from sharedmem.testing.memory_suite.moving import MovingSuite
from sharedmem.testing.memory_suite.reading import ReadingSuite
from sharedmem.testing.memory_suite.scope import ScopeSuite
from sharedmem.testing.memory_suite.searching import SearchingSuite
from sharedmem.testing.memory_suite.standing import StandingSuite
from sharedmem.testing.memory_suite.threads import ThreadSuite
from sharedmem.testing.memory_suite.using import UsingSuite


class MemorySuite(ReadingSuite, SearchingSuite, ScopeSuite, UsingSuite, ThreadSuite, StandingSuite, MovingSuite):
    """All of it; a backend's test class gives the fixture `hub`, an open `Hub` with an embedder."""


__all__ = [
    "MemorySuite",
    "MovingSuite",
    "ReadingSuite",
    "ScopeSuite",
    "SearchingSuite",
    "StandingSuite",
    "ThreadSuite",
    "UsingSuite",
]
