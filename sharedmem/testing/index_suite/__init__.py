"""What every `search.protocol.Index` has to do, as tests that its test file inherits.

    class TestMyIndex(IndexSuite):
        @pytest.fixture
        def index(self, line, keyspace, suite_family):
            return MyIndex(line, keyspace, suite_family)

The fixtures `line` (a `wire.line.Line`) and `keyspace` come from the test file. Each test has a family of its own, and
removes the records that it wrote; the index itself is removed by whoever made it. Needs pytest and pytest-asyncio with
`asyncio_mode = "auto"`.
"""

import sharedmem.testing.suites  # noqa: F401  # the door: it needs pytest
from sharedmem.testing.index_suite.base import Shelf, suite_family
from sharedmem.testing.index_suite.filters import FilterTests
from sharedmem.testing.index_suite.moving import MovingTests
from sharedmem.testing.index_suite.pages import PageTests
from sharedmem.testing.index_suite.ranking import RankingTests
from sharedmem.testing.index_suite.scope import ScopeTests
from sharedmem.testing.index_suite.searches import SearchTests

__all__ = [
    "FilterTests",
    "IndexSuite",
    "MovingTests",
    "PageTests",
    "RankingTests",
    "ScopeTests",
    "SearchTests",
    "Shelf",
    "suite_family",
]


class IndexSuite(SearchTests, RankingTests, FilterTests, ScopeTests, PageTests, MovingTests):
    """The whole of it; a test class inherits it and gives the fixture `index`."""
